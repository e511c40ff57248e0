"""Log probabilities of generated tokens: of the model, under its mask, and of the sampler's input.

The recorder computes them as the logits become known, position by position of each row. It computes the masks a second
time, with rows of its own that follow the output token by token. So every token of forced text and of verified drafts
gets its own mask, and the loop's rows stay untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..errors import InvalidArgument, shown
from ..vocabulary.bitmask import allocate_bitmask, unpack
from ..vocabulary.tokens import Vocabulary
from .row import Row

_CHUNK = 1 << 23  # logits processed at a time: a pass over long forced text has many positions
Alternatives: TypeAlias = "tuple[tuple[int, float], ...]"


class TopLogprobs(NamedTuple):
    """The most likely tokens at one position, as (token id, log probability), the most likely first.

    Tokens with probability 0 are left out, so a list may be shorter than was requested.

    Args:
        raw: of the model's logits.
        masked: of the same logits under the mask.
        sampled: of the sampler's input; for forced text only the written token.
    """

    raw: Alternatives = ()
    masked: Alternatives = ()
    sampled: Alternatives = ()


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token and its natural log probabilities, given the prompt and all tokens before it.

    Args:
        token_id: the token.
        logprob: log softmax of the model's logits, before any processor, mask or warper.
        masked_logprob: log softmax of the same logits over the tokens that the constraint allows at this position;
            equal to ``logprob`` in a free row, -inf for a token that the mask forbids but another processor forced. For
            forced text it is computed in the same way, so it is 0.0 only where a single token is allowed.
        sampled_logprob: log softmax of the scores from which the token was chosen: after the mask, after all
            processors and warpers (temperature, top-k, top-p ...). 0.0 for forced text.
        forced: whether it was appended because the constraint allowed only one continuation of the text.
        top: the k most likely tokens of each of the three distributions; empty lists with ``logprobs=True``.
    """

    token_id: int
    logprob: float
    masked_logprob: float
    sampled_logprob: float
    forced: bool
    top: TopLogprobs = TopLogprobs()


def num_top(logprobs: bool | int | None) -> int | None:
    """How many alternatives ``logprobs`` requests: 0 for True, k for k; None for False and None.

    Raises:
        InvalidArgument: another value.
    """
    if logprobs is None or logprobs is False:
        return None
    if logprobs is True:
        return 0
    if not isinstance(logprobs, Integral) or logprobs < 1:
        raise InvalidArgument(
            f"logprobs: expected True, False or an int of 1 or more, got {shown(logprobs)}; True gives the log "
            "probabilities of the generated tokens alone"
        )
    return int(logprobs)


class Position(NamedTuple):
    """The next position of a row, whose token is final."""

    row: int  # the row's number
    token_id: int
    scores: int | None  # index of the scores from which the token was chosen; None for forced text


# (indices of scores, masked logits of the same positions (positions, vocab)) -> those scores, (positions, vocab).
Scores: TypeAlias = Callable[[Sequence[int], Tensor], Tensor]


