"""Automaton states of requests that come and go, on the device: each step advances them by the tokens that it is fed.

A manager of continuous batching feeds the tokens of one step to the next on the device, before the host knows them. So
a request's state stays there too. It has a *seat*, a place in a tensor of states. For each row of logits a step is told
the seat, and either the state before the row's next token or that the row is to advance by the token it is fed.

All tensors keep their addresses, so that a CUDA graph that has captured a step serves each batch it is replayed for.
Constraints change in place: each has one of a few *places* in the kernels' descriptors, with an equal share of the pool
of masks. What changes for a batch is written after the steps that are queued, so the running batch keeps its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from .kernels import Kernels
from .lane import DESCRIPTOR_WORDS, POOL_BYTES, Lane, descriptor_of
from .staging import Staging
from .tables import LanguageTables, VocabularyTables
from .thinking import AnyLanguage

if TYPE_CHECKING:
    from ...vocabulary.tokens import Vocabulary

PLACES = 16  # constraints at a time
NO_SEAT = -1
CONTINUES = -1


class RowStep(NamedTuple):
    """What a step is told of a row of logits; all are int32.

    Args:
        seat: where its state is kept; ``NO_SEAT`` for a row that is not masked here.
        language: the place of its constraint; -1 for such a row.
        given: the state before its next token; ``CONTINUES``: the kept one, after the token that the row is fed.
        left: tokens within which its text has to close, the next one included; -1 without a budget.
        think_until: the number of tokens after that state after which its thinking has to end; -1 without a limit.
    """

    seat: int = NO_SEAT
    language: int = -1
    given: int = CONTINUES
    left: int = -1
    think_until: int = -1


@dataclass
class _Place:
    """A constraint in the descriptors; ``used`` is the last batch that it was in."""

    language: AnyLanguage
    tables: LanguageTables
    used: int


class RequestStates:
    """The states of a manager's requests.

    Args:
        vocabulary: of the constraints.
        stop_token_ids: tokens that end a request.
        kernels: advance the rows.
        device: of the logits.
        max_rows: the maximum number of rows of logits.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        stop_token_ids: Sequence[int],
        kernels: Kernels,
        device: torch.device,
        max_rows: int,
    ):
        self._kernels, self._device = kernels, device
        self._vocabulary = VocabularyTables.of(vocabulary, stop_token_ids, device=device)
        share = POOL_BYTES // (4 * self._vocabulary.mask_words) // PLACES
        self._pools = tuple((place * share, share) for place in range(PLACES))
        self._descriptors = torch.zeros(PLACES, DESCRIPTOR_WORDS, dtype=torch.int64, device=device)
        self._claims = torch.zeros(PLACES * share, dtype=torch.int32, device=device)
        slots = PLACES * share + max_rows
        self._masks = torch.zeros(slots, self._vocabulary.mask_words, dtype=torch.int32, device=device)
        self._places: list[_Place | None] = [None] * PLACES
        # More than a batch has rows, so the least recently used one is not of this batch; the last takes what rows
        # without a seat write.
        self._seats: OrderedDict[Hashable, int] = OrderedDict()
        self._free_seats = list(range(2 * max_rows))
        self._states = torch.zeros(2 * max_rows + 1, dtype=torch.int32, device=device)
        self._lanes: dict[int, Lane] = {}
        self._batch = 0

    def begin_batch(self) -> None:
        """The seats and places that are asked for from now on are those of another batch."""
        self._batch += 1

    def seat(self, request: Hashable) -> tuple[int, bool]:
        """The seat of a request in this batch, and whether it has just been given to it."""
        seat = self._seats.pop(request, None)
        is_new = seat is None
        if seat is None:
            seat = self._free_seats.pop() if self._free_seats else self._seats.popitem(last=False)[1]
        self._seats[request] = seat
        return seat, is_new

    def leave(self, request: Hashable) -> None:
        """Free the seat of a request that has ended."""
        if (seat := self._seats.pop(request, None)) is not None:
            self._free_seats.append(seat)

    def place(self, language: AnyLanguage, stream: torch.cuda.Stream | None) -> int | None:
        """The place of a constraint in this batch; None if other constraints have all of them.

        Args:
            language: the constraint.
            stream: on which the steps run; None is the current one.
        """
        for place, held in enumerate(self._places):
            if held is not None and held.language is language:
                held.used = self._batch
                return place
        used = [-1 if held is None else held.used for held in self._places]
        oldest = min(range(PLACES), key=used.__getitem__)
        if used[oldest] == self._batch:
            return None
        tables = LanguageTables.of(language, budget=True, device=self._device)
        self._places[oldest] = _Place(language, tables, self._batch)
        self._write(oldest, tables, stream)
        return oldest

    def _write(self, place: int, tables: LanguageTables, stream: torch.cuda.Stream | None) -> None:
        """Describe a constraint to the kernels, after the steps that are queued on the stream."""
        first, count = self._pools[place]
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(self._device))  # which has brought the tables
        with torch.cuda.stream(stream):  # does nothing for None
            staging = Staging(self._device)
            words = staging.put(descriptor_of(tables, self._pools[place]), torch.int64)
            staging.send()
            self._descriptors[place].copy_(words)
            self._claims[first : first + count].zero_()
            for tensor in tables.tensors:
                if tensor.is_cuda:  # kernels know it only by its address
                    tensor.record_stream(torch.cuda.current_stream(self._device))
        self._lanes = {rows: self._with_languages(lane) for rows, lane in self._lanes.items()}

    def _lane(self, rows: int) -> Lane:
        lane = self._lanes.get(rows)
        if lane is None:
            lane = Lane.allocate(self._vocabulary, [], rows, 1)
            lane = replace(lane, claims=self._claims, masks=self._masks, descriptors=self._descriptors)
            lane = self._lanes[rows] = self._with_languages(lane)
        return lane

    def _with_languages(self, lane: Lane) -> Lane:
        """A lane over the same tensors, which knows the constraints in their places; the reference asks it for them."""
        known = [held.tables for held in self._places if held is not None]
        tables = [known[0] if held is None else held.tables for held in self._places] if known else []
        return replace(lane, languages=tuple(tables), pools=self._pools)

    def step_(self, input_ids: Tensor, logits: Tensor, told: Tensor) -> None:
        """Advance the rows and mask their logits.

        Args:
            input_ids: (rows,) the token that each row is fed.
            logits: (rows, vocab) floating point, written.
            told: (5, rows) int32, for each row the numbers of a ``RowStep``.

        Streams: runs on the current stream; with CUDA kernels it never waits for the host.
        """
        seat, language, given, left, think_until = told
        lane = self._lane(len(logits))
        seats = torch.where(seat < 0, len(self._states) - 1, seat).long()
        continues = given < 0
        # A lane of one token: the state before it, or no token and the state that is given.
        lane.tokens.copy_(input_ids.unsqueeze(1))
        lane.length.copy_(continues)
        lane.known.zero_()
        lane.language_of.copy_(language)
        lane.start.copy_(torch.where(continues, self._states.index_select(0, seats), given))
        lane.limit.copy_(torch.where(left < 0, -1, left + lane.length))
        lane.think_until.copy_(think_until)
        self._kernels.step_(lane, logits)
        self._states.index_copy_(0, seats, lane.state_of)
