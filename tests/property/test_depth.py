"""max_depth: of all small values, exactly the valid ones (by `jsonschema`) within the bound on nesting are accepted."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import jsonschema
import pytest

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint
from tests.pairs import once_each
from tests.property.strategies import allowed
from tests.toy import all_bytes

NATIVE = NetworkBackend(all_bytes())
STOP = 256
LIST_SIGNS = frozenset(b'[],"')
SIGNS = LIST_SIGNS | frozenset(b"{}:a\n") | {STOP}  # without digits and letters, which would make texts long
LEAVES = [None, 0, "a"]


def values(depth: int) -> Iterator[Any]:
    """Values of at most ``depth`` levels of nesting, with up to two entries each."""
    yield from LEAVES
    if depth:
        inner = list(values(depth - 1))
        yield from ([], {})
        yield from ([value] for value in inner)
        yield from ({name: value} for name in ("next", "value") for value in inner)
        few = inner[:: max(1, len(inner) // 12)]
        yield from ([first, second] for first, second in product(few, few))
        yield from ({"next": first, "value": second} for first, second in product(few, few))


def nesting(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(nesting, value.values()), default=0)
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


VALUES = list(values(3))
SCHEMAS: dict[str, Any] = {
    "any": {},
    "any object": {"type": "object"},
    "array of anything": {"type": "array", "items": {}, "maxItems": 2},
    "two branches": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"const": 0}]},
    "list": {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "value": {"enum": [0, "a"]}},
        "required": ["next"],
        "additionalProperties": False,
    },
    "tree": {
        "type": ["array", "null"],
        "items": {"$ref": "#"},
        "minItems": 1,
    },
    "not recursive": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    "of two kinds": {
        "$defs": {
            "record": {"properties": {"next": {"$ref": "#/$defs/list"}, "value": {"items": {"type": "string"}}}},
            "list": {"type": ["array", "integer"], "items": {"$ref": "#/$defs/record"}},
        },
        "$ref": "#/$defs/record",
    },
    "by pattern": {"type": "object", "patternProperties": {"^n": {"$ref": "#"}}, "additionalProperties": {"const": 0}},
}


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()


def texts(matcher: Matcher, before: bytes = b"") -> Iterator[str]:
    """Every text of a finite language; each prefix has to have one."""
    possible = allowed(matcher)
    assert possible, before
    for token in possible:
        if token == STOP:
            yield before.decode()
            continue
        longer = matcher.fork()
        assert longer.accept_token(token)
        yield from texts(longer, before + bytes((token,)))


@pytest.mark.parametrize(("case", "max_depth"), once_each(SCHEMAS, [1, 2, 3, 4], cost=lambda cell: int(cell[1])))
def test_accepted_values_are_the_valid_ones_within_the_depth(case: str, max_depth: int) -> None:
    schema = SCHEMAS[case]
    validator = jsonschema.Draft202012Validator(schema)
    compiled = NATIVE.compile(JsonSchema(schema, "compact", "allow", max_depth=max_depth))
    accepted = []
    for value in VALUES:
        taken = accepts(compiled, json.dumps(value))
        assert taken == (validator.is_valid(value) and nesting(value) <= max_depth), json.dumps(value)
        accepted.append(taken)
    assert 0 < accepted.count(True) < len(VALUES) or case == "any"


def test_values_that_cannot_be_closed_within_the_depth_are_not_started() -> None:
    """Every accepted prefix can be completed, also if a required entry would nest more deeply."""
    schema = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"const": 1}]}, "minItems": 1, "maxItems": 2}
    valid = ["1"]
    for _ in range(2):
        valid = ["1", *(f"[{', '.join(items)}]" for count in (1, 2) for items in product(valid, repeat=count))]
    compiled = NATIVE.compile(JsonSchema(schema, "compact", max_depth=2))
    assert sorted(texts(compiled.matcher())) == sorted(valid[1:])  # the whole value is an array
    with pytest.raises(InvalidConstraint, match="nests at most 1 arrays and objects"):
        NATIVE.compile(JsonSchema({"type": "array", "items": {"type": "array"}, "minItems": 1}, max_depth=1))
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    with pytest.raises(InvalidConstraint, match="no value satisfies"):
        NATIVE.compile(JsonSchema(endless, max_depth=5))


OPTIONS: list[dict[str, Any]] = [
    {},
    {"indent": 2},
    {"whitespace": "minified", "spelling": "any"},
    {"whitespace": "compact", "extra": "allow"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("case", SCHEMAS)
def test_random_texts_are_valid_within_the_depth(case: str, options: dict[str, Any]) -> None:
    closed = (
        {"additionalProperties": False} if options.get("extra") != "allow" and "properties" in SCHEMAS[case] else {}
    )
    validator = jsonschema.Draft202012Validator(SCHEMAS[case] | closed)
    for max_depth in (1, 2, 5):
        compiled = NATIVE.compile(JsonSchema(SCHEMAS[case], max_depth=max_depth, **options))
        for seed in range(4):
            choose, matcher, written = random.Random(seed), compiled.matcher(), bytearray()
            for left in range(120, 0, -1):
                possible = allowed(matcher, left)
                token = choose.choice([token for token in possible if token in SIGNS] or possible)
                assert matcher.accept_token(token)
                if token == STOP:
                    break
                written.append(token)
            value = json.loads(written)
            assert validator.is_valid(value) and nesting(value) <= max_depth, written


def test_registers_know_the_depth() -> None:
    """Different items, and members in any order: of all small values exactly the valid ones within the bound."""
    schema = {
        "type": ["array", "object", "integer"],
        "items": {"$ref": "#"},
        "uniqueItems": True,
        "properties": {"value": {"$ref": "#"}, "next": {"$ref": "#"}},
        "required": ["value"],
        "additionalProperties": False,
    }
    validator = jsonschema.Draft202012Validator(schema)
    for max_depth in (1, 2):
        compiled = NATIVE.compile(JsonSchema(schema, "compact", max_depth=max_depth, key_order="any"))
        for value in VALUES:
            members = list(value.items()) if isinstance(value, dict) else []
            for ordered in map(dict, permutations(members)) if members else [value]:
                expected = validator.is_valid(ordered) and nesting(ordered) <= max_depth
                assert accepts(compiled, json.dumps(ordered)) == expected, json.dumps(ordered)
    few = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"const": 0}]}, "uniqueItems": True, "minItems": 2}
    with pytest.raises(InvalidConstraint):  # within one level there is only 0
        NATIVE.compile(JsonSchema(few, max_depth=1))
    two = NATIVE.compile(JsonSchema({**few, "minItems": 1, "maxItems": 2}, "minified", max_depth=2))
    assert sorted(texts(two.matcher())) == ["[0,[0]]", "[0]", "[[0],0]", "[[0]]"]


def test_a_text_within_a_budget_keeps_the_depth() -> None:
    """An item of the innermost arrays has at least 22 bytes: the shortest one, [], would nest too deeply."""
    item = {"anyOf": [{"$ref": "#"}, {"type": "array", "maxItems": 0}, {"type": "string", "minLength": 20}]}
    schema = {"type": "array", "items": item, "minItems": 2}
    compiled = NATIVE.compile(JsonSchema(schema, "minified", max_depth=2))
    shortest = json.dumps([["a" * 20, "a" * 20], []], separators=(",", ":"))  # of those that begin with [["
    for left, fits in ((len(shortest) + 1, True), (len(shortest), False)):
        matcher = compiled.matcher()
        assert matcher.accept_token(ord("[")) and matcher.accept_token(ord("["))
        assert (ord('"') in allowed(matcher, left - 2)) == fits
    for seed in range(20):
        choose, matcher, written = random.Random(seed), compiled.matcher(), bytearray()
        for left in range(60, 0, -1):
            possible = allowed(matcher, left)
            token = choose.choice([token for token in possible if token in LIST_SIGNS] or possible)
            if token == STOP:
                break
            assert matcher.accept_token(token)
            written.append(token)
        else:
            pytest.fail("the text did not end within the budget")
        value = json.loads(written)
        assert jsonschema.Draft202012Validator(schema).is_valid(value) and nesting(value) <= 2


def test_a_depth_of_thousands_is_a_limit() -> None:
    compiled = NATIVE.compile(JsonSchema({}, max_depth=1000))
    assert accepts(compiled, "[" * 1000 + "]" * 1000) and not accepts(compiled, "[" * 1001 + "]" * 1001)
    with pytest.raises(CompileLimitExceeded, match="levels that are left of max_depth=1000000; lower it"):
        NATIVE.compile(JsonSchema({}, max_depth=10**6))


def test_depth_that_is_never_reached_adds_no_states() -> None:
    flat = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    sizes = {NATIVE.compile(JsonSchema(flat, max_depth=depth)).nbytes for depth in (None, 2, 10**9)}
    assert len(sizes) == 1