class LogprobRecorder:
    """Records one generate() call.

    Args:
        vocabulary: of the logits.
        rows: one for each row of output, before its first token; owned by the recorder.
        stop_token_ids: the only tokens that a row allows after its end.
        tokens_left: maps a number of generated tokens to the rest of a row's token budget; None without a budget.
        top: how many alternatives to record.
        report: called with a row's number and its new entries; None reports nothing.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        rows: Sequence[Row],
        *,
        stop_token_ids: Sequence[int],
        tokens_left: Callable[[int], int | None],
        top: int,
        report: Callable[[int, Sequence[TokenLogprob]], None] | None = None,
    ):
        self._rows = rows
        self._width = vocabulary.padded_size
        self._tokens_left = tokens_left
        self.top = min(top, self._width)
        self._report = report
        self._stop_words = torch.from_numpy(vocabulary.bitmask_of(stop_token_ids).copy())  # (words,) int32
        self.entries: list[list[TokenLogprob]] = [[] for _ in rows]

    def record(self, logits: Tensor, positions: Sequence[Position], scores: Tensor | Scores | None) -> None:
        """Add entries for these positions.

        Args:
            logits: (positions, vocab) floating point, any device: the model's logits; read only.
            positions: those of one row are consecutive, and continue where the row's last call ended.
            scores: (scores, vocab) floating point: the sampler's input, or a function that computes it; None if every
                position is forced.
        """
        known = [len(entries) for entries in self.entries]
        if isinstance(scores, Tensor):
            scores = partial(_rows_of, scores)
        step = max(1, _CHUNK // self._width)
        for first in range(0, len(positions), step):
            chunk = positions[first : first + step]
            self._record(logits[first : first + step], chunk, scores)
        if self._report is not None:
            for row, start in enumerate(known):
                if fresh := self.entries[row][start:]:
                    self._report(row, fresh)

    def _record(self, logits: Tensor, positions: Sequence[Position], scores: Scores | None) -> None:
        raw = log_softmax(logits)  # (positions, vocab)
        allowed = self._allowed(positions).to(raw.device)
        under_mask = logits.masked_fill(~allowed, -torch.inf)
        masked = log_softmax(under_mask)
        token_ids = [position.token_id for position in positions]
        before, under = _values(raw, token_ids), _values(masked, token_ids)
        chosen = [i for i, position in enumerate(positions) if position.scores is not None]
        after = [0.0] * len(positions)
        top_sampled: list[Alternatives] = [((token_id, 0.0),) if self.top else () for token_id in token_ids]
        if chosen:
            assert scores is not None
            indices = [index for position in positions if (index := position.scores) is not None]
            sampled = log_softmax(scores(indices, under_mask[chosen]))
            values = _values(sampled, [token_ids[i] for i in chosen])
            for i, value, alternatives in zip(chosen, values, self._most_likely(sampled), strict=True):
                after[i], top_sampled[i] = value, alternatives
        tops = map(TopLogprobs, self._most_likely(raw), self._most_likely(masked), top_sampled)
        for position, logprob, mask, sample, top in zip(positions, before, under, after, tops, strict=True):
            entry = TokenLogprob(position.token_id, logprob, mask, sample, position.scores is None, top)
            self.entries[position.row].append(entry)

    def _allowed(self, positions: Sequence[Position]) -> Tensor:
        """(positions, vocab) bool on CPU: the allowed tokens; advances the rows over the positions."""
        bitmask = allocate_bitmask(len(positions), self._width)
        advanced = dict.fromkeys((position.row for position in positions), 0)
        for i, (number, token_id, _) in enumerate(positions):
            row = self._rows[number]
            left = self._tokens_left(len(self.entries[number]) + advanced[number])
            if row.matcher is None:
                bitmask[i] = -1
            elif not row.fill(bitmask, i, left):
                bitmask[i] = self._stop_words
            row.advance(token_id)
            advanced[number] += 1
        return unpack(bitmask, self._width)

    def _most_likely(self, log_p: Tensor) -> list[Alternatives]:
        if not self.top:
            return [()] * len(log_p)
        values, token_ids = log_p.topk(self.top, -1)
        return [
            tuple((token_id, value) for token_id, value in zip(*both, strict=True) if value > -torch.inf)
            for both in zip(token_ids.tolist(), values.tolist(), strict=True)
        ]


def _rows_of(scores: Tensor, indices: Sequence[int], masked: Tensor) -> Tensor:
    return scores[list(indices)]


def log_softmax(scores: Tensor) -> Tensor:
    """Log softmax of (..., vocab) scores, in float64 if the device supports it; all -inf if every score is -inf."""
    wide = scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    log_p = wide.log_softmax(-1)
    return torch.where(log_p.isnan(), -torch.inf, log_p)


def _values(log_p: Tensor, token_ids: Sequence[int]) -> list[float]:
    index = torch.tensor(token_ids, device=log_p.device)[:, None]
    values: list[float] = log_p.gather(-1, index)[:, 0].tolist()
    return values
