"""Masks that stay in a table are what the engine fills, whatever was evicted, on any thread, and in a forked child."""

from __future__ import annotations

import os
import random
import threading
import time
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
GUIDE = hg.Guide(TOKENIZER, len(TOKENIZER))
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


def row_of(constraint: Any, *, budget: bool) -> Row:
    if constraint is None:
        return Row(None)
    compiled = GUIDE._compiler.submit(hg.constraints.coerce.coerce(constraint), "auto", budget=budget).result()
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
    pairs = [[row_of(CONSTRAINTS[i], budget=left is not None) for i in which] for _ in range(2)]
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
        pairs = [[row_of(CONSTRAINTS[i], budget=False) for i in which] for _ in range(2)]
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


def in_four_threads(shared: MaskTables | None) -> list[BaseException]:
    """What goes wrong where four threads walk."""
    errors = []

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
    return errors


def test_threads_share_a_small_table() -> None:
    assert not in_four_threads(tables(3))


def test_threads_share_the_memory_of_a_new_table(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty

    def late(*given: Any, **options: Any) -> torch.Tensor:
        time.sleep(0.1)
        return empty(*given, **options)

    for constraint in CONSTRAINTS:
        row_of(constraint, budget=False)  # so that all threads need the memory soon
    monkeypatch.setattr(torch, "empty", late)
    assert not in_four_threads(tables(1000))


def kept_mask(token_id: int) -> Any:
    """An array as an engine keeps it: one token is allowed."""
    mask = np.asarray(VOCABULARY.bitmask_of([token_id]))
    mask.flags.writeable = False
    return mask


def test_masks_that_are_named_stay_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, after a row was chosen for a new mask and before it is there."""
    arrays = [kept_mask(token_id) for token_id in range(4)]
    table = MaskTable(VOCABULARY.padded_size, 2 * ROW_BYTES, torch.device("cpu"))
    table.add(arrays[0], False, (), arrays[0], Lease(table))
    lease = Lease(table)
    named = table.add(arrays[1], False, (), arrays[1], lease)

    def interrupted(*given: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mask_table, "_Row", interrupted)
        table.add(arrays[2], False, (), arrays[2], Lease(table))
    for array in arrays[2:]:
        slot = table.add(array, False, (), array, Lease(table))
        assert slot is not None and slot != named
        assert np.array_equal(lease.host[slot], array) and np.array_equal(lease.host[named], arrays[1])
    assert table.slot(arrays[0], False, (), Lease(table)) is None


def test_a_row_is_not_written_before_its_copy_is_done_though_its_kernel_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    class Order(FakeOrder):
        def synchronize(self) -> None:
            waits.append(table.host[0].clone())

    monkeypatch.setattr(mask_table, "StreamOrder", lambda device: Order())
    first, second = kept_mask(0), kept_mask(1)
    with FakeDevice():
        table = MaskTable(VOCABULARY.padded_size, ROW_BYTES, DEVICE)
        slot = table.add(first, False, (), first, Lease(table))
        with pytest.raises(torch.OutOfMemoryError), table.on_device([slot]):
            raise torch.OutOfMemoryError("no room for the masked scores")
        table.add(second, False, (), second, Lease(table))
    assert [wait.tolist() for wait in waits] == [first.tolist()]


def test_a_device_without_events_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Apple's, whose copies may read the row after the call has returned."""
    copy, late = torch.Tensor.copy_, []

    def noted(self: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        late.append(non_blocking)
        return copy(self, source, non_blocking)

    monkeypatch.setattr(torch.Tensor, "copy_", noted)
    table = MaskTable(VOCABULARY.padded_size, ROW_BYTES, torch.device("meta"))
    mask = kept_mask(0)
    with table.on_device([table.add(mask, False, (), mask, Lease(table))]):
        assert late == [False]


def test_arrays_that_are_deleted_leave_nothing_behind() -> None:
    """A mask that many constraints have in common is never evicted, so it would collect their keys."""
    table = MaskTable(VOCABULARY.padded_size, ROW_BYTES, torch.device("cpu"))
    arrays = [kept_mask(0) for _ in range(100)]
    assert {table.add(array, False, (), array, Lease(table)) for array in arrays} == {0}
    assert len(table._by_key) == len(table._rows[0].keys) == 100
    del arrays[1:]
    assert len(table._by_key) == len(table._rows[0].keys) == 1


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
