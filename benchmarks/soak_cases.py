"""The constraints of the soak test, and its judges: other libraries decide what a text has to be, and how it may begin.

Case ``number`` is one of eight kinds, with the number in its text, so that every case compiles to a grammar of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal

import pydantic
import regex

import hf_guided as hg
from benchmarks.oracle import is_instance

CASES = 4000  # the compile caches of the test hold a few dozen


@dataclass(frozen=True)
class Case:
    constraint: Any  # constraint as a caller writes it
    response_format: dict[str, Any]  # the same constraint for the server
    is_valid: Callable[[str], bool]  # judge of a finished text
    layout: str  # pattern of every valid text, for texts that were cut

    def is_prefix(self, text: str) -> bool:
        """Whether a text that was cut can be the beginning of a valid one."""
        return regex.fullmatch(self.layout, text.rstrip("\ufffd"), partial=True) is not None  # cut inside a character


def draw(random: Random) -> Case:
    """A random case; low numbers are frequent, so that caches are hit as well as refilled."""
    number = int(CASES * random.random() ** 5)
    return KINDS[number % len(KINDS)](number)


def _object(number: int, **properties: dict[str, Any]) -> dict[str, Any]:
    properties = {"n": {"const": number}, **properties}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "soak", "schema": schema}}


def _layout(number: int, *fields: tuple[str, str]) -> str:
    pairs = [f'"{name}"\\s*:\\s*{value}' for name, value in [("n", str(number)), *fields]]
    return r"\{\s*" + r"\s*,\s*".join(pairs) + r"\s*\}"


def choice(number: int) -> Case:
    options = [f"yes {number}", f"no {number}", f"é{number}"]
    return Case(options, {"type": "choice", "choice": options}, options.__contains__, "|".join(options))


def pattern(number: int) -> Case:
    source = rf"{number}:[a-f]{{1,3}}"
    return Case(hg.Regex(source), {"type": "regex", "regex": source}, _matches(source), source)


def _matches(source: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(source, text) is not None


def flag(number: int) -> Case:
    schema = _object(number, ok={"type": "boolean"})
    layout = _layout(number, ("ok", "(true|false)"))
    return Case(
        hg.JsonSchema(schema, whitespace="minified"), _json_schema(schema), partial(is_instance, schema), layout
    )


def text(number: int) -> Case:
    schema = _object(number, s={"type": "string", "maxLength": 2})
    layout = _layout(number, ("s", r'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u[0-9a-fA-F]{4})){0,4}"'))
    return Case(schema, _json_schema(schema), partial(is_instance, schema), layout)


def numbers(number: int) -> Case:
    schema = {"type": "array", "items": {"type": "integer", "minimum": number, "maximum": number + 5}, "maxItems": 2}
    listed = "|".join(str(value) for value in range(number, number + 6))
    layout = rf"\[\s*(({listed})(\s*,\s*({listed}))?)?\s*\]"
    return Case(
        hg.JsonSchema(schema, whitespace="compact"),
        {"type": "json", "schema": schema},
        partial(is_instance, schema),
        layout,
    )


def nested(number: int) -> Case:
    source = f'root ::= "(" root ")" | "x{number}"'
    layout = rf"(\((?R)\)|x{number})"

    def is_valid(text: str) -> bool:
        return regex.fullmatch(layout, text) is not None

    loose = rf"\(*x{number}\)*"  # partial matching does not know recursion
    return Case(hg.Grammar(source), {"type": "grammar", "grammar": source}, is_valid, loose)


def tag(number: int) -> Case:
    schema = {"enum": [number, -1]}
    begin, end = f"<t{number}>", "</t>"
    content = {"type": "json_schema", "json_schema": schema}
    written = {
        "type": "structural_tag",
        "format": {"type": "tag", "begin": begin, "content": content, "end": end},
    }
    inside = partial(is_instance, schema)

    def is_valid(text: str) -> bool:
        return text.startswith(begin) and text.endswith(end) and inside(text[len(begin) : -len(end)])

    return Case(hg.StructuralTag(written), written, is_valid, rf"{begin}\s*(-1|{number})\s*{end}")


def model(number: int) -> Case:
    """A class of its own for every request: caches that hold classes have to let them go."""
    made = pydantic.create_model("Soak", n=(Literal[number], ...), ok=(bool, ...))
    schema = _object(number, ok={"type": "boolean"})
    return Case(made, _json_schema(schema), partial(is_instance, schema), _layout(number, ("ok", "(true|false)")))


KINDS = (choice, pattern, flag, text, numbers, nested, tag, model)


# -- outputs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    case: Case
    text: str
    finished: bool
    error: str | None = None


class Refused:
    """A constraint or a request that was to be refused, and was."""


class Left:
    """An answer that its reader left in the middle."""


def verdict(output: Output | Refused | Left) -> str:
    if isinstance(output, (Refused, Left)):
        return type(output).__name__.lower()
    if output.error is not None:
        return "dead end"
    if output.finished:
        return "valid" if output.case.is_valid(output.text) else "invalid"
    return "cut" if output.case.is_prefix(output.text) else "bad prefix"
