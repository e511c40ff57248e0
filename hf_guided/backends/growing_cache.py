"""The cache of compiled constraints, which grow while texts are read."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Protocol, TypeVar

from ..automaton.growth import Growth
from ..automaton.lru_bytes import ByteCache, Weighed


class Growing(Weighed, Protocol):
    """What may hold more while it is used."""

    @property
    def growth(self) -> Growth | None:
        """What tells of its growth; None where it never grows."""
        ...

    @property
    def most_bytes(self) -> int:
        """Bytes that it may come to hold."""
        ...


GrowingValue = TypeVar("GrowingValue", bound=Growing)


class GrowingCache(ByteCache[GrowingValue]):
    """A cache of values that grow while they are used: each is weighed again when it has grown."""

    def put(self, key: Hashable, value: GrowingValue) -> None:
        """See ``ByteCache.put``; a growing value is put once under each key."""
        super().put(key, value)
        if value.growth is None:
            return
        cache = weakref.ref(self)  # values may be held longer than their cache

        def weigh() -> None:
            if (kept := cache()) is not None:
                kept._weigh(key)

        value.growth.watch(weigh)
        weigh()  # it may have grown since it was put

    def _weigh(self, key: Hashable) -> None:
        """Weigh what is held under a key, and drop what was used least recently if all have become too large."""
        with self._lock:
            if key not in self._entries:
                return
            value, before = self._entries[key]
            nbytes = max(0, value.nbytes)
            self._entries[key] = value, nbytes
            self._nbytes += nbytes - before
            dropped = [self._pop(key)] if nbytes > self.max_bytes else self._make_room()
        del dropped  # freed after the lock

    def is_too_large(self, value: GrowingValue) -> bool:
        """Whether a value is not kept: it may become larger than the cache."""
        return value.most_bytes > self.max_bytes
