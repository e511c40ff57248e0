"""Functions in Pydantic's core schemas: those of Pydantic, whose meaning is known, and code of others, which is noted.

A function of Pydantic is known by the class that has it, or by its own module and name. Where a type has no option for
a check itself (a length, a bound), Pydantic checks the finished value by a function of its own after everything else.
Such a check is moved inwards, through what keeps the value, to a type that has the option. Of a function that is not
known the audit says that it may refuse a finished text.
"""

# ruff: noqa: D102 - public methods are those of GenerateJsonSchema
from __future__ import annotations

import functools
import inspect
import json
import math
import operator
import string
import zoneinfo
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic.types import Base64Encoder, Base64UrlEncoder, SecretBytes, SecretStr
from pydantic_core import SchemaError, SchemaValidator, ValidationError

from . import numeric, strings
from .notes import Core, JsonSchemaDict, anchored, code_notes, narrower, shown, validator

_VALIDATORS = "pydantic._internal._validators."
_ON_THIS_MACHINE = "depends on the files of the machine that validates"
# What holds a value of its own, or turns one collection into another, refuses nothing.
_MAKERS = ("collections", "pathlib")
_TRANSPARENT = (
    "pydantic._internal._generate_schema.",
    "pydantic.networks._BaseUrl.",
    "pydantic.networks._BaseMultiHostUrl.",
    "pydantic.types.Secret.",
    f"{_VALIDATORS}defaultdict_validator",
    f"{_VALIDATORS}sequence_validator",
)
_NOT_OF_THE_TEXT = (
    "{} cannot be enforced here: Pydantic checks it on the finished value, and the text does not show whether it "
    "passes; leave it out, or put it on a type that has this option (str, int, list ...)"
)
_OF_STRINGS = "pydantic._internal._known_annotated_metadata.apply_known_metadata.<locals>._apply_constraint"
# The predicates of annotated_types, for ASCII.
_PREDICATES: dict[Any, str] = {
    str.islower: "^[^A-Z\\u0080-\\u{10ffff}]*[a-z][^A-Z\\u0080-\\u{10ffff}]*$",
    str.isupper: "^[^a-z\\u0080-\\u{10ffff}]*[A-Z][^a-z\\u0080-\\u{10ffff}]*$",
    str.isdigit: "^[0-9]+$",
    str.isascii: "^[\\u0000-\\u007f]*$",
}
_NUMBERS = frozenset(("int", "float", "decimal", "fraction"))
_SIZED = frozenset(("str", "list", "tuple", "dict"))  # types whose JSON has as many parts as the value
_LENGTHS = frozenset(("min_length", "max_length"))
_BOUNDS = frozenset(("gt", "ge", "lt", "le"))
_TAKERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_LENGTHS, _SIZED | {"bytes", "set", "frozenset"}),
    **dict.fromkeys(_BOUNDS, _NUMBERS | {"date", "time", "datetime", "timedelta"}),
    "multiple_of": _NUMBERS | {"timedelta"},
    "max_digits": frozenset(("decimal",)),
    "decimal_places": frozenset(("decimal",)),
    "allow_inf_nan": frozenset(("float", "decimal", "int")),
}
_OPERANDS: dict[str, tuple[type, ...]] = {
    "int": (int, float),
    "float": (int, float),
    "decimal": (int, float, Decimal),
    "fraction": (int, float, Fraction),
}
_HUGEST = 10**307  # largest integer that is taken to fit into a double: a round number
_REGEX: JsonSchemaDict = {"type": "string", "format": "regex"}
_TIME_ZONE, _BYTES_PATTERN = f"{_VALIDATORS}validate_str_is_valid_iana_tz", f"{_VALIDATORS}pattern_bytes_validator"
_KNOWN: dict[str, JsonSchemaDict] = {
    **{f"ipaddress.{name}": strings.IP[name] for name in strings.IP},
    **{f"pydantic.networks.{name}": strings.IP[name] for name in strings.IP},
    **{f"{_VALIDATORS}ip_v{name[3]}_{name[4:].lower()}_validator": strings.IP[name] for name in strings.IP},
    f"{_VALIDATORS}pattern_either_validator": _REGEX,
    f"{_VALIDATORS}pattern_str_validator": _REGEX,
    f"{_VALIDATORS}import_string": validator(
        {"type": "string"}, "ImportString", "whether the name can be imported is seen when it is"
    ),
    f"{_VALIDATORS}fraction_validator": numeric.fraction({}),
    "pydantic.types.ByteSize": numeric.BYTE_SIZE,
    "pydantic.networks.EmailStr": strings.EMAIL,
    "pydantic.networks.NameEmail": strings.NAME_EMAIL,
    "pydantic.color.Color": strings.COLOR,
    "pydantic_extra_types.color.Color": strings.COLOR,
    "pydantic_extra_types.mac_address.MacAddress": strings.MAC_ADDRESS,
    "pydantic_extra_types.ulid.ULID": strings.ULID,
}
"""By the name of a function or of its class: the schema of the values it takes, which replaces the inner schema."""


