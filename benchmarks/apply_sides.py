"""The functions that mask scores: ours and others, each as its library uses it, on the same buffers.

Ours returns a masked copy (``MaskKernel``). The others write into the logits, so each clones them first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_guided.session.mask_kernel import mask_kernel
from hf_guided.vocabulary.bitmask import WORD_BITS, pack, words

OURS, TRITON = "hf-guided", "xgrammar triton"
CLONE, FILL = "clone()", "fill_"  # bounds: reads and writes every logit; writes every logit
BOUNDS = CLONE, FILL


@dataclass(frozen=True)
class Buffer:
    """One batch of logits and masks.

    Args:
        logits: (rows, vocab); no side writes them.
        bitmask: (rows, words) int32.
        slots: (rows,) int32: row i has mask i.
        forbidden: (rows, vocab) bool.
        stops: (1,) int64: the stop token.
    """

    logits: Tensor
    bitmask: Tensor
    slots: Tensor
    forbidden: Tensor
    stops: Tensor

    @classmethod
    def random(
        cls, rows: int, vocab: int, allowed: float, dtype: torch.dtype, device: torch.device, seed: int
    ) -> Buffer:
        """A buffer in which each token is allowed with this probability."""
        generator = torch.Generator(device).manual_seed(seed)
        logits = torch.randn(rows, vocab, generator=generator, device=device).to(dtype)
        forbidden = torch.rand(rows, vocab, generator=generator, device=device) >= allowed
        forbidden[:, seed % vocab] = False  # a row that can only end is another case
        # Bits after the vocabulary are set: for bits that are not, xgrammar's CPU kernel writes -inf past the row.
        bits = torch.ones(rows, words(vocab) * WORD_BITS, dtype=torch.bool, device=device)
        bits[:, :vocab] = ~forbidden
        slots = torch.arange(rows, dtype=torch.int32, device=device)
        return cls(logits, pack(bits), slots, forbidden, torch.zeros(1, dtype=torch.int64, device=device))

    @property
    def nbytes(self) -> int:
        """Bytes of the logits, which a copy reads and writes."""
        return self.logits.numel() * self.logits.element_size()

    def masked(self) -> Tensor:
        """The scores that every side should return."""
        return self.logits.masked_fill(self.forbidden, float("-inf"))


Side = Callable[[Buffer], Tensor]  # returns the masked copy; a bound returns any tensor of that size


def ours(device: torch.device) -> Side:
    kernel = mask_kernel(device)
    return lambda buffer: kernel(buffer.logits, buffer.bitmask, buffer.slots, stops=buffer.stops)[0]


def clone(device: torch.device) -> Side:
    return lambda buffer: buffer.logits.clone()


def fill(device: torch.device) -> Side:
    return lambda buffer: torch.empty_like(buffer.logits).fill_(float("-inf"))


def _in_place(apply: Callable[[Tensor, Tensor], object]) -> Side:
    """A side of a function (logits, bitmask) that writes into the logits."""

    def run(buffer: Buffer) -> Tensor:
        copy = buffer.logits.clone()
        apply(copy, buffer.bitmask)
        return copy

    return run


def xgrammar_triton(device: torch.device) -> Side:
    from xgrammar.kernels.apply_token_bitmask_inplace_triton import apply_token_bitmask_inplace_triton

    return _in_place(apply_token_bitmask_inplace_triton)


def xgrammar_cuda(device: torch.device) -> Side:
    # Compiled with nvcc when it is imported.
    from xgrammar.kernels.apply_token_bitmask_inplace_cuda import apply_token_bitmask_inplace_cuda

    return _in_place(apply_token_bitmask_inplace_cuda)


def xgrammar_cpu(device: torch.device) -> Side:
    import xgrammar

    return _in_place(lambda logits, bitmask: xgrammar.apply_token_bitmask_inplace(logits, bitmask, backend="cpu"))


def llguidance(device: torch.device) -> Side:
    from llguidance.torch import apply_token_bitmask_inplace

    return _in_place(apply_token_bitmask_inplace)


Make = Callable[[torch.device], Side]
PEERS: dict[str, dict[str, Make]] = {
    "cuda": {TRITON: xgrammar_triton, "xgrammar CUDA": xgrammar_cuda, "llguidance": llguidance},
    "cpu": {"xgrammar CPU": xgrammar_cpu, "llguidance": llguidance},
}


def all_sides(device: torch.device, peers: list[str] | None = None) -> dict[str, Make]:
    """Ours, the bounds and the others on this kind of device.

    Args:
        device: where the logits are.
        peers: only these; None: all.
    """
    others = {name: make for name, make in PEERS[device.type].items() if peers is None or name in peers}
    return {OURS: ours, CLONE: clone, FILL: fill, **others}
