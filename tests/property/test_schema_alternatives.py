"""Unions of many alternatives: exactly the values that `jsonschema` calls valid, whatever tells the branches apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Literal, Union

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import create_model

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.coerce import coerce
from hf_guided.constraints.values import JsonSchema
from tests.effort import repeats
from tests.property.test_schema_language import accepts, validator
from tests.toy import all_bytes

COMPILER = Compiler(all_bytes())
IN_ANY_ORDER = NetworkBackend(all_bytes())


def constants(values: list[Any]) -> list[Any]:
    return [{"const": value, "title": f"number {i}"} for i, value in enumerate(values)]


def tagged(i: int, tag: str = "kind") -> dict[str, Any]:
    value = ({"type": "integer"}, {"type": "string"}, {"type": "array", "items": {"type": "null"}})[i % 3]
    return {"type": "object", "properties": {tag: {"const": f"k{i}"}, "v": value}, "required": [tag, "v"]}


def external(i: int) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f"n{i}": {"type": "integer"}},
        "required": [f"n{i}"],
        "additionalProperties": False,
    }


def between(i: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 10 * i, "maximum": 10 * i + 5}


def beginning(i: int) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^p{i}-[a-z]+$"}


UNIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "scalars": lambda n: {"oneOf": constants([f"v{i}" if i % 2 else i for i in range(n)])},
    "pairs": lambda n: {"enum": [[i, i + 1] for i in range(n)]},
    "pairs, one of them": lambda n: {"oneOf": constants([[i, i + 1] for i in range(n)])},
    "records": lambda n: {"enum": [{"kind": f"k{i}", "v": i} for i in range(n)]},
    "records, any of them": lambda n: {"anyOf": constants([{"kind": f"k{i}", "v": {"n": [i]}} for i in range(n)])},
    "records, one of them": lambda n: {"oneOf": constants([{"v": {"n": [i]}} for i in range(n)])},
    "tagged": lambda n: {"oneOf": [tagged(i) for i in range(n)]},
    "names": lambda n: {"oneOf": [external(i) for i in range(n)]},
    "ranges": lambda n: {"oneOf": [between(i) for i in range(n)]},
    "patterns": lambda n: {"oneOf": [beginning(i) for i in range(n)]},
    "patterns, any of them": lambda n: {"anyOf": [beginning(i) for i in range(n)]},
    "references": lambda n: {
        "$defs": {f"d{i}": tagged(i) for i in range(n)},
        "oneOf": [{"$ref": f"#/$defs/d{i}"} for i in range(n)],
    },
    "of all kinds": lambda n: {
        "oneOf": [(tagged, external, between, beginning, lambda i: {"const": [i]})[i % 5](i) for i in range(n)]
    },
}


def candidates(random: Random, n: int) -> list[Any]:
    """Values of the alternatives, and values that are nearly one."""
    values: list[Any] = [None, True, {}, [], "p1-", -1]
    for i in {0, 1, n - 2, n - 1, n, n + 1, *(random.randrange(n) for _ in range(6))}:
        of_tag = ({"v": i}, {"v": "x"}, {"v": [None]}, {"v": {"n": [i]}}, {})
        values += [f"v{i}", f"v{i}x", i, 10 * i + 5, 10 * i + 6, [i], [i, i + 1], [i + 1, i], f"p{i}-a", f"p{i}a"]
        values += [{"kind": f"k{i}", **rest} for rest in of_tag] + [{f"n{i}": 1}, {f"n{i}": "x"}, {"v": {"n": [i]}}]
    return values


def wrong(schema: dict[str, Any], values: list[Any], compiled: Any, wrapped: str = "{}") -> list[str]:
    """The texts on which a constraint and `jsonschema` disagree."""
    valid = validator(schema, 2020)
    texts = [wrapped.format(json.dumps(value)) for value in values]
    return [text for text in texts if accepts(compiled, text) != valid.is_valid(json.loads(text))]


def compiled(schema: dict[str, Any], **options: Any) -> Any:
    return COMPILER.compile(JsonSchema(schema, extra="allow", **options))


@pytest.mark.parametrize("n", [64, 65, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", UNIONS)
def test_unions_have_exactly_their_values(name: str, n: int) -> None:
    schema = UNIONS[name](n)
    assert not wrong(schema, candidates(Random(n), n), compiled(schema))


@pytest.mark.parametrize("n", [90, pytest.param(250, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["scalars", "pairs", "records", "pairs, one of them", "tagged"])
def test_large_unions_have_exactly_their_values(name: str, n: int) -> None:
    schema = UNIONS[name](n)
    assert not wrong(schema, candidates(Random(n), n), compiled(schema, spelling="any"))


@pytest.mark.parametrize("name", ["scalars", "pairs", "tagged", "names", "of all kinds"])
def test_unions_may_be_inside_others(name: str) -> None:
    union, values = UNIONS[name](65), candidates(Random(1), 65)
    inside = {"type": "object", "properties": {"a": union, "b": {"type": "array", "items": union}}, "required": ["b"]}
    for wrapped in ('{{"a": {0}, "b": []}}', '{{"b": [{0}]}}', '{{"b": [{0}, {0}]}}'):
        assert not wrong(inside, values, compiled(inside), wrapped)
    for both in (
        {"anyOf": [union, {"type": "null"}]},
        {"oneOf": [{"type": "null"}, union]},
        {"allOf": [union, {"not": {"enum": [0, [1, 2], {"kind": "k0", "v": 0}, "v1"]}}]},
        {"allOf": [union, {"oneOf": [*union["oneOf"][:40], {"const": "other"}]}]} if "oneOf" in union else union,
        {"type": ["array", "object", "string"], **union},
    ):
        assert not wrong(both, values, compiled(both))


@pytest.mark.parametrize("name", ["tagged", "records", "names"])
def test_members_of_alternatives_may_come_in_any_order(name: str) -> None:
    schema = UNIONS[name](65)
    network = IN_ANY_ORDER.compile(JsonSchema(schema, extra="allow", key_order="any"))
    values = candidates(Random(2), 65)
    assert not wrong(schema, values, network)
    turned = [dict(reversed(value.items())) for value in values if isinstance(value, dict)]
    assert not wrong(schema, turned, network)


def test_equal_constants_are_in_no_value_of_exactly_one() -> None:
    values = [1, 1.0, 2, "a", [1], [1.0], {"a": 1}, {"a": 1.0, "b": True}, {"b": True, "a": 1}, True, [True]]
    many = [*values, *(f"v{i}" for i in range(65)), *([i, i] for i in range(65)), "v7", [7, 7]]
    schema = {"oneOf": constants(many)}
    assert not wrong(schema, [*values, "v7", "v8", [7, 7], [8, 8], [1, 1], 0, False], compiled(schema))


def test_overlapping_branches_are_refused_where_they_overlap() -> None:
    branches = [tagged(i) for i in range(65)]
    branches[9] = {"type": "object", "properties": {"kind": {"enum": ["k9", "k7"]}}, "required": ["kind"]}
    branches.append({"type": "object", "properties": {"kind": {"const": "k3"}, "w": {}}, "required": ["kind", "w"]})
    schema = {"oneOf": branches}
    values = [{"kind": f"k{i}", "v": 1, **more} for i in range(12) for more in ({}, {"w": 2})]
    assert not wrong(schema, [*values, {"kind": "k7", "w": 2}, {"kind": "k3", "w": 2}], compiled(schema))


@pytest.mark.parametrize("rest", [{}, {"additionalProperties": False}])
@pytest.mark.parametrize("typed", [True, False])
def test_nested_branches_that_overlap_hold_an_odd_number_of_times(typed: bool, rest: dict[str, Any]) -> None:
    def branch(i: int) -> dict[str, Any]:
        properties = {"properties": {f"k{i}": {"type": "integer"}}} if typed or rest else {}
        return {"type": "object", "required": [f"k{i}"], **properties, **rest}

    schema = branch(0)
    for i in range(1, 11):
        schema = {"oneOf": [schema, branch(i)]}
    random = Random(3)
    chosen = [random.sample(range(11), random.randrange(5)) for _ in range(60)]
    values = [{f"k{i}": random.choice((1, 1, "x")) for i in sorted(names)} for names in chosen]
    network = IN_ANY_ORDER.compile(JsonSchema(schema, extra="allow"))
    valid = validator(schema, 2020)
    for value in values:
        texts = [json.dumps(dict(ordered)) for ordered in (value.items(), reversed(value.items()))]
        if not valid.is_valid(value):
            assert not any(accepts(network, text) for text in texts), value
    assert all(accepts(network, json.dumps({f"k{i}": 1})) for i in range(11))


def test_what_has_to_be_multiplied_out_is_bounded_and_its_position_is_named() -> None:
    some = [{"required": [f"a{i}"]} for i in range(30)]
    product = {"properties": {"x": {"type": "object", "allOf": [{"anyOf": some[i::3]} for i in range(3)]}}}
    assert compiled(product)
    many = {
        "x": {"type": "object", "allOf": [{"anyOf": [{"required": [f"{a}{i}"]} for i in range(30)]} for a in "abc"]}
    }
    with pytest.raises(hg.UnsupportedConstraint, match="/properties/x") as error:
        compiled({"properties": many})
    assert "combinations of alternatives" in str(error.value)


@pytest.mark.parametrize("n", [65, 90])
def test_tagged_models_are_served(n: int) -> None:
    models = [create_model(f"M{i}", kind=(Literal[f"m{i}"], ...), x=(int, ...)) for i in range(n)]
    outer = create_model("Outer", item=(Union[tuple(models)], ...))  # type: ignore[valid-type]  # noqa: UP007
    matcher = COMPILER.compile(coerce(outer))
    assert accepts(matcher, f'{{"item": {{"kind": "m{n - 1}", "x": 1}}}}')
    assert not accepts(matcher, f'{{"item": {{"kind": "m{n}", "x": 1}}}}')


def test_more_constants_than_a_text_may_be_read_in_ways_are_read_as_one() -> None:
    schema = {"enum": [{"v": {"n": [i]}} for i in range(1300)]}
    network = IN_ANY_ORDER.compile(JsonSchema(schema))
    assert not wrong(schema, [{"v": {"n": [i]}} for i in (0, 130, 1299, 1300)], network)


_SCALARS = st.sampled_from([None, True, 0, 1, 1.0, "a", "b", "ab"])
_CONSTANTS = st.one_of(
    _SCALARS, st.lists(_SCALARS, max_size=2), st.dictionaries(st.sampled_from(["kind", "v"]), _SCALARS, max_size=2)
)
_TAGGED = st.builds(
    lambda tags, value, name: {
        "type": "object",
        "properties": {name: {"enum": tags}, "w": value},
        "required": [name],
    },
    st.lists(_SCALARS, min_size=1, max_size=2),
    st.sampled_from([{"type": "integer"}, {"type": "string"}, {}]),
    st.sampled_from(["kind", "v"]),
)
_BRANCHES = st.one_of(
    st.builds(lambda value: {"const": value}, _CONSTANTS),
    st.builds(lambda values: {"enum": values}, st.lists(_CONSTANTS, min_size=1, max_size=3)),
    _TAGGED,
    st.builds(lambda low, size: {"type": "number", "minimum": low, "maximum": low + size}, *[st.integers(0, 4)] * 2),
    st.sampled_from([{"type": "string", "pattern": p} for p in ("^a", "^b", "^ab?$", "b$")]),
    st.sampled_from([{"type": "null"}, {"type": "array", "maxItems": 1}, {"required": ["w"]}]),
)


@settings(max_examples=repeats(40, 1000))
@given(
    st.lists(_BRANCHES, min_size=5, max_size=9),
    st.sampled_from(["oneOf", "oneOf", "anyOf"]),
    st.booleans(),
    st.lists(_CONSTANTS, max_size=8),
)
def test_random_unions_have_exactly_their_values(
    branches: list[Any], keyword: str, negated: bool, values: list[Any]
) -> None:
    schema = {"not": {keyword: branches}} if negated else {keyword: branches}
    near = [{"kind": tag, "w": w} for tag in (None, 1, "a") for w in (1, "x")]
    near += [0.5, 3, "aa", "bb", [1, 2], {"kind": "a"}, {"v": 1, "w": 1}, {"w": 2}]
    try:
        network = IN_ANY_ORDER.compile(JsonSchema(schema, extra="allow", key_order="any", spelling="any"))
    except hg.InvalidConstraint:  # no value is valid
        assert not any(map(validator(schema, 2020).is_valid, [*values, *near]))
    except hg.UnsupportedConstraint as error:
        assert error.losses
    else:
        assert not wrong(schema, [*values, *near], network)