def name_of(function: Any) -> str:
    """Module and qualified name, for a bound method or a partial those of the underlying function."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}.{name}"


def _owner(function: Any) -> str:
    """The name of the class whose own method it is, otherwise that of the function."""
    name = name_of(function)
    return name.rpartition(".")[0] if inspect.ismethod(function) else name


def _known(function: Any) -> JsonSchemaDict | None:
    """The schema of the values that a function of Pydantic takes; None for functions that are not known."""
    name = name_of(function)
    if name == _BYTES_PATTERN:
        raise PydanticInvalidForJsonSchema("a pattern of bytes has no JSON; use re.Pattern[str]")
    if name == _TIME_ZONE:
        if not (names := sorted(zoneinfo.available_timezones())):
            raise PydanticInvalidForJsonSchema("ZoneInfo: this machine knows no time zones; install the package tzdata")
        json_schema = shown({"enum": names}, type="string", format="IANA time zone")
        return validator(json_schema, "ZoneInfo", "the time zones are those of the machine that made the constraint")
    known = _KNOWN.get(_owner(function))
    return None if known is None else {**known}  # a copy, because notes are taken out in place


class Functions(GenerateJsonSchema):
    """Methods of Pydantic's generator for functions, and for chains of functions."""

    def function_plain_schema(self, schema: Any) -> JsonSchemaDict:
        return _known(schema["function"]["function"]) or _with_code(super().function_plain_schema(schema), schema)

    def function_before_schema(self, schema: Any) -> JsonSchemaDict:
        return _known(schema["function"]["function"]) or _with_code(super().function_before_schema(schema), schema)

    def function_wrap_schema(self, schema: Any) -> JsonSchemaDict:
        if name_of(schema["function"]["function"]).startswith(_OF_STRINGS):
            return self.generate_inner(schema["schema"])
        return _with_code(super().function_wrap_schema(schema), schema)

    def function_after_schema(self, schema: Any) -> JsonSchemaDict:
        function = schema["function"]["function"]
        if (known := _known(function)) is not None:
            return known
        if (encoded := self._encoded(schema)) is not None:
            return encoded
        if (checked := _options(function)) is not None:
            return self._checked(schema, checked)
        json_schema = super().function_after_schema(schema)
        if name_of(function).endswith("apply_known_metadata.<locals>.val_func"):
            return _predicate(json_schema, function)
        return _with_code(json_schema, schema)

    def chain_schema(self, schema: Any) -> JsonSchemaDict:
        """The schema of the first step, with the checks of the later ones.

        Options of strings on other types are such steps, which fail for all but strings.
        """
        first, *others = schema["steps"]
        if first["type"] == "any" and any(step["type"] == "is-instance" for step in others):  # Hashable
            return narrower({"type": ["boolean", "null", "number", "string"]}, "set")
        json_schema, *checked = [self.generate_inner(step) for step in schema["steps"]]
        checked = [other for other in checked if other and other != json_schema]
        if checked:
            json_schema = {**json_schema, "allOf": [*json_schema.get("allOf", ()), *checked]}
        options = [
            step["schema"]
            for step in others
            if step["type"] == "function-wrap" and name_of(step["function"]["function"]).startswith(_OF_STRINGS)
        ]
        if not options or _is_plain(first):
            return json_schema
        written = ", ".join(f"{name}={value!r}" for step in options for name, value in step.items() if name != "type")
        if _stands_behind_code(json_schema):
            return validator(json_schema, "str", f"{written} is checked on the value that code has made")
        raise PydanticInvalidForJsonSchema(_NOT_OF_THE_TEXT.format(written))

    @functools.cached_property
    def core_definitions(self) -> dict[str, Core]:
        """Core schemas by the names that others refer to them by."""
        return {}

    def definitions_schema(self, schema: Any) -> JsonSchemaDict:
        self.core_definitions.update((definition["ref"], definition) for definition in schema["definitions"])
        return super().definitions_schema(schema)

    def _encoded(self, schema: Core, low: int = 0, high: int | None = None) -> JsonSchemaDict | None:
        """Base64, with the lengths of the decoded bytes; None for anything else."""
        function = schema["function"]["function"]
        inner = schema["schema"]
        checked = _options(function)
        if checked is not None and checked.keys() <= _LENGTHS and inner["type"] == "function-after":
            most = [length for length in (high, checked.get("max_length")) if length is not None]
            return self._encoded(inner, max(low, checked.get("min_length", 0)), min(most, default=None))
        is_text = _owner(function) == "pydantic.types.EncodedStr"
        if not is_text and _owner(function) != "pydantic.types.EncodedBytes":
            return None
        alphabet = {Base64Encoder: "standard", Base64UrlEncoder: "url"}.get(function.__self__.encoder)
        if alphabet is None:
            return None
        pattern = strings.base64(alphabet, low, high, is_ascii=is_text)
        json_schema = anchored(pattern, "Base64Str" if is_text else "Base64Bytes")
        bounds = self.generate_inner(inner)
        json_schema.update((name, bounds[name]) for name in ("minLength", "maxLength") if name in bounds)
        return shown(json_schema, type="string", format="base64" if alphabet == "standard" else "base64url")

    def _checked(self, schema: Core, checked: Core) -> JsonSchemaDict:
        """Pydantic's own function checks of a finished value, expressed for its text."""
        inner = schema["schema"]
        moved: Core | None = inner
        for name, value in checked.items():
            moved = moved and _moved(moved, name, value, self.core_definitions)
        if moved is not None:
            return self.generate_inner(moved)
        if inner["type"] in ("bool", "enum", "literal"):
            return self._passing(schema, inner)
        json_schema = self.generate_inner(inner)
        written = ", ".join(f"{name}={value!r}" for name, value in checked.items())
        if inner["type"] in ("model", "dataclass") or _stands_behind_code(json_schema):
            return validator(json_schema, next(iter(checked)), f"{written} is checked on the value that code has made")
        ending = {"array": "Items", "object": "Properties", "string": "Length"}.get(json_schema.get("type", ""))
        lengths = {f"{name[:3]}{ending}": value for name, value in checked.items() if name in _LENGTHS}
        has_length = _is_text(inner) if ending == "Length" else ending and not _is_generic_secret(inner)
        if has_length and len(lengths) == len(checked):
            return {**json_schema, "allOf": [*json_schema.get("allOf", ()), lengths]}
        raise PydanticInvalidForJsonSchema(_NOT_OF_THE_TEXT.format(written))

    def _passing(self, schema: Core, inner: Any) -> JsonSchemaDict:
        """Listed values: those that Pydantic takes."""
        if inner["type"] == "bool":
            inner = {"type": "literal", "expected": [True, False]}
        json_schema = dict(self.literal_schema(inner) if inner["type"] == "literal" else self.enum_schema(inner))
        values = json_schema.pop("enum", None) or [json_schema.pop("const")]
        allowed = taken(schema, values)
        if not allowed:
            raise PydanticInvalidForJsonSchema("none of the listed values passes the check; list one that does")
        return {**json_schema, "enum": allowed}


