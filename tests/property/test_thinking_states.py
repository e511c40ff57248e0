"""The states of thinking on the device: one by one as in the table of the kernels, and shared by all limits."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hf_guided.hf.device.thinking import ThinkingLanguage
from hf_guided.session.reasoning import Opening, ReasoningGate
from tests.lanes import Thinking, random_language, random_thinking, random_vocabulary


def some_thinking(random: Random) -> Thinking | None:
    vocabulary = random_vocabulary(random, random.randint(4, 40))
    answer = random_language(random, vocabulary, 5)
    return None if answer is None else random_thinking(random, vocabulary, answer)


@given(seed=st.integers(0, 10**6))
def test_each_move_is_that_of_the_table(seed: int) -> None:
    thinking = some_thinking(Random(seed))
    if thinking is None:
        return
    language, table = thinking.language, thinking.language.free_moves()
    first = thinking.answer.walk.dfa.states
    for matched in range(thinking.gate.end_length):
        for token_id in range(-1, table.shape[1] + 2):
            expected = table[matched, token_id] if 0 <= token_id < table.shape[1] else 0
            assert language.move(first + matched, token_id) == expected


def test_rows_with_other_limits_share_their_states() -> None:
    thinking = next(found for seed in range(100) if (found := some_thinking(Random(seed))) is not None)
    gate, limits = thinking.gate, (None, 0, 7)
    found: set[ThinkingLanguage] = set()
    for most in limits:
        other = replace(thinking, gate=ReasoningGate(gate._base, replace(gate.reasoning, max_tokens=most)))
        engine = other.engine_of(other.row(Opening.START))
        found.add(language := ThinkingLanguage.of(engine))
        assert language.think_until(engine) == most
    assert len(found) == 1
    assert len(thinking.answer.derived) == 1
