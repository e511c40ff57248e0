"""Functions in Pydantic's core schemas: those of Pydantic, whose meaning is known, and code of others, which is noted.

A function is known by its module and name. What it checks is in the schema; of a function that is not known the audit
says that it may refuse a finished text.
"""

from __future__ import annotations

import functools
import inspect
import operator
import zoneinfo
from collections.abc import Callable
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from . import checks, extra_types, networks, numeric, text
from .notes import code_notes, narrower, shown, validator
from .objects import Objects
from .scalars import Core, JsonSchemaDict, taken

_VALIDATORS = "pydantic._internal._validators."
_COLOR = {
    "type": "string",
    "pattern": "^(?:#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|black|blue|gray|green|orange|pink|purple|red|white|yellow)$",
}
_MAC = {"type": "string", "pattern": "^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$"}
_ULID = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
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
    f"{_VALIDATORS}fraction_validator",
)
_LENGTHS = {"min_length": "min", "max_length": "max"}
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


def _zone() -> JsonSchemaDict:
    names = sorted(zoneinfo.available_timezones())
    if not names:
        raise PydanticInvalidForJsonSchema("ZoneInfo: this machine knows no time zones; install the package tzdata")
    json_schema = shown({"enum": names}, type="string", format="IANA time zone")
    return validator(json_schema, "ZoneInfo", "the time zones are those of the machine that made the constraint")


def _no_bytes_pattern() -> JsonSchemaDict:
    raise PydanticInvalidForJsonSchema("a pattern of bytes has no JSON; use re.Pattern[str]")


def _ip(name: str) -> Callable[[], JsonSchemaDict]:
    def make() -> JsonSchemaDict:
        json_schema: JsonSchemaDict = {"type": "string", "format": name, **networks.IP[name]}
        if name in ("ipv4", "ipv6"):
            plain: JsonSchemaDict = {"type": "string", "format": name}
            return narrower(plain, "IPv6") if name == "ipv6" else plain
        for family in ("IPv4Network", "IPv6Network"):
            if name in (family.lower(), "ipvanynetwork"):
                json_schema = narrower(json_schema, family)
        if "interface" in name:
            json_schema = narrower(json_schema, "IP interface")
        if name in ("ipv6interface", "ipvanyaddress", "ipvanyinterface"):
            json_schema = narrower(json_schema, "IPv6")
        return shown(json_schema, type="string", format=name)

    return make


def _regex() -> JsonSchemaDict:
    return {"type": "string", "format": "regex"}


def _imported() -> JsonSchemaDict:
    return validator({"type": "string"}, "ImportString", "whether the name can be imported is seen when it is")


_KNOWN: dict[str, Callable[[], JsonSchemaDict]] = {
    **{
        f"{_VALIDATORS}ip_v{v}_{kind}_validator": _ip(f"ipv{v}{form}")
        for v in (4, 6)
        for kind, form in (("address", ""), ("network", "network"), ("interface", "interface"))
    },
    **{
        f"ipaddress.IPv{v}{kind}": _ip(f"ipv{v}{form}")
        for v in (4, 6)
        for kind, form in (("Address", ""), ("Network", "network"), ("Interface", "interface"))
    },
    **{
        f"pydantic.networks.IPvAny{kind}._validate": _ip(f"ipvany{kind.lower()}")
        for kind in ("Address", "Network", "Interface")
    },
    f"{_VALIDATORS}validate_str_is_valid_iana_tz": _zone,
    f"{_VALIDATORS}pattern_either_validator": _regex,
    f"{_VALIDATORS}pattern_str_validator": _regex,
    f"{_VALIDATORS}pattern_bytes_validator": _no_bytes_pattern,
    f"{_VALIDATORS}import_string": _imported,
    f"{_VALIDATORS}fraction_validator": lambda: numeric.fraction({}),
    "pydantic.types.ByteSize._validate": lambda: narrower(numeric.BYTE_SIZE, "ByteSize"),
    "pydantic.networks.EmailStr._validate": lambda: shown(networks.email(), type="string", format="email"),
    "pydantic.networks.NameEmail._validate": lambda: shown(networks.name_email(), type="string", format="name <email>"),
    "pydantic.color.Color.__init__": lambda: narrower(_COLOR, "Color"),
    "pydantic.color.Color._validate": lambda: narrower(_COLOR, "Color"),
    "pydantic_extra_types.color.Color._validate": lambda: narrower(_COLOR, "Color"),
    "pydantic_extra_types.mac_address.MacAddress._validate": lambda: narrower(_MAC, "MacAddress"),
    "pydantic_extra_types.ulid.ULID._validate_ulid": lambda: narrower(_ULID, "ULID"),
}
"""By the name of a function: the schema of the values it takes, which replaces the inner schema."""