def _with_code(json_schema: JsonSchemaDict, schema: Core) -> JsonSchemaDict:
    function = schema["function"]["function"]
    name = name_of(function)
    if name.startswith(_TRANSPARENT) or name.partition(".")[0] in _MAKERS:
        return json_schema
    if _holds_a_secret(function) or isinstance(function, operator.attrgetter):
        return json_schema
    if name.startswith("pydantic.types.PathType."):
        return validator(json_schema, name.rpartition(".")[2], _ON_THIS_MACHINE)
    if name.startswith("pydantic_extra_types.") and (listed := _listed_codes(schema)) is not None:
        return {"enum": listed}
    return validator(json_schema, name.rpartition(".")[2], f"{name} may refuse a value")


def _listed_codes(schema: Core) -> list[str] | None:
    """The codes of two or three letters or digits that a type of pydantic-extra-types takes; None if there are none.

    Countries, currencies, languages ...: the code of each class decides. These are all the spellings of codes.
    """
    function = schema["function"]["function"]
    inner = schema.get("schema", {})
    if inner.get("type") != "str":
        return None
    codes = _codes(function, json.dumps({name: value for name, value in inner.items() if name != "metadata"}))
    return list(codes) or None


@functools.lru_cache(maxsize=64)
def _codes(function: Any, inner: str) -> tuple[str, ...]:
    schema: Any = {
        "type": "function-after",
        "function": {"type": "with-info", "function": function},
        "schema": json.loads(inner),
    }
    alphabets = (string.ascii_uppercase, string.ascii_lowercase, string.digits)
    codes = ("".join(letters) for n in (2, 3) for alphabet in alphabets for letters in product(alphabet, repeat=n))
    return tuple(taken(schema, codes))


