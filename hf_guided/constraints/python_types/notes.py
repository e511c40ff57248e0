"""Differences between a Python type and its JSON Schema, in both directions: rows for the audit.

While a schema is built it holds its notes, under a key of their own; they are taken out at the end, when it is known
where each part ends up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ..json_schema_keywords import ANNOTATIONS
from ..json_style import MAX_DIGITS

Core = dict[str, Any]
"""A core schema of Pydantic."""
JsonSchemaDict = dict[str, Any]
Outcome = Literal["narrower", "validator"]
_KEY = "x-hf-guided-notes"
_SHOWN = "x-hf-guided-shown"

NARROWER: dict[str, str] = {
    "Base64Str": "texts whose decoded bytes are not all ASCII, and line breaks",
    "Base64Bytes": "padding bits other than zero, and line breaks",
    "ByteSize": "numbers of more than 12 digits before the unit, and of more than 6 after the point",
    "Color": "all but hexadecimal colors (#rgb, #rrggbb) and a few common names",
    "Decimal": (
        "as a JSON number, more than 15 significant digits (Pydantic reads it as a double); as a string, an exponent, "
        "a plus sign, a leading zero or white space, and with bounds more digits after the point than the bounds have, "
        f"at least 6, with a bound on one side alone more than {MAX_DIGITS} before the point, and without bounds more "
        "than 18 digits on either side of the point or 2 of an exponent; zeros where no digit is allowed "
        "before the point; multiples (multiple_of) of more than 15 digits before the point, and as "
        "a string those of steps of which 1 is no multiple"
    ),
    "EmailStr": (
        "quoted local parts, addresses of more than 64 characters before the @, domains of more than five labels, "
        "labels in Punycode or other than ASCII, and reserved top-level domains"
    ),
    "Enum": "members whose value no JSON text gives back",
    "Fraction": (
        f"more than 18 digits (with a bound on one side alone, {MAX_DIGITS} before the point); with bounds, the form "
        "numerator/denominator"
    ),
    "MacAddress": "upper-case digits, and separators other than colons",
    "ULID": "lower-case letters",
    "IPv4Network": "host bits that are zero in an octet that the prefix splits, but for the whole octet; netmasks",
    "IPv6Network": (
        "addresses whose zero bits after the prefix are not written as :: (but for single addresses and prefixes above "
        "112), netmasks, and scope ids"
    ),
    "IPv6": "scope ids (fe80::1%eth0)",
    "IP interface": "netmasks, and zeros before the length of the prefix",
    "Flag": "combinations of members",
    "Json": (
        "white space between the tokens of the inner JSON, what is deeper than three levels of any value, and integers "
        f"of more than {MAX_DIGITS} digits that no bound requires"
    ),
    "NameEmail": "quoted names; what EmailStr leaves out",
    "bytes": "with max_length, characters other than ASCII, which take more than one byte",
    "bytes in base64": "the alphabet with + and /, and texts without padding",
    "complex": (
        "parentheses, nan and infinity, white space, a plus sign, underscores, leading zeros, numbers that begin or "
        "end with the point, and more than 18 digits on either side of it or 2 of an exponent"
    ),
    "date": "numbers (Unix time) and texts with a time",
    "datetime": (
        "numbers (Unix time), dates without a time, texts without seconds, more than 6 digits of a second; with bounds "
        "offsets other than Z"
    ),
    "discriminator": "the field that tells the members of a union apart is always written, even where it has a default",
    "float": "multiples (multiple_of) above the size at which Pydantic's division is exact",
    "future": "the two days after the schema is made",
    "keys": (
        "spellings of keys other than the plain one (01, +1, 1e3, yes), more than 6 digits after the point, more than "
        f"{MAX_DIGITS} before it that no bound requires, and in a union of keys the multiples that are not decided by "
        "their digits"
    ),
    "past": "the two days before the schema is made",
    "pattern": "characters that engines of regular expressions class differently",
    "set": "items that cannot be hashed",
    "strip_whitespace": "white space at either end, which Pydantic takes off before it looks at length and pattern",
    "time": "texts without seconds, more than 6 digits of a second; with bounds offsets other than Z",
    "timedelta": (
        "numbers, the form [days] hh:mm:ss, fractions but of seconds; without bounds, numbers of more than 8 digits "
        "(years 5); with bounds or multiple_of, all but days, hours, minutes and seconds below the next unit"
    ),
    "tuple": "more than 8 items where any number of items comes before others",
    "union": "members of the union that have no JSON",
    "url": (
        "hosts other than ASCII, host names with _ or Punycode, relative and single-slash forms, upper-case schemes; "
        "characters of paths, queries and fragments that RFC 3986 wants encoded (spaces, quotes, brackets, all that is "
        "not ASCII), and of user names all but A-Za-z0-9._~- and encoded ones; with bounds on the length, user names, "
        "paths, queries and fragments above a share of it"
    ),
}
"""The texts that Pydantic takes but that are never generated, by the name in the audit."""


class TypeNote(NamedTuple):
    """A row of the audit.

    Args:
        pointer: JSON pointer of the schema in question.
        name: the subject of the note: a type or an option of one.
        outcome: "narrower" (some valid texts are never generated) or "validator" (code that only the finished text
            meets, so that it may refuse it).
        detail: which texts, or which code.
    """

    pointer: str
    name: str
    outcome: Outcome
    detail: str


def narrower(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The schema with a note that it leaves out the texts of NARROWER under this name."""
    return _noted(schema, name, "narrower", f"never generated: {NARROWER[name]}")


