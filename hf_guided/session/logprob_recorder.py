"""Computes the log probabilities of output as its logits become known, position after position of each row.

The masks are computed a second time, by rows of its own that follow the output token by token. So forced text and
verified drafts get the mask of every single token, whatever the loop computed, and the loop's rows stay untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..vocabulary.bitmask import allocate_bitmask, unpack
from ..vocabulary.tokens import Vocabulary
from .logprobs import Alternatives, TokenLogprob, TopLogprobs
from .row import Row

_CHUNK = 1 << 23  # logits that are worked on at a time: a pass over long forced text has many positions


class Position(NamedTuple):
    """The next position of a row, whose token is final.

    Args:
        row: the row's number.
        token_id: its token.
        scores: the line of scores from which the token was chosen; None for forced text.
    """

    row: int
    token_id: int
    scores: int | None


# Given lines of scores, and the masked logits of the same positions (lines, vocab): those scores, (lines, vocab).
Scores: TypeAlias = Callable[[Sequence[int], Tensor], Tensor]


class LogprobRecorder:
    """Records one generate() call.

    Args:
        vocabulary: of the logits.
        rows: one for each row of output, before its first token; taken over.
        stop_token_ids: the only tokens that a row allows after its end.
        tokens_left: what is left of a row's budget after a number of tokens; None if there is no budget.
        top: how many alternatives to record.
        report: called with a row's number and its new entries; or None.
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
        self._top = min(top, self._width)
        self._report = report
        self._stop_words = torch.tensor(vocabulary.bitmask_of(stop_token_ids))  # (words,) int32
        self.entries: list[list[TokenLogprob]] = [[] for _ in rows]

    def record(self, logits: Tensor, positions: Sequence[Position], scores: Tensor | Scores | None) -> None:
        """Add the entries of some positions.

        Args:
            logits: (positions, vocab) floating point, any device, the model's; read only.
            positions: those of one row are consecutive, and continue where the row's last call ended.
            scores: (lines, vocab) floating point, what the sampler saw, or a function that makes them; None where every
                position is forced.
        """
        known = [len(entries) for entries in self.entries]
        if isinstance(scores, Tensor):
            scores = partial(_lines_of, scores)
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
        chosen = [place for place, position in enumerate(positions) if position.scores is not None]
        after = [0.0] * len(positions)
        top_sampled: list[Alternatives] = [((token_id, 0.0),) if self._top else () for token_id in token_ids]
        if chosen:
            assert scores is not None
            lines = [line for position in positions if (line := position.scores) is not None]
            sampled = log_softmax(scores(lines, under_mask[chosen]))
            found = _values(sampled, [token_ids[place] for place in chosen]), self._most_likely(sampled)
            for place, value, best in zip(chosen, *found, strict=True):
                after[place], top_sampled[place] = value, best
        tops = map(TopLogprobs, self._most_likely(raw), self._most_likely(masked), top_sampled)
        for position, logprob, mask, sample, top in zip(positions, before, under, after, tops, strict=True):
            entry = TokenLogprob(position.token_id, logprob, mask, sample, position.scores is None, top)
            self.entries[position.row].append(entry)

    def _allowed(self, positions: Sequence[Position]) -> Tensor:
        """(positions, vocab) bool on CPU: what may stand there; moves the rows over the positions."""
        bitmask = allocate_bitmask(len(positions), self._width)
        ahead = dict.fromkeys((position.row for position in positions), 0)
        for place, (number, token_id, _) in enumerate(positions):
            row = self._rows[number]
            left = self._tokens_left(len(self.entries[number]) + ahead[number])
            if row.matcher is None:
                bitmask[place] = -1
            elif not row.fill(bitmask, place, left):
                bitmask[place] = self._stop_words
            row.advance(token_id)
            ahead[number] += 1
        return unpack(bitmask, self._width)

    def _most_likely(self, log_p: Tensor) -> list[Alternatives]:
        if not self._top:
            return [()] * len(log_p)
        values, token_ids = log_p.topk(self._top, -1)
        return [
            tuple((token_id, value) for token_id, value in zip(*both, strict=True) if value > -torch.inf)
            for both in zip(token_ids.tolist(), values.tolist(), strict=True)
        ]


def _lines_of(scores: Tensor, lines: Sequence[int], masked: Tensor) -> Tensor:
    return scores[list(lines)]


def log_softmax(scores: Tensor) -> Tensor:
    """Of (..., vocab) scores, in double precision where the device has it; all -inf where every score is."""
    wide = scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    log_p = wide.log_softmax(-1)
    return torch.where(log_p.isnan(), -torch.inf, log_p)


def _values(log_p: Tensor, token_ids: Sequence[int]) -> list[float]:
    index = torch.tensor(token_ids, device=log_p.device)[:, None]
    values: list[float] = log_p.gather(-1, index)[:, 0].tolist()
    return values
