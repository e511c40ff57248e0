from __future__ import annotations

from hf_guided.row import Row, RowState
from tests.toy import compiled_set, letters

STOP, A, B = 1, 2, 3
LANGUAGE = compiled_set(letters("ab"), "ab", "abb")


def test_open_stopped_and_back() -> None:
    row = Row(LANGUAGE.matcher())
    assert row.state is RowState.OPEN
    assert [row.advance(token_id) for token_id in (A, B, STOP, 0, 0)] == [True] * 5
    assert (row.state, row.tail) == (RowState.STOPPED, [0, 0])
    row.rewind(3)
    assert (row.state, row.tail) == (RowState.OPEN, [])
    assert row.advance(B)


def test_stop_token_out_of_place_closes() -> None:
    row = Row(LANGUAGE.matcher())
    assert row.advance(A)
    assert not row.advance(STOP)
    assert (row.state, row.tail) == (RowState.CLOSED, [STOP])
    assert row.advance(B), "a closed row takes anything without a further report"
    row.rewind(2)
    assert row.state is RowState.OPEN
    assert row.advance(B)


def test_dead_end_is_forgotten_when_wound_back() -> None:
    row = Row(LANGUAGE.matcher())
    row.advance(A)
    row.close()
    assert row.state is RowState.CLOSED
    row.rewind(0)
    assert row.state is RowState.CLOSED
    row.rewind(1)
    assert row.state is RowState.OPEN


def test_fork_is_independent() -> None:
    row = Row(LANGUAGE.matcher())
    row.advance(A)
    twin = row.fork()
    twin.advance(A)
    assert (row.state, twin.state) == (RowState.OPEN, RowState.CLOSED)
    assert row.advance(B)


def test_free_row_takes_anything() -> None:
    row = Row(None)
    assert row.advance(12345)
    row.rewind(1)
    assert (row.state, row.fork().state) == (RowState.FREE, RowState.FREE)
