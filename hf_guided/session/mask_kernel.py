"""Masks scores on a device, from masks that are there: one contract, and the fastest function that keeps it.

On an NVIDIA GPU that is a Triton kernel (mask_triton.py), or the CUDA kernel of kernels/guided_bitmask where the caller
names a repository of the Hub; torch's own operations everywhere else, and wherever the kernel does not import, compile
or load. The choice changes only the speed, and no host waits for a device.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import cause, warn
from ..options import KernelOptions
from ..vocabulary.bitmask import WORD_BITS

NOT_MASKED = -1  # the slot of a row that is copied as it is
FALLBACK_SCORE = -1e4  # finite, also after a low temperature; a beam that has to end this way is the worst one
_NEG_INF = float("-inf")
_OF_KERNELS = (torch.float16, torch.bfloat16, torch.float32)


class MaskKernel(Protocol):
    """Writes masked scores."""

    def __call__(
        self,
        scores: Tensor,
        masks: Tensor,
        slots: Tensor,
        own: Tensor | None = None,
        stops: Tensor | None = None,
        log_sums: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """A copy of the scores with -inf for every token that the row's mask forbids.

        Args:
            scores: (rows, vocab) floating point, any strides; read only. A mask that is shorter forbids the tokens
                beyond its end; the rest of a longer one is not read.
            masks: (masks, words) int32, contiguous; bit j % 32 of word j // 32 allows token j.
            slots: (>= rows,) int32, contiguous: s >= 0 masks the row by ``masks[s]``; -1 leaves it as it is, bit for
                bit; s <= -2 masks it by ``own[-2 - s]``.
            own: (any, words) int32, contiguous; None if no slot is below -1.
            stops: (any,) int64: the tokens that a masked row without an allowed score above -inf can only end with:
                they get ``FALLBACK_SCORE``, and the others -inf, also where the scores are NaN. None leaves such rows
                as they are masked.
            log_sums: (rows, 2) float32, contiguous, written: the log-sum-exp of each row before and after its mask,
                which are equal for a row that is not masked. None leaves it out.

        Returns:
            A new contiguous tensor like ``scores``; (rows,) int32, 1 for rows that are not masked or have an allowed
            score above -inf (NaN is not above it), else 0.

        Streams: runs on the current stream; can be captured in a CUDA graph.
        """
        ...


def log_sums_dtype(device: torch.device) -> torch.dtype:
    """The type of the log-sum-exps of scores on a device."""
    return torch.float64 if device.type == "cpu" else torch.float32


def write_log_sums_(log_sums: Tensor, scores: Tensor, masked: Tensor) -> None:
    """Write (rows, 2) the log-sum-exp of scores (rows, vocab) and of the masked scores, computed in float64."""
    for column, each in enumerate((scores, masked)):
        wide = each.to(torch.float32 if each.device.type == "mps" else torch.float64)
        log_sums[:, column] = wide.logsumexp(-1)


def apply_with_torch(
    scores: Tensor,
    masks: Tensor,
    slots: Tensor,
    own: Tensor | None = None,
    stops: Tensor | None = None,
    log_sums: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """See ``MaskKernel``; any device and dtype, some ten launches."""
    slots = slots[: len(scores)]
    words = masks[slots.clamp(min=0)] if len(masks) else masks.new_zeros(len(scores), masks.shape[1])
    if own is not None and len(own):
        words = torch.where((slots < NOT_MASKED)[:, None], own[(-2 - slots).clamp(min=0)], words)
    free = (slots == NOT_MASKED)[:, None]
    bits = torch.arange(WORD_BITS, dtype=torch.int32, device=scores.device)
    allowed = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
    unpacked = ((words.unsqueeze(-1) >> bits) & 1).bool().flatten(1)[:, : scores.shape[1]]
    allowed[:, : unpacked.shape[1]] = unpacked
    masked = torch.where(allowed | free, scores, torch.full_like(scores, _NEG_INF))
    alive = (masked > _NEG_INF).any(-1, keepdim=True) | free
    if log_sums is not None:
        write_log_sums_(log_sums, scores, masked)
    if stops is not None:
        ending = torch.full_like(scores[:1], _NEG_INF).index_fill_(1, stops, FALLBACK_SCORE)
        masked = torch.where(alive, masked, ending)
    return masked.contiguous(), alive.flatten().int()


def mask_kernel(device: torch.device) -> MaskKernel:
    """The function for a device, found and tried out when the device is first seen; outside of captures, please."""
    with _lock:
        if device not in _found:
            _found[device] = _Fastest(device)
        return _found[device]


def kernel_in_use(device: torch.device) -> tuple[str, str]:
    """What masks scores on a device: "triton", a repository of the Hub or "torch"; and why torch, else ""."""
    kernel = mask_kernel(device)
    assert isinstance(kernel, _Fastest)
    return kernel.name, kernel.reason


class _Fastest:
    """A kernel, until it fails once; then torch's operations, for good, and one warning with the reason."""

    def __init__(self, device: torch.device):
        options = KernelOptions.from_env()
        self.name = options.hub_repository or "triton"
        self.reason = ""
        self._kernel: MaskKernel = apply_with_torch
        try:
            self._kernel, self.reason = _loaded(device, options)
            if self.reason:
                self.name = "torch"
                return
            for dtype in _OF_KERNELS:  # also those whose first use would compile during a capture
                scores = torch.zeros(1, WORD_BITS, dtype=dtype, device=device)
                masked, _ = self._kernel(
                    scores,
                    torch.zeros(1, 1, dtype=torch.int32, device=device),
                    torch.zeros(1, dtype=torch.int32, device=device),
                    stops=torch.zeros(1, dtype=torch.int64, device=device),
                )
                masked.cpu()  # waits: a launch that fails is noticed here
        except Exception as error:  # no Triton, no C compiler for its launcher, a driver that is too old
            self._fail(error)

    def __call__(self, scores: Tensor, *others: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """See ``MaskKernel``."""
        if self._kernel is not apply_with_torch and scores.dtype in _OF_KERNELS:
            try:
                return self._kernel(scores, *others, **named)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # a shape that was not tried out has to be compiled
                self._fail(error)
        return apply_with_torch(scores, *others, **named)

    def _fail(self, error: Exception) -> None:
        self._kernel, self.name, self.reason = apply_with_torch, "torch", cause(error)
        warn(f"hf-guided masks scores with torch's own operations, which are slower: its kernel failed ({self.reason})")


def _loaded(device: torch.device, options: KernelOptions) -> tuple[MaskKernel, str]:
    """The kernel to try, and why it is torch's operations where no other is wanted."""
    if device.type != "cuda" or torch.version.cuda is None:  # AMD's GPUs have the type "cuda" too
        return apply_with_torch, f"the kernels are for NVIDIA GPUs, not for {device.type} of torch {torch.__version__}"
    if options.torch_only:
        return apply_with_torch, "HF_GUIDED_TORCH_ONLY=1"
    if options.hub_repository is not None:
        from kernels import get_kernel

        return get_kernel(options.hub_repository, version=1).apply_masks, ""
    from .mask_triton import apply_with_triton

    return apply_with_triton, ""


_found: dict[torch.device, _Fastest] = {}
_lock = threading.Lock()
