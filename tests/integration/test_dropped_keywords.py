"""The keywords that other libraries drop in silence: here each is enforced, or refused by name, and an instance tells.

For each there is a value that only this keyword forbids. jsonschema says which is which; then the mask has to.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from tests.toy import all_bytes


class Dropped(NamedTuple):
    """A keyword in a schema that says nothing else of note.

    Args:
        pointer: of the keyword.
        good: a value that satisfies the schema.
        bad: a value that would satisfy it, were the keyword not there.
        lost: whether it cannot be enforced, and so is refused.
    """

    schema: dict[str, Any]
    pointer: str
    good: Any
    bad: Any
    lost: bool = False


ARRAY = {"type": "array", "items": {"type": "integer"}}
CASES = {
    "uniqueItems": Dropped({**ARRAY, "uniqueItems": True}, "/uniqueItems", [1, 2], [1, 1]),
    "uniqueItems beside contains": Dropped(
        {**ARRAY, "contains": {"const": 1}, "uniqueItems": True}, "/uniqueItems", [1, 2], [1, 1], lost=True
    ),
    "uniqueItems of a few values": Dropped(
        {"type": "array", "items": {"enum": ["a", "b", 1]}, "uniqueItems": True}, "/uniqueItems", ["b", 1], ["a", "a"]
    ),
    "contains": Dropped({**ARRAY, "contains": {"minimum": 5}}, "/contains", [1, 7], [1, 2]),
    "maxContains": Dropped({**ARRAY, "contains": {"minimum": 5}, "maxContains": 1}, "/maxContains", [1, 7], [7, 8]),
    "not": Dropped({"type": "string", "not": {"const": "bad"}}, "/not", "good", "bad"),
    "not, a schema of objects": Dropped(
        {"type": "object", "not": {"properties": {"a": {"type": "null"}}, "required": ["a"]}},
        "/not",
        {"a": 1},
        {"a": None},
    ),
    "if / then": Dropped(
        {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}, "/then", {"a": 1, "b": 2}, {"a": 1}
    ),
    "else": Dropped({"if": {"type": "string"}, "else": {"minimum": 3}}, "/else", 3, 2),
    "dependentRequired": Dropped(
        {"type": "object", "dependentRequired": {"a": ["b"]}}, "/dependentRequired", {"b": 1, "a": 2}, {"a": 2}
    ),
    "dependentSchemas": Dropped(
        {"type": "object", "dependentSchemas": {"a": {"maxProperties": 1}}},
        "/dependentSchemas",
        {"a": 1},
        {"a": 1, "b": 1},
    ),
    "a sibling of $ref": Dropped(
        {"$defs": {"s": {"type": "string"}}, "$ref": "#/$defs/s", "maxLength": 2}, "/maxLength", "ab", "abc"
    ),
    "a sibling of anyOf": Dropped(
        {"anyOf": [{"type": "string"}, {"type": "integer"}], "maxLength": 2}, "/maxLength", "ab", "abc"
    ),
    "allOf with two branches": Dropped({"allOf": [{"minimum": 2}, {"maximum": 4}], "type": "integer"}, "/allOf", 3, 5),
    "oneOf whose branches meet": Dropped(
        {"oneOf": [{"type": "integer", "minimum": 2}, {"type": "integer", "maximum": 4}]}, "/oneOf", 7, 3
    ),
    "multipleOf of numbers": Dropped({"type": "number", "multipleOf": 0.25}, "/multipleOf", 98.5, 98.4),
    "multipleOf of integers": Dropped({"type": "integer", "multipleOf": 7}, "/multipleOf", 21, 22),
    "pattern with length": Dropped(
        {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}, "/maxLength", "abc", "abcd"
    ),
    "pattern, not anchored": Dropped({"type": "string", "pattern": "b"}, "/pattern", "abc", "ac"),
    "patternProperties": Dropped(
        {"type": "object", "patternProperties": {"^n": {"type": "integer"}}}, "/patternProperties", {"n": 1}, {"n": "x"}
    ),
    "propertyNames": Dropped(
        {"type": "object", "propertyNames": {"maxLength": 2}}, "/propertyNames", {"ab": 1}, {"abc": 1}
    ),
    "minProperties": Dropped({"type": "object", "minProperties": 1}, "/minProperties", {"a": 1}, {}),
    "unevaluatedProperties": Dropped(
        {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False},
        "/unevaluatedProperties",
        {"a": 1},
        {"b": 1},
    ),
    "minimum of numbers": Dropped({"type": "number", "minimum": 0.5}, "/minimum", 0.5, 0.49),
    "format": Dropped({"type": "string", "format": "date"}, "/format", "2024-02-29", "2023-02-29"),
}


@cache
def compiler() -> Compiler:
    return Compiler(all_bytes())


def takes(compiled: Any, value: Any) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, json.dumps(value, ensure_ascii=False).encode())) and matcher.is_completed()


@pytest.mark.parametrize("case", CASES)
def test_the_audit_is_right_and_an_instance_tells(case: str) -> None:
    schema, pointer, good, bad, lost = CASES[case]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    assert validator.is_valid(good) and not validator.is_valid(bad), "the case itself is wrong"
    constraint = hg.JsonSchema(schema, extra="allow")
    report = compiler().audit(constraint)
    [row] = [row for row in report.rows if row.pointer == pointer]
    if lost:
        assert (row.outcome, report.ok) == ("lost", False)
        with pytest.raises(hg.UnsupportedConstraint) as caught:
            compiler().compile(constraint)
        assert [(loss.pointer, loss.keyword) for loss in caught.value.losses] == [(pointer, pointer[1:])]
        relaxed = compiler().compile(hg.JsonSchema(schema, extra="allow", on_unsupported="validate"))
        assert takes(relaxed, good) and takes(relaxed, bad), "decoded relaxed, judged afterwards"
        with pytest.raises(ValueError, match="not valid"):
            relaxed.constraint.parse(json.dumps(bad))
        return
    assert (row.outcome, report.ok) == ("enforced", True)
    compiled = compiler().compile(constraint)
    assert takes(compiled, good)
    assert not takes(compiled, bad)
