"""Verification of drafts: how many draft tokens are kept, and which token follows them, as in speculative decoding.

Scores come by *position*, as in masks.py: for each row one after its tokens, and one after each of its draft tokens;
the positions of a row are consecutive and in order. They are the sampler's input: masked, and warped (temperature,
top-k, top-p). All rows are decided at once, so that the host waits for the device a fixed number of times a step.

Greedy: a draft token is kept if it is the most likely one. Sampling: draft token x is kept with probability
min(1, p(x) / q(x)), and the first rejected one is replaced by a sample of norm(max(p - q, 0)); together that is a
sample of p, for any q (Leviathan, Kalman and Matias 2023, "Fast inference from transformers via speculative decoding").
A source that is certain has q(x) = 1.

Seeded: a row's draw at a position is a function of its seed, the position and the scores, so a draft token is kept if
it equals that draw. Drafts, neighbouring rows, and the time of a step change nothing about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...session.transfers import to_device
from ..seeds import gumbel

# Reads (n,) integers or booleans of a device, and waits for it once; a caller's own may read other numbers along.
Read: TypeAlias = Callable[[Tensor], list[int]]


class Accepted(NamedTuple):
    """The tokens that a row takes in one step."""

    num_drafted: int  # number of accepted draft tokens, from the first on
    bonus_token: int  # the token after them, chosen by the model; after a stop token it has no meaning


def accept_greedy(scores: Tensor, drafts: Sequence[Sequence[int]], read: Read = Tensor.tolist) -> list[Accepted]:
    """Keep draft tokens as long as they are the most likely ones; among equals the lowest id counts.

    Args:
        scores: (positions, vocab) floating point, any device; read only.
        drafts: for each row the draft tokens, none or more; it has one position more than tokens.
        read: called once.

    Streams: runs on the current stream, and waits for it once.
    """
    best = read(scores.argmax(-1))
    if not any(drafts) and len(best) == len(drafts):
        return [Accepted(0, token_id) for token_id in best]
    starts = _starts(scores, drafts)
    accepted = []
    for start, draft in zip(starts, drafts, strict=True):
        agreed = next((j for j, token_id in enumerate(draft) if token_id != best[start + j]), len(draft))
        accepted.append(Accepted(agreed, best[start + agreed]))
    return accepted


def accept_sampling(
    scores: Tensor,
    drafts: Sequence[Sequence[int]],
    probabilities: Sequence[Tensor | None] | None = None,
    generator: torch.Generator | None = None,
    read: Read = Tensor.tolist,
) -> list[Accepted]:
    """Keep draft tokens so that the result is distributed as if each token had been sampled from softmax(scores).

    Without drafts this is ``torch.multinomial`` on the softmax, as in transformers' own loop, and consumes the same
    random numbers.

    Args:
        scores: (positions, vocab) floating point, any device; read only. Each position has a finite score.
        drafts: for each row the draft tokens, none or more; it has one position more than tokens.
        probabilities: for each row the distributions of its tokens, (drafted, vocab) float32 on the device of
            ``scores``, or None if the source was certain; None means all were.
        generator: of random numbers, on the device of ``scores``; None means torch's own.
        read: called twice, once if nothing is drafted.

    Streams: runs on the current stream, and waits for it twice, once if nothing is drafted.
    """
    starts = _starts(scores, drafts)
    if probabilities is None:
        probabilities = [None] * len(drafts)
    # Half precision would round small probabilities together.
    p = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))  # (positions, vocab)
    if not any(drafts):
        return [Accepted(0, token_id) for token_id in read(torch.multinomial(p, 1, generator=generator).flatten())]
    agreed = _num_agreed(p, starts, drafts, probabilities, generator, read)
    left = p[to_device([start + n for start, n in zip(starts, agreed, strict=True)], p.device)]  # (rows, vocab), a copy
    rejecting = [row for row, (n, draft) in enumerate(zip(agreed, drafts, strict=True)) if n < len(draft)]
    if rejecting:
        rows, rejected = to_device([rejecting, [drafts[row][agreed[row]] for row in rejecting]], p.device)
        q_rejected = torch.nn.functional.one_hot(rejected, p.shape[-1]).to(p.dtype)  # the source was certain
        for i, row in enumerate(rejecting):
            if (q := probabilities[row]) is not None:
                q_rejected[i] = q[agreed[row]]
        left[rows] = _residual(left[rows], q_rejected)
    bonus = read(torch.multinomial(left, 1, generator=generator).flatten())
    return [Accepted(n, token_id) for n, token_id in zip(agreed, bonus, strict=True)]


def accept_seeded(
    scores: Tensor, drafts: Sequence[Sequence[int]], seeds: Tensor, positions: Tensor, read: Read = Tensor.tolist
) -> list[Accepted]:
    """Keep draft tokens as long as they equal the draws of the rows' seeds.

    Args:
        scores: (positions, vocab) floating point, any device; read only. Each position has a finite score.
        drafts: for each row the draft tokens, none or more; it has one position more than tokens.
        seeds: (positions,) int64 on the device of ``scores``, the row's seed.
        positions: (positions,) int64 on the device of ``scores``, how many tokens of output come before.
        read: called once.

    Streams: runs on the current stream, and waits for it once.
    """
    tokens = torch.arange(scores.shape[-1], device=scores.device)
    return accept_greedy(scores + gumbel(seeds, positions, tokens), drafts, read)


def _num_agreed(
    p: Tensor,
    starts: Sequence[int],
    drafts: Sequence[Sequence[int]],
    probabilities: Sequence[Tensor | None],
    generator: torch.Generator | None,
    read: Read,
) -> list[int]:
    """For each row how many draft tokens are kept; at least one has some."""
    tokens = [token_id for draft in drafts for token_id in draft]
    indices = [start + j for start, draft in zip(starts, drafts, strict=True) for j in range(len(draft))]
    where, drafted = to_device([indices, tokens], p.device)  # (drafted,) each
    p_drafted = p[where, drafted]
    q_drafted = torch.ones_like(p_drafted)
    begin = 0
    for draft, q in zip(drafts, probabilities, strict=True):
        span = slice(begin, begin + len(draft))
        if q is not None and draft:
            q_drafted[span] = q.gather(1, drafted[span, None]).flatten().to(p.dtype)
        begin = span.stop
    # u < p / q without the division: a token of probability 0 is never kept, a token of probability 1 always is.
    u = torch.rand(len(tokens), dtype=p.dtype, device=p.device, generator=generator)
    passed = iter(read(u * q_drafted < p_drafted))
    agreed = []
    for draft in drafts:
        trials = [next(passed) for _ in draft]
        agreed.append(trials.index(False) if False in trials else len(draft))
    return agreed


def _residual(p: Tensor, q: Tensor) -> Tensor:
    """(rows, vocab): the excess of p over q, not normalized; the distribution of a rejected token's replacement."""
    residual = (p - q).clamp_(min=0)
    # The residual is zero only if q equals p up to rounding, and then a sample of p is right. The device decides:
    # reading the sum here would wait for it.
    return torch.where(residual.sum(-1, keepdim=True) > 0, residual, p)


def _starts(scores: Tensor, drafts: Sequence[Sequence[int]]) -> list[int]:
    """For each row the index of its first position."""
    *starts, total = accumulate((len(draft) + 1 for draft in drafts), initial=0)
    if total != len(scores):
        raise ValueError(
            f"expected scores for {total} positions, for each row one more than its draft tokens, got {len(scores)}"
        )
    return starts