class Functions(Objects):
    """Methods of Pydantic's generator, by the type of a core schema."""

    def function_plain_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        known = _KNOWN.get(name_of(schema["function"]["function"]))
        if known is not None:
            return known()
        json_schema = super().function_plain_schema(schema)
        return self._with_code(json_schema, schema)

    def function_before_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        known = _KNOWN.get(name_of(schema["function"]["function"]))
        return self._with_code(super().function_before_schema(schema), schema) if known is None else known()

    def function_wrap_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        if name_of(schema["function"]["function"]).startswith(_OF_STRINGS):
            return self.generate_inner(schema["schema"])
        return self._with_code(super().function_wrap_schema(schema), schema)

    def function_after_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        function = schema["function"]["function"]
        known = _KNOWN.get(name_of(function))
        if known is not None:
            return known()
        if (encoded := self._encoded(schema)) is not None:
            return encoded
        if (checked := checks.options(function)) is not None:
            return self._checked(schema, checked)
        json_schema = super().function_after_schema(schema)
        if name_of(function).endswith("apply_known_metadata.<locals>.val_func"):
            return _predicate(json_schema, function)
        return self._with_code(json_schema, schema)

    def chain_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema; options of strings on other types are such steps, which fail for all but strings."""
        json_schema = super().chain_schema(schema)
        first, *others = schema["steps"]
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

    def _encoded(self, schema: Core, low: int = 0, high: int | None = None) -> JsonSchemaDict | None:
        """Base64, with the lengths of the decoded bytes; None for anything else."""
        function = schema["function"]["function"]
        short = name_of(function).removeprefix(_VALIDATORS)
        inner = schema["schema"]
        checked = checks.options(function)
        if checked is not None and checked.keys() <= _LENGTHS.keys() and inner["type"] == "function-after":
            most = [length for length in (high, checked.get("max_length")) if length is not None]
            return self._encoded(inner, max(low, checked.get("min_length", 0)), min(most, default=None))
        if short not in ("pydantic.types.EncodedBytes.decode", "pydantic.types.EncodedStr.decode_str"):
            return None
        alphabet = {
            "pydantic.types.Base64Encoder": "standard",
            "pydantic.types.Base64UrlEncoder": "url",
        }.get(name_of(function.__self__.encoder))
        if alphabet is None:
            return None
        is_text = short.endswith("_str")
        pattern = (text.base64_of_ascii if is_text else text.base64)(alphabet, low, high)
        json_schema: JsonSchemaDict = {"type": "string", "pattern": f"^{pattern}$"}
        bounds = self.generate_inner(inner)
        json_schema.update((name, bounds[name]) for name in ("minLength", "maxLength") if name in bounds)
        json_schema = narrower(json_schema, "Base64Str" if is_text else "Base64Bytes")
        return shown(json_schema, type="string", format="base64" if alphabet == "standard" else "base64url")

    def _checked(self, schema: Core, checked: Core) -> JsonSchemaDict:
        """Pydantic's own function checks of a finished value, expressed for its text."""
        inner = schema["schema"]
        moved = checks.moved(inner, checked, self._definitions)
        if moved is not None:
            return self.generate_inner(moved)
        if inner["type"] in ("bool", "enum", "literal"):
            return self._passing(schema, inner)
        json_schema = self.generate_inner(inner)
        written = ", ".join(f"{name}={value!r}" for name, value in checked.items())
        if inner["type"] in ("model", "dataclass") or _stands_behind_code(json_schema):
            return validator(json_schema, next(iter(checked)), f"{written} is checked on the value that code has made")
        ending = {"array": "Items", "object": "Properties", "string": "Length"}.get(json_schema.get("type", ""))
        lengths = {f"{_LENGTHS[name]}{ending}": value for name, value in checked.items() if name in _LENGTHS}
        has_length = _is_text(inner) if ending == "Length" else ending and not _is_generic_secret(inner)
        if has_length and len(lengths) == len(checked):
            return {**json_schema, "allOf": [*json_schema.get("allOf", ()), lengths]}
        raise PydanticInvalidForJsonSchema(_NOT_OF_THE_TEXT.format(written))

    def _passing(self, schema: Core, inner: Core) -> JsonSchemaDict:
        """Listed values: those that Pydantic takes."""
        if inner["type"] == "bool":
            inner = {"type": "literal", "expected": [True, False]}
        json_schema = dict(self.literal_schema(inner) if inner["type"] == "literal" else self.enum_schema(inner))
        values = json_schema.pop("enum", None) or [json_schema.pop("const")]
        allowed = taken(schema, values)
        if not allowed:
            raise PydanticInvalidForJsonSchema("none of the listed values passes the check; list one that does")
        return {**json_schema, "enum": allowed}

    def _with_code(self, json_schema: JsonSchemaDict, schema: Core) -> JsonSchemaDict:
        function = schema["function"]["function"]
        name = name_of(function)
        if name.startswith(_TRANSPARENT) or name.partition(".")[0] in _MAKERS or checks.holds_a_secret(function):
            return json_schema
        if isinstance(function, operator.attrgetter):
            return json_schema
        if name.startswith("pydantic.types.PathType."):
            return validator(json_schema, name.rpartition(".")[2], _ON_THIS_MACHINE)
        if name.startswith("pydantic_extra_types.") and (listed := extra_types.listed(schema)) is not None:
            return {"enum": listed}
        return validator(json_schema, name.rpartition(".")[2], f"{name} may refuse a value")


