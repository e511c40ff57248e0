"""What is a new prompt, and what a continuation; which prompts are kept.

tests/property/test_tracker.py has the rows after steps, beams and rejected drafts.
"""

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
PROMPTS = ([50, 51, 52], [60, 61], [70, 71, 72, 73])


class PromptCounter:
    """A tracker over one language that counts the prompts."""

    def __init__(self) -> None:
        self.num_prompts = 0
        self.refused: list[tuple[int, int]] = []
        self.tracker = RowTracker(self.new_rows, lambda i, row, token_id: self.refused.append((i, token_id)))

    def new_rows(self, num_rows: int) -> tuple[list[Row], int]:
        self.num_prompts += 1
        return [Row(LANGUAGE.matcher()) for _ in range(num_rows)], num_rows

    def __call__(self, *rows: list[int], prompt: list[int] = PROMPT) -> list[Row]:
        return self.tracker.update(np.array([prompt + row for row in rows], dtype=np.int64))

    def taken(self, prompt: int, *output: int) -> int:
        """How many tokens of output the row after another prompt has taken after a call."""
        (row,) = self([*output], prompt=PROMPTS[prompt])
        assert self.tracker.prompt_length == len(PROMPTS[prompt]) or not row.mark().taken
        return row.mark().taken


@pytest.fixture
def counter() -> PromptCounter:
    return PromptCounter()


def text(row: Row) -> bytes:
    assert row.matcher is not None
    return row.matcher._engine.text  # type: ignore[attr-defined]


def test_there_is_no_prompt_before_the_first_call(counter: PromptCounter) -> None:
    assert counter.tracker.prompt_length == 0


def test_forbidden_token_closes_only_its_row(counter: PromptCounter) -> None:
    counter([], [])
    good, bad = counter([A], [B])
    assert (good.state, bad.state) == (RowState.OPEN, RowState.CLOSED)
    assert counter.refused == [(1, B)]
    good, bad = counter([A, B], [B, A])
    assert (text(good), text(bad), bad.tail) == (b"ab", b"", [B, A])
    assert counter.refused == [(1, B)], "a closed row is not reported again"


def test_beam_that_moves_to_another_constraint_is_an_error() -> None:
    """With one constraint per beam instead of one per prompt, the error comes as soon as a beam moves."""
    other = compiled_set(VOCABULARY, "ba", "bb")
    tracker = RowTracker(lambda rows: ([Row(LANGUAGE.matcher()), Row(other.matcher())], 1), lambda *_: None)
    tracker.update(np.array([PROMPT, PROMPT], dtype=np.int64))
    tracker.update(np.array([[*PROMPT, A], [*PROMPT, B]], dtype=np.int64))
    with pytest.raises(BatchSizeError, match="one constraint per prompt, not per beam"):
        tracker.update(np.array([[*PROMPT, A, B], [*PROMPT, A, A]], dtype=np.int64))


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


@pytest.mark.parametrize("output", [[A], [A, B], []])
def test_fewer_rows_of_the_same_prompt_are_a_new_prompt(counter: PromptCounter, output: list[int]) -> None:
    counter([], [])
    counter([A], [A])
    (row,) = counter(output)
    assert (counter.num_prompts, text(row)) == (2, b"")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_rewind_to_a_forbidden_token_is_a_new_prompt(counter: PromptCounter, length: int) -> None:
    """Our drafts never end in a forbidden token, so these ids are a prompt that extends the last one."""
    output = [A, B, A]
    for end in range(4):
        counter(output[:end])
    (row,) = counter([*output[: length - 1], 60])
    assert (counter.num_prompts, text(row), counter.refused) == (2, b"", [])


@pytest.mark.parametrize(("other", "expected"), [([AB], b"ab"), ([A, BB], b"abb"), ([A, B, STOP], b"ab")])
def test_rewind_to_an_allowed_token_is_a_continuation(
    counter: PromptCounter, other: list[int], expected: bytes
) -> None:
    for end in range(4):
        counter([A, B, A][:end])
    (row,) = counter(other)
    assert (counter.num_prompts, text(row), counter.refused) == (1, expected, [])


def test_rewind_to_the_token_that_closed_the_row_keeps_it_closed(counter: PromptCounter) -> None:
    """The forbidden token belongs to the row itself: it came before the drafts that are rolled back."""
    counter([])
    counter([A])
    counter([A, AA])
    counter([A, AA, B])
    (row,) = counter([A, AA])
    assert (counter.num_prompts, row.state, row.tail, text(row)) == (1, RowState.CLOSED, [AA], b"a")
    assert counter.refused[0] == (0, AA)


def test_two_prompts_can_alternate(counter: PromptCounter) -> None:
    steps = [counter.taken(0), counter.taken(1), counter.taken(0, A), counter.taken(1, AB), counter.taken(0, A, B)]
    assert steps == [0, 0, 1, 1, 2] and counter.num_prompts == 2
    assert counter.taken(1, AB, A) == 2, "also after the other prompt was used twice"
    assert counter.taken(1, AB, A, B) == 3 and counter.num_prompts == 2


def test_third_prompt_evicts_the_least_recently_used(counter: PromptCounter) -> None:
    counter.taken(0)
    counter.taken(1)
    counter.taken(0, A)
    counter.taken(2)
    assert counter.taken(0, A, B) == 2 and counter.num_prompts == 3
    assert counter.taken(1, AB) == 0 and counter.num_prompts == 4, "it was evicted, so it is a new prompt"


def test_next_step_belongs_to_the_last_used_prompt(counter: PromptCounter) -> None:
    tracker = counter.tracker
    assert not tracker.expects(1, 1)
    assert tracker.next_step(np.array([[A]])) is None
    counter.taken(0)
    counter.taken(1)
    counter.taken(0, A)
    for rows in (0, 1, 2):
        for length in range(8):
            assert tracker.expects(rows, length) == ((rows, length) == (1, 5))
    assert tracker.next_step(np.array([[*PROMPTS[1], A]])) is None
    step = tracker.next_step(np.array([[*PROMPTS[0], A, B]]))
    assert step is not None
    assert [row.mark().taken for row in step.take()] == [2]
    step.undo()
    assert counter.taken(0, A, BA) == 2 and counter.num_prompts == 2 and not counter.refused
