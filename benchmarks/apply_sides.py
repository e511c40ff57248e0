"""What writes -inf over forbidden logits: ours and others, each as its library uses it, on the same buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_guided.hf.device import kernel_loader
from hf_guided.vocabulary.bitmask import WORD_BITS, pack, words

OURS, MASKED_FILL, BOUND = "hf-guided", "torch masked_fill_", "fill_"
SECTOR = 32  # bytes: the least that a GPU writes to memory


@dataclass(frozen=True)
class Buffer:
    """One batch of logits and masks.

    Args:
        logits: (rows, vocab), written.
        bitmask: (rows, words) int32.
        forbidden: (rows, vocab) bool, for those that take no bits.
        touched: as many bytes as cannot be helped: the mask's words, and all sectors that hold a forbidden logit.
    """

    logits: Tensor
    bitmask: Tensor
    forbidden: Tensor
    touched: Tensor

    @classmethod
    def random(
        cls, rows: int, vocab: int, allowed: float, dtype: torch.dtype, device: torch.device, seed: int
    ) -> Buffer:
        """One in which this share of the tokens is allowed, each by chance."""
        generator = torch.Generator(device).manual_seed(seed)
        logits = torch.randn(rows, vocab, generator=generator, device=device).to(dtype)
        forbidden = torch.rand(rows, vocab, generator=generator, device=device) >= allowed
        # Bits after the vocabulary are set: for bits that are not, xgrammar's CPU kernel writes -inf past the row.
        bits = torch.ones(rows, words(vocab) * WORD_BITS, dtype=torch.bool, device=device)
        bits[:, :vocab] = ~forbidden
        bitmask = pack(bits)
        nbytes = bitmask.numel() * bitmask.element_size() + SECTOR * touched_sectors(forbidden, dtype.itemsize)
        touched = torch.empty(nbytes // dtype.itemsize, dtype=dtype, device=device)
        return cls(logits, bitmask, forbidden, touched)

    def masked(self) -> Tensor:
        """What the logits should become."""
        return self.logits.masked_fill(self.forbidden, float("-inf"))


def touched_sectors(forbidden: Tensor, itemsize: int) -> int:
    """Sectors that hold a forbidden element, where the first row begins one.

    Args:
        forbidden: (rows, vocab) bool.
        itemsize: bytes of an element.
    """
    flat, each = forbidden.flatten(), SECTOR // itemsize
    whole = torch.zeros(-(-flat.numel() // each) * each, dtype=torch.bool, device=flat.device)
    whole[: flat.numel()] = flat
    return int(whole.view(-1, each).any(1).sum())


Side = Callable[[Buffer], None]


def ours(device: torch.device) -> Side:
    kernels = kernel_loader.find(device=device).kernels
    return lambda buffer: kernels.apply_slots_(buffer.logits, buffer.bitmask)


def masked_fill(device: torch.device) -> Side:
    def run(buffer: Buffer) -> None:
        buffer.logits.masked_fill_(buffer.forbidden, float("-inf"))

    return run


def bound(device: torch.device) -> Side:
    def run(buffer: Buffer) -> None:
        buffer.touched.fill_(float("-inf"))

    return run


def xgrammar_triton(device: torch.device) -> Side:
    from xgrammar.kernels.apply_token_bitmask_inplace_triton import apply_token_bitmask_inplace_triton

    return lambda buffer: apply_token_bitmask_inplace_triton(buffer.logits, buffer.bitmask)


def xgrammar_cuda(device: torch.device) -> Side:
    # Compiled with nvcc when it is imported.
    from xgrammar.kernels.apply_token_bitmask_inplace_cuda import apply_token_bitmask_inplace_cuda

    return lambda buffer: apply_token_bitmask_inplace_cuda(buffer.logits, buffer.bitmask)


def xgrammar_cpu(device: torch.device) -> Side:
    import xgrammar

    return lambda buffer: xgrammar.apply_token_bitmask_inplace(buffer.logits, buffer.bitmask, backend="cpu")


def llguidance(device: torch.device) -> Side:
    from llguidance.torch import apply_token_bitmask_inplace

    return lambda buffer: apply_token_bitmask_inplace(buffer.logits, buffer.bitmask)


Make = Callable[[torch.device], Side]
PEERS: dict[str, dict[str, Make]] = {
    "cuda": {"xgrammar triton": xgrammar_triton, "xgrammar CUDA": xgrammar_cuda, "llguidance": llguidance},
    "cpu": {"xgrammar CPU": xgrammar_cpu, "llguidance": llguidance},
}


def all_sides(device: torch.device, peers: list[str] | None = None) -> dict[str, Make]:
    """Ours and the others on this kind of device.

    Args:
        device: where the logits are.
        peers: only these; None: all.
    """
    others = {name: make for name, make in PEERS[device.type].items() if peers is None or name in peers}
    return {OURS: ours, BOUND: bound, MASKED_FILL: masked_fill, **others}
