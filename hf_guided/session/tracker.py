"""Tracks which rows exist: input_ids in, one ``Row`` for each row of logits out.

A logits processor gets only ``input_ids`` (rows, length). Between two calls generate() may have appended a sampled
token, permuted and duplicated beams, removed rejected draft tokens, run an assistant model with the same processor, or
begun another prompt. The tracker compares the ids with those of the last call. For each prompt batch it keeps a
*stream*: the prompt's length, the last input_ids, and a ``Row`` for each row of them.

How a continuation is distinguished from a new prompt (users rely on these rules):

1. A call belongs to a stream if it has as many rows and every row shares the stream's prompt.
2. One token longer than the last call, and every row without its last token is a row of the stream (beams may be
   permuted or repeated): a step. A last token that the grammar forbids closes only that row.
3. Not longer than the last call, and every row without its last token is the beginning of a row of the stream: a
   rewind, as after rejected draft tokens. A last token that the grammar forbids cannot be a draft of ours: a new
   prompt. If only the prompt is left, the rows are back at the start.
4. More than one token longer, and every row extends its own: a continuation only if every open row's grammar accepts
   all new tokens; after a stopped or closed row, a new prompt.
5. Everything else is a new prompt. After ``reset()`` any call is one.

``next_step`` is for callers that know the next ids before the call: it is a step of the newest stream that can be
undone exactly.

Two streams are kept, so that an assistant model with a tokenizer of its own (but logits of the main model's width) does
not displace the main model's stream.

A row finds its past by its tokens, only among rows of the same constraint: two rows with the same tokens and the same
constraint are in the same state, so either of them may be taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import BatchSizeError
from .row import Row, advance

TokenIds = NDArray[np.int64]
NewRows = Callable[[int], "tuple[list[Row], int]"]
ReportViolation = Callable[[int, Row, int], None]


class RowTracker:
    """Keeps a ``Row`` for every row of input_ids, through all that a generation mode does with them.

    Args:
        new_rows: makes rows for a new prompt, given their number; also returns how many consecutive rows share one
            constraint. Raises BatchSizeError if the number does not fit.
        on_violation: called with (row index, row, token id) after a token took a row out of its grammar.
    """

    def __init__(self, new_rows: NewRows, on_violation: ReportViolation):
        self._new_rows = new_rows
        self._on_violation = on_violation
        self._streams: deque[_Stream] = deque(maxlen=2)
        self.prompt_length = 0  # tokens before the output in the last call

    def reset(self) -> None:
        """Forget everything: the next call begins a new prompt."""
        self._streams.clear()

    def update(self, input_ids: TokenIds) -> list[Row]:
        """A Row for each row of ``input_ids``, (rows, length) int64 on the host (copied), at the end of its tokens."""
        for stream in self._streams:
            refused = stream.follow(input_ids)
            if refused is not None:
                if stream is not self._streams[0]:
                    self._streams.reverse()  # two at most: the stream in use is first
                    self.prompt_length = stream.prompt_length
                if refused:
                    self._report(stream, refused)
                return stream.rows
        rows, group_size = self._new_rows(len(input_ids))
        self._streams.appendleft(_Stream(input_ids, rows, group_size))
        self.prompt_length = input_ids.shape[1]
        return rows

    def expects(self, rows: int, length: int) -> bool:
        """Whether ids of this shape could be the newest stream's next step."""
        return bool(self._streams) and self._streams[0].ids.shape == (rows, length - 1)

    def next_step(self, input_ids: TokenIds) -> LookaheadStep | None:
        """The step to these ids, not taken yet; None unless each of the newest stream's rows is one token longer."""
        if not self._streams or not self._streams[0].is_step_to(input_ids):
            return None
        return LookaheadStep(self._streams[0], input_ids, self._report)

    def _report(self, stream: _Stream, refused: Sequence[int]) -> None:
        for index in refused:
            self._on_violation(index, stream.rows[index], int(stream.ids[index, -1]))


class LookaheadStep:
    """One token for every row, which can be undone. Made by ``RowTracker.next_step``."""

    def __init__(self, stream: _Stream, ids: TokenIds, report: Callable[[_Stream, Sequence[int]], None]):
        self._stream, self._ids, self._report = stream, ids, report
        self._before = stream.ids, [row.mark() for row in stream.rows]

    def take(self) -> list[Row]:
        """The rows, advanced to the end of their tokens; see ``RowTracker.update``."""
        self._report(self._stream, self._stream.step(self._ids))
        return self._stream.rows

    def undo(self) -> None:
        """Return the rows to their state before ``take``, also after an incomplete one, and after filling masks."""
        self._stream.ids, marks = self._before
        for row, mark in zip(self._stream.rows, marks, strict=True):
            row.return_to(mark)


