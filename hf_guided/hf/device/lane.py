"""The state of a batch of rows on the device: tokens, states by length, masks by state.

- A row's states are a history indexed by length. A rollback sets a smaller ``length``; a permutation writes other
  tokens: each row is advanced again from the first token that differs from the ``shadow``, the tokens that its history
  belongs to.
- Masks are in a pool. A state determines its slot, ``claims`` holds the state whose mask is in a slot, and no mask is
  evicted. After the pool each row has a scratch slot, for masks that a budget narrows and for states whose slot is
  claimed by another state. A pool belongs to one session and its stream.

The tensors keep their addresses from step to step, so that a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .staging import Staging
from .tables import LanguageTables, VocabularyTables

STOPPED, DEAD = -1, 0  # states of rows that took a stop token, and of rows that left their grammar
LEAVE_ALONE, FORBID_ALL = -1, -2  # slots of rows that are not masked, and of rows in which nothing is allowed
POOL_BYTES = 256 * 2**20
DESCRIPTOR_WORDS = 14  # GbLanguage in guided_bitmask.cuh
WORK_WORDS = 4  # GbWork


class RowStart(NamedTuple):
    """How a row begins.

    Args:
        language: index of its constraint in ``Lane.languages``; None: a free row.
        state: before its first token.
        limit: tokens within which its text has to close; None: no budget.
        think_until: tokens after which its thinking has to end; None: no limit.
    """

    language: int | None = None
    state: int = 0
    limit: int | None = None
    think_until: int | None = None


@dataclass(frozen=True, eq=False)
class Lane:
    """The rows of one session; the step writes its tensors, the caller only those marked so.

    Args:
        vocabulary: the tokens.
        languages: the constraints in the batch.
        pools: for each of them the first slot and the number of slots.
        tokens: (rows, capacity) int64, what each row has generated; the caller writes it.
        length: (rows,) int32, how many of them count; the caller writes it.
        language_of: (rows,) int32, the row's constraint, -1 for a free row.
        start: (rows,) int32, the state before the first token.
        limit: (rows,) int32, tokens within which the text has to close; -1: no budget.
        think_until: (rows,) int32, tokens after which thinking has to end; -1: no limit.
        shadow: (rows, capacity) int32, tokens that the history belongs to.
        history: (rows, capacity) int32, the state after each.
        known: (rows,) int32, how many entries of both are valid.
        claims: (pool slots,) int32, the state whose mask is in the slot, or 0.
        masks: (at least pool slots + rows, words) int32.
        state_of: (rows,) int32, each row's state in the last step.
        slot_of: (rows,) int32, its mask in that step, ``LEAVE_ALONE`` or ``FORBID_ALL``.
        work: (rows, 4) int32, masks to make: slot, constraint, state, tokens left or -1.
        work_count: (1,) int32, how many; 0 between steps.
        descriptors: (languages, 14) int64, the addresses and sizes of the constraints' tables, for kernels.
    """

    vocabulary: VocabularyTables
    languages: tuple[LanguageTables, ...]
    pools: tuple[tuple[int, int], ...]
    tokens: Tensor
    length: Tensor
    language_of: Tensor
    start: Tensor
    limit: Tensor
    think_until: Tensor
    shadow: Tensor
    history: Tensor
    known: Tensor
    claims: Tensor
    masks: Tensor
    state_of: Tensor
    slot_of: Tensor
    work: Tensor
    work_count: Tensor
    descriptors: Tensor = field(repr=False)
    _filled: list[bool] = field(default_factory=lambda: [False], repr=False)  # shared by the lanes of one pool

    @classmethod
    def allocate(
        cls,
        vocabulary: VocabularyTables,
        languages: Sequence[LanguageTables],
        rows: int,
        capacity: int,
        *,
        pool_bytes: int = POOL_BYTES,
        tokens: Tensor | None = None,
        masks_of: Lane | None = None,
        starts: Sequence[RowStart] | None = None,
        staging: Staging | None = None,
    ) -> Lane:
        """A lane with this many rows, on the vocabulary's device.

        Args:
            vocabulary: the tokens.
            languages: the constraints in the batch.
            rows: how many, 0 or more.
            capacity: the maximum number of tokens for each row.
            pool_bytes: bound on the pool of masks.
            tokens: (rows, at least capacity) int64 on that device, unit stride in the last dimension; None: zeros.
            masks_of: a lane that is no longer used: its masks are reused if they are the same ones.
            starts: one for each row; None: all rows are free.
            staging: brings the rows' numbers to the device when the caller sends it; None sends them at once.
        """
        device = vocabulary.token_bytes.device
        staged = Staging(device) if staging is None else staging
        pools = _pools([language.states for language in languages], pool_bytes // (4 * vocabulary.mask_words))
        slots = sum(count for _, count in pools)

        def column(values: ArrayLike) -> Tensor:
            return staged.put(np.broadcast_to(np.asarray(values), rows), torch.int32)

        def room(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.int32, device=device)

        if masks_of is not None and masks_of._masks_serve(vocabulary, languages, pools, rows):
            claims, masks, filled = masks_of.claims, masks_of.masks, masks_of._filled
            descriptors = masks_of.descriptors
        else:
            claims, masks, filled = room(slots).zero_(), room(slots + rows, vocabulary.mask_words).zero_(), [False]
            descriptors = staged.put(_descriptors(languages, pools), torch.int64)
        if starts is None:
            starts = [RowStart()] * rows
        lane = cls(
            vocabulary=vocabulary,
            languages=tuple(languages),
            pools=pools,
            tokens=torch.zeros(rows, capacity, dtype=torch.int64, device=device) if tokens is None else tokens,
            length=column(0),
            language_of=column([-1 if start.language is None else start.language for start in starts]),
            start=column([start.state for start in starts]),
            limit=column([-1 if start.limit is None else start.limit for start in starts]),
            think_until=column([-1 if start.think_until is None else start.think_until for start in starts]),
            shadow=room(rows, capacity),  # of which nothing is known yet
            history=room(rows, capacity),
            known=column(0),
            claims=claims,
            masks=masks,
            state_of=column(0),
            slot_of=column(LEAVE_ALONE),
            work=room(rows, WORK_WORDS),
            work_count=staged.put([0], torch.int32),
            descriptors=descriptors,
            _filled=filled,
        )
        if staging is None:
            staged.send()
        return lane

    def _masks_serve(
        self,
        vocabulary: VocabularyTables,
        languages: Sequence[LanguageTables],
        pools: tuple[tuple[int, int], ...],
        rows: int,
    ) -> bool:
        """Whether a lane of these tables and this many rows would have the same pool, and enough scratch slots."""
        same = self.is_of(vocabulary, languages) and self.pools == pools
        return same and len(self.masks) >= len(self.claims) + rows

    def is_of(self, vocabulary: VocabularyTables, languages: Sequence[LanguageTables]) -> bool:
        """Whether these objects are its tables; equal ones are not enough."""
        return self.vocabulary is vocabulary and self.languages == tuple(languages)

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """The arguments of the step's kernels in their order, from ``tokens`` to ``work_count``."""
        vocabulary = self.vocabulary
        return (
            *(self.tokens, self.length, self.shadow, self.history, self.known),
            *(self.language_of, self.start, self.limit, self.think_until, self.descriptors),
            *(vocabulary.token_bytes, vocabulary.token_start, vocabulary.token_length, vocabulary.stops),
            *(self.claims, self.masks, self.state_of, self.slot_of, self.work, self.work_count),
        )

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.length)

    @property
    def capacity(self) -> int:
        """The maximum number of tokens for each row."""
        return self.shadow.shape[1]

    def assign(
        self,
        row: int,
        language: int | None,
        *,
        start: int | None = None,
        limit: int | None = None,
        think_until: int | None = None,
    ) -> None:
        """Start a row over.

        Args:
            row: its number.
            language: index of its constraint in ``languages``; None: a free row.
            start: its first state, if part of the text exists already; None: the constraint's own.
            limit: tokens within which its text has to close.
            think_until: tokens after which its thinking has to end.
        """
        if language is not None and start is None:
            start = self.languages[language].start
        self.language_of[row] = -1 if language is None else language
        self.start[row] = start or 0
        self.limit[row] = -1 if limit is None else limit
        self.think_until[row] = -1 if think_until is None else think_until
        self.length[row] = self.known[row] = 0

    @property
    def is_filled(self) -> bool:
        """Whether ``claim_all`` has claimed the pool's slots, in this call or in an earlier one."""
        return self._filled[0]

    def claim_all(self) -> Tensor:
        """(masks, 4) int32 like ``work``: masks that fit into the pool; claims their slots.

        Slots that are claimed already keep their states. All is known on the host, so it does not wait for the device.
        """
        if self.is_filled:
            return self.work.new_empty(0, WORK_WORDS)
        self._filled[0] = True
        items = [np.empty((0, WORK_WORDS), np.int64)]
        for which, (language, (first, slots)) in enumerate(zip(self.languages, self.pools, strict=True)):
            # With fewer slots than states, the first states: each has a slot of its own among them.
            states = 1 + np.flatnonzero(language.can_end[1 : slots + 1])
            rest = np.full_like(states, which), states, np.full_like(states, -1)
            items.append(np.stack((first + states % max(slots, 1), *rest), 1))
        found = np.concatenate(items)
        staging = Staging(self.work.device)
        work, slot_ids = staging.put(found, torch.int32), staging.put(found[:, 0], torch.int64)
        staging.send()
        held = self.claims.index_select(0, slot_ids)
        work[:, 2].copy_(torch.where(held == 0, work[:, 2], held))
        self.claims.index_copy_(0, slot_ids, work[:, 2])
        return work


