"""The rules that distinguish a new prompt from a continuation, one case per test."""

from __future__ import annotations

import numpy as np
import pytest

from hf_guided.errors import BatchSizeError
from hf_guided.session.row import Row, RowState
from hf_guided.session.tracker import RowTracker
from tests.toy import compiled_set, letters

VOCABULARY = letters("ab")
STOP, A, B, AA, AB, BA, BB = range(1, 8)
LANGUAGE = compiled_set(VOCABULARY, "abab", "abba", "ab")
PROMPT = [50, 51, 52]


class PromptCounter:
    """A tracker over one language that counts the prompts."""

    def __init__(self) -> None:
        self.num_prompts = 0
        self.refused: list[tuple[int, int]] = []
        self.tracker = RowTracker(self.new_rows, lambda i, row, token_id: self.refused.append((i, token_id)))

    def new_rows(self, num_rows: int) -> tuple[list[Row], int]:
        self.num_prompts += 1
        return [Row(LANGUAGE.matcher()) for _ in range(num_rows)], num_rows

    def __call__(self, *rows: list[int]) -> list[Row]:
        return self.tracker.update(np.array([PROMPT + row for row in rows], dtype=np.int64))


@pytest.fixture
def counter() -> PromptCounter:
    return PromptCounter()


def text(row: Row) -> bytes:
    assert row.matcher is not None
    return row.matcher._engine.text  # type: ignore[attr-defined]


def test_one_token_longer_continues(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    (row,) = counter([A, B])
    assert (counter.num_prompts, text(row)) == (1, b"ab")


def test_forbidden_token_closes_only_its_row(counter: PromptCounter) -> None:
    counter([], [])
    good, bad = counter([A], [B])
    assert (good.state, bad.state) == (RowState.OPEN, RowState.CLOSED)
    assert counter.refused == [(1, B)]
    good, bad = counter([A, B], [B, A])
    assert (text(good), text(bad), bad.tail) == (b"ab", b"", [B, A])
    assert counter.refused == [(1, B)], "a closed row is not reported again"


def test_padding_after_the_stop_token_is_ignored(counter: PromptCounter) -> None:
    counter([], [])
    counter([AB], [A])
    counter([AB, STOP], [A, B])
    done, going = counter([AB, STOP, 0], [A, B, A])
    assert (done.state, going.state) == (RowState.STOPPED, RowState.OPEN)
    assert (counter.num_prompts, text(going)) == (1, b"aba")


def test_rejected_draft_rewinds(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    counter([A, B])
    counter([A, B, A])
    (row,) = counter([A, B, B])
    assert (counter.num_prompts, text(row)) == (1, b"abb")


def test_rejected_stop_token_rewinds(counter: PromptCounter) -> None:
    counter([])
    counter([AB])
    counter([AB, STOP])
    (row,) = counter([AB, BA])
    assert (counter.num_prompts, text(row), row.state) == (1, b"abba", RowState.OPEN)


def test_rewind_over_a_rejected_draft_that_violated_the_grammar(counter: PromptCounter) -> None:
    """Verification continues after a draft token that the grammar forbids. The next call returns to the valid text."""
    counter([])
    counter([A])
    (row,) = counter([A, A])
    assert row.state is RowState.CLOSED
    counter([A, A, A])
    (row,) = counter([A, B])
    assert (counter.num_prompts, text(row), row.state) == (1, b"ab", RowState.OPEN)


def test_beam_that_moves_to_another_constraint_is_an_error() -> None:
    """With one constraint per beam instead of one per prompt, the error comes as soon as a beam moves."""
    other = compiled_set(VOCABULARY, "ba", "bb")
    tracker = RowTracker(lambda rows: ([Row(LANGUAGE.matcher()), Row(other.matcher())], 1), lambda *_: None)
    tracker.update(np.array([PROMPT, PROMPT], dtype=np.int64))
    tracker.update(np.array([[*PROMPT, A], [*PROMPT, B]], dtype=np.int64))
    with pytest.raises(BatchSizeError, match="one constraint per prompt, not per beam"):
        tracker.update(np.array([[*PROMPT, A, B], [*PROMPT, A, A]], dtype=np.int64))


def test_permuted_and_duplicated_beams(counter: PromptCounter) -> None:
    counter([], [])
    counter([A], [AB])
    left, right = counter([AB, A], [AB, B])
    assert (text(left), text(right)) == (b"aba", b"abb")
    assert left.matcher is not right.matcher


def test_same_prompt_again_starts_at_the_start(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    (row,) = counter([])
    assert text(row) == b""


def test_second_prompt_that_extends_the_first_output(counter: PromptCounter) -> None:
    """generate() never shows the processor the stop token that ended the first output."""
    counter([])
    counter([AB])
    (row,) = counter([AB, STOP, 60, 61])
    assert (counter.num_prompts, text(row)) == (2, b"")


def test_second_prompt_that_extends_a_truncated_output(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    (row,) = counter([A, B, 60])
    assert (counter.num_prompts, text(row)) == (2, b"")


def test_long_jump_inside_the_grammar_continues(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    (row,) = counter([A, B, A, B])
    assert (counter.num_prompts, text(row)) == (1, b"abab")


def test_shorter_prompt_or_another_number_of_rows_is_a_new_prompt(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    counter([A], [A])
    assert counter.num_prompts == 2
    counter.tracker.update(np.array([PROMPT[:2]]))
    assert counter.num_prompts == 3


def test_call_after_a_reset_is_a_new_prompt(counter: PromptCounter) -> None:
    counter([])
    counter([A])
    counter.tracker.reset()
    (row,) = counter([A, B])
    assert (counter.num_prompts, text(row)) == (2, b"")


def test_empty_prompt_from_inputs_embeds(counter: PromptCounter) -> None:
    counter.tracker.update(np.zeros((1, 0), dtype=np.int64))
    (row,) = counter.tracker.update(np.array([[AB]]))
    assert (counter.num_prompts, text(row)) == (1, b"ab")


def test_caller_may_reuse_its_buffer(counter: PromptCounter) -> None:
    buffer = np.array([[*PROMPT, 0]], dtype=np.int64)
    counter.tracker.update(buffer[:, :3])
    buffer[0, 3] = A
    (row,) = counter.tracker.update(buffer)
    buffer[:] = 99
    (row,) = counter([A, B])
    assert (counter.num_prompts, text(row)) == (1, b"ab")
