"""The contract of mask_kernel.py as Triton kernels: copy and mask in one pass, then rows that can only end.

Scores that the mask forbids are not read, so a nearly empty mask costs one write of the row. Triton compiles a kernel
for each dtype, and once more where rows of scores are not aligned; not for anything else, because it may not compile
during the capture of a graph.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_FALLBACK_SCORE = -1e4  # as in mask_kernel.py, which imports this file
_BLOCK = 4096  # columns of one program
_OPTIONS: Any = {"enable_fp_fusion": False}  # nothing is calculated; unless it is set, Triton 3.9 warns of its default


@triton.jit(do_not_specialize=["words"], do_not_specialize_on_alignment=["masks", "own", "slots", "alive"])
def _mask(  # type: ignore[no-untyped-def]  # Triton reads the source; its arguments have no Python types
    scores, out, masks, own, slots, alive, vocab, words, stride, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = tl.load(slots + row).to(tl.int64)
    mask = masks + slot * words
    if slot < 0:
        mask = own + (-2 - slot) * words
    if slot == -1:
        keep = columns < vocab
    else:
        word = tl.load(mask + columns // 32, mask=(columns < vocab) & (columns // 32 < words), other=0)
        keep = (word >> (columns % 32)) & 1 != 0
    kept = tl.load(scores + row * stride + columns, mask=keep & (columns < vocab), other=-float("inf"))
    tl.store(out + row * vocab + columns, kept, mask=columns < vocab)
    finite = tl.max((kept.to(tl.float32) > -float("inf")).to(tl.int32), 0)
    if (finite > 0) | (slot == -1):
        tl.atomic_max(alive + row, 1)


@triton.jit(do_not_specialize=["num_stops"], do_not_specialize_on_alignment=["alive", "stops"])
def _end(out, alive, stops, num_stops, vocab, fallback, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if tl.load(alive + row) == 0:
        ending = tl.full((BLOCK,), -float("inf"), tl.float32)
        for i in range(num_stops):
            ending = tl.where(columns == tl.load(stops + i), fallback, ending)
        tl.store(out + row * vocab + columns, ending.to(out.dtype.element_ty), mask=columns < vocab)


def apply_with_triton(
    scores: Tensor, masks: Tensor, slots: Tensor, own: Tensor | None = None, stops: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See ``MaskKernel``; fp16, bf16 and fp32. Two launches, and one that clears the result."""
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    rows, vocab = scores.shape
    out = torch.empty((rows, vocab), dtype=scores.dtype, device=scores.device)
    alive = torch.zeros(rows, dtype=torch.int32, device=scores.device)
    if not rows:
        return out, alive
    grid: Any = (rows, max(1, triton.cdiv(vocab, _BLOCK)))
    with _on(scores.device):
        _mask[grid](
            scores,
            out,
            masks,
            masks if own is None else own,
            slots,
            alive,
            vocab,
            masks.shape[1],
            scores.stride(0),
            BLOCK=_BLOCK,
            **_OPTIONS,
        )
        if stops is not None:
            _end[grid](out, alive, stops, len(stops), vocab, _FALLBACK_SCORE, BLOCK=_BLOCK, **_OPTIONS)
    return out, alive


def _on(device: torch.device) -> Any:
    """Launches go to the current device."""
    return torch.cuda.device(device if device.type == "cuda" else -1)
