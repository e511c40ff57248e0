"""Log probabilities of the tokens that the device chooses: computed there, and sent to the host with the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...session.logprob_recorder import LogprobRecorder, log_softmax
from ...session.logprobs import Alternatives, TokenLogprob, TopLogprobs


class StepScores(NamedTuple):
    """What the tokens of a step were chosen from, (rows, vocab) each.

    Args:
        raw: the model's logits.
        masked: the same under the masks.
        sampled: after all processors, masks and warpers.
    """

    raw: Tensor
    masked: Tensor
    sampled: Tensor


def packed_logprobs(scores: StepScores, tokens: Tensor, top: int) -> Tensor:
    """(3, rows, 1 + 2 * top) floating point: for each of the scores the token's log probability, and the alternatives.

    Args:
        scores: of the step.
        tokens: (rows, 1) int64, the chosen ones.
        top: how many alternatives; their log probabilities come first, then their token ids, which are exact.

    Streams: runs on the current stream, never waits for the host.
    """
    parts = []
    for each in scores:
        log_p = log_softmax(each)
        # Padding of rows that have ended may be outside of the vocabulary; nobody reads its number.
        values = log_p.gather(1, tokens.clamp(0, log_p.shape[1] - 1))
        best = log_p.topk(top, 1)
        parts.append(torch.cat([values, best.values, best.indices.to(log_p.dtype)], dim=1))
    return torch.stack(parts)


def record_step(
    recorder: LogprobRecorder, rows: Sequence[int], token_ids: Sequence[int], numbers: list[list[list[float]]]
) -> None:
    """Record a step on the host.

    Args:
        recorder: of the call.
        rows: those that had not ended before the step.
        token_ids: their tokens.
        numbers: of ``packed_logprobs``.
    """
    for row, token_id in zip(rows, token_ids, strict=True):
        raw, masked, sampled = (each[row] for each in numbers)
        tops = TopLogprobs(*(_alternatives(each[row]) for each in numbers))
        recorder.add(row, TokenLogprob(token_id, raw[0], masked[0], sampled[0], False, tops))


def _alternatives(numbers: list[float]) -> Alternatives:
    top = len(numbers) // 2
    pairs = zip(numbers[1 + top :], numbers[1 : 1 + top], strict=True)
    return tuple((int(token_id), value) for token_id, value in pairs if value > float("-inf"))
