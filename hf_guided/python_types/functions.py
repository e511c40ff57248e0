"""Functions in Pydantic's core schemas: those of Pydantic, whose meaning is known, and code of others, which is noted.

A function is known by its module and name. What it checks is in the schema; of a function that is not known the audit
says that it may refuse a finished text.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import zoneinfo
from collections.abc import Callable
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from . import extra_types, networks, numeric, text
from .notes import narrower, shown, validator
from .objects import Objects
from .scalars import Core, Found

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
_LENGTHS = {"min_length_validator": "min_length", "max_length_validator": "max_length"}
_BOUNDS = {
    "greater_than_validator": "gt",
    "greater_than_or_equal_validator": "ge",
    "less_than_validator": "lt",
    "less_than_or_equal_validator": "le",
    "multiple_of_validator": "multiple_of",
}
# The predicates of annotated_types, for ASCII.
_PREDICATES: dict[Any, str] = {
    str.islower: "^[^A-Z\\u0080-\\u{10ffff}]*[a-z][^A-Z\\u0080-\\u{10ffff}]*$",
    str.isupper: "^[^a-z\\u0080-\\u{10ffff}]*[A-Z][^a-z\\u0080-\\u{10ffff}]*$",
    str.isdigit: "^[0-9]+$",
    str.isascii: "^[\\u0000-\\u007f]*$",
}


def _zone() -> Found:
    names = sorted(zoneinfo.available_timezones())
    if not names:
        raise PydanticInvalidForJsonSchema("ZoneInfo: this machine knows no time zones; install the package tzdata")
    return shown({"enum": names}, type="string", format="IANA time zone")


def _no_bytes_pattern() -> Found:
    raise PydanticInvalidForJsonSchema("a pattern of bytes has no JSON; use re.Pattern[str]")


def _ip(name: str) -> Callable[[], Found]:
    def make() -> Found:
        found: Found = {"type": "string", "format": name, **networks.IP[name]}
        if name in ("ipv4", "ipv6"):
            return {"type": "string", "format": name}
        for family in ("IPv4Network", "IPv6Network"):
            if name in (family.lower(), "ipvanynetwork"):
                found = narrower(found, family)
        return shown(found, type="string", format=name)

    return make


def _regex() -> Found:
    return {"type": "string", "format": "regex"}


def _imported() -> Found:
    return validator({"type": "string"}, "ImportString", "whether the name can be imported is seen when it is")


_KNOWN: dict[str, Callable[[], Found]] = {
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
"""By the name of a function: what it takes, whatever the schema inside says."""


class Functions(Objects):
    """Methods of Pydantic's generator, by the type of a core schema."""

    def function_plain_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        known = _KNOWN.get(name_of(schema["function"]["function"]))
        if known is not None:
            return known()
        found = super().function_plain_schema(schema)
        return self._with_code(found, schema)

    def function_before_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        known = _KNOWN.get(name_of(schema["function"]["function"]))
        return self._with_code(super().function_before_schema(schema), schema) if known is None else known()

    def function_wrap_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return self._with_code(super().function_wrap_schema(schema), schema)

    def function_after_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        function = schema["function"]["function"]
        known = _KNOWN.get(name_of(function))
        if known is not None:
            return known()
        if (encoded := self._encoded(schema)) is not None:
            return encoded
        if (bounded := self._bounded(schema, {})) is not None:
            return bounded
        found = super().function_after_schema(schema)
        return self._checked(found, function, schema["schema"]) or self._with_code(found, schema)

    def _encoded(self, schema: Core, low: int = 0, high: int | None = None) -> Found | None:
        """Base64, and lengths of what it decodes to; None for anything else."""
        function = schema["function"]["function"]
        short = name_of(function).removeprefix(_VALIDATORS)
        inner = schema["schema"]
        if short in _LENGTHS and inner["type"] == "function-after":
            bound = function.keywords[_LENGTHS[short]]
            if short == "min_length_validator":
                return self._encoded(inner, max(low, bound), high)
            return self._encoded(inner, low, bound if high is None else min(high, bound))
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
        found: Found = {"type": "string", "pattern": f"^{pattern}$"}
        bounds = self.generate_inner(inner)
        found.update((name, bounds[name]) for name in ("minLength", "maxLength") if name in bounds)
        found = narrower(found, "Base64Str" if is_text else "Base64Bytes")
        return shown(found, type="string", format="base64" if alphabet == "standard" else "base64url")

    def _bounded(self, schema: Core, bounds: Core) -> Found | None:
        """Bounds and lengths of what a string stands for, said of that: JSON in a string, a ByteSize; else None."""
        if schema["type"] == "json" and "schema" in schema and bounds:
            return self.generate_inner({**schema, "schema": {**schema["schema"], **bounds}})
        if schema["type"] != "function-after":
            return None
        function = schema["function"]["function"]
        name = name_of(function)
        if name == "pydantic.types.ByteSize._validate" and bounds:
            rounded: Core = {name: math.ceil(bounds[name]) for name in bounds if name in ("ge", "lt")}
            rounded.update((name, math.floor(bounds[name])) for name in bounds if name in ("gt", "le"))
            return self.generate_inner({"type": "int", **rounded, "ge": max(0, rounded.get("ge", 0))})
        short = name.removeprefix(_VALIDATORS)
        option = _BOUNDS.get(short) or _LENGTHS.get(short)
        if option is None:
            return None
        return self._bounded(schema["schema"], {option: function.keywords[option], **bounds})

    def _checked(self, found: Found, function: Any, inner: Core) -> Found | None:
        """What Pydantic checks of a finished value, said of its text; None where it cannot be."""
        short = name_of(function).removeprefix(_VALIDATORS)
        kind = found.get("type")
        if short in _LENGTHS and (kind in ("array", "object") or (kind == "string" and _is_text(inner))):
            ending = {"array": "Items", "object": "Properties", "string": "Length"}[kind]
            side = _LENGTHS[short].removesuffix("_length")
            return {
                **found,
                "allOf": [*found.get("allOf", ()), {f"{side}{ending}": function.keywords[_LENGTHS[short]]}],
            }
        if short.endswith("apply_known_metadata.<locals>.val_func"):
            return _predicate(found, function)
        return None

    def _with_code(self, found: Found, schema: Core) -> Found:
        function = schema["function"]["function"]
        name = name_of(function)
        if name.startswith(_TRANSPARENT) or name.partition(".")[0] in _MAKERS or _holds_a_secret(function):
            return found
        if isinstance(function, operator.attrgetter):
            return found
        if name.startswith("pydantic.types.PathType."):
            return validator(found, name.rpartition(".")[2], _ON_THIS_MACHINE)
        if name.startswith("pydantic_extra_types.") and (listed := extra_types.listed(schema)) is not None:
            return {"enum": listed}
        return validator(found, name.rpartition(".")[2], f"{name} may refuse a value")


