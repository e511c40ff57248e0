"""The steps of the fast loop, over rows that may have different numbers of tokens.

1 prefill    the prompts, while constraints still compile
2 forced     text that the grammar leaves no choice about is appended
3 fill       masks for the rows that will be at a choice, while
4 forward    the model runs what is not in its cache yet
5 choose     a token for each of those rows; back to 2 until all rows are over
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..forced import ForcedText
from ..row import Row
from ..session import Session
from .sampling import Scoring, choose
from .slots import Slots
from .stopping import RowStops


@dataclass
class Line:
    """One row of the batch, and its text.

    Args:
        row: its place in the grammar.
        token_ids: prompt, padding included, and output so far.
        prompt_length: how many of them are the prompt.
        unfed: how many of the last are not in the model's cache yet.
        over: whether it has ended.
        streamed: how many of the tokens the streamer has.
    """

    row: Row
    token_ids: list[int]
    prompt_length: int
    unfed: int = 0
    over: bool = False
    streamed: int = 0

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.token_ids) - self.prompt_length


class DecodeLoop:
    """One generate() call.

    Args:
        session: the constraints.
        slots: the model and its cache.
        scoring: the processors.
        stops: when a row ends.
        forced: finds forced text; None samples it like all other text.
        do_sample: whether to sample, or take the best.
        streamer: gets every token of a single row; or None.
    """

    def __init__(
        self,
        session: Session,
        slots: Slots,
        scoring: Scoring,
        stops: RowStops,
        *,
        forced: ForcedText | None,
        do_sample: bool,
        streamer: Any,
    ):
        self._session = session
        self._slots = slots
        self._scoring = scoring
        self._stops = stops
        self._forced = forced
        self._do_sample = do_sample
        self._streamer = streamer
        self._lines: list[Line] = []
        self._one_each = False  # whether every row gets one token in each forward pass, forced or not

    def run(self, prompts: Sequence[Sequence[int]]) -> list[Line]:
        """Generate until all rows are over.

        Args:
            prompts: token ids of each row, padding included.
        """
        logits = self._slots.prefill()
        rows = self._session.begin(len(prompts))
        self._lines = [
            Line(row, list(ids), len(ids), streamed=len(ids)) for row, ids in zip(rows, prompts, strict=True)
        ]
        self._one_each = not self._slots.wide and (not self._slots.holes or self._scoring.wants_batch)
        self._count_forward(self._lines)
        for line in self._lines:
            self._jump(line)
        at_choice = [i for i, line in enumerate(self._lines) if not line.over and not line.unfed]
        while True:
            if at_choice:
                self._choose(at_choice, logits)
            running = [i for i, line in enumerate(self._lines) if not line.over]
            if not running:
                return self._lines
            at_choice, logits = self._forward(running)

    def _forward(self, running: Sequence[int]) -> tuple[list[int], Tensor]:
        """Run what is not in the cache yet, or as much of it as the model takes at once.

        Returns:
            The rows that are at a choice then; (rows, vocab) logits.
        """
        blocks: list[list[int]] = [[] for _ in self._lines]
        for i in running:
            line = self._lines[i]
            unfed = line.token_ids[-line.unfed :]
            blocks[i] = unfed[:1] if self._one_each else unfed
            line.unfed -= len(blocks[i])
        logits = self._slots.run(blocks)[:, -1]
        self._count_forward([self._lines[i] for i in running])
        return [i for i in running if not self._lines[i].unfed], logits

    def _choose(self, at_choice: Sequence[int], logits: Tensor) -> None:
        # Processors that count rows want all of them: those not at a choice are nobody's, and nothing comes of them.
        places = range(len(self._lines)) if self._scoring.wants_batch else at_choice
        rows = [self._lines[i].row if i in at_choice else Row(None) for i in places]
        left = [self._tokens_left(self._lines[i]) for i in places]
        masks = self._session.fill(rows, left)
        ids = [self._fed(self._lines[i], as_long_as=self._lines[at_choice[0]]) for i in places]
        scores = self._scoring(ids, logits[list(places)], lambda scores: self._session.apply(scores, masks))
        for i, token_id in zip(places, choose(scores, do_sample=self._do_sample), strict=True):
            if i in at_choice:
                line = self._lines[i]
                line.row.advance(token_id)
                self._append(line, [token_id])
                self._jump(line)

    def _fed(self, line: Line, as_long_as: Line) -> list[int]:
        """The tokens that the model has seen of a row; padded, if it is over already."""
        fed = line.token_ids[: len(line.token_ids) - line.unfed]
        if not self._scoring.wants_batch:
            return fed
        length = len(as_long_as.token_ids)
        return fed[:length] + [self._slots.pad_token_id] * (length - len(fed))

    def _jump(self, line: Line) -> None:
        """Append what the grammar leaves no choice about."""
        if self._forced is not None and not line.over:
            taken_back, token_ids = self._forced.advance(
                line.row, line.token_ids, self._tokens_left(line), loose=line.unfed > 0
            )
            if taken_back:
                del line.token_ids[-taken_back:]
                line.unfed -= taken_back
                self._session.stats.tokens -= taken_back
            self._append(line, token_ids)
            self._session.stats.forced_tokens += len(token_ids) - taken_back
        if self._streamer is not None:
            self._streamer.put(torch.tensor(line.token_ids[line.streamed :]))
            line.streamed = len(line.token_ids)

    def _append(self, line: Line, token_ids: Sequence[int]) -> None:
        """Add tokens that the row has taken, up to the one that ends it."""
        for token_id in token_ids:
            line.token_ids.append(token_id)
            line.unfed += 1
            self._session.stats.tokens += 1
            if self._stops(line.token_ids):
                line.over = True
                break

    def _tokens_left(self, line: Line) -> int | None:
        return self._session.tokens_left(line.num_generated)

    def _count_forward(self, lines: Sequence[Line]) -> None:
        self._session.stats.forwards += 1
        self._session.stats.row_forwards += len(lines)
