"""Strings and bytes as Pydantic reads them."""

from __future__ import annotations

import re
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from .notes import narrower

Core = dict[str, Any]

_ASCII = r"^[\u0000-\u007f]*$"
# What engines call white space, all of them taken together.
_SPACES = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_NO_SPACE_AT_EITHER_END = rf"^(?:[^{_SPACES}](?:[\s\S]*[^{_SPACES}])?)?$"
_BASIC_PLANE = r"^[\u0000-\uffff]*$"
_CLASS = re.compile(r"\[\^?\]?((?:\\.|[^\]\\])*)\]")
_AMBIGUOUS = ("[", "&&", "~~", "--")  # in a class: to some engines the beginning or the joining of another one


def string(core: Core, json_schema: dict[str, Any], *, strips: bool) -> dict[str, Any]:
    """A ``str``.

    Args:
        core: of the type.
        json_schema: what Pydantic says of lengths.
        strips: whether white space is taken off before anything is checked.
    """
    pattern = core.get("pattern")
    more: list[dict[str, Any]] = []
    if pattern is not None:
        json_schema = {**json_schema, "pattern": _pattern(pattern)}
        if alphabet := _alphabet(json_schema["pattern"]):
            json_schema = narrower(json_schema, "pattern")
            more.append({"pattern": alphabet})
    if core.get("ascii_only"):
        more.append({"pattern": _ASCII})
    if strips and (pattern is not None or json_schema.get("minLength")):
        json_schema = narrower(json_schema, "strip_whitespace")
        more.append({"pattern": _NO_SPACE_AT_EITHER_END})
    return {**json_schema, "allOf": more} if more else json_schema


def _pattern(pattern: str | re.Pattern[str]) -> str:
    pattern, flags = (pattern, 0) if isinstance(pattern, str) else (pattern.pattern, pattern.flags)
    if flags & re.VERBOSE:
        raise PydanticInvalidForJsonSchema(
            f"the pattern {pattern!r} has the flag VERBOSE; write it without white space and comments"
        )
    bodies = [re.sub(r"\\.", "", match[1]) for match in _CLASS.finditer(pattern)]
    if any(sign in body for sign in _AMBIGUOUS for body in bodies):
        raise PydanticInvalidForJsonSchema(
            f"the pattern {pattern!r} joins classes or names one ([[:alpha:]], &&, --), which means different things "
            "to different engines; write the class out"
        )
    # The other flags let a pattern match more.
    return f"(?i){pattern}" if flags & re.IGNORECASE and not pattern.startswith("(?i)") else pattern


def _alphabet(pattern: str) -> str | None:
    r"""Characters that all engines classify equally; others are letters only to some engines, or to a later Unicode."""
    if r"\W" in pattern or (r"\w" in pattern and "[^" in pattern):
        return _ASCII
    if r"\D" in pattern or r"\S" in pattern or (re.search(r"\\[dsp]", pattern) and "[^" in pattern):
        return _BASIC_PLANE
    return None


_SEXTETS = {"standard": "A-Za-z0-9+/", "url": "A-Za-z0-9_-"}


def raw_bytes(core: Core, mode: str) -> dict[str, Any]:
    """A ``bytes``, written as text of its own (UTF-8), as base64 or in hexadecimal digits."""
    low, high = core.get("min_length") or 0, core.get("max_length")
    if mode == "base64":
        return narrower({"type": "string", "pattern": f"^{base64('url', low, high)}$"}, "bytes in base64")
    if mode == "hex":
        return {"type": "string", "pattern": f"^(?:[0-9a-f]{{2}}){{{low},{'' if high is None else high}}}$"}
    json_schema: dict[str, Any] = {"type": "string"}
    if low:
        json_schema["minLength"] = low  # a character takes a byte at least
    if high is None:
        return json_schema
    return narrower({**json_schema, "maxLength": high, "pattern": _ASCII}, "bytes")


def base64(alphabet: str, low: int = 0, high: int | None = None) -> str:
    """Base64 of ``low`` to ``high`` bytes with padding, as a pattern without anchors."""
    any_sextet = f"[{_SEXTETS[alphabet]}]"
    return _groups(f"{any_sextet}{{4}}", f"{any_sextet}[AQgw]==", f"{any_sextet}{{2}}[AEIMQUYcgkosw048]=", low, high)


def base64_of_ascii(alphabet: str, low: int = 0, high: int | None = None) -> str:
    """As ``base64``, of bytes below 128: the first bit of every byte is 0."""
    symbols = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789" + (
        "+/" if alphabet == "standard" else "-_"
    )

    def sextet(zeros: int) -> str:
        """The symbols that have a 0 where this has a 1."""
        free = (symbol for value, symbol in enumerate(symbols) if not value & zeros)
        return f"[{''.join(sorted(free, key=lambda symbol: symbol == '-'))}]"  # a hyphen elsewhere forms a range

    first, second, third = sextet(0b100000), sextet(0b001000), sextet(0b000010)
    return _groups(
        f"{first}{second}{third}{sextet(0)}",
        f"{first}{sextet(0b001111)}==",
        f"{first}{second}{sextet(0b000011)}=",
        low,
        high,
    )


def _groups(three: str, one: str, two: str, low: int, high: int | None) -> str:
    """Groups of three bytes and the remaining bytes, for a number of bytes in the bounds."""
    alternatives = []
    for left, ending in enumerate(("", one, two)):
        least, most = max(0, -((left - low) // 3)), None if high is None else (high - left) // 3
        if most is None or least <= most:
            alternatives.append(f"(?:{three}){{{least},{'' if most is None else most}}}{ending}")
    return f"(?:{'|'.join(alternatives)})"


def uuid(core: Core) -> dict[str, Any]:
    """A ``UUID``; with a version, of the variant that has versions."""
    version = core.get("version")
    digit = "[0-9a-fA-F]"
    middle = f"{digit}{{4}}-{digit}{{4}}" if version is None else f"{version}{digit}{{3}}-[89abAB]{digit}{{3}}"
    return {"type": "string", "pattern": f"^{digit}{{8}}-{digit}{{4}}-{middle}-{digit}{{12}}$"}
