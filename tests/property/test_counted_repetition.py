"""Counted repetitions of anything, inside one another, against a matcher that keeps sets of positions."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_guided.automaton import dominance, nfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.piece_cache import PieceCache
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.effort import repeats

Positions = frozenset[int]
SHORT = ["".join(letters) for length in range(8) for letters in product("ab", repeat=length)]


class Counted(NamedTuple):
    """A regular expression, and where its matches that begin at some positions of a text end."""

    pattern: str
    ends: Callable[[str, Positions], Positions]


def letter(letters: str) -> Counted:
    pattern = letters if len(letters) == 1 else f"[{letters}]"
    return Counted(pattern, lambda text, at: frozenset(i + 1 for i in at if i < len(text) and text[i] in letters))


def row(parts: list[Counted]) -> Counted:
    def ends(text: str, at: Positions) -> Positions:
        for part in parts:
            at = part.ends(text, at)
        return at

    return Counted("".join(f"(?:{part.pattern})" for part in parts), ends)


def either(parts: list[Counted]) -> Counted:
    return Counted(
        "|".join(part.pattern for part in parts),
        lambda text, at: frozenset().union(*(part.ends(text, at) for part in parts)),
    )


def times(body: Counted, low: int, high: int | None) -> Counted:
    def ends(text: str, at: Positions) -> Positions:
        found: set[int] = set()
        # Without a bound: what so many rounds did not reach, no more do.
        for count in range((low + len(text) + 1 if high is None else high) + 1):
            if count >= low:
                found |= at
            at = body.ends(text, at)
        return frozenset(found)

    return Counted(f"(?:{body.pattern}){{{low},{'' if high is None else high}}}", ends)


bounds = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda both: (min(both), max(both)))
letters = st.sampled_from(["a", "b", "ab"]).map(letter)
counted = st.recursive(
    letters,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(row),
        st.lists(inner, min_size=2, max_size=3).map(either),
        st.builds(lambda body, both: times(body, *both), inner, bounds),
        st.builds(lambda body, low: times(body, low, None), inner, st.integers(0, 9)),
    ),
    max_leaves=6,
)


@settings(max_examples=repeats(33, 100))
@given(counted, bounds, st.randoms(use_true_random=False))
def test_the_strings_are_those_of_a_matcher_of_sets(body: Counted, both: tuple[int, int], draw: random.Random) -> None:
    whole = times(body, *both)
    dfa = regex_dfa(parse_fullmatch(whole.pattern), WorkMeter())
    long = ["".join(draw.choices("ab", weights=(draw.random() + 0.01, 1), k=draw.randint(8, 50))) for _ in range(25)]
    for text in draw.sample(SHORT, 40) + long:
        assert dfa.accepts(text.encode()) == (len(text) in whole.ends(text, frozenset({0}))), (whole.pattern, text)


@settings(max_examples=repeats(25, 60))
@given(counted, bounds)
def test_nothing_but_the_work_changes(body: Counted, both: tuple[int, int]) -> None:
    """The minimal automaton is one and the same, whether dominated members are left out or not."""
    node = parse_fullmatch(times(body, *both).pattern)
    made = regex_dfa(node, WorkMeter())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dominance.Dominance, "undominated", lambda self, members: members)
        patch.setattr(nfa, "_kept", PieceCache())
        try:
            plain = regex_dfa(node, WorkMeter(CompileLimits(max_work=300_000)))
        except CompileLimitExceeded:
            assume(False)
    pairs, todo = {(made.start, plain.start)}, [(made.start, plain.start)]
    while todo:
        ours, theirs = todo.pop()
        assert bool(made.accepting[ours]) == bool(plain.accepting[theirs])
        for byte in b"ab":
            pair = made.advance(ours, bytes([byte])), plain.advance(theirs, bytes([byte]))
            if pair not in pairs:
                pairs.add(pair)
                todo.append(pair)
    assert len(pairs | {(0, 0)}) == made.states == plain.states