def anchored(pattern: str, *notes: str) -> dict[str, Any]:
    """The strings that a pattern without anchors matches from beginning to end, with notes as of ``narrower``."""
    schema: dict[str, Any] = {"type": "string", "pattern": f"^{pattern}$"}
    for name in notes:
        schema = narrower(schema, name)
    return schema


def validator(schema: dict[str, Any], name: str, detail: str) -> dict[str, Any]:
    """The schema with a note about code that cannot be enforced while a text is generated."""
    return _noted(schema, name, "validator", detail)


def _noted(schema: dict[str, Any], name: str, outcome: Outcome, detail: str) -> dict[str, Any]:
    notes = [*schema.get(_KEY, ()), [name, outcome, detail]]
    return {**schema, _KEY: notes}


def code_notes(schema: dict[str, Any]) -> dict[str, Any]:
    """The notes about code at the top of a schema, as a part of a schema."""
    notes = [note for note in schema.get(_KEY, ()) if note[1] == "validator"]
    return {_KEY: notes} if notes else {}


def shown(schema: dict[str, Any], **keywords: Any) -> dict[str, Any]:
    """The schema, and a displayed form for people and models: for example a format's name for a long pattern.

    With a ``type`` the keywords replace all of the schema, otherwise they are added to it.
    """
    return {**schema, _SHOWN: [keywords]}


def take_shown(schema: Any) -> Any:
    """Take the displayed parts out of a schema, in place; return a copy that has them instead of what they replace."""
    if isinstance(schema, list):
        return [take_shown(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    (keywords,) = schema.pop(_SHOWN) if isinstance(schema.get(_SHOWN), list) else ({},)
    copy = {name: take_shown(value) for name, value in schema.items() if name != _KEY or not isinstance(value, list)}
    if "type" in keywords:
        copy = {name: value for name, value in copy.items() if name in ANNOTATIONS}
    return {**copy, **keywords}


def take_notes(schema: dict[str, Any]) -> tuple[TypeNote, ...]:
    """Take the notes out of a schema, in place."""
    notes: dict[TypeNote, None] = {}
    for pointer, here in parts(schema, _KEY):
        notes.update((TypeNote(pointer, *note), None) for note in here.pop(_KEY))
    return tuple(notes)


def parts(schema: JsonSchemaDict, key: str) -> Iterator[tuple[str, JsonSchemaDict]]:
    """The parts of a schema that have a list under a key of ours, with their JSON pointers; they may be changed."""
    todo: list[tuple[str, Any]] = [("", schema)]
    while todo:
        pointer, here = todo.pop()
        if isinstance(here, dict):
            if isinstance(here.get(key), list):  # a property of that name would be a dict
                yield pointer, here
            inner = [(str(name).replace("~", "~0").replace("/", "~1"), value) for name, value in here.items()]
        elif isinstance(here, list):
            inner = [(str(index), value) for index, value in enumerate(here)]
        else:
            continue
        todo += [(f"{pointer}/{step}", value) for step, value in reversed(inner)]
