"""Edge cases of rules 1 and 3 of the tracker: calls that look like a continuation but are none."""

from __future__ import annotations

import pytest

from hf_guided.session.row import RowState
from tests.unit.test_tracker import AA, AB, BB, STOP, A, B, PromptCounter, text


@pytest.mark.parametrize("output", [[A], [A, B], []])
def test_fewer_rows_of_the_same_prompt_are_a_new_prompt(output: list[int]) -> None:
    counter = PromptCounter()
    counter([], [])
    counter([A], [A])
    (row,) = counter(output)
    assert (counter.num_prompts, text(row)) == (2, b"")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_rewind_to_a_forbidden_token_is_a_new_prompt(length: int) -> None:
    """Our drafts never end in a forbidden token, so these ids are a prompt that extends the last one."""
    counter = PromptCounter()
    output = [A, B, A]
    for end in range(4):
        counter(output[:end])
    (row,) = counter([*output[: length - 1], 60])
    assert (counter.num_prompts, text(row), counter.refused) == (2, b"", [])


@pytest.mark.parametrize(("other", "expected"), [([AB], b"ab"), ([A, BB], b"abb"), ([A, B, STOP], b"ab")])
def test_rewind_to_an_allowed_token_is_a_continuation(other: list[int], expected: bytes) -> None:
    counter = PromptCounter()
    for end in range(4):
        counter([A, B, A][:end])
    (row,) = counter(other)
    assert (counter.num_prompts, text(row), counter.refused) == (1, expected, [])


def test_rewind_to_the_token_that_closed_the_row_keeps_it_closed() -> None:
    """The forbidden token belongs to the row itself: it came before the drafts that are rolled back."""
    counter = PromptCounter()
    counter([])
    counter([A])
    counter([A, AA])
    counter([A, AA, B])
    (row,) = counter([A, AA])
    assert (counter.num_prompts, row.state, row.tail, text(row)) == (1, RowState.CLOSED, [AA], b"a")
    assert counter.refused[0] == (0, AA)
