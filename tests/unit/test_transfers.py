"""Law 8: a buffer is not overwritten while its copy to the device is in flight, even if the copy is late."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.session import masks
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import Row
from hf_guided.session.stats import SessionStats
from hf_guided.session.transfers import PinnedBuffers
from hf_guided.vocabulary.bitmask import unpack
from tests.late import LateTransfer, LateTransfers
from tests.toy import compiled_set, letters

VOCABULARY = letters("abc", stop=1)
WORDS = ["abc", "cab", "bb"]


def test_buffer_is_not_overwritten_before_its_copy_is_done() -> None:
    transfers = LateTransfers()
    buffers = PinnedBuffers(64, transfers)
    sent = []
    for step in range(9):
        bitmask, first = buffers.take(3)
        bitmask[first : first + 3] = step
        sent.append(buffers.send([0, 1, 2]))
        assert not transfers.to_device_started[-1].done, "send() must not wait"
        assert [earlier.done for earlier in transfers.to_device_started[:-2]] == [True] * max(0, step - 1)
    for step, transfer in enumerate(sent):
        transfer.synchronize()
        assert torch.equal(transfer.tensor, torch.full((3, 2), step, dtype=torch.int32))


def test_two_buffers_alternate_without_more_memory() -> None:
    buffers = PinnedBuffers(64)
    addresses = []
    for _ in range(4):
        bitmask, first = buffers.take(2)
        addresses.append((bitmask.data_ptr(), first))
    assert addresses[:2] == addresses[2:] and len(set(addresses)) == 2


@given(steps=st.lists(st.tuples(st.integers(1, 6), st.data()), min_size=1, max_size=6))
def test_only_the_governed_rows_are_copied(steps: list[tuple[int, st.DataObject]]) -> None:
    """With buffers that grow, and gaps between the rows."""
    transfers = LateTransfers()
    buffers = PinnedBuffers(32, transfers)
    expected = []
    for step, (num_rows, data) in enumerate(steps):
        governed = sorted(data.draw(st.sets(st.integers(0, num_rows - 1), min_size=1)))
        bitmask, first = buffers.take(num_rows)
        for row in range(num_rows):
            bitmask[first + row] = 100 * step + row
        buffers.send(governed)
        expected.append([100 * step + row for row in governed])
    for transfer, numbers in zip(transfers.to_device_started, expected, strict=True):
        transfer.synchronize()
        assert transfer.tensor.flatten().tolist() == numbers


def allowed(text: str) -> set[int]:
    """The oracle: tokens that continue towards one of the words, and the stop token after a complete word."""
    continuing = {
        i
        for i, data in enumerate(VOCABULARY.token_bytes)
        if data and any(w.startswith(text + data.decode()) for w in WORDS)
    }
    return continuing | ({1} if text in WORDS else set())


def compiled_words() -> CompiledConstraint:
    return compiled_set(VOCABULARY, *WORDS)


def test_masks_of_many_steps_arrive_complete() -> None:
    """With an unconstrained row between the others. The copies are read after the last step."""
    transfers = LateTransfers()
    filler = MaskFiller(VOCABULARY, (1,), transfers)
    texts = ["abc", "cab", "bb"]
    rows = [
        Row(compiled_words().matcher()),
        Row(None),
        Row(compiled_words().matcher()),
        Row(compiled_words().matcher()),
    ]
    written = ["", "", ""]
    steps = []
    for step in range(3):
        filled = filler.fill(rows, [None] * 4)
        steps.append((filled.transfer, filled.governed, list(written)))
        for i, (row, text) in enumerate(zip((rows[0], rows[2], rows[3]), texts, strict=True)):
            if step < len(text):
                assert row.advance(VOCABULARY.token_bytes.index(text[step].encode()))
                written[i] += text[step]
    for sent, governed, texts_so_far in steps:
        assert governed == (0, 2, 3) and sent is not None
        sent.synchronize()
        bits = unpack(sent.tensor, VOCABULARY.padded_size)
        assert [set(mask.nonzero().flatten().tolist()) for mask in bits] == [allowed(text) for text in texts_so_far]


def test_masks_of_only_unconstrained_rows_are_not_copied() -> None:
    transfers = LateTransfers()
    filled = MaskFiller(VOCABULARY, (1,), transfers).fill([Row(None), Row(None)], [None, None])
    assert filled.transfer is None and transfers.to_device_started == []


def test_time_for_copies_is_counted_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this test advances only when a copy starts or is waited for."""
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

    stats = SessionStats()
    filler = MaskFiller(VOCABULARY, (1,), Slow(), stats=stats)
    monkeypatch.setattr(masks.time, "perf_counter_ns", lambda: now)
    for _ in range(3):
        filler.fill([Row(compiled_words().matcher())], [None])
    assert stats.copy_ns == 3 * 7 + 100  # the third step reuses the buffer of the first
    assert stats.fill_ns == 0