def _pools(states: Sequence[int], slots: int) -> tuple[tuple[int, int], ...]:
    """First slot and number of slots for each constraint: one for each state, or a proportional share."""
    total = sum(states)
    counts = [count if total <= slots else count * slots // total for count in states]
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    return tuple(zip(firsts, counts, strict=True))


def _descriptors(languages: Sequence[LanguageTables], pools: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    descriptors = np.zeros((len(languages), DESCRIPTOR_WORDS), np.int64)
    for descriptor, language, pool in zip(descriptors, languages, pools, strict=True):
        descriptor[:] = descriptor_of(language, pool)
    return descriptors


def descriptor_of(language: LanguageTables, pool: tuple[int, int]) -> list[int]:
    """The addresses and sizes of a constraint's tables, ``DESCRIPTOR_WORDS`` numbers, for kernels.

    Args:
        language: the constraint.
        pool: the first slot of its states' masks, and how many it has.
    """
    tables = language.table, language.byte_class, language.flags, language.needed
    numbers = language.table.shape[1], language.table.element_size(), language.worst
    thinking = language.free_moves, language.forced_moves
    num_matched = 0 if language.free_moves is None else len(language.free_moves)
    limits = len(language.table), num_matched, language.forced_within
    return [*_addresses(tables), *numbers, *pool, *_addresses(thinking), *limits]


def _addresses(tensors: Iterable[Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
