"""From rows to masked scores: fill a line of the bitmask for each position, write -inf, look at what is left.

A *line* is one position of one row: its next token, or, behind a stretch of guessed tokens, one further on. Lines of a
row are neighbours, in order; where nothing is drafted there is one line a row.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from ..errors import EmptyIntersection, StopTokenError, name_row
from ..vocabulary.bitmask import unpack
from ..vocabulary.tokens import Vocabulary
from .apply import apply_bitmask
from .cuda_copies import Transfer, Transfers
from .pinned_buffers import MaskSlots
from .row import Row, RowState

_SHOWN_TOKENS = 8  # how many allowed tokens an error lists

# For each row, the tokens that are guessed there: a drafted one and what is forced behind it, the next drafted one ...
Stretches: TypeAlias = Sequence[Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Masks:
    """What one step allows; handed from the thread that filled it to the one that applies it.

    Args:
        bitmask: (lines, words) int32 on CPU; read only, and only until the fill after the next.
        rows: for each line, which row it is of.
        governed: the lines that have to be masked; those of free rows are not among them.
        over: the governed lines at which the row has ended: they hold stop tokens only.
        warnings: (message, cause) of what the user is told when the masks are applied.
        sent: the governed lines on their way to the GPU; None where masks stay on the host.
        copy_ns: nanoseconds of the host for that: until a slot was free, and until the copy was queued.
    """

    bitmask: Tensor
    rows: tuple[int, ...]
    governed: tuple[int, ...]
    over: frozenset[int]
    warnings: tuple[tuple[str, str], ...] = ()
    sent: Transfer | None = None
    copy_ns: int = 0


class MaskFiller:
    """Fills bitmasks and applies them, for rows that end with the same tokens.

    Args:
        vocabulary: whose tokens the rows' constraints were compiled for.
        stop_token_ids: tokens that end a row; all inside the logits, one at least.
        transfers: how masks get to the scores; None finds out where the first masks are applied.
    """

    def __init__(self, vocabulary: Vocabulary, stop_token_ids: Sequence[int], transfers: Transfers | None = None):
        self._vocabulary = vocabulary
        self._stop_token_ids = tuple(stop_token_ids)
        self._stop_words = vocabulary.bitmask_of(self._stop_token_ids)  # (words,) int32
        self._slots = MaskSlots(vocabulary.padded_size, transfers)
        self._warned: set[str] = set()

    @property
    def transfers(self) -> Transfers | None:
        """What copies masks to the GPU that scores were last seen on; None if there was none."""
        return self._slots.transfers

    def anew(self) -> MaskFiller:
        """One with slots of its own, for when these are lost to a job that will not end; repeats no warning."""
        twin = MaskFiller(self._vocabulary, self._stop_token_ids, self._slots.transfers)
        twin._warned = self._warned
        return twin

    def fill(
        self,
        rows: Sequence[Row],
        tokens_left: Sequence[int | None],
        stretches: Stretches | None = None,
    ) -> Masks:
        """Say for every row which tokens may come next, and behind each stretch of tokens guessed for it.

        Args:
            rows: left as they are, but that open ones with no way on are closed.
            tokens_left: what is left of each row's budget, None where it has none.
            stretches: for each row stretches of tokens that its grammar takes; None for none.

        Returns:
            The masks; valid until the call after the next.

        Thread: any, one at a time. Copies to a GPU start before it returns.
        """
        if stretches is None:
            stretches = [()] * len(rows)
        lines = len(rows) + sum(map(len, stretches))
        transfers = self._slots.transfers
        began = time.perf_counter_ns()
        bitmask, first = self._slots.take(lines)
        taken_ns = time.perf_counter_ns() - began
        warned: list[tuple[str, str]] = []
        of_row: list[int] = []
        governed: list[int] = []
        over: list[int] = []
        i = 0
        try:
            for i, (row, left, guessed) in enumerate(zip(rows, tokens_left, stretches, strict=True)):
                taken = 0
                for stretch in ((), *guessed):
                    for token_id in stretch:
                        row.advance(token_id)
                    taken += len(stretch)
                    line = len(of_row)
                    of_row.append(i)
                    if row.matcher is None:
                        continue
                    governed.append(line)
                    if not row.fill(bitmask, first + line, None if left is None else left - taken):
                        over.append(line)
                        self._close(i, rows, bitmask[first + line], warned)
                if taken:
                    row.rewind(taken)
        except Exception as error:
            name_row(error, i)
            raise
        masks = Masks(bitmask[first : first + lines], tuple(of_row), tuple(governed), frozenset(over), tuple(warned))
        if transfers is None:
            return masks
        began = time.perf_counter_ns()
        sent = self._slots.send(governed, transfers) if governed else None
        return replace(masks, sent=sent, copy_ns=taken_ns + time.perf_counter_ns() - began)

    def apply(self, scores: Tensor, masks: Masks) -> Tensor:
        """A copy of the scores with -inf for every token that is not allowed.

        Args:
            scores: (lines, vocab) floating point, any device; never written.
            masks: of as many lines.

        Raises:
            EmptyIntersection: what a row's constraint allows, other processors have forbidden.
        """
        for message, cause in masks.warnings:
            self.warn_once(message, cause)
        if scores.device.type == "cuda":
            self._slots.serve(scores.device)
        masked, alive = apply_bitmask(scores, masks.bitmask, masks.governed, masks.sent)
        for line, ok in zip(masks.governed, alive, strict=True):
            if ok:
                continue
            if line not in masks.over:
                raise self.nothing_left(masks.rows[line], masks.bitmask[line : line + 1])
            # The row only has to end; and softmax of a line of -inf would be NaN for the whole batch.
            masked[line, list(self._stop_token_ids)] = 0.0
        return masked

    def nothing_left(self, row: int, bitmask: Tensor) -> EmptyIntersection:
        """The error that says so of a row, given what its constraint allows, (1, words) int32."""
        return EmptyIntersection(
            f"row {row}: of the tokens its constraint allows here ({self.shown(bitmask)}) none has a finite score. "
            "Either the model's logits are NaN, or another processor has forbidden them all (min_new_tokens, "
            "bad_words_ids, suppress_tokens, forced_*_token_id): remove one of the two",
            row=row,
        )

    def shown(self, bitmask: Tensor) -> str:
        """The first few tokens that a bitmask (1, words) allows, for a message."""
        allowed = torch.nonzero(unpack(bitmask, self._vocabulary.padded_size)[0]).flatten().tolist()
        names = ", ".join(self._vocabulary.token_text(token_id) for token_id in allowed[:_SHOWN_TOKENS])
        more = len(allowed) - _SHOWN_TOKENS
        return f"{names} and {more} more" if more > 0 else names or "none"

    def warn_once(self, message: str, cause: str = "") -> None:
        """Warn, once for each cause; without one the message is its own."""
        if (cause or message) not in self._warned:
            self._warned.add(cause or message)
            warnings.warn(message, stacklevel=4)

    def _close(self, i: int, rows: Sequence[Row], line: Tensor, warned: list[tuple[str, str]]) -> None:
        """A row that has ended may take stop tokens only."""
        row = rows[i]
        assert row.matcher is not None
        if row.ends_dead:
            why = str(row.limit or "no token of this vocabulary continues its text")
            message = f"row {i} reached a dead end of its {row.matcher.compiled.backend} grammar: {why}; it ends here"
            warned.append((message, why))
        words = line.numpy()
        words[:] = self._stop_words
        if row.state is RowState.STOPPED and row.tail:
            self._offer_other_stops(row, words, alone=len(rows) == 1)

    def _offer_other_stops(self, row: Row, words: np.ndarray, *, alone: bool) -> None:
        """generate() went on behind a stop token, so that one does not end it: offer those not tried yet.

        A padded row looks the same and comes to no harm. A lone row has no padding: once it has tried twice in vain,
        nothing will end it.
        """
        others = set(self._stop_token_ids) - set(row.tail)
        if others:
            words[:] = self._vocabulary.bitmask_of(others)
        elif alone and len(row.tail) > 1:
            raise StopTokenError(
                f"row 0 has ended with stop token(s) {sorted(self._stop_token_ids)}, but generate() goes on: its "
                "eos_token_id knows none of them; set model.generation_config.eos_token_id, or pass generate()'s "
                "eos_token_id to logits_processor(stop_token_ids=...) too"
            )
