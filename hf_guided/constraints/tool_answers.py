"""An answer in a format beside tool calls: as a part of a structural tag, and where it stands in a text.

A family that writes an answer as free text writes this one in the place of that text: after its header, before its
end. No free text stands before or after the calls then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import InvalidConstraint, shown
from .base import Constraint
from .json_constraints import JsonObject, JsonSchema
from .tool_formats import objects_in
from .tool_notation import Tag, any_of, in_order, literal
from .values import DEFAULT_ROOT, Choice, Grammar, Regex, StructuralTag

# Calls of one answer are on lines of their own, or follow each other.
_BETWEEN_CALLS = {"type": "regex", "pattern": "[ \\n]{0,2}"}


class Place(NamedTuple):
    """The texts around an answer: the one before it, and those of which one follows it (none: nothing follows)."""

    before: str = ""
    ends: tuple[str, ...] = ()

    def answer_in(self, text: str) -> str:
        """The answer in a complete text; raises ValueError if a text around it is missing, as in one that was cut."""
        for end in self.ends or ("",):
            if text.startswith(self.before) and text.endswith(end) and len(text) >= len(self.before) + len(end):
                return text[len(self.before) : len(text) - len(end)]
        after = f", and then {' or '.join(map(repr, self.ends))}" if self.ends else ""
        raise ValueError(f"expected {self.before!r}, an answer{after}, got {shown(text)}")


def format_of_answer(answer: Constraint, excludes: Sequence[str] = ()) -> Tag:
    """A constraint as a format of a structural tag; no JSON string in it holds one of ``excludes`` unescaped.

    Raises:
        InvalidConstraint: no structural tag can hold it.
    """
    if isinstance(answer, JsonObject):
        answer = answer.as_schema()
    if isinstance(answer, JsonSchema):
        if answer.python_type is not None and answer.spelling == "any":
            raise InvalidConstraint(
                'ToolCalls.answer: a Python type with spelling="any" cannot stand beside tool calls; leave spelling out'
            )
        options = {"options": answer.options} if answer.options else {}
        return {"type": "json_schema", "json_schema": answer.schema, "excludes": [*excludes], **options}
    if isinstance(answer, Regex):
        return {"type": "regex", "pattern": answer.pattern}
    if isinstance(answer, Choice):
        return any_of([literal(text) for text in answer.options])
    if isinstance(answer, Grammar) and (answer.syntax, answer.root) == ("gbnf", DEFAULT_ROOT["gbnf"]):
        return {"type": "grammar", "grammar": answer.text}
    if isinstance(answer, StructuralTag) and "format" in answer.tag:
        return answer.tag["format"]  # type: ignore[no-any-return]
    raise InvalidConstraint(
        "ToolCalls.answer: expected a schema, a regex, a choice, a GBNF grammar whose first rule is root, or a "
        f"structural tag with format, got {shown(answer)}; these are the formats that can stand beside tool calls"
    )


def with_answer(root: Tag, answer: Constraint, header: str) -> tuple[Tag, Place]:
    """The format of an answer without calls, with this answer in place of its text; and where that stands.

    Args:
        root: of the tag of a family for answers without calls.
        answer: a constraint.
        header: of an answer, for families whose tag has none.
    """
    if root["type"] == "any_text":
        place, format = Place(header), format_of_answer(answer)
    elif root["type"] in ("tags_with_separator", "or"):  # one tag, a message; or the same text without its end
        return with_answer((root.get("tags") or root["elements"])[0], answer, header)
    elif root["type"] == "tag":
        ends = [root["end"]] if isinstance(root["end"], str) else root["end"]
        place = Place(root["begin"], tuple(ends))
        format = format_of_answer(answer, ends)
    else:
        first, last = root["elements"]
        if first["type"] == "const_string":  # a header, and the text
            place, format = Place(first["value"]), format_of_answer(answer, _marks(last["excludes"]))
        else:
            place = Place(first["begin"], (first["end"] + last["value"],))
            format = format_of_answer(answer, _marks(first["content"]["excludes"]))
    before = [literal(place.before)] if place.before else []
    after = [any_of([literal(end) for end in place.ends])] if place.ends else []
    return in_order([*before, format, *after]), place


def _marks(excludes: Sequence[str]) -> list[str]:
    """The marks that JSON can write with escapes; others separate calls, and no call follows an answer."""
    return [mark for mark in excludes if re.fullmatch("<[^<>]+>", mark)]


def calls_alone(root: Tag) -> Tag:
    """The format of required calls, without the free text that a family writes before, between and after them."""
    if root["type"] == "triggered_tags":
        one = any_of(root["tags"])
        # Such a tag is one call, or a list of all of them.
        if root["stop_after_first"] or any(part.get("type") == "tags_with_separator" for part in objects_in(one)):
            return one
        return in_order([one, {"type": "star", "content": in_order([_BETWEEN_CALLS, one])}])
    if root["type"] == "sequence":
        return {**root, "elements": [_without_text(part) for part in root["elements"]]}
    return root


def _without_text(part: Tag) -> Tag:
    if part["type"] == "tag" and part["content"]["type"] == "any_text":
        return literal(part["begin"] + part["end"])
    return part


def beginnings(part: Tag) -> Iterator[str]:
    """The literal texts of which one begins every text of a format of required calls."""
    kind = part["type"]
    if kind == "const_string":
        yield part["value"]
    elif kind == "tag" and part["begin"]:
        yield part["begin"]
    elif kind == "tag":
        yield from beginnings(part["content"])
    elif inner := part["elements"][:1] if kind == "sequence" else part.get("elements") or part.get("tags"):
        for each in inner:
            yield from beginnings(each)
    else:  # not a literal text
        yield ""


_OTHER_VALUES = frozenset('["-0123456789')  # the first characters of JSON that is no object


def may_begin(answer: Constraint | None, start: str) -> bool:
    """Whether JSON of a constraint may begin with a text; False only where that is certain."""
    first = start.strip()
    if not first.startswith("{"):
        kind = answer.schema.get("type") if isinstance(answer, JsonSchema) and isinstance(answer.schema, dict) else None
        is_json = first[:1] in _OTHER_VALUES or any(word.startswith(first) for word in ("true", "false", "null"))
        return is_json and kind != "object" and not isinstance(answer, JsonObject)
    schema = closed(answer.schema) if isinstance(answer, JsonSchema) and answer.extra == "forbid" else None
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False:
        return True
    names = schema.get("properties", {}).keys()
    return "patternProperties" in schema or all(name in names for name in re.findall(r'"([^"]*)": ', start))


_PUT_TOGETHER = frozenset("$ref $dynamicRef allOf anyOf oneOf not if dependentSchemas dependencies".split())
SPEAKS_OF_OTHERS = frozenset(("additionalProperties", "patternProperties", "unevaluatedProperties"))


def closed(schema: Any) -> Any:
    """A schema for a validator, with objects closed that declare properties and do not speak of others.

    Objects that are put together from several schemas stay as they are: a validator sees one of these at a time.
    """
    if not isinstance(schema, dict) or schema.keys() & _PUT_TOGETHER:
        return schema
    copy = {key: closed(value) if key == "items" else value for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        copy["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        if not schema.keys() & SPEAKS_OF_OTHERS:
            copy["additionalProperties"] = False
    return copy