class _Stream:
    """One prompt batch and its rows."""

    def __init__(self, prompt: TokenIds, rows: list[Row], group_size: int):
        self.rows = rows
        self.prompt_length = prompt.shape[1]
        self.ids = prompt.copy()  # (rows, length) as of the last call
        self._group_size = group_size

    def is_step_to(self, ids: TokenIds) -> bool:
        """Whether ids are the last ones, in the same order and one token longer: the common case of plain loops."""
        rows, length = self.ids.shape
        return ids.shape == (rows, length + 1) and bool((ids[:, :-1] == self.ids).all())

    def follow(self, ids: TokenIds) -> Sequence[int] | None:
        """As ``step``, for any continuation; None, without changes, if this is none (see the rules above)."""
        rows, length = ids.shape
        last = self.ids.shape[1]
        if rows != len(self.ids) or length < self.prompt_length:
            return None
        if length > last + 1:
            return self._jump(ids, last)
        if length == last and np.array_equal(ids, self.ids):  # the same ids again: the verifier after its assistant
            return ()
        if not self.is_step_to(ids):
            parents = self._parents(ids, self._group_size)
            if parents is None:
                if length == last + 1 and self._parents(ids, rows) is not None:
                    raise BatchSizeError(
                        f"a beam moved to a row with another constraint: {rows // self._group_size} constraints were "
                        f"given for {rows} rows, but fewer prompts; pass one constraint per prompt, not per beam"
                    )
                return None
            if length <= last and not self._rewind_is_ours(ids, parents):
                return None
            self.rows = self._take(parents, length)
        return self.step(ids)

    def _jump(self, ids: TokenIds, last: int) -> Sequence[int] | None:
        if not np.array_equal(ids[:, :last], self.ids):
            return None
        news = ids[:, last:].tolist()
        if not all(row.takes(new) for row, new in zip(self.rows, news, strict=True)):
            return None
        for row, new in zip(self.rows, news, strict=True):
            for token_id in new:
                row.advance(token_id)
        self.ids = ids.copy()
        return ()

    def step(self, ids: TokenIds) -> Sequence[int]:
        """Advance each row by its last token, unless the prompt has it; returns the rows whose grammar forbids it."""
        self.ids = ids.copy()
        if ids.shape[1] == self.prompt_length:
            return ()
        return advance(self.rows, ids[:, -1].tolist())

    def _parents(self, ids: TokenIds, group_size: int) -> list[int] | None:
        """For each row, the old row of its group with the same tokens but the last; None if any row has none."""
        known = max(ids.shape[1] - 1, self.prompt_length)
        index_of: dict[tuple[int, bytes], int] = {}
        for i, old in enumerate(self.ids[:, :known]):
            index_of.setdefault((i // group_size, old.tobytes()), i)
        parents = [index_of.get((i // group_size, new.tobytes()), -1) for i, new in enumerate(ids[:, :known])]
        return None if -1 in parents else parents

    def _rewind_is_ours(self, ids: TokenIds, parents: list[int]) -> bool:
        """Whether every last token is one that the row, rewound, allows (rule 3)."""
        if ids.shape[1] == self.prompt_length:
            return True
        back = self.ids.shape[1] - (ids.shape[1] - 1)
        for i, parent in enumerate(parents):
            if self.ids[parent, ids.shape[1] - 1] == ids[i, -1]:
                continue  # the old row has the same token here
            row = self.rows[parent].fork()
            row.rewind(back)
            if not row.advance(int(ids[i, -1])):
                return False
        return True

    def _take(self, parents: list[int], length: int) -> list[Row]:
        """Each row's parent, rewound to all of the row's tokens but the last; shared parents are forked."""
        back = self.ids.shape[1] - max(length - 1, self.prompt_length)
        for parent in set(parents):
            self.rows[parent].rewind(back)
        taken: set[int] = set()
        rows = []
        for parent in parents:
            rows.append(self.rows[parent].fork() if parent in taken else self.rows[parent])
            taken.add(parent)
        return rows
