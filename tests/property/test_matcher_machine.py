"""Whatever is done to a matcher and its forks, it says what a brute force over all texts of its constraint says.

For every engine: the languages are finite, so that ``re`` lists them, and a state is only the tokens taken.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.values import Choice, Constraint, Grammar, Regex, StructuralTag
from tests.effort import repeats
from tests.property.strategies import BACKENDS, allowed, backend
from tests.toy import letters

VOCABULARY = letters("ab", stop=2)
STOPS = VOCABULARY.stop_token_ids
LONGEST = 8
ALL_TEXTS = ["".join(text) for length in range(LONGEST + 1) for text in product("ab", repeat=length)]
CONSTRAINTS: list[tuple[Constraint, str]] = [
    (Regex("a{2,3}b?|bb(?:ab){0,2}"), "a{2,3}b?|bb(?:ab){0,2}"),
    (Regex("(?:a|ba){1,3}"), "(?:a|ba){1,3}"),
    (Regex("(?=.*ab)[ab]{3,4}(?<!aa)"), "(?=.*ab)[ab]{3,4}(?<!aa)"),
    (Choice(["a", "ab", "abab", "bba", ""]), "a|ab|abab|bba|"),
    (Choice(["aabbaabb"]), "aabbaabb"),
    (Grammar('start: part{1,3}\npart: "a" | "ba"', "lark"), "(?:a|ba){1,3}"),
    (Grammar('root ::= ("a" | "ba"){1,3} "b"?'), "(?:a|ba){1,3}b?"),
    (StructuralTag({"format": {"type": "regex", "pattern": "(ab|b){0,3}"}}), "(ab|b){0,3}"),
]


class Language(NamedTuple):
    """A compiled constraint and all its texts."""

    compiled: CompiledConstraint
    texts: frozenset[str]

    def __repr__(self) -> str:
        return f"<{self.compiled.backend}: {self.compiled.constraint}>"

    def state(self, taken: Sequence[int]) -> tuple[str, bool]:
        """The text after these tokens, and whether it has ended."""
        text = b"".join(VOCABULARY.token_bytes[token_id] or b"" for token_id in taken)
        return text.decode(), any(token_id in STOPS for token_id in taken)

    def takes(self, taken: Sequence[int], token_id: int) -> bool:
        """Whether one of the texts can continue with this token."""
        text, ended = self.state(taken)
        if token_id in STOPS:
            return text in self.texts
        if ended or not 0 <= token_id < len(VOCABULARY.token_bytes) or VOCABULARY.token_bytes[token_id] is None:
            return False
        longer, _ = self.state([*taken, token_id])
        return any(other.startswith(longer) for other in self.texts)

    def forced(self, taken: Sequence[int]) -> str:
        """What all its texts that begin so have in common after it."""
        text, ended = self.state(taken)
        rests = [other[len(text) :] for other in self.texts if other.startswith(text)]
        common = min(rests, key=len)
        while not all(rest.startswith(common) for rest in rests):
            common = common[:-1]
        return "" if ended else common


@cache
def languages(name: str) -> list[Language]:
    """The constraints that an engine enforces."""
    engine = backend(name, VOCABULARY)
    return [
        Language(engine.compile(constraint), frozenset(text for text in ALL_TEXTS if re.fullmatch(pattern, text)))
        for constraint, pattern in CONSTRAINTS
        if not engine.losses(constraint)
    ]


class Machine(RuleBasedStateMachine):
    """Several matchers of one constraint, each with the tokens that it has taken."""

    name: str

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.language = data.draw(st.sampled_from(languages(self.name)))
        self.matchers: list[tuple[Matcher, list[int]]] = [(self.language.compiled.matcher(), [])]

    def any_matcher(self, data: st.DataObject) -> tuple[Matcher, list[int]]:
        return self.matchers[data.draw(st.integers(0, len(self.matchers) - 1))]

    @rule(data=st.data(), tokens=st.lists(st.integers(-1, VOCABULARY.padded_size), min_size=1, max_size=4))
    def accept_any(self, data: st.DataObject, tokens: list[int]) -> None:
        matcher, taken = self.any_matcher(data)
        for token_id in tokens:
            expected = self.language.takes(taken, token_id)
            assert matcher.validate_tokens([token_id]) == expected
            assert matcher.accept_token(token_id) == expected
            taken += [token_id] * expected

    @rule(data=st.data(), picks=st.lists(st.integers(0, 9), min_size=1, max_size=6))
    def accept_allowed(self, data: st.DataObject, picks: list[int]) -> None:
        matcher, taken = self.any_matcher(data)
        for pick in picks:
            tokens = allowed(matcher)
            assert tokens, "a dead end"
            taken.append(tokens[pick % len(tokens)])
            assert matcher.accept_token(taken[-1])

    @rule(data=st.data(), tokens=st.lists(st.integers(0, VOCABULARY.padded_size), max_size=5))
    def validate(self, data: st.DataObject, tokens: list[int]) -> None:
        matcher, taken = self.any_matcher(data)
        valid = 0
        while valid < len(tokens) and self.language.takes([*taken, *tokens[:valid]], tokens[valid]):
            valid += 1
        assert matcher.validate_tokens(tokens) == valid

    @rule(data=st.data())
    def rollback(self, data: st.DataObject) -> None:
        matcher, taken = self.any_matcher(data)
        with pytest.raises(ValueError, match="cannot roll back"):
            matcher.rollback(len(taken) + 1)
        number = data.draw(st.integers(0, len(taken)))
        matcher.rollback(number)
        del taken[len(taken) - number :]

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        matcher, taken = self.any_matcher(data)
        self.matchers = [*self.matchers[-2:], (matcher.fork(), list(taken))]

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        matcher, taken = self.any_matcher(data)
        matcher.reset()
        taken.clear()

    @invariant()
    def every_matcher_is_where_its_tokens_lead(self) -> None:
        for matcher, taken in self.matchers:
            text, ended = self.language.state(taken)
            columns = range(VOCABULARY.padded_size)
            assert allowed(matcher) == [token_id for token_id in columns if self.language.takes(taken, token_id)]
            assert matcher.is_completed() == (text in self.language.texts)
            assert matcher.is_terminated() == ended
            assert matcher.num_accepted == len(taken)
            # An engine may know less than all that is forced.
            assert self.language.forced(taken).encode().startswith(matcher.jump_forward_bytes())


@pytest.mark.parametrize("name", BACKENDS)
def test_matchers_agree_with_brute_force(name: str) -> None:
    machine = type(f"Machine_{name}", (Machine,), {"name": name})
    test = machine.TestCase("runTest")
    test.settings = settings(max_examples=repeats(15, 150), stateful_step_count=20)
    test.runTest()
