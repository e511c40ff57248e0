"""Least recently used first out, bounded in bytes; for any threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from .after_fork import Shared


class Weighed(Protocol):
    """A value that knows its own size."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        ...


_STEP = 2**16  # bytes: smaller changes of a value are reported together
Value = TypeVar("Value", bound=Weighed)


@dataclass(frozen=True)
class CacheStats:
    """A snapshot of the counts of a cache."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0  # entries dropped to make room, because others have grown, or because they are too large to keep
    entries: int = 0
    nbytes: int = 0  # bytes held now


class ByteCache(Shared, Generic[Value]):
    """A cache of ``max_bytes`` at most. A value that is too large is never kept."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._hits = self._misses = self._evictions = self._nbytes = 0

    def get(self, key: Hashable) -> Value | None:
        """The value, now the most recently used; None if it is not held."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Value) -> None:
        """Keep a value; it replaces an older one under this key."""
        nbytes = self._weight(value)  # exactly the added size is subtracted later
        dropped = []  # freed after the lock: a grammar's destructor may take its time
        with self._lock:
            if key in self._entries:
                dropped.append(self._pop(key))
            if self.is_too_large(value):
                self._evictions += 1
                return
            dropped += self._make_room(nbytes)
            self._entries[key] = value, nbytes
            self._nbytes += nbytes

    def of(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of a key; made, without the lock, if it is not held."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def _weight(self, value: Value) -> int:
        return max(0, value.nbytes)

    def is_too_large(self, value: Value) -> bool:
        """Whether a value is not kept."""
        return value.nbytes > self.max_bytes

    def _make_room(self, nbytes: int = 0) -> list[Value]:
        """Remove the least recently used values, until ``nbytes`` more fit; returns them."""
        dropped = []
        while self._entries and self._nbytes + nbytes > self.max_bytes:
            dropped.append(self._pop(next(iter(self._entries))))
            self._evictions += 1
        return dropped

    def stats(self) -> CacheStats:
        """The counts so far."""
        with self._lock:
            return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), self._nbytes)

    def _pop(self, key: Hashable) -> Value:
        value, nbytes = self._entries.pop(key)
        self._nbytes -= nbytes
        return value

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._entries

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)


class Growth:
    """Bytes that a value holds beside those that it held at first.

    It calls its caches: to ask every value now and then takes longer than computing a mask.
    """

    def __init__(self) -> None:
        self.nbytes = 0  # bytes reported last; at most a step more or less are held
        self._watchers: list[Callable[[], None]] = []

    def watch(self, call: Callable[[], None]) -> None:
        """Have a function called after each step. Thread safe."""
        self._watchers.append(call)

    def update(self, nbytes: int) -> None:
        """Report how many bytes are held now; never called by two threads at once."""
        if not -_STEP < nbytes - self.nbytes < _STEP:
            self.nbytes = nbytes
            for call in self._watchers:
                call()
