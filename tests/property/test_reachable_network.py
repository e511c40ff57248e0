"""A network that is built as far as texts reach is the network that is built at once."""

from __future__ import annotations

import json
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton.component_tables import ComponentTables
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.rtn import Rtn, build_rtn
from hf_guided.automaton.token_trie import token_trie
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.network import NetworkBackend
from hf_guided.backends.network_of_schema import NetworkPlan, reachable_network
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded, ConstraintError
from hf_guided.options import NETWORK, CompileLimits
from hf_guided.regex import characters
from hf_guided.schema.formats import FORMATS
from hf_guided.schema.normalize import Normalizer
from hf_guided.schema.sizes import size_of_content
from hf_guided.schema.to_network import Positions, Track
from tests.effort import repeats
from tests.property.schema_examples import DRAFTS, Writer
from tests.toy import all_bytes, components_of, mask_of

BYTES = all_bytes()
TABLES = ComponentTables(token_trie(BYTES))
STYLES: list[dict[str, Any]] = [{}, {"spelling": "any", "key_order": "any"}, {"whitespace": "compact"}]
MARKED: list[dict[str, Any]] = [
    {"marks": ("</p>",)},
    {"marks": ("</tool_call>", "<|x|>", "[X]"), "whitespace": "compact"},
]
STEPS_OF_A_STATE = 500  # many times what real schemas take
OF_ANY_SCHEMA = 500  # states of a number in its one spelling, which all schemas share


def positions(schema: Any, marks: tuple[str, ...] = (), **options: Any) -> Positions | None:
    """Of a schema, or None if it has no value, or something is lost."""
    constraint = JsonSchema(schema, extra="allow", **options)
    n = Normalizer.of(constraint)
    try:
        read = Positions(n, constraint.style, closed=False, key_order=constraint.key_order, marks=marks)
    except (ConstraintError, CompileLimitExceeded):
        return None
    return None if n.losses else read


@settings(max_examples=repeats(20, 400))
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(DRAFTS)), st.sampled_from([*STYLES, *MARKED]))
def test_what_is_built_later_is_as_small_as_it_looks(random: Random, draft: int, options: dict[str, Any]) -> None:
    """Or a limit would be reached in the middle of a text."""
    read = positions(Writer(random, draft).document(), **options)
    sizes = []
    if read is not None:
        sizes = [size_of_content(content, read.marks) for _, content in read.reached([read.whole])]
    if read is None or None in sizes:
        return
    most = OF_ANY_SCHEMA + sum(size for size in sizes if size is not None)
    build_rtn(read.root, read.build, WorkMeter(CompileLimits(20 * most, STEPS_OF_A_STATE * most)))


def check_size(schema: Any, **options: Any) -> None:
    """Whether it is built later, and within the limits of a component as small as it looks."""
    read = positions(schema, **options)
    if read is None:
        return
    ((_, content),) = read.reached([read.whole])
    size = size_of_content(content, read.marks)
    assert size is not None
    (component,) = build_rtn(
        read.root, read.build, WorkMeter(CompileLimits(20 * size, STEPS_OF_A_STATE * size))
    ).values()
    assert component.dfa.accepting.any()


DECIMALS = st.decimals(-(10**29), 10**29, places=8).map(str).map(json.loads) | st.integers(-(10**29), 10**29)


@settings(max_examples=repeats(20, 300))
@given(
    st.lists(DECIMALS, min_size=2, max_size=2).map(sorted),
    st.lists(DECIMALS, max_size=8),
    st.sampled_from(["number", "integer"]),
    st.sampled_from(STYLES),
)
def test_numbers_between_bounds_are_small(bounds, excluded, name, options) -> None:
    but_for = {"not": {"enum": excluded}} if excluded else {}
    check_size({"type": name, "minimum": bounds[0], "maximum": bounds[1], **but_for}, **options)


@pytest.mark.parametrize("options", [*STYLES, *MARKED])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_formats_are_small(name: str, options: dict[str, Any]) -> None:
    if "maxLength" not in FORMATS[name]:
        check_size({"type": "string", "format": name}, **options)


@pytest.mark.parametrize("options", [*STYLES, *MARKED])
def test_strings_but_some_words_are_small(options: dict[str, Any]) -> None:
    check_size({"type": "string", "not": {"enum": ["a", '"', "</p>x", "longer words", "\n" * 30]}}, **options)


