"""What the registers of components demand: of the names of an object, the items of an array, and long strings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .counted_string import CountedString

if TYPE_CHECKING:
    from .values import Value, ValueSearch

_AT_ONCE = 64  # items that one token may end
_LISTED = 24  # values of an item, at least, that ways out choose from
Keys = frozenset[bytes]


@dataclass(frozen=True, eq=False)
class LengthRule:
    """Bounds on the length of a string of any kind, in characters."""

    low: int
    high: int | None  # the largest number; None is no bound
    string: CountedString  # the string's states in the component

    def is_possible(self, values: ValueSearch) -> bool | None:
        """Whether there is such a string."""
        return True


@dataclass(frozen=True)
class NameRule:
    """Different names, by their texts."""

    required: Keys  # names that have to come
    low: int  # the least number of members
    high: int | None  # the largest number of members; None is no bound
    listed: Keys  # names that are listed, and that can be written
    languages: tuple[int, ...]  # the components of the names that are not listed
    any_order: bool  # whether all names may come everywhere

    def is_possible(self, values: ValueSearch) -> bool | None:
        """Whether enough can come at all; None if that is not known.

        Where names come in an order, those that are left must never run out.
        """
        if not self.any_order:
            return True if all(map(values.is_unbounded, self.languages)) else None
        if not self.required <= self.listed:
            return False
        if self._has_more_than(self.low - 1, values):
            return True
        return False if all(map(values.are_all_known, self.languages)) else None

    def _has_more_than(self, count: int, values: ValueSearch) -> bool:
        missing = count - len(self.listed)
        for component in self.languages:
            if missing < 0 or values.more_than(component, missing):
                return True
            missing -= len(values.first(component, missing))
        return missing < 0


@dataclass(frozen=True)
class ItemRule:
    """Different items: no two have the same key."""

    items: tuple[int | None, ...]  # the components of the first items, then of all others; None where none may stand
    low: int  # the least number of items
    ordered: bool  # whether equal items have their members in the same order
    one_spelling: bool  # whether each string has only one text, that of its key

    @property
    def _is_simple(self) -> bool:
        """Whether any item that is new will do, as long as there is one."""
        return len(self.items) == 1

    def may_continue(self, entered: Keys, values: ValueSearch) -> bool:
        """Whether there can be another one after these, and the rest can come after it."""
        return self._has_room(entered, max(self.low, len(entered) + 1), values)

    def leaves_room(self, entered: Keys, values: ValueSearch) -> bool:
        """Whether those that still have to come can come after these."""
        return self._is_simple or self._has_room(entered, self.low, values)

    def contested(self, entered: Keys, values: ValueSearch) -> Keys:
        """The keys that are entered, and those that others may need: with any other key, what has begun can end."""
        if self._is_simple:
            return entered
        count = len(entered)
        following = {*self.items[count + 1 :], self.items[-1]}
        most = max(self.low, count + _AT_ONCE)
        few = [item for item in following if item is not None and not values.more_than(item, most - 1)]
        return entered.union(*(values.first(item, most) for item in few))

    def listed(self, count: int, values: ValueSearch) -> list[list[Value]]:
        """After ``count`` items, the shortest values of the next one, and then those of the others: for ways out."""
        items = self.items[count:] or self.items[-1:]
        return [values.texts(item, self.low, _LISTED) if item is not None else [] for item in dict.fromkeys(items)]

    def extra(self, size_of: Callable[[int], int], values: ValueSearch) -> int:
        """Bytes that different items take, where they are as short as they can be, beside those of the shortest."""
        extra = 0
        for index in range(self.low):
            component = self.items[min(index, len(self.items) - 1)]
            lengths = [len(value.text) for value in values.texts(component, self.low)] if component is not None else []
            if component is None or len(lengths) <= (index if self._is_simple else 0):
                return 0  # there is no such array
            extra += max(0, (lengths[index] if self._is_simple else max(lengths)) - size_of(component))
        return extra

    def is_possible(self, values: ValueSearch) -> bool | None:
        """Whether enough can come at all; None if that is not known."""
        if self._has_room(frozenset(), self.low, values):
            return True
        bounded = [item for item in self.items if item is not None and not values.is_unbounded(item)]
        return False if all(map(values.are_all_known, bounded)) else None

    def _has_room(self, keys: Keys, length: int, values: ValueSearch) -> bool:
        """Whether the array can have this length after these items."""
        choices = []
        for index in range(len(keys), length):
            component = self.items[min(index, len(self.items) - 1)]
            if component is None:
                return False
            if values.more_than(component, length - 1):
                if self._is_simple:
                    return True
                continue  # whatever the others are, there is one more
            if self._is_simple:
                return False
            choices.append([key for key in values.first(component, length) if key not in keys])
        return _are_different(choices)


Rule = LengthRule | NameRule | ItemRule


def _are_different(choices: list[list[bytes]]) -> bool:
    """Whether one of each list can be chosen so that all are different."""
    taken: dict[bytes, int] = {}

    def place(number: int, seen: set[bytes]) -> bool:
        for key in choices[number]:
            if key not in seen:
                seen.add(key)
                if key not in taken or place(taken[key], seen):
                    taken[key] = number
                    return True
        return False

    return all(place(number, set()) for number in range(len(choices)))
