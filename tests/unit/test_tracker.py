"""The rule by which a new prompt is told from a continuation, one case a test."""

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


class Watched:
    """A tracker over one language that counts how often a prompt began."""

    def __init__(self) -> None:
        self.begun = 0
        self.refused: list[tuple[int, int]] = []
        self.tracker = RowTracker(self.new_rows, lambda i, row, token_id: self.refused.append((i, token_id)))

    def new_rows(self, num_rows: int) -> tuple[list[Row], int]:
        self.begun += 1
        return [Row(LANGUAGE.matcher()) for _ in range(num_rows)], num_rows

    def __call__(self, *rows: list[int]) -> list[Row]:
        return self.tracker.update(np.array([PROMPT + row for row in rows], dtype=np.int64))


@pytest.fixture
def watched() -> Watched:
    return Watched()


def text(row: Row) -> bytes:
    assert row.matcher is not None
    return row.matcher._engine.text  # type: ignore[attr-defined]


def test_one_token_longer_continues(watched: Watched) -> None:
    watched([])
    watched([A])
    (row,) = watched([A, B])
    assert (watched.begun, text(row)) == (1, b"ab")


def test_forbidden_token_closes_that_row_alone(watched: Watched) -> None:
    watched([], [])
    good, bad = watched([A], [B])
    assert (good.state, bad.state) == (RowState.OPEN, RowState.CLOSED)
    assert watched.refused == [(1, B)]
    good, bad = watched([A, B], [B, A])
    assert (text(good), text(bad), bad.tail) == (b"ab", b"", [B, A])
    assert watched.refused == [(1, B)], "a closed row is not reported again"


def test_padding_behind_the_stop_token_is_ignored(watched: Watched) -> None:
    watched([], [])
    watched([AB], [A])
    watched([AB, STOP], [A, B])
    done, going = watched([AB, STOP, 0], [A, B, A])
    assert (done.state, going.state) == (RowState.STOPPED, RowState.OPEN)
    assert (watched.begun, text(going)) == (1, b"aba")


def test_rejected_draft_rewinds(watched: Watched) -> None:
    watched([])
    watched([A])
    watched([A, B])
    watched([A, B, A])
    (row,) = watched([A, B, B])
    assert (watched.begun, text(row)) == (1, b"abb")


def test_rejected_stop_token_rewinds(watched: Watched) -> None:
    watched([])
    watched([AB])
    watched([AB, STOP])
    (row,) = watched([AB, BA])
    assert (watched.begun, text(row), row.state) == (1, b"abba", RowState.OPEN)


def test_past_a_rejected_draft_that_broke_the_grammar(watched: Watched) -> None:
    """Verification goes on behind a draft token that the grammar forbids; the next call is back on the path."""
    watched([])
    watched([A])
    (row,) = watched([A, A])
    assert row.state is RowState.CLOSED
    watched([A, A, A])
    (row,) = watched([A, B])
    assert (watched.begun, text(row), row.state) == (1, b"ab", RowState.OPEN)


def test_beam_that_crosses_into_another_constraint_is_an_error() -> None:
    """One constraint per beam instead of one per prompt: told as soon as a beam moves."""
    other = compiled_set(VOCABULARY, "ba", "bb")
    tracker = RowTracker(lambda rows: ([Row(LANGUAGE.matcher()), Row(other.matcher())], 1), lambda *_: None)
    tracker.update(np.array([PROMPT, PROMPT], dtype=np.int64))
    tracker.update(np.array([[*PROMPT, A], [*PROMPT, B]], dtype=np.int64))
    with pytest.raises(BatchSizeError, match="one constraint per prompt, not per beam"):
        tracker.update(np.array([[*PROMPT, A, B], [*PROMPT, A, A]], dtype=np.int64))


def test_permuted_and_doubled_beams(watched: Watched) -> None:
    watched([], [])
    watched([A], [AB])
    left, right = watched([AB, A], [AB, B])
    assert (text(left), text(right)) == (b"aba", b"abb")
    assert left.matcher is not right.matcher


def test_same_prompt_again_starts_at_the_start(watched: Watched) -> None:
    watched([])
    watched([A])
    (row,) = watched([])
    assert text(row) == b""


def test_second_prompt_that_extends_the_first_output(watched: Watched) -> None:
    """generate() never shows the processor the stop token that ended the first output."""
    watched([])
    watched([AB])
    (row,) = watched([AB, STOP, 60, 61])
    assert (watched.begun, text(row)) == (2, b"")


def test_second_prompt_that_extends_an_output_cut_by_length(watched: Watched) -> None:
    watched([])
    watched([A])
    (row,) = watched([A, B, 60])
    assert (watched.begun, text(row)) == (2, b"")


def test_long_jump_inside_the_grammar_continues(watched: Watched) -> None:
    watched([])
    watched([A])
    (row,) = watched([A, B, A, B])
    assert (watched.begun, text(row)) == (1, b"abab")


def test_shorter_prompt_and_other_number_of_rows_begin_anew(watched: Watched) -> None:
    watched([])
    watched([A])
    watched([A], [A])
    assert watched.begun == 2
    watched.tracker.update(np.array([PROMPT[:2]]))
    assert watched.begun == 3


def test_reset_always_begins_anew(watched: Watched) -> None:
    watched([])
    watched([A])
    watched.tracker.reset()
    (row,) = watched([A, B])
    assert (watched.begun, text(row)) == (2, b"")


def test_empty_prompt_from_inputs_embeds(watched: Watched) -> None:
    watched.tracker.update(np.zeros((1, 0), dtype=np.int64))
    (row,) = watched.tracker.update(np.array([[AB]]))
    assert (watched.begun, text(row)) == (1, b"ab")


def test_caller_may_reuse_its_buffer(watched: Watched) -> None:
    buffer = np.array([[*PROMPT, 0]], dtype=np.int64)
    watched.tracker.update(buffer[:, :3])
    buffer[0, 3] = A
    (row,) = watched.tracker.update(buffer)
    buffer[:] = 99
    (row,) = watched([A, B])
    assert (watched.begun, text(row)) == (1, b"ab")
