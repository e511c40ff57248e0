"""Going back in llguidance, whose own rollback leaves wrong masks: a matcher that went back is like a new one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.values import Grammar, JsonSchema, Regex
from tests.effort import repeats
from tests.property import strategies as draw
from tests.toy import pieces

SUMS = 'start: "(" NUMBER (("+" | "*") (NUMBER | start))? ")"\nNUMBER: /[0-9]{1,2}/'
LISTS = {"type": "array", "items": {"enum": [1, 12, [1]]}, "maxItems": 3}
BACKEND = LLGuidanceBackend(pieces("(*(", ")))", "0123456789", "+", "[[1,", "]]", "12"))
COMPILED = {
    "sums": BACKEND.compile(Grammar(SUMS, syntax="lark")),
    "lists": BACKEND.compile(JsonSchema(LISTS)),
    "words": BACKEND.compile(Regex(r"(\(1{1,3}\)|[0-9]+\+){1,4}")),
}
# One number each: tokens to go back by, a look at the mask, or which token comes next.
moves = st.lists(st.one_of(st.integers(-5, -1), st.just(None), st.integers(0, 30)), max_size=repeats(30, 60))

# In 1.9.1, the library's own matcher allowed two brackets too many at the end of this.
WRONG = "( 2 * ( 4 0 + 5 8 ) -5 *( 4 1 *( 3 ) -5 7 5 + 5 0 -5 7 5 + 5 0 look ))) -5 )) look".split()


def like_new(matcher: Matcher, fresh: Matcher, taken: list[int]) -> None:
    assert all(fresh.accept_token(token) for token in taken)
    assert draw.view(matcher) == draw.view(fresh)


@settings(max_examples=repeats(100, 500))
@given(st.sampled_from(sorted(COMPILED)), moves)
def test_a_matcher_that_went_back_is_like_a_new_one(name: str, moves: list[int | None]) -> None:
    matcher = COMPILED[name].matcher()
    taken: list[int] = []
    for move in moves:
        if move is None:
            like_new(matcher, COMPILED[name].matcher(), taken)
        elif move < 0:
            count = min(-move, len(taken))
            matcher.rollback(count)
            del taken[len(taken) - count :]
        else:
            ahead = COMPILED[name].matcher()  # without a look at the matcher itself, which would repair it
            assert all(ahead.accept_token(token) for token in taken)
            if allowed := draw.allowed(ahead):
                taken.append(allowed[move % len(allowed)])
                assert matcher.accept_token(taken[-1])
    like_new(matcher, COMPILED[name].matcher(), taken)


@pytest.mark.parametrize("name", COMPILED)
def test_rows_that_share_a_grammar_go_back_on_their_own(name: str) -> None:
    matcher, taken = COMPILED[name].matcher(), []
    for _ in range(4):
        taken.append(draw.allowed(matcher)[0])
        assert matcher.accept_token(taken[-1])
    matcher.rollback(1)
    twin = matcher.fork()
    matcher.rollback(2)
    like_new(matcher, COMPILED[name].matcher(), taken[:1])
    like_new(twin, COMPILED[name].matcher(), taken[:3])
    twin.rollback(3)
    like_new(twin, COMPILED[name].matcher(), [])


def test_drafts_that_close_too_many_brackets() -> None:
    vocabulary = BACKEND.vocabulary
    matcher, taken = COMPILED["sums"].matcher(), []
    for move in WRONG:
        if move == "look":
            like_new(matcher, COMPILED["sums"].matcher(), taken)
        elif move.startswith("-"):
            matcher.rollback(int(move[1:]))
            del taken[int(move) :]
        else:
            taken.append(vocabulary.token_bytes.index(move.encode()))
            assert matcher.accept_token(taken[-1])
