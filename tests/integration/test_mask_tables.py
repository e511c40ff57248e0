"""Whatever the size of the table of masks, on a device or not: every generation mode sees the same masked scores."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_guided.guide import calls_of
from hf_guided.hf.logits_processor import GuidedLogitsProcessor
from hf_guided.session import mask_table, transfers
from hf_guided.vocabulary.bitmask import words
from tests import vocabularies
from tests.fake_device import FakeDevice, FakeOrder, FakeTransfers, put
from tests.integration.modes import KINDS, MODES, Kind, Mode, Stage

KIND = KINDS[0]  # a schema: masks that stay, and masks near the end of a budget
Seen = list[Tensor]  # the masked scores of each call


def run(mode: Mode, stage: Stage, kind: Kind) -> list[list[int]]:
    torch.manual_seed(zlib.crc32(mode.name.encode()))
    return [result.token_ids for result in mode.run(stage, kind, 0)]


@contextmanager
def watched(device: FakeDevice | None) -> Iterator[Seen]:
    """The scores that processors return; with a device, scores are put there for each call."""
    seen: Seen = []
    mask = GuidedLogitsProcessor.__call__

    def call(self: GuidedLogitsProcessor, input_ids: Tensor, scores: Tensor) -> Tensor:
        if device is None:
            masked = mask(self, input_ids, scores)
        else:
            with device:
                masked = mask(self, put(input_ids.clone()), put(scores.clone())).cpu()
        seen.append(masked.clone())
        return masked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuidedLogitsProcessor, "__call__", call)
        patch.setattr(mask_table, "StreamOrder", lambda device: FakeOrder())
        patch.setattr(transfers, "CudaTransfers", FakeTransfers)
        yield seen


@cache
def stage_with(rows: int) -> Stage:
    """A stage whose guides have tables of ``rows`` masks."""
    tokenizer = vocabularies.VOCABULARIES["demo"]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_GUIDED_MASK_TABLE_BYTES", str(rows * 4 * words(len(tokenizer) + 63)))
        return Stage("demo", tokenizer)


@cache
def expected(name: str) -> tuple[list[list[int]], Seen]:
    """Tokens and masked scores on the CPU, without a table."""
    [mode] = [one for one in MODES if one.name == name]
    with watched(None) as seen:
        return run(mode, stage_with(0), KIND), seen


CELLS = {(rows, on_device) for rows in (0, 3, 1000) for on_device in (False, True)} - {(0, False)}


@pytest.mark.parametrize(
    ("mode", "rows", "on_device"),
    [
        pytest.param(
            mode,
            *cell,
            marks=[pytest.mark.slow] * (cell != (3, True) or mode.name.startswith("foreign")),
            id=f"{mode}-{cell[0]}-{'device' if cell[1] else 'cpu'}",
        )
        for mode in MODES
        if mode.name
        != "foreign_assistant_sampling"  # transformers changes its models in place, so no two calls are the same
        for cell in sorted(CELLS)
    ],
)
def test_masked_scores_are_the_same(mode: Mode, rows: int, on_device: bool) -> None:
    stage, (tokens, scores) = stage_with(rows), expected(mode.name)
    with watched(FakeDevice() if on_device else None) as seen:
        assert run(mode, stage, KIND) == tokens
    assert len(seen) == len(scores)
    as_int: dict[int, Any] = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    for found, wanted in zip(seen, scores, strict=True):
        kind = as_int[wanted.element_size()]
        assert torch.equal(found.view(kind), wanted.view(kind))
    tables = list(calls_of(stage.guide).tables._tables.values())
    assert all(table.sent_bytes for table in tables if table.device.type == "cuda" and rows)
