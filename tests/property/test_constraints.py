"""Which changes of random schemas change the key of a constraint."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hf_guided.constraints.values import Choice, JsonSchema

NAMES = st.sampled_from(["a", "b", "description", "title", "properties", "default", "$ref", "x y", "é"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 0.5]) | st.text(max_size=3)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
ANNOTATION = st.sampled_from(["title", "description", "$comment", "default", "examples", "deprecated", "readOnly"])


def _object_schema(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "string", "integer"]),
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "$defs": st.dictionaries(NAMES, inner, max_size=2),
            "items": inner,
            "not": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "enum": st.lists(DATA, min_size=1, max_size=2),
            "const": DATA,
            "x-unknown": DATA,
        },
    )


SCHEMAS = st.recursive(st.booleans() | st.just({}), _object_schema, max_leaves=6)


def _shuffled(schema: Any, draw: Any) -> Any:
    """The same schema with its keywords in another order, and with additional annotations."""
    if not isinstance(schema, dict):
        return schema
    shuffled: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in ("properties", "$defs"):
            names = list(value) if keyword == "properties" else draw(st.permutations(list(value)))
            shuffled[keyword] = {name: _shuffled(value[name], draw) for name in names}
        elif keyword == "anyOf":
            shuffled[keyword] = [_shuffled(item, draw) for item in value]
        elif keyword in ("items", "not"):
            shuffled[keyword] = _shuffled(value, draw)
        else:
            shuffled[keyword] = value
    shuffled.update({name: draw(DATA) for name in draw(st.lists(ANNOTATION, max_size=2, unique=True))})
    return {keyword: shuffled[keyword] for keyword in draw(st.permutations(list(shuffled)))}


@given(SCHEMAS, st.data())
def test_order_of_keywords_and_annotations_do_not_change_the_key(schema: Any, data: st.DataObject) -> None:
    # A "$ref" in data may happen to name an annotation, which then counts. Another test covers this.
    assert JsonSchema(_shuffled(schema, data.draw)).key == JsonSchema(schema).key


@given(st.lists(NAMES, min_size=2, max_size=5, unique=True), st.data())
def test_order_of_properties_changes_the_key(names: list[str], data: st.DataObject) -> None:
    other = data.draw(st.permutations(names))
    keys = [JsonSchema({"properties": {name: {} for name in order}}).key for order in (names, other)]
    assert (keys[0] == keys[1]) == (names == other)


@given(DATA, DATA)
def test_data_is_compared_exactly(first: Any, second: Any) -> None:
    same = _exact(first) == _exact(second)
    assert (JsonSchema({"const": first}).key == JsonSchema({"const": second}).key) == same
    assert (JsonSchema({"enum": [first]}) == JsonSchema({"enum": [second]})) == same


def _exact(value: Any) -> Any:
    """A form whose == also compares types and the order of keys."""
    if isinstance(value, dict):
        return "dict", [(key, _exact(child)) for key, child in value.items()]
    if isinstance(value, list):
        return "list", [_exact(child) for child in value]
    return type(value), value


@given(SCHEMAS)
def test_schema_attribute_equals_the_argument(schema: Any) -> None:
    before = copy.deepcopy(schema)
    constraint = JsonSchema(schema)
    constraint.key  # noqa: B018
    assert _exact(constraint.schema) == _exact(schema) == _exact(before)
    assert JsonSchema(constraint.schema_json) == constraint


@given(st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_choices_share_a_key_exactly_if_their_options_are_equal(first: list[str], second: list[str]) -> None:
    first, second = [*first, "x"], [*second, "x"]
    same = list(dict.fromkeys(first)) == list(dict.fromkeys(second))
    assert (Choice(first).key == Choice(second).key) == same
