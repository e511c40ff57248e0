"""Random arguments of a mask kernel, of all kinds that its contract allows, and what must come of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from hf_guided.session.mask_kernel import FALLBACK_SCORE

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
WIDTHS = (1, 2, 7, 8, 9, 31, 32, 33, 100, 257)
_AS_INT = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class Case(NamedTuple):
    """The arguments of a ``MaskKernel``."""

    scores: Tensor
    masks: Tensor
    slots: Tensor
    own: Tensor | None
    stops: Tensor | None


def random_case(
    random: Random, dtype: torch.dtype | None = None, vocab: int | None = None, rows: int | None = None
) -> Case:
    """Scores with NaN and infinities at any stride and alignment; masks of any length; slots of all kinds."""
    generator = torch.Generator().manual_seed(random.getrandbits(32))
    rows = random.randint(0, 5) if rows is None else rows
    vocab = vocab or random.choice(WIDTHS)
    dtype = dtype or random.choice(DTYPES)
    offset, stride = random.randint(0, 9), vocab + random.choice((0, 0, 1, 3, 8, 16))
    flat = torch.randn(offset + rows * stride + random.randint(0, 9), generator=generator).to(dtype)
    share = random.choice((0.03, 0.3, 1.0))
    for number in (torch.nan, torch.inf, 0.0, -0.0, -torch.inf):
        flat[torch.rand(flat.shape, generator=generator) < share] = number
    scores = flat[offset : offset + rows * stride].view(rows, stride)[:, :vocab]
    words = max(0, -(-vocab // 32) + random.choice((0, 0, 0, -1, 2)))
    masks, own = _masks(random, generator, 4, words), _masks(random, generator, 3, words)
    lowest = random.choice((-1, -4))
    slots = torch.randint(lowest, 4, (rows + random.randint(0, 2),), generator=generator).int()
    masks = masks[: int(slots.max()) + 1] if (slots >= 0).any() else masks[:0]  # none that no slot names
    stops = torch.tensor([0, vocab - 1, vocab // 2][: random.randint(0, 3)], dtype=torch.int64)
    if lowest == -1:
        own = None if rows % 2 else own[:0]
    return Case(scores, masks, slots, own, random.choice((None, stops)))


def _masks(random: Random, generator: torch.Generator, count: int, words: int) -> Tensor:
    """One that allows nothing, one that allows everything, one that allows runs, and any."""
    masks = torch.randint(-(2**31), 2**31, (count, words), generator=generator)
    masks[0] = random.choice((0, 1))
    masks[1] = -1
    masks[2] = random.choice((0xFF, -256, 0xFFFF, 7 << 29)) - (1 << 32) * (random.random() < 0.5)
    return masks.to(torch.int32)


def expected(case: Case) -> tuple[Tensor, Tensor]:
    """The result, token by token."""
    scores, masks, slots, own, stops = case
    masked, alive = scores.clone(memory_format=torch.contiguous_format), [1] * len(scores)
    for row, slot in enumerate(slots[: len(scores)].tolist()):
        if slot == -1:
            continue
        words = (masks[slot] if slot >= 0 else own[-2 - slot]).tolist()  # type: ignore[index]
        may = [token // 32 < len(words) and words[token // 32] >> token % 32 & 1 for token in range(scores.shape[1])]
        masked[row, [token for token, allowed in enumerate(may) if not allowed]] = -torch.inf
        if not any(score > -torch.inf for score in masked[row].tolist()):
            alive[row] = 0
            if stops is not None:
                masked[row] = -torch.inf
                masked[row, stops] = FALLBACK_SCORE
    return masked, torch.tensor(alive, dtype=torch.int32)


def expected_log_sums(case: Case) -> list[list[float]]:
    """The log-sum-exp of each row before and after its mask, number by number."""
    scores, masks, slots, own, stops = case
    masked = expected(Case(scores, masks, slots, own, None))[0]
    return [[_log_sum(row.tolist()) for row in both] for both in zip(scores, masked, strict=True)]


def _log_sum(numbers: list[float]) -> float:
    if any(map(math.isnan, numbers)):
        return math.nan
    most = max(numbers)
    return most if math.isinf(most) else most + math.log(math.fsum(math.exp(number - most) for number in numbers))


def check_log_sums(kernel: Callable[..., object], case: Case, wanted: Case | None = None) -> None:
    """A kernel's log-sum-exps, within the precision of float32; of the same case on the CPU, if it is on a device."""
    log_sums = torch.full((len(case.scores), 2), 7.0, device=case.scores.device)
    kernel(*case, log_sums)
    numbers = torch.tensor(expected_log_sums(case if wanted is None else wanted)).view(-1, 2)
    torch.testing.assert_close(log_sums.cpu(), numbers, rtol=1e-5, atol=1e-5, equal_nan=True)


def check(found: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> None:
    """Every bit is the same, of NaN too."""
    masked, alive = (tensor.cpu() for tensor in found)
    as_int = _AS_INT[masked.element_size()]
    assert masked.dtype == wanted[0].dtype and masked.is_contiguous()
    assert torch.equal(masked.view(as_int), wanted[0].view(as_int))
    assert alive.dtype == torch.int32 and alive.tolist() == wanted[1].tolist()
