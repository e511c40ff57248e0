"""What stays on a device from one generate() call to the next: kernels, tables, and a pool of masks.

- Tables of a constraint live as long as its language does, those of the vocabulary as long as the store.
- A pool has one user at a time. It is lent to a call and comes back when that ends well; those that came back last are
  kept, for the next calls with the same constraints. An event tells that call's stream when the masks are there.
- The allocator is told of every stream that reads a table: kernels know tables by address, so their memory is not to be
  given to others before what was queued then is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...backends.automaton import Language
from ...session.cuda_copies import CudaTransfers, DirectCopies, HostCopies
from .kernel_loader import Found, find
from .kernels import TorchKernels
from .lane import POOL_BYTES, Lane
from .tables import LanguageTables, VocabularyTables

if TYPE_CHECKING:
    from ...vocabulary.tokens import Vocabulary

FILLED_BYTES = 64 * 2**20  # pools up to this size are filled before the first step


@dataclass(frozen=True)
class Start:
    """Where a row begins.

    Args:
        language: its constraint; None for a free row.
        state: in front of its first token.
    """

    language: Language | None = None
    state: int = 0


@dataclass(frozen=True)
class _Idle:
    """A pool that nobody uses.

    Args:
        lane: whose pool it is.
        done: behind what its last user queued; None where nothing is queued.
    """

    lane: Lane
    done: torch.cuda.Event | None


class DeviceStore:
    """Lends lanes. Thread safe.

    Args:
        vocabulary: whose tokens the constraints were compiled for.
        kept_bytes: bound on the pools that nobody uses; the last one is kept in any case.
    """

    def __init__(self, vocabulary: Vocabulary, *, kept_bytes: int = POOL_BYTES):
        self._vocabulary = vocabulary
        self._kept_bytes = kept_bytes
        self._lock = Lock()
        self._found: dict[torch.device, Found] = {}
        self._copies: dict[torch.device, HostCopies] = {}
        self._vocabularies: dict[tuple[torch.device, tuple[int, ...]], VocabularyTables] = {}
        self._languages: WeakKeyDictionary[Language, dict[torch.device, LanguageTables]] = WeakKeyDictionary()
        self._idle: list[_Idle] = []  # the last one first, each of other constraints

    def kernels(self, device: torch.device) -> Found:
        """What moves lanes there, looked for once."""
        with self._lock:
            if device not in self._found:
                self._found[device] = find(device=device)
            return self._found[device]

    def copies(self, device: torch.device) -> HostCopies:
        """What brings tokens from there to the host."""
        with self._lock:
            if device not in self._copies:
                self._copies[device] = CudaTransfers(device) if device.type == "cuda" else DirectCopies()
            return self._copies[device]

    @contextmanager
    def lane(
        self, starts: Sequence[Start], tokens: Tensor, *, stop_token_ids: Sequence[int], limit: int | None
    ) -> Iterator[Lane]:
        """A lane for as long as the context lasts.

        Args:
            starts: one for each row.
            tokens: (rows, capacity) int64 on the device, written by the caller: what each row generates.
            stop_token_ids: tokens that end a row.
            limit: tokens in which every governed row has to close its text; None: no budget.
        """
        device = tokens.device
        languages = list(dict.fromkeys(start.language for start in starts if start.language is not None))
        tables = [self._tables(language, device, budget=limit is not None) for language in languages]
        vocabulary = self._vocabulary_tables(device, tuple(stop_token_ids))
        idle = self._taken(vocabulary, tables)
        lane = Lane.allocate(
            vocabulary, tables, *tokens.shape, tokens=tokens, masks_of=None if idle is None else idle.lane
        )
        if idle is not None and idle.done is not None:
            torch.cuda.current_stream(device).wait_event(idle.done)
        del idle  # if it has too few scratch slots, there is no need for it
        _say_used(lane)
        which = [-1 if start.language is None else languages.index(start.language) for start in starts]
        lane.language_of.copy_(torch.tensor(which, dtype=torch.int32))
        lane.start.copy_(torch.tensor([start.state for start in starts], dtype=torch.int32))
        lane.limit.fill_(-1 if limit is None else limit)
        kernels = self.kernels(device).kernels
        # The reference makes masks on the host, one after the other: it had better make those that are needed.
        if not isinstance(kernels, TorchKernels) and len(lane.claims) * lane.masks.stride(0) * 4 <= FILLED_BYTES:
            kernels.fill_pool_(lane)
        yield lane
        self._keep(_Idle(lane, torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None))

    def _taken(self, vocabulary: VocabularyTables, tables: Sequence[LanguageTables]) -> _Idle | None:
        """The pool of these tables, from now on the caller's; None if there is none."""
        with self._lock:
            for place, idle in enumerate(self._idle):
                if idle.lane.is_of(vocabulary, tables):
                    return self._idle.pop(place)
        return None

    def _keep(self, idle: _Idle) -> None:
        """Take a pool back; the oldest ones make room for it."""
        lane = idle.lane
        with self._lock:
            others = [one for one in self._idle if not one.lane.is_of(lane.vocabulary, lane.languages)]
            self._idle = [idle, *others]
            while len(self._idle) > 1 and sum(one.lane.masks.nbytes for one in self._idle) > self._kept_bytes:
                self._idle.pop()

    def _vocabulary_tables(self, device: torch.device, stops: tuple[int, ...]) -> VocabularyTables:
        with self._lock:
            if (device, stops) not in self._vocabularies:
                found = VocabularyTables.of(self._vocabulary, stops, device=device)
                self._vocabularies[device, stops] = found
            return self._vocabularies[device, stops]

    def _tables(self, language: Language, device: torch.device, *, budget: bool) -> LanguageTables:
        with self._lock:
            kept = self._languages.setdefault(language, {})
            found = kept.get(device)
            if found is None or (budget and found.needed is None):  # with counts they serve rows without budgets too
                found = kept[device] = LanguageTables.of(language, budget=budget, device=device)
            return found


def _say_used(lane: Lane) -> None:
    """Tell the allocator which stream reads and writes what outlives the call, or came from another."""
    if lane.tokens.device.type != "cuda":
        return
    stream = torch.cuda.current_stream(lane.tokens.device)
    tables: tuple[VocabularyTables | LanguageTables, ...] = lane.vocabulary, *lane.languages
    values = [getattr(table, one.name) for table in tables for one in fields(table)]
    for value in (*values, lane.claims, lane.masks):
        if isinstance(value, Tensor):
            value.record_stream(stream)
