"""Renews shared objects in a forked child: their locks may be held by threads that exist only in the parent."""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Renewed(Protocol):
    """Something that threads share."""

    def after_fork(self) -> None:
        """Called in a forked child, where there is only one thread."""
        ...


_shared: WeakSet[Renewed] = WeakSet()


def renew_in_child(shared: Renewed) -> None:
    """Have ``after_fork`` called in forked children, as long as the object lives."""
    _shared.add(shared)


class Shared:
    """An object that threads share, and of which a forked child renews only the lock."""

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._lock = threading.RLock()


def _after_fork_in_child() -> None:
    for shared in list(_shared):
        shared.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