def taken(schema: Core, values: Iterable[Any]) -> list[Any]:
    """The values whose JSON texts Pydantic validates against a core schema that refers to no other."""
    bare: Any = {name: value for name, value in schema.items() if name not in ("ref", "metadata", "serialization")}
    try:
        takes = SchemaValidator(bare)
    except SchemaError:
        return []
    found = []
    for value in values:
        with suppress(ValidationError, SchemaError, TypeError):  # the last: a check that the value has no operator for
            takes.validate_json(json.dumps(value))
            found.append(value)
    return found


def _is_text(schema: Core) -> bool:
    """Whether the length of a finished value is that of its text."""
    kind = schema["type"]
    if kind in ("lax-or-strict", "json-or-python"):
        return _is_text(schema["lax_schema" if kind == "lax-or-strict" else "json_schema"])
    if kind == "function-plain" or kind == "function-after":
        function = schema["function"]["function"]
        if _owner(function) == "pydantic.networks.EmailStr":
            return True  # in ASCII and lower case, nothing of an address is rewritten
        return kind == "function-after" and _options(function) is not None and _is_text(schema["schema"])
    return bool(kind == "str") and not schema.get("strip_whitespace")


def _is_plain(schema: Core) -> bool:
    """Whether a JSON string means itself, and other values never become strings."""
    kind = schema["type"]
    if kind == "union":
        return all(_is_plain(choice[0] if isinstance(choice, tuple) else choice) for choice in schema["choices"])
    if kind in ("chain", "nullable"):
        return _is_plain(schema["steps"][0] if kind == "chain" else schema["schema"])
    return kind in ("any", "bool", "dict", "float", "int", "list", "literal", "none") or _is_text(schema)


def _is_generic_secret(schema: Core) -> bool:
    """Whether a type is a ``Secret[...]``, which has no length, unlike a ``SecretStr``."""
    inner = schema.get("json_schema", {})
    return "function" in inner and name_of(inner["function"]["function"]).startswith("pydantic.types.Secret.")


def _stands_behind_code(json_schema: JsonSchemaDict) -> bool:
    """Whether foreign code may have changed the value: it has notes of code other than file look-ups."""
    notes = [note for notes in code_notes(json_schema).values() for note in notes]
    return any(detail != _ON_THIS_MACHINE for *_, detail in notes)


def _predicate(json_schema: JsonSchemaDict, function: Any) -> JsonSchemaDict:
    """A predicate of annotated_types."""
    annotation = inspect.getclosurevars(function).nonlocals.get("annotation")
    test = getattr(annotation, "func", None)
    pattern = None if type(annotation).__name__ == "Not" else _PREDICATES.get(test)
    if pattern is None or json_schema.get("type") != "string":
        return validator(
            json_schema, type(annotation).__name__, f"{getattr(test, '__qualname__', test)} may refuse a value"
        )
    return {**json_schema, "allOf": [*json_schema.get("allOf", ()), {"pattern": pattern}]}


def _options(function: Any) -> Core | None:
    """The options of core schemas that a Pydantic function checks; None for other functions."""
    bare = function.func if isinstance(function, functools.partial) else function
    if getattr(bare, "__module__", "") != "pydantic._internal._validators":
        return None
    if bare.__name__ == "forbid_inf_nan_check":
        return {"allow_inf_nan": False}
    keywords: Core = getattr(function, "keywords", {})
    return dict(keywords) if keywords and keywords.keys() <= _TAKERS.keys() else None


