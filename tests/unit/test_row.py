"""The states of a row: open, stopped, closed, free; rewinding and forking."""

from __future__ import annotations

import pytest

import hf_guided as hg
from hf_guided.errors import CompileLimitExceeded
from hf_guided.session import row as row_module
from hf_guided.session.row import Row, RowState
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import vocabularies
from tests.toy import SetEngine, compiled_set, letters

STOP, A, B = 1, 2, 3
LANGUAGE = compiled_set(letters("ab"), "ab", "abb")


def test_rewind_reopens_a_stopped_row() -> None:
    row = Row(LANGUAGE.matcher())
    assert row.state is RowState.OPEN
    assert [row.advance(token_id) for token_id in (A, B, STOP, 0, 0)] == [True] * 5
    assert (row.state, row.tail) == (RowState.STOPPED, [0, 0])
    row.rewind(3)
    assert (row.state, row.tail) == (RowState.OPEN, [])
    assert row.advance(B)


def test_forbidden_stop_token_closes_the_row() -> None:
    row = Row(LANGUAGE.matcher())
    assert row.advance(A)
    assert not row.advance(STOP)
    assert (row.state, row.tail) == (RowState.CLOSED, [STOP])
    assert row.advance(B), "a closed row accepts any token without another report"
    row.rewind(2)
    assert row.state is RowState.OPEN
    assert row.advance(B)


def test_rewind_clears_a_dead_end(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row(LANGUAGE.matcher())
    bitmask = allocate_bitmask(1, LANGUAGE.vocabulary.padded_size)
    monkeypatch.setattr(SetEngine, "fill", lambda self, bitmask, row: bitmask[row].zero_())
    row.advance(A)
    assert not row.fill(bitmask, 0)
    assert row.state is RowState.CLOSED
    row.rewind(0)
    assert row.state is RowState.CLOSED
    row.rewind(1)
    assert row.state is RowState.OPEN


@pytest.mark.parametrize("call", ["one token", "one mask", "some tokens", "forced text"])
def test_call_that_takes_too_long_closes_only_its_row(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bitmask = allocate_bitmask(1, LANGUAGE.vocabulary.padded_size)
    row, other = Row(LANGUAGE.matcher()), Row(LANGUAGE.matcher())
    calls = {
        "one token": lambda: row.advance(A),
        "one mask": lambda: not row.fill(bitmask, 0),
        "some tokens": lambda: row.num_taken([A, B]) == 2,
        "forced text": lambda: row.jump_forward_bytes() == b"",
    }
    with monkeypatch.context() as slow:
        slow.setattr(row_module, "CALL_CPU_S", -1.0)  # every call takes longer
        assert calls[call](), "what the call found out still counts"
    assert row.state is RowState.CLOSED and f"CPU time for {call}" in str(row.dead_end)
    assert other.advance(A) and other.state is RowState.OPEN
    if call == "one token":
        row.rewind(1)  # the engine works, so the token is taken back
        assert row.advance(A) and row.advance(B) and row.may_stop()


def test_a_key_that_takes_too_long_closes_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row ends in this step, as it does where the mask is filled: else its answer would get one token more."""
    tokenizer = vocabularies.tiny_byte_level()
    row = Row(hg.Guide(len(tokenizer), tokenizer).compile(hg.Regex("[ab]{3}"), backend="native").matcher())
    assert row.mask_key() is not None
    monkeypatch.setattr(row_module, "CALL_CPU_S", -1.0)  # every call takes longer
    assert row.mask_key() is None
    assert row.state is RowState.CLOSED and "CPU time for one mask" in str(row.dead_end)


@pytest.mark.parametrize("method", ["accept", "fill", "validate"])
def test_engine_that_gives_up_closes_only_its_row(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bitmask = allocate_bitmask(1, LANGUAGE.vocabulary.padded_size)
    row, other = Row(LANGUAGE.matcher()), Row(LANGUAGE.matcher())
    with monkeypatch.context() as broken:
        broken.setattr(SetEngine, method, _give_up)
        if method == "validate":
            assert not row.takes([A])
            return
        if method == "accept":
            assert row.advance(A), "a limit of the engine is no violation of the constraint"
        else:
            assert row.advance(A) and not row.fill(bitmask, 0)
        assert row.state is RowState.CLOSED and row.dead_end == "too big"
        assert row.fork().dead_end == "too big"
    assert other.advance(A) and other.fill(bitmask, 0)
    row.rewind(1)
    assert (row.state, row.dead_end) == (RowState.OPEN, None)


def _give_up(*args: object) -> None:
    raise CompileLimitExceeded("too big")


def test_row_that_is_rewound_after_its_end_keeps_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a later call would take it for a closed row, whose tokens begin another prompt."""
    row = Row(LANGUAGE.matcher())
    before = row.mark()
    with monkeypatch.context() as patch:
        patch.setattr(SetEngine, "accept", lambda self, token_id: 1 // 0)
        assert [row.advance(token_id) for token_id in (A, B, STOP)] == [True] * 3
    ended = row.mark()
    row.advance(STOP)
    row.return_to(ended)
    assert "division" in str(row.dead_end) and row.takes([A, A, A])
    row.rewind(2)
    assert "division" in str(row.dead_end) and row.takes([A, A, A]) and not row.is_open
    row.return_to(before)
    assert row.is_open and row.dead_end is None and row.advance(A)


def test_fork_is_independent() -> None:
    row = Row(LANGUAGE.matcher())
    row.advance(A)
    twin = row.fork()
    twin.advance(A)
    assert (row.state, twin.state) == (RowState.OPEN, RowState.CLOSED)
    assert row.advance(B)


def test_unconstrained_row_accepts_any_token() -> None:
    row = Row(None)
    assert row.advance(12345)
    row.rewind(1)
    assert (row.state, row.fork().state) == (RowState.FREE, RowState.FREE)
