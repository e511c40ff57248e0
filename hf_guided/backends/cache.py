"""The outcomes of the compiles so far: results in a cache bounded in bytes, and errors that the constraint caused.

- A result weighs what it holds now, and is weighed again when it has grown. One that is too large for the cache is
  found as long as a caller holds it.
- An error is kept without its traceback, which would hold every frame of the compile.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable

from ..automaton.lru_bytes import ByteCache
from ..errors import CompileLimitExceeded, ConstraintError
from .base import CompiledConstraint

REPLAYED = (ConstraintError, CompileLimitExceeded)  # caused by the constraint, so it will fail again


class CompiledCache(ByteCache[CompiledConstraint]):
    """Compiled constraints, which grow while texts are read: each is weighed again when it has grown."""

    def put(self, key: Hashable, value: CompiledConstraint) -> None:
        """See ``ByteCache.put``; a growing value is put once under each key."""
        super().put(key, value)
        if value.growth is None:
            return
        cache = weakref.ref(self)  # values may be held longer than their cache

        def weigh() -> None:
            if (kept := cache()) is not None:
                kept._weigh(key)

        value.growth.watch(weigh)
        weigh()  # the value may have grown since it was put

    def _weight(self, value: CompiledConstraint) -> int:
        return value.held_bytes

    def _weigh(self, key: Hashable) -> None:
        """Weigh what is held under a key, and drop what was used least recently if all have become too large."""
        with self._lock:
            if key not in self._entries:
                return
            value, before = self._entries[key]
            nbytes = self._weight(value)
            self._entries[key] = value, nbytes
            self._nbytes += nbytes - before
            dropped = [self._pop(key)] if nbytes > self.max_bytes else self._make_room()
        del dropped  # freed after the lock


class Outcomes:
    """The results and errors of one compiler. Thread safe."""

    def __init__(self, cache_bytes: int, max_failures: int) -> None:
        self.results = CompiledCache(cache_bytes)
        self._held: weakref.WeakValueDictionary[Hashable, CompiledConstraint] = weakref.WeakValueDictionary()
        self._failures: OrderedDict[Hashable, Exception] = OrderedDict()
        self._most = max_failures
        self._lock = threading.RLock()

    def get(self, key: Hashable) -> CompiledConstraint | Exception | None:
        """The outcome of a compile; None where none is known."""
        with self._lock:
            if key in self._failures:
                self._failures.move_to_end(key)
                return self._failures[key]
        return self.results.get(key) or self._held.get(key)

    def __contains__(self, key: Hashable) -> bool:
        return key in self.results or key in self._held or key in self._failures

    def put(self, key: Hashable, outcome: CompiledConstraint | BaseException) -> None:
        """Keep what will be the same again."""
        if isinstance(outcome, CompiledConstraint):
            if self.results.is_too_large(outcome):
                self._held[key] = outcome
            self.results.put(key, outcome)
        elif isinstance(outcome, REPLAYED):
            with self._lock:
                self._failures.setdefault(key, copy.copy(outcome))
                while len(self._failures) > self._most:
                    self._failures.popitem(last=False)
