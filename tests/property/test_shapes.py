"""Components of equal NFAs share what they are but for their callees, and count the same work."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton import rtn
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.automaton.rtn import Component, ComponentBuilder
from hf_guided.regex import ANYTHING, json_spelling
from hf_guided.regex.ast import alt, repeat, text
from tests.effort import repeats

STATES = 4
NODES = [
    text("a"),
    text("ab"),
    alt(text("a"), text("b")),
    repeat(text("c")),
    json_spelling(ANYTHING),
    repeat(text("d"), 9),
]
EDGES = st.tuples(st.integers(0, STATES - 1), st.one_of(st.sampled_from(NODES), st.sampled_from("xyz")))
MOVES = st.lists(st.tuples(EDGES, st.integers(0, STATES - 1)), min_size=1, max_size=6)


def component(moves: list[Any], numbers: dict[str, int]) -> tuple[Component, int]:
    """An automaton of some languages and calls between a few states; and the work that it took."""
    meter = WorkMeter()
    builder = ComponentBuilder(meter)
    first, *_, last = [builder.state() for _ in range(STATES + 2)]
    builder.epsilon(first, first + 1)
    builder.epsilon(last - 1, last)
    for (source, what), target in moves:
        if isinstance(what, str):
            builder.call(what, first + 1 + source, first + 1 + target)
        else:
            between = builder.state()
            builder.add(what, first + 1 + source, between)
            builder.epsilon(between, first + 1 + target)
    made = builder.component(first, last, lambda callee: numbers[str(callee)])
    return made, meter.work


def content(component: Component) -> Any:
    """What two components have in common that are equal."""
    dfa, calls = component.dfa, [(callee, after.tolist()) for callee, after in component.calls]
    return dfa.table.tolist(), dfa.byte_class.tolist(), dfa.accepting.tolist(), dfa.start, calls


@settings(max_examples=repeats(60, 1_000), deadline=None)
@given(MOVES)
def test_equal_components_are_made_once(moves: list[Any]) -> None:
    numbers, others = {"x": 1, "y": 2, "z": 3}, {"x": 9, "y": 8, "z": 7}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rtn, "_kept_shapes", ByteCache(0))
        alone, work = component(moves, numbers)
    first, first_work = component(moves, numbers)
    second, second_work = component(moves, others)
    assert content(first) == content(alone)
    assert work == first_work == second_work
    assert second.shape is first.shape and second.dfa is first.dfa
    renamed = dict(zip(numbers.values(), others.values(), strict=True))
    assert [callee for callee, _ in second.calls] == [renamed[callee] for callee, _ in first.calls]


@settings(max_examples=repeats(60, 1_000), deadline=None)
@given(MOVES, MOVES)
def test_other_components_have_their_own(one: list[Any], other: list[Any]) -> None:
    numbers = {"x": 1, "y": 2, "z": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rtn, "_kept_shapes", ByteCache(0))
        expected = [content(component(moves, numbers)[0]) for moves in (one, other)]
    assert [content(component(moves, numbers)[0]) for moves in (one, other)] == expected


@given(MOVES)
def test_leaves(moves: list[Any]) -> None:
    made, _ = component(moves, {"x": 1, "y": 2, "z": 3})
    expected = made.dfa.accepting.copy()
    for _, after in made.calls:
        expected |= after != 0
    assert made.shape.leaves.tolist() == expected.tolist()


def test_components_travel_with_what_they_share() -> None:
    moves = [((0, text("a")), 1), ((1, "x"), 3)]
    pair = [component(moves, {"x": number})[0] for number in (1, 2)]
    travelled = pickle.loads(pickle.dumps(pair))
    assert list(map(content, travelled)) == list(map(content, pair))
    assert travelled[0].shape is travelled[1].shape


def test_large_ones_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rtn, "_kept_shapes", ByteCache(1 << 20))
    monkeypatch.setattr(rtn, "_LARGEST_KEPT", 3_000)
    moves = [((0, text("a")), 1), ((1, json_spelling(ANYTHING)), 3)]
    assert component(moves, {})[0].shape is not component(moves, {})[0].shape
    monkeypatch.setattr(rtn, "_LARGEST_KEPT", 100_000)
    assert component(moves, {})[0].shape is component(moves, {})[0].shape
    assert np.array_equal(component(moves, {})[0].shape.after_calls, np.empty((0, component(moves, {})[0].dfa.states)))
