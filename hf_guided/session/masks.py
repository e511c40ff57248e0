"""Fills one bitmask row for each position, writes -inf into the scores, and checks that a choice is left.

A *position* belongs to one output row: its next token, or a later token, after a segment of draft tokens. The
positions of a row are consecutive and in order. Without drafts, each row has one position.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backends.matcher import Narrowed
from ..errors import EmptyIntersection, StopTokenError, warn
from ..trace.recorder import Recorder
from ..vocabulary.bitmask import ALL_ALLOWED, unpack
from ..vocabulary.tokens import Vocabulary
from .apply import apply_words
from .mask_kernel import FALLBACK_SCORE, NOT_MASKED, mask_kernel
from .mask_table import Lease, MaskTables
from .row import Row, RowState, mask_keys
from .stats import SessionStats
from .transfers import CudaTransfers, PinnedBuffers, Transfer, sent_to, to_device

_SHOWN_TOKENS = 8  # how many allowed tokens an error lists

# For each row its segments: a draft token and the forced tokens after it, the next draft token and so on.
Segments: TypeAlias = Sequence[Sequence[Sequence[int]]]
# Called with a position, and why its row has to end there: no allowed token is left, or the engine's reason.
OnDeadEnd: TypeAlias = Callable[[int, "EmptyIntersection | str"], None]


class Masks(NamedTuple):
    """The masks of one step; the thread that filled them passes them to the thread that applies them."""

    # (at least positions, words) int32 on CPU: from ``first`` on, the masks that are in no table, valid until the
    # second next fill.
    buffer: Tensor
    first: int
    # For each position the slot of its mask in the table; ``NOT_MASKED``; or -2 - k for the k-th that is in no table.
    slots: tuple[int, ...]
    rows: tuple[int, ...]  # for each position the number of its row
    governed: tuple[int, ...]  # the positions that have to be masked, those of free rows not included
    # The governed positions where the row has ended, whose masks allow only stop tokens, and why if it is a dead end.
    ended: Mapping[int, str | None]
    warnings: tuple[tuple[str, str], ...] = ()  # (message, cause) of warnings to give when the masks are applied
    lease: Lease | None = None  # keeps the rows of the table
    transfer: Transfer | None = None  # the copy of masks in no table to the GPU; None without any, or if they stay here
    # The masks of the positions at which a limit forbids tokens that the format allows.
    narrowed: Mapping[int, Narrowed] = MappingProxyType({})

    @property
    def own(self) -> Tensor:
        """(positions, words) int32 on CPU: the masks that are in no table."""
        return self.buffer[self.first : self.first + len(self.slots)]

    def words(self, position: int) -> NDArray[np.int32]:
        """(words,) int32, read-only: the mask of a governed position."""
        slot = self.slots[position]
        if slot < 0:
            return cast("NDArray[np.int32]", self.buffer[self.first + position].numpy())
        assert self.lease is not None
        return cast("NDArray[np.int32]", self.lease.host[slot])

    @property
    def bitmask(self) -> Tensor:
        """(positions, words) int32 on CPU, a copy; all ones where nothing is masked."""
        bitmask = torch.full_like(self.own, ALL_ALLOWED)
        for position in self.governed:
            bitmask[position] = torch.from_numpy(self.words(position).copy())
        return bitmask


def fill_or_find(row: Row, bitmask: Tensor, index: int, tokens_left: int | None, lease: Lease | None) -> int | None:
    """Find a row's mask in the table, which takes it if it is new; else write it, see ``Row.fill``.

    The lease keeps the slot; it is None without a table. ``bitmask[index]`` is overwritten where the mask is new.

    Returns:
        Its slot in the table; None if it is not there: look whether the row is open.
    """
    if lease is not None and (key := row.mask_key(tokens_left)) is not None:
        (slot,) = lease.table.slots([key], lease)
        if slot is not None:
            return slot
    if not row.fill(bitmask, index, tokens_left) or lease is None:
        return None
    key = row.mask_key(tokens_left)  # to make a mask may have shown that it has another key, or one at all
    return None if key is None else lease.table.add(key, bitmask[index].numpy(), lease)


class MaskFiller:
    """Fills bitmasks and applies them, for rows with the same stop tokens.

    Args:
        vocabulary: the one that the rows' constraints were compiled for.
        stop_token_ids: tokens that end a row; at least one, all inside the logits.
        transfers: copies masks to the scores' device; None decides when the first masks are applied.
        tables: of the vocabulary; None: every mask is filled again.
        stats: counts the time of filling and copying; None counts nothing.
        recorder: records the time of filling; or None.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        stop_token_ids: Sequence[int],
        transfers: CudaTransfers | None = None,
        tables: MaskTables | None = None,
        stats: SessionStats | None = None,
        recorder: Recorder | None = None,
    ):
        self._vocabulary = vocabulary
        self._stop_token_ids = tuple(stop_token_ids)
        self._stop_words = vocabulary.bitmask_of(self._stop_token_ids)  # (words,) int32
        self._buffers = PinnedBuffers(vocabulary.padded_size, transfers)
        self._stats, self._recorder = stats or SessionStats(), recorder
        self._warned: set[str] = set()
        self._tables = tables
        self._device = torch.device("cpu")  # the device of the last scores
        self._table = None if tables is None else tables.of(self._device)
        self._stops: Tensor | None = None  # (stops,) int64 on that device

    @property
    def transfers(self) -> CudaTransfers | None:
        """Copies masks to the GPU of the last scores; None before scores on a GPU."""
        return self._buffers.transfers

    def with_new_buffers(self) -> MaskFiller:
        """A filler with new buffers: the old ones belong to a job that does not end. Repeats no warning."""
        twin = copy.copy(self)
        twin._buffers = PinnedBuffers(self._vocabulary.padded_size, self._buffers.transfers)
        return twin

    def fill(
        self,
        rows: Sequence[Row],
        tokens_left: Sequence[int | None],
        segments: Segments | None = None,
        numbers: Sequence[int] | None = None,
    ) -> Masks:
        """Fill the mask of every row's next token, and of the token after each of its segments.

        Args:
            rows: unchanged, except that open rows without any allowed token are closed.
            tokens_left: the rest of each row's token budget, None without a budget.
            segments: for each row segments of tokens that its grammar accepts; None for none.
            numbers: the number of each row in the batch, for messages; None means 0, 1, 2 ...

        Returns:
            The masks; valid until the second next call.

        Thread: any, one at a time. The masks that are in no table are on their way to the GPU when this returns; rows
            that are new in the table are sent by ``apply``.
        """
        began = time.perf_counter_ns()
        transfers = self._buffers.transfers  # of the device of this call's scores; ``apply`` may change it meanwhile
        bitmask, first = self._buffers.take(len(rows) if segments is None else len(rows) + sum(map(len, segments)))
        ready = time.perf_counter_ns()
        lease = None if self._table is None else Lease(self._table)
        known_slots: list[int | None] = [None] * len(rows)
        if lease is not None:
            known_slots = lease.table.slots(mask_keys(rows, tokens_left), lease)
        slots: list[int] = []
        own: list[int] = []  # positions whose masks are in no table
        row_of: list[int] = []
        governed: list[int] = []
        ended: dict[int, str | None] = {}
        new_warnings: list[tuple[str, str]] = []
        narrowed: dict[int, Narrowed] = {}
        for i, row in enumerate(rows):
            number = i if numbers is None else numbers[i]
            slot, left, taken = known_slots[i], tokens_left[i], 0
            for segment in ((),) if segments is None else ((), *segments[i]):
                for token_id in segment:
                    row.advance(token_id)
                taken += len(segment)
                position = len(row_of)
                row_of.append(number)
                if row.matcher is None:
                    slots.append(NOT_MASKED)
                    continue
                governed.append(position)
                if taken or slot is None:
                    slot = fill_or_find(row, bitmask, first + position, None if left is None else left - taken, lease)
                if slot is not None:
                    slots.append(slot)
                    continue
                slots.append(-2 - len(own))
                own.append(position)
                # A mask in the table belongs to the format alone.
                own_left = None if left is None else left - taken
                if (both := row.narrowed(own_left, bitmask[first + position].numpy())) is not None:
                    narrowed[position] = both
                if not row.is_open:
                    ended[position] = reason = row.dead_end
                    bitmask[first + position].numpy()[:] = self._words_after_end(row, alone=len(rows) == 1)
                    if reason:
                        where = f"row {number} reached a dead end of its {row.matcher.compiled.backend} grammar"
                        new_warnings.append((f"{where}: {reason}; it ends here", reason))
            if taken:
                row.rewind(taken)
        filled = time.perf_counter_ns()
        self._stats.fill_ns += filled - ready
        transfer = None
        if transfers is not None:
            transfer = self._buffers.send(own) if own else None
            self._stats.copy_ns += ready - began + time.perf_counter_ns() - filled
        if self._recorder is not None:
            self._recorder.spent("fill", began)
        row_numbers, positions = tuple(row_of), tuple(governed)
        return Masks(
            bitmask, first, tuple(slots), row_numbers, positions, ended, tuple(new_warnings), lease, transfer, narrowed
        )

    def _words_after_end(self, row: Row, *, alone: bool) -> NDArray[np.int32]:
        """The mask of a row that has ended: its stop tokens, but for those after which generate() has continued.

        A padded row looks the same; for it the mask makes no difference. A lone row has no padding: if two stop tokens
        did not end it, none will.
        """
        if row.state is RowState.STOPPED and row.tail:
            if others := set(self._stop_token_ids) - set(row.tail):
                return self._vocabulary.bitmask_of(others)
            if alone and len(row.tail) > 1:
                raise StopTokenError(
                    f"row 0 has ended with stop token(s) {sorted(self._stop_token_ids)}, but generate() continues: its "
                    "eos_token_id contains none of them; set model.generation_config.eos_token_id, or pass "
                    "generate()'s eos_token_id to logits_processor(stop_token_ids=...) too"
                )
        return self._stop_words

    def apply(self, scores: Tensor, masks: Masks, log_sums: Tensor | None = None) -> tuple[Tensor, list[bool] | Tensor]:
        """A copy of the scores with -inf for every token that is not allowed; a row without any can only end.

        Args:
            scores: (positions, vocab) floating point, any device; never written. As wide as the vocabulary: the loops
                check it, because a narrower mask would be read past its end on a GPU.
            masks: of the same positions.
            log_sums: (positions, 2) of ``log_sums_dtype``, written: the log-sum-exp of each position's scores before
                and after its mask. None leaves it out.

        Returns:
            The masked scores; and for each position whether it is not masked, or has an allowed score above -inf: for
            ``report``. On a device other than the CPU, (positions,) int32 there, for the caller to read when it wants.
        """
        for message, cause in masks.warnings:
            self.warn_once(message, cause)
        only_end = [position for position, reason in masks.ended.items() if reason is not None]
        alive: list[bool] | Tensor
        if scores.device.type == "cpu":
            words: list[NDArray[np.int32] | None] = [None] * len(scores)
            for position in masks.governed:
                words[position] = masks.words(position)
            masked, alive = apply_words(scores, words, log_sums)
            if not all(alive):
                only_end += [position for position, is_alive in enumerate(alive) if not is_alive]
        else:
            masked, alive = self._apply_on_device(scores, masks, log_sums)
        for position in only_end:  # a softmax over only -inf would be NaN, which fails the batch
            masked[position].fill_(-torch.inf)  # the scores may be NaN
            for token_id in self._stop_token_ids:  # an index of several would have to be copied to a GPU
                masked[position, token_id] = FALLBACK_SCORE
        return masked, alive

    def _apply_on_device(self, scores: Tensor, masks: Masks, log_sums: Tensor | None) -> tuple[Tensor, Tensor]:
        device = scores.device
        if self._stops is None or device != self._device:
            self._device, self._stops = device, to_device(self._stop_token_ids, device)
            self._table = None if self._tables is None else self._tables.of(device)
            if device.type == "cuda":
                self._buffers.serve(device)
        table = masks.lease.table if masks.lease is not None and masks.lease.table.device == device else None
        slots, own = masks.slots, None
        if table is None and masks.lease is not None:  # the first masks of a call are filled before its device is known
            order = {position: -2 - k for k, position in enumerate(masks.governed)}
            slots = tuple(order.get(position, NOT_MASKED) for position in range(len(slots)))
            own = sent_to(masks.bitmask[list(masks.governed)], device)
        elif masks.transfer is not None and masks.transfer.tensor.device == device:
            masks.transfer.join()
            own = masks.transfer.tensor
        elif positions := [position for position, slot in enumerate(slots) if slot < NOT_MASKED]:
            own = sent_to(masks.own[positions], device)
        kernel, sent = mask_kernel(device), to_device(slots, device, dtype=torch.int32)
        if table is None:
            rows = masks.buffer[:0].to(device) if own is None else own
            return kernel(scores, rows, sent, own, self._stops, log_sums)
        with table.on_device([slot for slot in slots if slot >= 0]) as rows:
            return kernel(scores, rows, sent, own, self._stops, log_sums)

    def report(self, masks: Masks, on_dead_end: OnDeadEnd, alive: Sequence[int]) -> None:
        """Report the rows that have to end though their constraint could continue.

        ``on_dead_end`` is called with each position of these masks where other processors have forbidden every allowed
        token, or the engine could not continue. ``alive`` is what ``apply`` returned.
        """
        for position in masks.governed:
            reason = masks.ended.get(position)
            if reason is not None:
                on_dead_end(position, reason)
            elif not alive[position] and position not in masks.ended:
                on_dead_end(position, self.nothing_left(masks.rows[position], masks.bitmask[position : position + 1]))

    def nothing_left(self, row: int, bitmask: Tensor) -> EmptyIntersection:
        """The error for a row whose allowed tokens, (1, words) int32, all have no finite score."""
        return EmptyIntersection(
            f"row {row}: of the tokens its constraint allows here ({self.token_names(bitmask)}) none has a finite "
            "score. "
            "Either the model's logits are NaN, or another processor has forbidden them all (min_new_tokens, "
            "bad_words_ids, suppress_tokens, forced_*_token_id): remove one of the two",
            row=row,
        )

    def token_names(self, bitmask: Tensor) -> str:
        """The first few tokens that a bitmask (1, words) allows, as text for a message."""
        allowed = torch.nonzero(unpack(bitmask, self._vocabulary.padded_size)[0]).flatten().tolist()
        names = ", ".join(self._vocabulary.token_text(token_id) for token_id in allowed[:_SHOWN_TOKENS])
        more = len(allowed) - _SHOWN_TOKENS
        return f"{names} and {more} more" if more > 0 else names or "none"

    def warn_once(self, message: str, cause: str = "") -> None:
        """Warn, once for each cause; without a cause, once for each message."""
        if (cause or message) not in self._warned:
            self._warned.add(cause or message)
            warn(message)
