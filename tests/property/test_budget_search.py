"""Token budgets of grammars, whose engines do not know the way to the end: it is searched, and kept."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.backends import budget_search as searched_module
from hf_guided.backends import registry
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.budget_search import CompletionSearch, with_budget
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.values import Choice, Constraint, Grammar
from hf_guided.options import SEARCH_WORK
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.effort import repeats
from tests.property.strategies import allowed, single_bytes, still_open, tiny, walk_within

CONSTRAINTS: dict[str, Constraint] = {
    "lark": Grammar('start: "<" start ">" | NAME "," start | NAME\nNAME: /[a-z]{2,}/'),
    "lists": Grammar('start: "(" start ("+" start)* ")" | /[0-9]+/ | "\\"" /[^"]+/ "\\""'),
}
TEXTS = {
    "lark": r"<*([a-z]{2,}|[a-z]{2,},<*)+>*",
    "lists": r"([0-9()+]|\"[^\"]+\")+",
}
BRACKETS = {"lark": "<>", "lists": "()"}


@lru_cache
def compiled(name: str) -> CompiledConstraint:
    made = Compiler(tiny()).compile(CONSTRAINTS[name])
    assert made.keeps_budget
    return made


def is_valid(name: str, text: str) -> bool:
    bare, (opening, closing) = re.sub('"[^"]+"', "0", text), BRACKETS[name]
    return re.fullmatch(TEXTS[name], text) is not None and bare.count(opening) == bare.count(closing)


@pytest.mark.parametrize("name", CONSTRAINTS)
@settings(max_examples=repeats(4, 25))
@given(never_stops=st.booleans(), data=st.data())
def test_any_sampling_closes_the_text_within_the_budget(name, never_stops, data):
    matcher = compiled(name).matcher()
    minimum = matcher.min_tokens_to_finish()
    assert minimum is not None
    random = data.draw(st.randoms(use_true_random=False))
    left = random.randint(minimum, 4 * minimum)
    taken: list[int] = []
    while not matcher.is_terminated():
        assert left > 0, "the budget ended before the text"
        permitted = allowed(matcher, left)
        token_id = random.choice(still_open(matcher, permitted) if never_stops else permitted)
        assert matcher.accept_token(token_id)
        taken.append(token_id)
        left -= 1
    assert is_valid(name, matcher.compiled.vocabulary.decode_bytes(taken).decode())


@pytest.mark.parametrize("name", CONSTRAINTS)
@settings(max_examples=repeats(8, 25))
@given(data=st.data())
def test_masks_do_not_depend_on_rollback_fork_and_reset(name, data):
    """Masks depend on the text and on the remaining budget, not on the history of the matcher."""
    matcher = compiled(name).matcher()
    minimum = matcher.min_tokens_to_finish()
    assert minimum is not None
    random = data.draw(st.randoms(use_true_random=False))
    left = minimum + random.randint(0, 8)
    taken = walk_within(matcher, left, random.randint(1, minimum), random)
    left -= len(taken)
    back = random.randint(0, len(taken))
    twin = matcher.fork()
    matcher.rollback(back)
    for token_id in taken[len(taken) - back :]:
        assert matcher.accept_token(token_id)
    for one in (matcher, twin):  # the known completion depends on where the search started
        needed = one.min_tokens_to_finish()
        assert needed is not None
        assert needed <= left
    matcher.reset()
    assert matcher.min_tokens_to_finish() == minimum


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_large_budget_masks_nothing(name):
    matcher = compiled(name).matcher()
    assert allowed(matcher, 10**6) == allowed(matcher)
    assert matcher.accept_token(allowed(matcher)[0])
    assert allowed(matcher, 10**6) == allowed(matcher)


@pytest.mark.parametrize(
    ("engine", "constraint"),
    [("llguidance", Choice(["aa", "bb"])), ("xgrammar", Choice(["aa"])), ("xgrammar", Grammar('root ::= "a"'))],
    ids=str,
)
def test_engines_that_are_named_keep_no_budget_but_for_lark(engine, constraint):
    made = Compiler(tiny()).compile(constraint, engine)
    assert not made.keeps_budget
    assert made.matcher().min_tokens_to_finish() is None


def test_budget_is_ignored_if_no_completion_is_found():
    plain = registry.create("llguidance", tiny()).compile(Grammar("start: /[a-z]{900}/"))
    matcher = with_budget(plain).matcher()
    assert matcher.min_tokens_to_finish() is None
    assert allowed(matcher, 3) == allowed(matcher)


def test_search_does_not_depend_on_the_wall_clock(monkeypatch):
    """The clock of this test advances by a minute at each reading, as on a busy machine."""
    clock = itertools.count(step=60)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    compiled_ = with_budget(registry.create("llguidance", tiny()).compile(Grammar('start: "[" (start | /[0-9]+/) "]"')))
    assert compiled_.matcher().min_tokens_to_finish() is not None


@pytest.mark.parametrize(
    ("grammar", "begin", "pattern"),
    [
        ('root ::= ("- " [a-z ]+ "\\n")+', "- xy", r"(- [a-z ]+\n)+"),
        ('root ::= "a" .* "zq"', "abc", r"a.*zq"),
        ('root ::= [0-9]+ "=" [0-9]+', "12", r"[0-9]+=[0-9]+"),
        ('start: (FIELD ("," FIELD)* "\\n")+\nFIELD: /[a-z0-9 ]+/', "x,y", r"([a-z0-9 ]+(,[a-z0-9 ]+)*\n)+"),
        ('start: "SELECT " NAME " FROM " NAME ";"\nNAME: /[a-z_]+/', "SELECT x", r"SELECT [a-z_]+ FROM [a-z_]+;"),
    ],
)
def test_end_after_characters_that_repeat_is_found(grammar, begin, pattern):
    """The end is found at the start, and again after a text that is not on the way found first."""
    compiled_ = Compiler(tiny()).compile(Grammar(grammar))
    assert compiled_.keeps_budget
    for written in ("", begin):
        matcher = compiled_.matcher()
        tokens = compiled_.vocabulary.encode_bytes(written.encode())
        assert all(map(matcher.accept_token, tokens))
        for left in range(matcher.min_tokens_to_finish(), 1, -1):
            tokens.append(allowed(matcher, left)[0])
            assert matcher.accept_token(tokens[-1])
        assert re.fullmatch(pattern, compiled_.vocabulary.decode_bytes(tokens).decode())


@pytest.mark.parametrize(
    ("grammar", "fits"),
    [
        ('# an escape like "\\ud83d" is half a pair\nroot ::= "a" | "b"', 2),
        ('root ::= "(" [^"\\ud83d"]{3} ")" # not "\\uDE00"', 6),
        ('// as in "\\ud83d"\nstart: "a" | "b"', 2),
    ],
)
def test_half_of_a_character_in_quotes_is_no_literal(grammar, fits):
    matcher = Compiler(tiny()).compile(Grammar(grammar)).matcher()
    assert matcher.min_tokens_to_finish() <= fits


class NeverEnds:
    """An engine that allows all tokens for ever, and counts those that it gets."""

    taken = 0

    def fork(self) -> NeverEnds:
        return self

    def accept(self, token_id: int) -> bool:
        self.taken += 1
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        self.taken += len(token_ids)
        return len(token_ids)

    def is_completed(self) -> bool:
        return False

    def jump_forward_bytes(self) -> bytes:
        return b""


@pytest.mark.parametrize("grammar", ['start: "a"', "start: /[ -~]{3}/", 'start: "' + "x" * 64 + '" "' + "y" * 63 + '"'])
def test_a_search_ends_after_its_work(grammar):
    engine = NeverEnds()
    assert CompletionSearch(single_bytes(), grammar).find(engine, SEARCH_WORK) is None
    assert engine.taken <= 3 * SEARCH_WORK / 30  # the moves of the last states are not counted


def record_searches(monkeypatch) -> list[int]:
    """Return a list that receives the work that each search may do."""
    recorded: list[int] = []
    find = CompletionSearch.find

    def recording_find(self, engine, work):
        recorded.append(work)
        return find(self, engine, work)

    monkeypatch.setattr(CompletionSearch, "find", recording_find)
    return recorded


def test_failed_searches_become_rarer(monkeypatch):
    """The start has a short completion, but after a letter sixty more are needed, which ten steps do not find."""
    monkeypatch.setattr(searched_module, "LATER_SEARCH_WORK", 5000)
    searched = record_searches(monkeypatch)
    compiled_ = with_budget(registry.create("llguidance", single_bytes()).compile(Grammar('start: "!" | /[a-z]{61,}/')))
    matcher = compiled_.matcher()
    for i in range(58):
        known = matcher.min_tokens_to_finish()
        assert matcher.accept_token(ord("a") + i % 26)
    assert len(searched) == 5 and known == 5  # the last search found four letters and the end
    matcher.rollback(58)
    assert matcher.min_tokens_to_finish() == 2


def test_completion_from_the_start_is_searched_once(monkeypatch):
    searched = record_searches(monkeypatch)
    compiled_ = with_budget(registry.create("llguidance", tiny()).compile(Grammar('start: "[" (start | /[0-9]+/) "]"')))
    matchers = [compiled_.matcher() for _ in range(3)]
    assert {matcher.min_tokens_to_finish() for matcher in matchers} == {matchers[0].min_tokens_to_finish()}
    assert len(searched) == 1
    assert matchers[0].accept_token(matchers[0].compiled.vocabulary.encode_bytes(b"[")[0])
    assert matchers[1].num_accepted == 0 and compiled_.matcher().min_tokens_to_finish() is not None


@pytest.mark.parametrize("text", ["start: /[a-z]/*", "start: /[a-z]+/"])
def test_a_text_that_may_end_anywhere_is_near_its_limit_only_there(monkeypatch, text):
    compiled_ = with_budget(registry.create("llguidance", tiny()).compile(Grammar(text)))
    matcher = compiled_.matcher()
    [letter] = compiled_.vocabulary.encode_bytes(b"a")
    bitmask = allocate_bitmask(1, compiled_.vocabulary.padded_size)
    forks: list[int] = []
    fork = type(matcher).fork
    monkeypatch.setattr(type(matcher), "fork", lambda self: forks.append(left) or fork(self))
    for left in range(60, 0, -1):
        matcher.fill_next_token_bitmask(bitmask, tokens_left=left)
        narrowed = matcher.narrowed(left, bitmask[0].numpy())
        assert (narrowed is not None) == (allowed(matcher) != allowed(matcher, tokens_left=left))
        if left > 1:
            assert matcher.accept_token(letter)
    assert max(forks) <= 20, "far from the limit, no further mask is made"
