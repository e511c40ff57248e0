"""Law 8: a slot whose copy is still in flight is not written, however late the copy is."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.session import masks
from hf_guided.session import session as sessions
from hf_guided.session.apply import apply_bitmask
from hf_guided.session.masks import MaskFiller
from hf_guided.session.pinned_buffers import PinnedBuffers
from hf_guided.session.row import Row
from hf_guided.vocabulary.bitmask import unpack
from tests.late import LateTransfer, LateTransfers
from tests.sessions import session_of
from tests.toy import compiled_set, letters

VOCABULARY = letters("abc", stop=1)
WORDS = ["abc", "cab", "bb"]


def test_no_slot_is_written_before_its_copy_is_done() -> None:
    transfers = LateTransfers()
    slots = PinnedBuffers(64, transfers)
    sent = []
    for step in range(9):
        bitmask, first = slots.take(3)
        bitmask[first : first + 3] = step
        sent.append(slots.send([0, 1, 2], transfers))
        assert not transfers.to_device_started[-1].done, "sending waits for nothing"
        assert [one.done for one in transfers.to_device_started[:-2]] == [True] * max(0, step - 1)
    for step, transfer in enumerate(sent):
        transfer.synchronize()
        assert torch.equal(transfer.tensor, torch.full((3, 2), step, dtype=torch.int32))


def test_two_steps_in_turn_and_no_more_memory() -> None:
    slots = PinnedBuffers(64)
    places = []
    for _ in range(4):
        bitmask, first = slots.take(2)
        places.append((bitmask.data_ptr(), first))
    assert places[:2] == places[2:] and len(set(places)) == 2


@given(steps=st.lists(st.tuples(st.integers(1, 6), st.data()), min_size=1, max_size=6))
def test_only_the_lines_asked_for_are_copied(steps: list[tuple[int, st.DataObject]]) -> None:
    """Slots that grow, and lines with gaps between them."""
    transfers = LateTransfers()
    slots = PinnedBuffers(32, transfers)
    expected = []
    for step, (lines, data) in enumerate(steps):
        governed = sorted(data.draw(st.sets(st.integers(0, lines - 1), min_size=1)))
        bitmask, first = slots.take(lines)
        for line in range(lines):
            bitmask[first + line] = 100 * step + line
        slots.send(governed, transfers)
        expected.append([100 * step + line for line in governed])
    for transfer, numbers in zip(transfers.to_device_started, expected, strict=True):
        transfer.synchronize()
        assert transfer.tensor.flatten().tolist() == numbers


def allowed(text: str) -> set[int]:
    """The oracle: tokens that go on towards one of the words, the stop token behind one."""
    going = {
        i
        for i, data in enumerate(VOCABULARY.token_bytes)
        if data and any(w.startswith(text + data.decode()) for w in WORDS)
    }
    return going | ({1} if text in WORDS else set())


def language() -> CompiledConstraint:
    return compiled_set(VOCABULARY, *WORDS)


def test_masks_of_many_steps_arrive_whole() -> None:
    """Rows with a free one between them; the copies are looked at when all is done."""
    transfers = LateTransfers()
    filler = MaskFiller(VOCABULARY, (1,), transfers)
    texts = ["abc", "cab", "bb"]
    rows = [Row(language().matcher()), Row(None), Row(language().matcher()), Row(language().matcher())]
    written = ["", "", ""]
    seen = []
    for step in range(3):
        filled = filler.fill(rows, [None] * 4)
        seen.append((filled.transfer, filled.governed, list(written)))
        for i, (row, text) in enumerate(zip((rows[0], rows[2], rows[3]), texts, strict=True)):
            if step < len(text):
                assert row.advance(VOCABULARY.token_bytes.index(text[step].encode()))
                written[i] += text[step]
    for sent, governed, texts_so_far in seen:
        assert governed == (0, 2, 3) and sent is not None
        sent.synchronize()
        bits = unpack(sent.tensor, VOCABULARY.padded_size)
        assert [set(line.nonzero().flatten().tolist()) for line in bits] == [allowed(text) for text in texts_so_far]


def test_free_rows_alone_are_not_copied() -> None:
    transfers = LateTransfers()
    filled = MaskFiller(VOCABULARY, (1,), transfers).fill([Row(None), Row(None)], [None, None])
    assert filled.transfer is None and transfers.to_device_started == []


def test_the_time_for_copies_is_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on only where a copy is begun or waited for."""
    now = 0

    class Slow(LateTransfers):
        def to_device(self, pieces: Sequence[torch.Tensor]) -> LateTransfer:
            nonlocal now
            now += 7
            sent = super().to_device(pieces)
            monkeypatch.setattr(sent, "synchronize", waited)
            return sent

    def waited() -> None:
        nonlocal now
        now += 100

    session = session_of(VOCABULARY, [language()])
    monkeypatch.setattr(session, "_filler", MaskFiller(VOCABULARY, (1,), Slow()))
    for module in (masks, sessions):
        monkeypatch.setattr(module.time, "perf_counter_ns", lambda: now)
    rows = session.begin(1)
    for _ in range(3):
        session.fill_ahead(rows, [None]).result()
    assert session.stats.copy_ns == 3 * 7 + 100  # the third is written where the first was
    assert session.stats.fill_ns == 0


@pytest.mark.parametrize("governed", [[0, 1, 2, 3], [1, 3], [2]])
def test_the_way_of_the_gpu_gives_what_the_cpu_gives(governed: list[int]) -> None:
    """All lines at once, or some picked out and put back; on the CPU, where this can be run."""
    from hf_guided.session.apply import _apply_on_device

    torch.manual_seed(0)
    scores = torch.randn(4, 100)
    scores[3] = float("-inf")
    bitmask = torch.randint(-(2**31), 2**31, (4, 4), dtype=torch.int64).to(torch.int32)
    expected = apply_bitmask(scores, bitmask, governed)
    found = _apply_on_device(scores, bitmask[governed], governed)
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
