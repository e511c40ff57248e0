"""The cache of compiled constraints, which grow while texts are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol, TypeVar

from ..automaton.lru_bytes import ByteCache, Weighed

_WEIGHED_AGAIN = 4  # with each use of the cache


class Growing(Weighed, Protocol):
    """What holds more while it is used."""

    @property
    def most_bytes(self) -> int:
        """Bytes that it may come to hold."""
        ...


GrowingValue = TypeVar("GrowingValue", bound=Growing)


class GrowingCache(ByteCache[GrowingValue]):
    """A cache of values that grow while they are used.

    A value weighs what it held when it was weighed last. With each use of the cache it is the turn of a few, so that
    each of them is weighed again before a quarter of all others were used: about as much more than the bound may be
    held as that many have grown.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._turns: OrderedDict[Hashable, None] = OrderedDict()  # the next one to be weighed first

    def get(self, key: Hashable) -> GrowingValue | None:
        """See ``ByteCache.get``."""
        found = super().get(key)
        if found is not None:
            self._weigh_some()
        return found

    def put(self, key: Hashable, value: GrowingValue) -> None:
        """See ``ByteCache.put``."""
        super().put(key, value)
        with self._lock:
            self._turns[key] = None
        self._weigh_some()

    def _weigh_some(self) -> None:
        """Weigh those whose turn it is, and drop what was used least recently if all have become too large."""
        with self._lock:
            for _ in range(min(_WEIGHED_AGAIN, len(self._turns))):
                key = next(iter(self._turns))
                self._turns.move_to_end(key)
                if key not in self._entries:
                    del self._turns[key]
                    continue
                value, before = self._entries[key]
                nbytes = max(0, value.nbytes)
                self._entries[key] = value, nbytes
                self._nbytes += nbytes - before
            dropped = self._make_room()
        del dropped  # freed after the lock

    def is_too_large(self, value: GrowingValue) -> bool:
        """Whether a value is not kept: it may become larger than the cache."""
        return value.most_bytes > self.max_bytes