@pytest.mark.parametrize("options", STYLES)
@pytest.mark.parametrize("draft", sorted(DRAFTS))
def test_numbers_that_are_no_integers_are_small(draft: int, options: dict[str, Any]) -> None:
    check_size({"$schema": DRAFTS[draft], "type": "number", "not": {"type": "integer"}}, **options)


@pytest.mark.parametrize("options", STYLES)
def test_numbers_with_many_digits_are_not_small(options: dict[str, Any]) -> None:
    numbers = [*(7**1_000 + i for i in range(20)), *(float(f"{i}e300") for i in range(1, 20))]
    read = positions({"type": "integer", "enum": numbers}, **options)
    assert read is not None
    ((_, content),) = read.reached([read.whole])
    size = size_of_content(content, ())
    assert size is not None
    (component,) = build_rtn(read.root, read.build, WorkMeter(NETWORK)).values()
    assert component.dfa.states <= size


@pytest.mark.parametrize("spelling", ["canonical", "any"])
@pytest.mark.parametrize("name", sorted(FORMATS))
def test_no_mask_waits_for_a_format_that_takes_long(name: str, spelling: Any) -> None:
    """What is built when a text reaches it has few characters; that takes milliseconds."""
    read = positions({"type": "array", "items": {"type": "string", "format": name}}, spelling=spelling)
    assert read is not None
    try:
        network = reachable_network(NetworkPlan.of_schema(read), WorkMeter(NETWORK))
    except CompileLimitExceeded:
        return
    assert network is not None
    (language,) = [read.language(clause) for _, content in read.reached([read.whole]) for clause in content.scalars]
    assert network.at_once_bytes > 0 or (language is not None and characters(language) <= 9_000)


@pytest.mark.parametrize("options", STYLES)
def test_a_text_builds_what_it_reaches(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = Positions.build

    def noted(self: Positions, callee: Any, builder: Any) -> tuple[int, int]:
        built.append(callee)
        return build(self, callee, builder)

    monkeypatch.setattr(Positions, "build", noted)
    record = {"type": "object", "properties": {f"field {i}": {"type": "integer"} for i in range(5)}}
    schema = {
        "type": "object",
        "properties": {f"record {i}": {**record, "required": [f"field {i}"]} for i in range(5)},
        "required": ["record 0"],
    }
    backend = NetworkBackend(BYTES)
    compiled = backend.compile(JsonSchema(schema, extra="allow", **options))
    assert len(built) == 1
    engine = compiled.new_engine()
    assert all(engine.accept(BYTES.token_bytes.index(bytes([byte]))) for byte in b'{"record 0": {"field 0": 1}}')
    assert engine.is_completed()
    reached = len(built)
    assert reached > 1
    components = components_of(engine)
    assert len(built) >= reached + 4  # the other records
    assert len(components) > len(built)  # white space and numbers are no positions


def test_a_name_that_begins_like_another_builds_nothing() -> None:
    """Whether it can end is decided by the names alone."""
    fields = {f"field {i}": {"type": "array", "items": {"const": i}} for i in range(50)}
    compiled = NetworkBackend(BYTES).compile(JsonSchema({"type": "object", "properties": fields}, key_order="any"))
    engine = cast(FrameEngine, compiled.new_engine())
    for byte in b'{"field 1": [1], "fiel':
        mask_of(engine, BYTES)
        assert engine.accept(BYTES.token_bytes.index(bytes([byte])))
    components = engine.network.components
    assert isinstance(components, Rtn)
    assert len(components._components) < 25


def test_all_that_different_items_may_hold_is_built_at_once() -> None:
    """Or a row would wait for it, and reach its limits."""
    fields = {f"field {i}": {"type": "array", "items": {"const": i}} for i in range(50)}
    item = {"type": "object", "properties": fields}
    read = positions({"properties": {"a": {"type": "array", "items": item, "uniqueItems": True}}})
    later = None if read is None else reachable_network(NetworkPlan.of_schema(read), WorkMeter(NETWORK))
    assert later is not None
    components = later.network.components
    assert isinstance(components, Rtn)
    (track,) = (number for number in range(len(components)) if isinstance(components.name(number), Track))
    graph = later.network.graph
    count = len(components._components)
    graph.is_unbounded(track, 1)
    assert len(components._components) == count > 50
    assert read is not None
    with pytest.raises(CompileLimitExceeded):
        reachable_network(NetworkPlan.of_schema(read), WorkMeter(CompileLimits(max_states=1_000)))