def _is_text(schema: Core) -> bool:
    """Whether the length of a finished value is that of its text."""
    kind = schema["type"]
    if kind == "lax-or-strict":
        return _is_text(schema["lax_schema"])
    if kind == "json-or-python":
        return _is_text(schema["json_schema"])
    if kind == "function-plain" or kind == "function-after":
        function = schema["function"]["function"]
        if name_of(function) == "pydantic.networks.EmailStr._validate":
            return True  # in ASCII and lower case, nothing of an address is rewritten
        return kind == "function-after" and checks.options(function) is not None and _is_text(schema["schema"])
    return bool(kind == "str") and not schema.get("strip_whitespace")


def _is_plain(schema: Core) -> bool:
    """Whether a JSON string means itself, and other values never become strings."""
    kind = schema["type"]
    if kind == "union":
        return all(_is_plain(choice[0] if isinstance(choice, tuple) else choice) for choice in schema["choices"])
    if kind == "chain":
        return _is_plain(schema["steps"][0])
    if kind == "nullable":
        return _is_plain(schema["schema"])
    return kind in ("any", "bool", "dict", "float", "int", "list", "literal", "none") or _is_text(schema)


def _is_generic_secret(schema: Core) -> bool:
    """Whether it is a ``Secret[...]``, which has no length, unlike a ``SecretStr``."""
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


def name_of(function: Any) -> str:
    """Module and qualified name, for a bound method or a partial those of the underlying function."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}.{name}"
