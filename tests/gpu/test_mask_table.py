"""Masks that stay on a device: every step is masked by the masks of its own rows, whatever has left the table."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import hf_guided as hg
from hf_guided import demo
from hf_guided.session.mask_kernel import mask_kernel
from hf_guided.session.mask_table import Lease, MaskTable
from hf_guided.session.transfers import to_device

VOCAB, STOP = 100, 7
WORDS = -(-VOCAB // 32)
LATE = 20_000_000  # cycles that a kernel sleeps: some ten milliseconds


def kept_masks(count: int) -> list[NDArray[np.int32]]:
    """Each allows a few tokens."""
    draw = np.random.default_rng(0)
    arrays = []
    for _ in range(count):
        bits = np.zeros(32 * WORDS, np.uint8)
        bits[draw.choice(VOCAB, 10, replace=False)] = 1
        bits[STOP] = 0
        arrays.append(np.packbits(bits, bitorder="little").view(np.int32))
        arrays[-1].flags.writeable = False
    return arrays


def expected(scores: Tensor, masks: list[NDArray[np.int32]]) -> Tensor:
    """By numpy's reading of the bits; the stop token is allowed too."""
    allowed = np.stack([np.unpackbits(mask.view(np.uint8), bitorder="little")[:VOCAB] for mask in masks])
    allowed[:, STOP] = 1
    return torch.where(torch.from_numpy(allowed).bool(), scores, torch.tensor(-torch.inf))


def slots_of(table: MaskTable, masks: list[NDArray[np.int32]], lease: Lease) -> list[int | None]:
    slots = []
    for kept in masks:
        key = kept.tobytes(), (STOP,)
        (slot,) = table.slots([key], lease)
        if slot is None:
            with_stop = kept.copy()
            with_stop[0] |= 1 << STOP
            slot = table.add(key, with_stop, lease)
        slots.append(slot)
    return slots


@pytest.mark.parametrize("rows", [3, 5, 20])
def test_steps_on_several_streams_are_masked_by_their_own_masks(device: torch.device, rows: int) -> None:
    """Nothing waits between the steps, so on a GPU rows are evicted while kernels that read them are queued."""
    random, masks = Random(rows), kept_masks(12)
    table, kernel = MaskTable(VOCAB, rows * 4 * WORDS, device), mask_kernel(device)
    on_gpu = device.type == "cuda"
    streams: list[Any] = [torch.cuda.Stream() for _ in range(2)] if on_gpu else [None]
    steps = [(random.choices(masks, k=3), torch.randn(3, VOCAB)) for _ in range(60)]
    there = [scores.to(device) for _, scores in steps]  # before the steps, because the host waits for it
    if on_gpu:
        torch.cuda.synchronize()
    found = []
    for (chosen, _), scores in zip(steps, there, strict=True):
        lease = Lease(table)
        slots = slots_of(table, chosen, lease)
        with torch.cuda.stream(random.choice(streams)) if on_gpu else nullcontext():
            if on_gpu and random.random() < 0.3:
                torch.cuda._sleep(LATE)
            with table.on_device([slot for slot in slots if slot is not None]) as rows_there:
                found.append(kernel(scores, rows_there, to_device(slots, device, dtype=torch.int32))[0])
        del lease
    if on_gpu:
        torch.cuda.synchronize()
    wanted = [expected(scores, chosen) for chosen, scores in steps]
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours.cpu(), theirs)
    assert (table.sent_bytes == 4 * WORDS * len(masks)) == (rows >= len(masks))


def test_leased_rows_stay_and_a_full_table_takes_no_more(device: torch.device) -> None:
    masks = kept_masks(3)
    table = MaskTable(VOCAB, 2 * 4 * WORDS, device)
    lease = Lease(table)
    first, second, third = slots_of(table, masks, lease)
    assert {first, second} == {0, 1} and third is None
    del lease
    assert slots_of(table, masks[2:], Lease(table)) == [first]  # the least recently used one
    assert slots_of(table, masks[1:2], Lease(table)) == [second]


def test_tokens_do_not_depend_on_resident_masks(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor and the fast loop, with room for all masks, for four and for none."""
    model, tokenizer = demo.load()
    model = model.double().to(device)
    constraints = [hg.Regex(r'\{"id": [0-9]{1,6}\}'), hg.Regex("[a-f]{1,4}( [g-m]{2}){1,3}")]
    inputs = tokenizer(["A number: "] * 2, return_tensors="pt", return_token_type_ids=False).to(device)
    settings = {**inputs, "max_new_tokens": 20, "do_sample": False}

    def tokens(guide: hg.Guide) -> list[list[int]]:
        processor = guide.logits_processor(constraints)
        criteria = [processor.companion]
        plain = model.generate(**settings, logits_processor=[processor], stopping_criteria=criteria)
        return [*plain.tolist(), *model.generate(**settings, custom_generate=guide.decoder(constraints)).tolist()]

    guide = hg.Guide(model, tokenizer)
    resident = tokens(guide)
    for rows in (0, 4):
        monkeypatch.setenv("HF_GUIDED_MASK_TABLE_BYTES", str(rows * 4 * -(-guide.vocabulary.padded_size // 32)))
        assert tokens(hg.Guide(model, tokenizer)) == resident
