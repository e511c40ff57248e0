"""What no finite automaton knows of an array or an object: the items and names that are there already.

A register stands beside a content automaton (content_automata.py), which then accepts more than there may be. Only the
network engine keeps registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..regex import Node
from .shapes import Position


@dataclass(frozen=True)
class DifferentNames:
    """No name comes twice.

    Args:
        origin: pointer and keyword of the schema that says so.
        required: names that have to come.
        low, high: how many members; ``high`` None is no bound.
        any_order: whether all names may come everywhere.
    """

    origin: tuple[str, str]
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    any_order: bool = False

    def has_room(self, names: Iterable[str | Node | None]) -> bool:
        """Whether these names can be enough; a language of names counts as many."""
        listed = set(names)
        most = sum(1 if isinstance(name, str) else self.low for name in listed)
        if self.high is not None:
            most = min(most, self.high)
        return listed.issuperset(self.required) and max(self.low, len(self.required)) <= most


@dataclass(frozen=True)
class DifferentItems:
    """No item comes twice.

    Args:
        origin: pointer and keyword of the schema that says so.
        items: the positions of the first items, and at last that of all others.
        low: how many there have to be.
    """

    origin: tuple[str, str]
    items: tuple[Position, ...]
    low: int

    def at(self, index: int) -> Position:
        """What the item at this index must satisfy."""
        return self.items[min(index, len(self.items) - 1)]


Register = DifferentNames | DifferentItems
