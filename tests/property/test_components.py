"""Components of a network: their states, and how they travel between processes."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.rtn import Component, ComponentBuilder
from hf_guided.regex import ANYTHING, json_spelling
from hf_guided.regex.ast import alt, repeat, text

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


def component(moves: list[Any], numbers: dict[str, int]) -> Component:
    """An automaton of some languages and calls between a few states."""
    builder = ComponentBuilder(WorkMeter())
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
    return builder.component(first, last, lambda callee: numbers[str(callee)])


def content(component: Component) -> Any:
    """What two components have in common that are equal."""
    dfa, calls = component.dfa, [(callee, after.tolist()) for callee, after in component.calls]
    return dfa.table.tolist(), dfa.byte_class.tolist(), dfa.accepting.tolist(), dfa.start, calls


@given(MOVES)
def test_leaves(moves: list[Any]) -> None:
    made = component(moves, {"x": 1, "y": 2, "z": 3})
    expected = made.dfa.accepting.copy()
    for _, after in made.calls:
        expected |= after != 0
    assert made.leaves.tolist() == expected.tolist()


def test_components_travel() -> None:
    moves = [((0, text("a")), 1), ((1, "x"), 3)]
    made = component(moves, {"x": 1})
    assert content(pickle.loads(pickle.dumps(made))) == content(made)
