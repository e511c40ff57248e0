"""Masks that stay in a table are what the engine fills, whatever was evicted, on any thread, and in a forked child."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.session import mask_table
from hf_guided.session.mask_table import Lease, MaskTable, MaskTables
from hf_guided.session.masks import MaskFiller, Masks
from hf_guided.session.row import Row
from hf_guided.vocabulary.bitmask import unpack, words
from tests import vocabularies
from tests.fake_device import DEVICE, FakeDevice, FakeOrder, put

TOKENIZER = vocabularies.tiny_byte_level()
GUIDE = hg.Guide(len(TOKENIZER), TOKENIZER)
VOCABULARY = GUIDE.vocabulary
STOPS = VOCABULARY.stop_token_ids
ROW_BYTES = 4 * words(VOCABULARY.padded_size)
RECURSIVE = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#"}}}
CONSTRAINTS = [
    hg.Regex("[ab]{2,9}c?"),
    hg.Choice(["red", "green", "red wine"]),
    hg.JsonSchema({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}}),
    hg.JsonSchema(RECURSIVE),
    hg.Grammar('root ::= "x" root | "y"'),
    None,
]
ROWS = [None, 0, 1, 3, 1000]  # of a table; None: there is no table


def tables(rows: int | None) -> MaskTables | None:
    return None if rows is None else MaskTables(VOCABULARY.padded_size, rows * ROW_BYTES)


def row_of(constraint: Any) -> Row:
    if constraint is None:
        return Row(None)
    compiled = GUIDE.submit(constraint).result()
    return Row(compiled.matcher())


def is_same(filled: Masks, expected: Masks) -> bool:
    return (
        torch.equal(filled.bitmask, expected.bitmask)
        and (filled.rows, filled.governed, filled.ended) == (expected.rows, expected.governed, expected.ended)
        and all(np.array_equal(filled.words(i), expected.words(i)) for i in filled.governed)
    )


def walk(rng: random.Random, filler: MaskFiller, which: list[int], left: int | None, steps: int) -> None:
    """Fill the masks of rows that write, rewind, and look ahead, beside a filler without a table."""
    reference = MaskFiller(VOCABULARY, STOPS)
    pairs = [[row_of(CONSTRAINTS[i]) for i in which] for _ in range(2)]
    kept: list[tuple[Masks, torch.Tensor]] = []
    for step in range(steps):
        if not any(row.is_open for row in pairs[1]):
            return
        remaining = [None if left is None else left - step] * len(which)
        ahead: list[list[list[int]]] = [[] for _ in which]
        expected = reference.fill(pairs[1], remaining)
        choices = [torch.nonzero(line).flatten().tolist() for line in unpack(expected.bitmask, VOCABULARY.padded_size)]
        chosen = [rng.choice(options) for options in choices]
        for i, row in enumerate(pairs[1]):
            if row.is_open and rng.random() < 0.3 and chosen[i] not in STOPS:
                ahead[i] = [[chosen[i]]]
        expected = reference.fill(pairs[1], remaining, ahead)
        filled = filler.fill(pairs[0], remaining, ahead)
        assert is_same(filled, expected)
        own = filled.slots and min(filled.slots) < -1
        if not own:  # masks that are in no table are valid until the second next fill
            kept.append((filled, expected.bitmask))
        for masks, bitmask in kept[-3:]:
            assert torch.equal(masks.bitmask, bitmask), "a row was overwritten while masks named it"
        for rows in pairs:
            for row, token_id in zip(rows, chosen, strict=True):
                row.advance(token_id)
        if rng.random() < 0.2:
            for rows in pairs:
                rows[0].rewind(1)


@given(
    st.sampled_from(ROWS),
    st.lists(st.integers(0, len(CONSTRAINTS) - 1), min_size=1, max_size=4),
    st.sampled_from([None, 8, 30]),
    st.integers(0, 2**20),
)
def test_masks_are_those_without_a_table(rows: int | None, which: list[int], left: int | None, seed: int) -> None:
    rng, shared = random.Random(seed), tables(rows)
    for _ in range(2):  # the second call finds what the first one has left
        walk(rng, MaskFiller(VOCABULARY, STOPS, tables=shared), which, left, 8)


@example(1, [5, 5], 0)  # free rows alone
@given(st.sampled_from([0, 1, 3, 1000]), st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 2**20))
def test_a_device_is_given_the_same_scores_as_the_cpu(rows: int, which: list[int], seed: int) -> None:
    """Each step sends the masks that are new, and one number for each row."""
    rng, device = random.Random(seed), FakeDevice()
    with pytest.MonkeyPatch.context() as patch, device:
        patch.setattr(mask_table, "StreamOrder", lambda device: FakeOrder())
        patch.setattr("hf_guided.session.transfers.CudaTransfers", lambda device: None)
        shared = tables(rows)
        filler, reference = MaskFiller(VOCABULARY, STOPS, tables=shared), MaskFiller(VOCABULARY, STOPS)
        pairs = [[row_of(CONSTRAINTS[i]) for i in which] for _ in range(2)]
        for _ in range(6):
            if not any(row.is_open or row.matcher is None for row in pairs[1]):
                break
            scores = torch.randn(len(which), VOCABULARY.padded_size)
            expected, alive = reference.apply(scores, reference.fill(pairs[1], [None] * len(which)))
            masked, on_device = filler.apply(put(scores.clone()), filler.fill(pairs[0], [None] * len(which)))
            assert isinstance(on_device, torch.Tensor)
            assert [number != 0 for number in on_device.tolist()] == alive
            assert torch.equal(masked.cpu(), expected)
            for i, line in enumerate(expected):
                token_id = rng.choice(torch.nonzero(line > -torch.inf).flatten().tolist())
                for row in pairs:
                    row[i].advance(token_id)
        table = None if shared is None else shared.of(DEVICE)
        assert (table is None) == (rows == 0)
        assert table is None or table.sent_bytes % ROW_BYTES == 0


def test_threads_share_a_small_table() -> None:
    shared, errors = tables(3), []

    def work(seed: int) -> None:
        try:
            rng = random.Random(seed)
            for _ in range(3):
                walk(rng, MaskFiller(VOCABULARY, STOPS, tables=shared), [rng.randrange(6) for _ in range(3)], None, 12)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_begins_with_an_empty_table() -> None:
    """Also if another thread of the parent holds its lock."""
    shared = tables(10)
    filler = MaskFiller(VOCABULARY, STOPS, tables=shared)
    walk(random.Random(0), filler, [0, 1, 3], None, 6)
    assert shared is not None
    table = shared.of(torch.device("cpu"))
    assert table is not None
    with table._lock:
        child = os.fork()
        if child == 0:
            try:
                walk(random.Random(1), MaskFiller(VOCABULARY, STOPS, tables=shared), [0, 1, 3], None, 6)
                os._exit(0)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    walk(random.Random(2), filler, [0, 1, 3], None, 6)


# -- the table alone, with masks that are known by their first word --------------------------------------------------

WORDS = 4
CPU = torch.device("cpu")


def table_of(rows: int, device: torch.device = CPU) -> MaskTable:
    return MaskTable(32 * WORDS, rows * 4 * WORDS, device)


def kept_array(number: int) -> np.ndarray:
    array = np.full(WORDS, number, np.int32)
    array.flags.writeable = False
    return array


def slot_of(table: MaskTable, kept: np.ndarray, lease: Lease, stops: tuple[int, ...] | None = None) -> int | None:
    """As a row asks for it; a stop token below 32 sets its bit."""
    key = int(kept[0]), stops or ()
    (slot,) = table.slots([key], lease)
    return table.add(key, whole(kept, stops), lease) if slot is None else slot


def whole(kept: np.ndarray, stops: tuple[int, ...] | None) -> np.ndarray:
    mask = kept.copy()
    for token_id in stops or ():
        mask[0] |= 1 << token_id
    return mask


def test_threads_that_see_a_table_first_share_its_memory() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            table, arrays, barrier = table_of(8), [kept_array(i) for i in range(4)], threading.Barrier(4)
            leases: list[Lease] = []

            def work(kept: np.ndarray, table: MaskTable = table, barrier: threading.Barrier = barrier) -> None:
                barrier.wait()
                lease = Lease(table)
                slot_of(table, kept, lease)
                leases.append(lease)  # noqa: B023

            threads = [threading.Thread(target=work, args=(kept,)) for kept in arrays]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            lease = Lease(table)
            for kept in arrays:
                (slot,) = table.slots([(int(kept[0]), ())], lease)
                assert slot is not None
                assert np.array_equal(lease.host[slot], kept)
    finally:
        sys.setswitchinterval(interval)


@contextmanager
def interrupted(line: int) -> Iterator[list[bool]]:
    """Ctrl-C before the ``line``-th line of the table that runs here; yields whether it came."""
    count, came = 0, [False]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename != mask_table.__file__ or frame.f_code.co_name in ("__init__", "__del__"):
            return None  # where the table is not changed, or Python ignores exceptions
        if event == "line":
            count += 1
            if count == line:
                came[0] = True
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield came
    finally:
        sys.settrace(before)


def test_no_mask_is_wrong_after_ctrl_c_at_any_line() -> None:
    arrays = [kept_array(2**10 * (i + 1)) for i in range(6)]
    for line in range(1, 200):
        table = table_of(4)
        for kept in arrays[:4]:
            slot_of(table, kept, Lease(table))
        held = Lease(table)
        first = slot_of(table, arrays[3], held)
        assert first is not None
        came = [False]
        try:
            with interrupted(line) as came:
                slot_of(table, arrays[4], Lease(table))  # takes the row of another mask
                slot_of(table, arrays[4], Lease(table), (3,))
        except KeyboardInterrupt:
            pass
        for _ in range(2):
            for kept in [*arrays, *arrays[::-1]]:
                for stops in (None, (3,)):
                    lease = Lease(table)
                    slot = slot_of(table, kept, lease, stops)
                    assert slot is not None
                    assert np.array_equal(lease.host[slot], whole(kept, stops)), f"interrupted at line {line}"
                    assert np.array_equal(held.host[first], arrays[3]), "a row was overwritten while a mask named it"
        if not came[0]:
            assert line > 20
            return
    raise AssertionError("expected fewer lines")


def test_a_row_does_not_remember_all_that_its_mask_was_known_by() -> None:
    """Every constraint that shares it, or every request's stop tokens."""
    table, mask = table_of(4), kept_array(7)
    slot = slot_of(table, mask, Lease(table))
    for i in range(1000):
        key = (object(), i), (i,)
        assert table.add(key, mask, Lease(table)) == table.slots([key], Lease(table))[0] == slot
    assert len(table._by_key) < 100


