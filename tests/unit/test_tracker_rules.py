"""Rules 1 and 3 of the tracker at their edges: what is no continuation, though it looks like one."""

from __future__ import annotations

import pytest

from hf_guided.session.row import RowState
from tests.unit.test_tracker import AA, AB, BB, STOP, A, B, Watched, text


@pytest.mark.parametrize("output", [[A], [A, B], []])
def test_fewer_rows_of_the_same_prompt_are_a_new_prompt(output: list[int]) -> None:
    watched = Watched()
    watched([], [])
    watched([A], [A])
    (row,) = watched(output)
    assert (watched.begun, text(row)) == (2, b"")


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_rewind_to_a_forbidden_token_is_a_new_prompt(length: int) -> None:
    """No draft of ours ends in a token that the grammar forbids: the prompt of the next call extends the last one."""
    watched = Watched()
    output = [A, B, A]
    for end in range(4):
        watched(output[:end])
    (row,) = watched([*output[: length - 1], 60])
    assert (watched.begun, text(row), watched.refused) == (2, b"", [])


@pytest.mark.parametrize(("other", "expected"), [([AB], b"ab"), ([A, BB], b"abb"), ([A, B, STOP], b"ab")])
def test_a_rewind_to_an_allowed_token_goes_back_to_the_row(other: list[int], expected: bytes) -> None:
    watched = Watched()
    for end in range(4):
        watched([A, B, A][:end])
    (row,) = watched(other)
    assert (watched.begun, text(row), watched.refused) == (1, expected, [])


def test_a_rewind_to_the_token_that_closed_the_row_leaves_it_closed() -> None:
    """The forbidden token is its own: it came before the drafts that are taken back."""
    watched = Watched()
    watched([])
    watched([A])
    watched([A, AA])
    watched([A, AA, B])
    (row,) = watched([A, AA])
    assert (watched.begun, row.state, row.tail, text(row)) == (1, RowState.CLOSED, [AA], b"a")
    assert watched.refused[0] == (0, AA)