def _moved(schema: Core, name: str, value: Any, definitions: Mapping[str, Core]) -> Core | None:
    """The core schema with the option on the types inside that have it; None where this is not the same check."""
    kind = schema["type"]
    if kind in _TAKERS[name]:
        return _tightened(schema, name, value)
    if kind in ("url", "multi-host-url") and name in _LENGTHS:
        return _merged(schema, f"value_{name}", value)
    if kind == "union":
        return _moved_into_union(schema, name, value, definitions)
    if kind == "definition-ref":
        target = definitions.get(schema["schema_ref"])
        without_ref = None if target is None else {key: part for key, part in target.items() if key != "ref"}
        return None if without_ref is None else _moved(without_ref, name, value, definitions)
    if kind == "function-after":
        function = schema["function"]["function"]
        if _owner(function) == "pydantic.types.ByteSize":
            return _byte_size(name, value)
        if _options(function) is None and not (name in _LENGTHS and _holds_a_secret(function)):
            return None
    elif kind == "function-wrap" and schema["schema"]["type"] not in ("url", "multi-host-url"):
        return None
    parts = {
        "function-after": ("schema",),
        "function-wrap": ("schema",),
        "json": ("schema",),
        "default": ("schema",),
        "json-or-python": ("json_schema",),
        "lax-or-strict": ("lax_schema", "strict_schema"),
    }.get(kind, ())
    inner = {part: _moved(schema[part], name, value, definitions) for part in parts if part in schema}
    return None if not inner or None in inner.values() else {**schema, **inner}


def _moved_into_union(schema: Core, name: str, value: Any, definitions: Mapping[str, Core]) -> Core | None:
    """The union with the option on all members, where a text passes equally, whichever member takes it."""
    members = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
    same_checks = _SIZED if name in _LENGTHS else _NUMBERS
    if not all(member["type"] in same_checks for member in members):
        return None
    inner = [_moved(member, name, value, definitions) for member in members]
    return None if None in inner else {**schema, "choices": inner}


def _tightened(schema: Core, name: str, value: Any) -> Core | None:
    kind = schema["type"]
    if kind == "int" and name == "allow_inf_nan":  # no double holds greater integers, so that their check fails
        return _merged(_merged(schema, "ge", -_HUGEST), "le", _HUGEST)
    if kind in _OPERANDS and (name in _BOUNDS or name == "multiple_of"):
        if not isinstance(value, _OPERANDS[kind]) or (isinstance(value, float) and not math.isfinite(value)):
            return None
    if name == "multiple_of" and kind in ("int", "float"):
        exact = Fraction(value)
        if kind == "float" and exact != Fraction(repr(value)):
            return None  # the remainder of doubles is rarely 0 then
        if kind == "int":
            if isinstance(value, float):  # the remainder is that of doubles, so that greater integers are rounded
                schema = _merged(_merged(schema, "ge", -(2**53)), "le", 2**53)
            value = exact.numerator
    if name == "multiple_of":
        if kind == "decimal" and isinstance(value, float):
            return None
        before = schema.get(name)
        if before is not None and before != value:
            if kind != "int" or not isinstance(before, int):
                return None
            value = math.lcm(before, value)
        return {**schema, name: value}
    return _merged(schema, name, value)


def _merged(schema: Core, name: str, value: Any) -> Core:
    """Set an option to the narrower of both values."""
    before = schema.get(name)
    if before is not None:
        is_lower = name in ("gt", "ge", "min_length", "value_min_length")
        value = max(before, value) if is_lower else min(before, value)
    return {**schema, name: value}


def _byte_size(name: str, value: Any) -> Core | None:
    """Take only a number of bytes: with a unit, the number would not be in the text."""
    if name == "multiple_of":
        return _tightened({"type": "int", "ge": 0}, name, value)
    if name not in _BOUNDS or not isinstance(value, (int, float, Decimal)):
        return None
    whole = math.ceil(value) if name in ("ge", "lt") else math.floor(value)
    return _merged({"type": "int", "ge": 0}, name, whole)


def _holds_a_secret(function: Any) -> bool:
    """Whether a function is a class that holds a string, or bytes, of the same length."""
    return isinstance(function, type) and issubclass(function, (SecretBytes, SecretStr))
