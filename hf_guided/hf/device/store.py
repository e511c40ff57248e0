"""Keeps kernels, tables and pools of masks on a device from one generate() call to the next.

- Tables of a constraint live as long as its language, those of the vocabulary as long as the store.
- A pool has one user at a time. A call borrows it, and returns it if the call succeeds; those returned last are kept
  for the next calls with the same constraints. An event tells the next call's stream when the masks are complete.
- Every stream that reads a table is recorded with the allocator: kernels know tables only by address, so their memory
  must not be reused before the queued work is done.
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

from ...session.cuda_copies import CudaTransfers, DirectCopies, HostCopies
from .kernel_loader import Found, find
from .kernels import TorchKernels
from .lane import POOL_BYTES, Lane, RowStart
from .row_start import Start
from .staging import Staging
from .tables import LanguageTables, VocabularyTables
from .thinking import AnyLanguage

if TYPE_CHECKING:
    from ...vocabulary.tokens import Vocabulary

FILLED_BYTES = 64 * 2**20  # pools up to this size are filled before the first step


@dataclass(frozen=True)
class _Idle:
    """A pool without a user.

    Args:
        lane: whose pool it is.
        done: an event after its last user's queued work; None without one.
    """

    lane: Lane
    done: torch.cuda.Event | None


class DeviceStore:
    """Lends lanes. Thread safe.

    Args:
        vocabulary: whose tokens the constraints were compiled for.
        kept_bytes: bound on the pools without a user; the last one is kept in any case.
    """

    def __init__(self, vocabulary: Vocabulary, *, kept_bytes: int = POOL_BYTES):
        self._vocabulary = vocabulary
        self._kept_bytes = kept_bytes
        self._lock = Lock()
        self._found: dict[torch.device, Found] = {}
        self._copies: dict[torch.device, HostCopies] = {}
        self._vocabularies: dict[tuple[torch.device, tuple[int, ...]], VocabularyTables] = {}
        self._languages: WeakKeyDictionary[AnyLanguage, dict[torch.device, LanguageTables]] = WeakKeyDictionary()
        self._idle: list[_Idle] = []  # the last one first, each for different constraints

    def kernels(self, device: torch.device) -> Found:
        """The kernels of a device, searched once."""
        with self._lock:
            if device not in self._found:
                self._found[device] = find(device=device)
            return self._found[device]

    def copies(self, device: torch.device) -> HostCopies:
        """Copies tokens from a device to the host."""
        with self._lock:
            if device not in self._copies:
                self._copies[device] = CudaTransfers(device) if device.type == "cuda" else DirectCopies()
            return self._copies[device]

    @contextmanager
    def lane(
        self,
        starts: Sequence[Start],
        tokens: Tensor,
        *,
        stop_token_ids: Sequence[int],
        limit: int | None,
        staging: Staging | None = None,
    ) -> Iterator[Lane]:
        """A lane for the time of the context; fill its pool with ``fill`` once the staged numbers are sent.

        Args:
            starts: one for each row.
            tokens: (rows, capacity) int64 on the device, written by the caller: each row's generated tokens.
            stop_token_ids: tokens that end a row.
            limit: tokens within which every governed row has to close its text; None: no budget.
            staging: as for ``Lane.allocate``.
        """
        device = tokens.device
        languages = list(dict.fromkeys(start.language for start in starts if start.language is not None))
        tables = [self._tables(language, device, budget=limit is not None) for language in languages]
        vocabulary = self._vocabulary_tables(device, tuple(stop_token_ids))
        idle = self._taken(vocabulary, tables)
        which = {language: i for i, language in enumerate(languages)}
        limit = None if limit is None else min(limit, 2**31 - 1)
        rows = [
            RowStart(None if s.language is None else which[s.language], s.state, limit, s.think_until) for s in starts
        ]
        lane = Lane.allocate(
            vocabulary,
            tables,
            *tokens.shape,
            tokens=tokens,
            masks_of=None if idle is None else idle.lane,
            starts=rows,
            staging=staging,
        )
        if idle is not None and idle.done is not None:
            torch.cuda.current_stream(device).wait_event(idle.done)
        del idle  # frees its memory if it has too few scratch slots to be reused
        _record_streams(lane)
        yield lane
        self._keep(_Idle(lane, torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None))

    def fill(self, lane: Lane) -> None:
        """Make the masks of a small pool before they are needed, once for all calls that use it."""
        kernels = self.kernels(lane.tokens.device).kernels
        small = len(lane.claims) * lane.masks.stride(0) * 4 <= FILLED_BYTES
        # The reference makes masks on the host, one after the other: then only the needed ones are made.
        if small and not lane.is_filled and not isinstance(kernels, TorchKernels):
            kernels.fill_pool_(lane)

    def _taken(self, vocabulary: VocabularyTables, tables: Sequence[LanguageTables]) -> _Idle | None:
        """Borrow the pool of these tables; None if there is none."""
        with self._lock:
            for i, idle in enumerate(self._idle):
                if idle.lane.is_of(vocabulary, tables):
                    return self._idle.pop(i)
        return None

    def _keep(self, idle: _Idle) -> None:
        """Take a pool back, and remove the oldest ones to make room for it."""
        lane = idle.lane
        with self._lock:
            others = [other for other in self._idle if not other.lane.is_of(lane.vocabulary, lane.languages)]
            self._idle = [idle, *others]
            while len(self._idle) > 1 and sum(kept.lane.masks.nbytes for kept in self._idle) > self._kept_bytes:
                self._idle.pop()

    def forget_pools(self) -> None:
        """Drop the pools without a user: the next calls make their masks anew."""
        with self._lock:
            self._idle.clear()

    def _vocabulary_tables(self, device: torch.device, stops: tuple[int, ...]) -> VocabularyTables:
        with self._lock:
            if (device, stops) not in self._vocabularies:
                tables = VocabularyTables.of(self._vocabulary, stops, device=device)
                self._vocabularies[device, stops] = tables
            return self._vocabularies[device, stops]

    def _tables(self, language: AnyLanguage, device: torch.device, *, budget: bool) -> LanguageTables:
        with self._lock:
            kept = self._languages.setdefault(language, {})
            tables = kept.get(device)
            if tables is None or (budget and tables.needed is None):  # with counts they serve rows without budgets too
                tables = kept[device] = LanguageTables.of(language, budget=budget, device=device)
            return tables


def _record_streams(lane: Lane) -> None:
    """Record the current stream with the allocator for tensors that outlive the call, or came from another stream."""
    if lane.tokens.device.type != "cuda":
        return
    stream = torch.cuda.current_stream(lane.tokens.device)
    tables: tuple[VocabularyTables | LanguageTables, ...] = lane.vocabulary, *lane.languages
    values = [getattr(table, field.name) for table in tables for field in fields(table)]
    for value in (*values, lane.claims, lane.masks, lane.descriptors):
        if isinstance(value, Tensor):
            value.record_stream(stream)