def test_a_table_goes_with_its_guide() -> None:
    gc.collect()
    gc.disable()
    try:
        table, kept = table_of(4), kept_array(5)
        slot_of(table, kept, Lease(table))
        gone = weakref.ref(table)
        del table
        assert gone() is None, "its memory waits for the garbage collector"
    finally:
        gc.enable()


class CountedOrder(FakeOrder):
    """A ``StreamOrder`` that notes its uses."""

    def __init__(self) -> None:
        self.uses: list[str] = []

    def enter(self) -> None:
        self.uses.append("enter")

    def leave(self) -> FakeOrder:
        self.uses.append("leave")
        return self


def test_a_kernel_that_fails_leaves_the_copies_before_it_in_order() -> None:
    """Else a later step could write host memory that is being copied, or read a row before its copy is done."""
    order = CountedOrder()
    with pytest.MonkeyPatch.context() as patch, FakeDevice():
        patch.setattr(mask_table, "StreamOrder", lambda device: order)
        table = table_of(2, DEVICE)
        lease = Lease(table)
        slot = slot_of(table, kept_array(3), lease)
        assert slot is not None
        with pytest.raises(torch.OutOfMemoryError), table.on_device([slot]):
            raise torch.OutOfMemoryError("the kernel")
        assert order.uses == ["enter", "leave"]
        assert table._rows[slot].copied is order


def test_a_device_without_events_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Apple's, whose copies may read the row after the call has returned."""
    copy, late = torch.Tensor.copy_, []

    def noted(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        late.append(non_blocking)
        return copy(self, source, non_blocking)

    monkeypatch.setattr(torch.Tensor, "copy_", noted)
    table, kept = table_of(1, torch.device("meta")), kept_array(1)
    slot = slot_of(table, kept, Lease(table))
    assert slot is not None
    with table.on_device([slot]):
        assert late == [False]


def test_a_table_that_fits_in_no_memory_says_which_variable_made_it() -> None:
    for size in (10**15, 10**30):
        with pytest.raises(hg.InvalidArgument, match=r"(?s)bytes of masks that stay, got .*HF_GUIDED_MASK_TABLE_BYTES"):
            Lease(MaskTable(32 * WORDS, size, CPU))