def _is_text(schema: Core) -> bool:
    """Whether the length of a finished value is that of its text."""
    kind = schema["type"]
    if kind == "lax-or-strict":
        return _is_text(schema["lax_schema"])
    if kind == "json-or-python":
        return _is_text(schema["json_schema"])
    if kind == "function-after":
        return _holds_a_secret(schema["function"]["function"]) and _is_text(schema["schema"])
    return bool(kind == "str") and not schema.get("strip_whitespace")


def _predicate(found: Found, function: Any) -> Found:
    """A predicate of annotated_types."""
    annotation = inspect.getclosurevars(function).nonlocals.get("annotation")
    test = getattr(annotation, "func", None)
    pattern = None if type(annotation).__name__ == "Not" else _PREDICATES.get(test)
    if pattern is None or found.get("type") != "string":
        return validator(found, type(annotation).__name__, f"{getattr(test, '__qualname__', test)} may refuse a value")
    return {**found, "allOf": [*found.get("allOf", ()), {"pattern": pattern}]}


def _holds_a_secret(function: Any) -> bool:
    from pydantic.types import SecretBytes, SecretStr

    return isinstance(function, type) and issubclass(function, (SecretBytes, SecretStr))


def name_of(function: Any) -> str:
    """Module and qualified name, of a bound method or a partial as of the function behind it."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}.{name}"
