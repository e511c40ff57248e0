"""Nested counted repetitions, compared with a matcher that tracks sets of positions."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.effort import repeats
from tests.property.test_automaton import check_minimal

Positions = frozenset[int]
SHORT = ["".join(letters) for length in range(8) for letters in product("ab", repeat=length)]


class Counted(NamedTuple):
    """A regular expression, and a function from start positions in a text to the end positions of its matches."""

    pattern: str
    ends: Callable[[str, Positions], Positions]


def letter(letters: str) -> Counted:
    pattern = letters if len(letters) == 1 else f"[{letters}]"
    return Counted(pattern, lambda text, at: frozenset(i + 1 for i in at if i < len(text) and text[i] in letters))


def sequence(parts: list[Counted]) -> Counted:
    def ends(text: str, at: Positions) -> Positions:
        for part in parts:
            at = part.ends(text, at)
        return at

    return Counted("".join(f"(?:{part.pattern})" for part in parts), ends)


def alternation(parts: list[Counted]) -> Counted:
    return Counted(
        "|".join(part.pattern for part in parts),
        lambda text, at: frozenset().union(*(part.ends(text, at) for part in parts)),
    )


def repetition(body: Counted, low: int, high: int | None) -> Counted:
    def ends(text: str, at: Positions) -> Positions:
        end_positions: set[int] = set()
        # Without an upper bound, more rounds than this reach no new position.
        for count in range((low + len(text) + 1 if high is None else high) + 1):
            if count >= low:
                end_positions |= at
            at = body.ends(text, at)
        return frozenset(end_positions)

    return Counted(f"(?:{body.pattern}){{{low},{'' if high is None else high}}}", ends)


bounds = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: (min(pair), max(pair)))
letters = st.sampled_from(["a", "b", "ab"]).map(letter)
counted = st.recursive(
    letters,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(sequence),
        st.lists(inner, min_size=2, max_size=3).map(alternation),
        st.builds(lambda body, pair: repetition(body, *pair), inner, bounds),
        st.builds(lambda body, low: repetition(body, low, None), inner, st.integers(0, 9)),
    ),
    max_leaves=6,
)


@settings(max_examples=repeats(33, 100))
@given(counted, bounds, st.randoms(use_true_random=False))
def test_accepted_texts_equal_the_set_matcher(body: Counted, low_high: tuple[int, int], draw: random.Random) -> None:
    """And the automaton is minimal, though members of sets that others dominate are left out."""
    whole = repetition(body, *low_high)
    try:
        dfa = regex_dfa(parse_fullmatch(whole.pattern), WorkMeter(CompileLimits(max_work=1_000_000)))
    except CompileLimitExceeded:
        assume(False)  # Hypothesis fails where most are
    long_texts = [
        "".join(draw.choices("ab", weights=(draw.random() + 0.01, 1), k=draw.randint(8, 50))) for _ in range(25)
    ]
    for text in draw.sample(SHORT, 40) + long_texts:
        assert dfa.accepts(text.encode()) == (len(text) in whole.ends(text, frozenset({0}))), (whole.pattern, text)
    if dfa.states < 200:
        check_minimal(dfa)
