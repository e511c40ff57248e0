"""The contract of mask_kernel.py as Triton kernels: copy and mask in one pass, then rows that can only end.

Scores that the mask forbids are not read, so a nearly empty mask costs one write of the row; except for log-sum-exps,
to which each program adds its columns. Triton compiles a kernel for each dtype, and once more where rows of scores are
not aligned, or log-sum-exps are wanted; not for anything else, because it may not compile during the capture of a
graph.
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


@triton.jit
def _log_sum(values):  # type: ignore[no-untyped-def]  # Triton reads the source; its arguments have no Python types
    most = tl.max(values, 0)
    most = tl.where(tl.abs(most) < float("inf"), most, 0.0)
    return most + tl.log(tl.sum(tl.exp(values - most), 0))


@triton.jit(do_not_specialize=["words"], do_not_specialize_on_alignment=["masks", "own", "slots", "alive", "parts"])
def _mask(  # type: ignore[no-untyped-def]
    scores, out, masks, own, slots, alive, parts, vocab, words, stride, BLOCK: tl.constexpr, SUMS: tl.constexpr
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
    if SUMS:
        whole = tl.load(scores + row * stride + columns, mask=columns < vocab, other=-float("inf"))
        part = parts + (row * tl.num_programs(1) + tl.program_id(1)) * 2
        tl.store(part, _log_sum(whole.to(tl.float32)))
        tl.store(part + 1, _log_sum(kept.to(tl.float32)))


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
    scores: Tensor,
    masks: Tensor,
    slots: Tensor,
    own: Tensor | None = None,
    stops: Tensor | None = None,
    log_sums: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """See ``MaskKernel``; fp16, bf16 and fp32. Two launches, one that clears the result, some for log-sum-exps."""
    if scores.stride(1) != 1:
        scores = scores.contiguous()
    rows, vocab = scores.shape
    out = torch.empty((rows, vocab), dtype=scores.dtype, device=scores.device)
    alive = torch.zeros(rows, dtype=torch.int32, device=scores.device)
    if not rows:
        return out, alive
    grid: Any = (rows, max(1, triton.cdiv(vocab, _BLOCK)))
    # (rows, programs, 2): the log-sum-exps of each program's columns, before and after the mask
    parts = None if log_sums is None else torch.empty((*grid, 2), dtype=torch.float32, device=scores.device)
    with _on(scores.device):
        _mask[grid](
            scores,
            out,
            masks,
            masks if own is None else own,
            slots,
            alive,
            alive if parts is None else parts,
            vocab,
            masks.shape[1],
            scores.stride(0),
            BLOCK=_BLOCK,
            SUMS=parts is not None,
            **_OPTIONS,
        )
        if log_sums is not None and parts is not None:
            log_sums.copy_(parts.logsumexp(1))
        if stops is not None:
            _end[grid](out, alive, stops, len(stops), vocab, _FALLBACK_SCORE, BLOCK=_BLOCK, **_OPTIONS)
    return out, alive


def _on(device: torch.device) -> Any:
    """Launches go to the current device."""
    return torch.cuda.device(device if device.type == "cuda" else -1)
