"""What a batch of rows owns on the device: tokens, states by length, masks by state.

- A row's state is a history indexed by length. To roll back is to set a smaller ``length``; to permute is to write
  other tokens: each row walks again from where they differ from the ``shadow`` of those that its history belongs to.
- Masks lie in a pool. The slot of a state follows from the state, ``claims`` says which state's mask a slot holds, and
  none is thrown out. Behind the pool each row has a scratch slot, for masks that a budget narrows and for states whose
  slot another has. A pool belongs to one session and its stream.

The tensors stay where they are from step to step, so that a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .tables import CAN_END, LanguageTables, VocabularyTables

STOPPED, DEAD = -1, 0  # states of rows that took a stop token, and of rows that left their grammar
LEAVE_ALONE, FORBID_ALL = -1, -2  # slots of rows that are not masked, and of rows in which nothing is allowed
POOL_BYTES = 256 * 2**20
DESCRIPTOR_WORDS = 9  # GbLanguage in guided_bitmask.cuh
WORK_WORDS = 4  # GbWork


@dataclass(frozen=True, eq=False)
class Lane:
    """The rows of one session; its tensors are written by the step and, where that is said, by the caller.

    Args:
        vocabulary: the tokens.
        languages: the constraints in the batch.
        pools: for each of them the first slot and the number of slots.
        tokens: (rows, capacity) int64, what each row has generated; the caller writes it.
        length: (rows,) int32, how many of them count; the caller writes it.
        language_of: (rows,) int32, the row's constraint, -1 for a free row.
        start: (rows,) int32, the state in front of the first token.
        limit: (rows,) int32, tokens in which the text has to close; -1: no budget.
        shadow: (rows, capacity) int32, tokens that the history belongs to.
        history: (rows, capacity) int32, the state behind each.
        known: (rows,) int32, how many of both are valid.
        claims: (pool slots,) int32, the state whose mask is in the slot, or 0.
        masks: (at least pool slots + rows, words) int32.
        state_of: (rows,) int32, where each row was in the last step.
        slot_of: (rows,) int32, its mask in that step, ``LEAVE_ALONE`` or ``FORBID_ALL``.
        work: (rows, 4) int32, masks to be made: slot, constraint, state, tokens left or -1.
        work_count: (1,) int32, how many; 0 between steps.
        descriptors: (languages, 9) int64, the constraints' tables as kernels find them.
    """

    vocabulary: VocabularyTables
    languages: tuple[LanguageTables, ...]
    pools: tuple[tuple[int, int], ...]
    tokens: Tensor
    length: Tensor
    language_of: Tensor
    start: Tensor
    limit: Tensor
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
    ) -> Lane:
        """Room for so many free rows, on the vocabulary's device.

        Args:
            vocabulary: the tokens.
            languages: the constraints in the batch.
            rows: how many, 0 or more.
            capacity: tokens that a row may come to.
            pool_bytes: bound on the masks kept.
            tokens: (rows, at least capacity) int64 there, unit stride in the last dimension; None: zeros.
            masks_of: a lane that nobody uses any more: its masks are taken over if they are the same ones.
        """
        device = vocabulary.token_bytes.device
        pools = _pools([language.states for language in languages], pool_bytes // (4 * vocabulary.mask_words))
        slots = sum(count for _, count in pools)

        def ints(*shape: int, fill: int = 0) -> Tensor:
            return torch.full(shape, fill, dtype=torch.int32, device=device)

        claims, masks = None, None
        if masks_of is not None and masks_of._masks_serve(vocabulary, languages, pools, rows):
            claims, masks = masks_of.claims, masks_of.masks
        return cls(
            vocabulary=vocabulary,
            languages=tuple(languages),
            pools=pools,
            tokens=torch.zeros(rows, capacity, dtype=torch.int64, device=device) if tokens is None else tokens,
            length=ints(rows),
            language_of=ints(rows, fill=-1),
            start=ints(rows),
            limit=ints(rows, fill=-1),
            shadow=ints(rows, capacity),
            history=ints(rows, capacity),
            known=ints(rows),
            claims=ints(slots) if claims is None else claims,
            masks=ints(slots + rows, vocabulary.mask_words) if masks is None else masks,
            state_of=ints(rows),
            slot_of=ints(rows, fill=LEAVE_ALONE),
            work=ints(rows, WORK_WORDS),
            work_count=ints(1),
            descriptors=_descriptors(languages, pools).to(device),
        )

    def _masks_serve(
        self,
        vocabulary: VocabularyTables,
        languages: Sequence[LanguageTables],
        pools: tuple[tuple[int, int], ...],
        rows: int,
    ) -> bool:
        """Whether a lane of these tables and so many rows would have the same pool, and scratch slots enough."""
        same = self.is_of(vocabulary, languages) and self.pools == pools
        return same and len(self.masks) >= len(self.claims) + rows

    def is_of(self, vocabulary: VocabularyTables, languages: Sequence[LanguageTables]) -> bool:
        """Whether these are its tables, and not just equal ones."""
        return self.vocabulary is vocabulary and self.languages == tuple(languages)

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        """What the step's kernels take, in their order, from ``tokens`` to ``work_count``."""
        vocabulary = self.vocabulary
        return (
            *(self.tokens, self.length, self.shadow, self.history, self.known),
            *(self.language_of, self.start, self.limit, self.descriptors),
            *(vocabulary.token_bytes, vocabulary.token_start, vocabulary.token_length, vocabulary.stops),
            *(self.claims, self.masks, self.state_of, self.slot_of, self.work, self.work_count),
        )

    @property
    def rows(self) -> int:
        """How many."""
        return len(self.length)

    @property
    def capacity(self) -> int:
        """Tokens that a row may come to."""
        return self.shadow.shape[1]

    def assign(self, row: int, language: int | None, *, start: int | None = None, limit: int | None = None) -> None:
        """Let a row begin anew.

        Args:
            row: which.
            language: its constraint, by place in ``languages``; None: a free row.
            start: the state it begins in, where part of the text is there already; None: the constraint's own.
            limit: tokens in which its text has to close.
        """
        if language is not None and start is None:
            start = self.languages[language].start
        self.language_of[row] = -1 if language is None else language
        self.start[row] = start or 0
        self.limit[row] = -1 if limit is None else limit
        self.length[row] = self.known[row] = 0

    def claim_all(self) -> Tensor:
        """(masks, 4) int32: as ``work``, masks that the pool has room for and does not hold; claimed from now on."""
        items = [torch.empty(0, WORK_WORDS, dtype=torch.int32, device=self.work.device)]
        for which, (language, (first, slots)) in enumerate(zip(self.languages, self.pools, strict=True)):
            # The first states where there are fewer slots: each has a slot of its own among them.
            states = torch.arange(1, min(language.states, slots + 1), dtype=torch.int32, device=self.work.device)
            states = states[(language.flags[states.long()] & CAN_END) != 0]
            places = first + states % max(slots, 1)
            free = self.claims[places.long()] == 0
            states, places = states[free], places[free]
            self.claims[places.long()] = states
            items.append(torch.stack((places, torch.full_like(states, which), states, torch.full_like(states, -1)), 1))
        return torch.cat(items).to(torch.int32)


def _pools(states: Sequence[int], slots: int) -> tuple[tuple[int, int], ...]:
    """First slot and number of slots for each constraint: one for each state, or a fair share of what there is."""
    total = sum(states)
    counts = [count if total <= slots else count * slots // total for count in states]
    firsts = [sum(counts[:i]) for i in range(len(counts))]
    return tuple(zip(firsts, counts, strict=True))


def _descriptors(languages: Sequence[LanguageTables], pools: Sequence[tuple[int, int]]) -> Tensor:
    found = torch.zeros(len(languages), DESCRIPTOR_WORDS, dtype=torch.int64)
    for line, language, (first, count) in zip(found, languages, pools, strict=True):
        addresses = [language.table, language.byte_class, language.flags, language.needed]
        numbers = [language.table.shape[1], language.table.element_size(), language.worst, first, count]
        line[:] = torch.tensor([0 if one is None else one.data_ptr() for one in addresses] + numbers)
    return found
