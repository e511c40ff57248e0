"""How many drafted tokens stand, and which token comes behind them: the rules of speculative decoding.

Scores come in *lines*, as in masks.py: for each row, one behind what it has, and one behind each token drafted for it;
lines of a row are neighbours, in order. They are what the sampler would see: masked, and warped (temperature, top-k,
top-p). All rows are decided at once, so that the host waits for the device a fixed number of times a step.

Greedy: a drafted token stands if it is the most likely one. Sampling: drafted token x stands with probability
min(1, p(x) / q(x)), and the first that falls is replaced by a sample of norm(max(p - q, 0)); together that is a sample
of p, whatever q is (Leviathan, Kalman and Matias 2023, "Fast inference from transformers via speculative decoding").
A source that was certain has q(x) = 1.

Seeded: what a row draws at a place is a function of its seed, the place and the scores, so a drafted token stands if it
is what would have been drawn there. Drafts, neighbours, and when a step is taken change nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from ..philox import gumbel


class Accepted(NamedTuple):
    """What a row takes in one step.

    Args:
        num_drafted: so many of its drafted tokens, from the first on.
        bonus_token: the token behind them, which the model itself chose. Behind a stop token it means nothing.
    """

    num_drafted: int
    bonus_token: int


def accept_greedy(scores: Tensor, drafts: Sequence[Sequence[int]]) -> list[Accepted]:
    """Keep drafted tokens for as long as they are the most likely ones; of equals the lowest id counts.

    Args:
        scores: (lines, vocab) floating point, any device; read only.
        drafts: for each row the drafted tokens, none or more; one line more than tokens.

    Streams: runs on the current stream, and waits for it once.
    """
    best = scores.argmax(-1).tolist()
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
) -> list[Accepted]:
    """Keep drafted tokens so that what comes out is distributed as if each had been sampled from softmax(scores).

    Where nothing is drafted this is ``torch.multinomial`` on the softmax, as in transformers' own loop, and takes as
    much from the random numbers.

    Args:
        scores: (lines, vocab) floating point, any device; read only. Each line has a finite score.
        drafts: for each row the drafted tokens, none or more; one line more than tokens.
        probabilities: for each row what its tokens were sampled from, (drafted, vocab) float32 on the device of
            ``scores``, or None where the source was certain; None means all were.
        generator: of random numbers, on the device of ``scores``; None means torch's own.

    Streams: runs on the current stream, and waits for it twice, once if nothing is drafted.
    """
    starts = _starts(scores, drafts)
    if probabilities is None:
        probabilities = [None] * len(drafts)
    # Half precision would round small probabilities together.
    p = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))  # (lines, vocab)
    agreed = _num_agreed(p, starts, drafts, probabilities, generator)
    last = torch.tensor([start + n for start, n in zip(starts, agreed, strict=True)], device=scores.device)
    left = p[last]  # (rows, vocab), a copy
    certain: list[int] = []  # rows in which a token has fallen
    weighed: list[int] = []
    for row, (n, draft, q) in enumerate(zip(agreed, drafts, probabilities, strict=True)):
        if n < len(draft):
            (certain if q is None else weighed).append(row)
    if certain:
        fallen = torch.tensor([drafts[row][agreed[row]] for row in certain], device=p.device)
        left[certain] = _residual(left[certain], torch.nn.functional.one_hot(fallen, p.shape[-1]))
    if weighed:
        q_fallen = [q[agreed[row]] for row in weighed if (q := probabilities[row]) is not None]
        left[weighed] = _residual(left[weighed], torch.stack(q_fallen))
    bonus = torch.multinomial(left, 1, generator=generator).flatten().tolist()
    return [Accepted(n, token_id) for n, token_id in zip(agreed, bonus, strict=True)]


def accept_seeded(scores: Tensor, drafts: Sequence[Sequence[int]], seeds: Tensor, positions: Tensor) -> list[Accepted]:
    """Keep drafted tokens for as long as they are what the rows' seeds draw; the device lane draws the same.

    Args:
        scores: (lines, vocab) floating point, any device; read only. Each line has a finite score.
        drafts: for each row the drafted tokens, none or more; one line more than tokens.
        seeds: (lines,) int64 on the device of ``scores``, the row's.
        positions: (lines,) int64 likewise, how many tokens of output stand in front.

    Streams: runs on the current stream, and waits for it once.
    """
    tokens = torch.arange(scores.shape[-1], device=scores.device)
    return accept_greedy(scores + gumbel(seeds, positions, tokens), drafts)


def _num_agreed(
    p: Tensor,
    starts: Sequence[int],
    drafts: Sequence[Sequence[int]],
    probabilities: Sequence[Tensor | None],
    generator: torch.Generator | None,
) -> list[int]:
    """For each row how many drafted tokens pass their trial."""
    tokens = [token_id for draft in drafts for token_id in draft]
    if not tokens:
        return [0] * len(drafts)
    lines = [start + j for start, draft in zip(starts, drafts, strict=True) for j in range(len(draft))]
    drafted = torch.tensor(tokens, device=p.device)  # (drafted,)
    p_drafted = p[torch.tensor(lines, device=p.device), drafted]
    q_drafted = torch.ones_like(p_drafted)
    begin = 0
    for draft, q in zip(drafts, probabilities, strict=True):
        span = slice(begin, begin + len(draft))
        if q is not None and draft:
            q_drafted[span] = q.gather(1, drafted[span, None]).flatten().to(p.dtype)
        begin = span.stop
    # u < p / q without the division: a token that cannot be is never taken, one that must be always is.
    u = torch.rand(len(tokens), dtype=p.dtype, device=p.device, generator=generator)
    passed = iter((u * q_drafted < p_drafted).tolist())
    agreed = []
    for draft in drafts:
        trials = [next(passed) for _ in draft]
        agreed.append(trials.index(False) if False in trials else len(draft))
    return agreed


def _residual(p: Tensor, q: Tensor) -> Tensor:
    """(rows, vocab): what p has more than q, not normalized; what is sampled from where a token has fallen."""
    residual = (p - q.to(p.dtype)).clamp_(min=0)
    # Nothing is left over only where q is p but for rounding, and then a sample of p is right. Chosen on the device:
    # a look from here would wait for it.
    return torch.where(residual.sum(-1, keepdim=True) > 0, residual, p)


def _starts(scores: Tensor, drafts: Sequence[Sequence[int]]) -> list[int]:
    """For each row its first line."""
    *starts, lines = accumulate((len(draft) + 1 for draft in drafts), initial=0)
    if lines != len(scores):
        raise ValueError(
            f"expected {lines} lines of scores, one more for each row than tokens drafted for it, got {len(scores)}"
        )
    return starts
