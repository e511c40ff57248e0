"""The memory of a row for the arrays and objects it is inside of, and what follows from it.

A *rule* belongs to a component. What is *entered* belongs to a row: the items or names that are there already, and
where the text of the next one begins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from .counted_string import CountedString
from .written_values import CHARACTER_BYTES, Begun, CompetingItems, begun, competing_items, key_of

if TYPE_CHECKING:
    from .network_search import NetworkSearch
    from .values import Value, ValueSearch

_AT_ONCE = 64  # items that one token may end
_LISTED = 24  # values of an item, at least, that ways out choose from
_MEMBER = 3  # bytes of a member at least: a comma, a colon and a value
UNKNOWN = b"\xff"  # the key of an item whose text is not at hand; no key is this


class Entered:
    """Items or names, by the ``keys`` of those that are complete; immutable.

    The text of the one that has begun begins at ``begin``; -1 if none has.
    """

    __slots__ = ("_hash", "begin", "keys")

    def __init__(self, keys: frozenset[bytes] = frozenset(), begin: int = -1):
        self.keys, self.begin = keys, begin
        self._hash = hash((keys, begin))

    @property
    def has_begun(self) -> bool:
        """Whether one has begun that is not complete."""
        return self.begin >= 0

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entered) and self.begin == other.begin and self.keys == other.keys


NOTHING_ENTERED = Entered()


class Rule(ABC):
    """The demands on what is entered. These methods have the answers of a rule without any.

    ``entered`` is in the register before the question, ``written`` is the text of the open item or name, and ``values``
    has those of components.
    """

    @property
    def is_simple(self) -> bool:
        """Whether any item or name that is new will do, as long as there is one."""
        return True

    def begin(self, entered: Entered, at: int, *, required: bool) -> Entered | None:
        """The register after one begins at a place in the text; None if it may not.

        ``required`` says whether it is one of those that have to come, because no others may.
        """
        return None if required else Entered(entered.keys, at)

    @abstractmethod
    def end(self, entered: Entered, written: bytes | None) -> Entered | None:
        """The register after one ends; None if it may not be there. If its text is not at hand, it may."""

    @abstractmethod
    def is_watched(self, entered: Entered) -> bool:
        """Whether the open item must still be checked."""

    @abstractmethod
    def fits(self, entered: Entered, written: bytes, values: NetworkSearch) -> bool | None:
        """Whether the open item can end; None if a way has to be searched."""

    @abstractmethod
    def state(self, entered: Entered, written: bytes, reach: int) -> Hashable:
        """All that the next tokens depend on; ``reach`` is the length of the longest one in bytes."""

    def leaves_choice(self, entered: Entered, written: bytes) -> bool:
        """Whether the component, where it has infinitely many values, still has them here."""
        return True

    def may_close(self, entered: Entered) -> bool:
        """Whether there are enough."""
        return True

    def may_continue(self, entered: Entered, values: NetworkSearch) -> bool:
        """Whether there can be another one, and the rest can come after it."""
        return True

    def leaves_room(self, entered: Entered, values: NetworkSearch) -> bool:
        """Whether those that still have to come can come, now that one has ended."""
        return True

    def is_possible(self, values: NetworkSearch) -> bool | None:
        """Whether enough can come at all; None if that is not known."""
        return True

    def debt(self, entered: Entered, written: bytes | None) -> int:
        """About how many bytes it takes until there are enough, without the automaton's own count."""
        return 0


class Different(Rule):
    """Names or items no two of which may be equal."""

    one_spelling: bool = True  # whether a value has only one text, white space aside

    def key(self, text: bytes) -> bytes:
        """The key of a complete text: a name has only one, itself."""
        return text

    def begun(self, text: bytes) -> Begun:
        """All that is certain of a text that has begun."""
        return Begun(text, is_whole=True, in_string=True)

    def end(self, entered: Entered, written: bytes | None) -> Entered | None:
        """See ``Rule.end``."""
        key = UNKNOWN if written is None else self.key(written)
        return None if key in entered.keys else Entered(entered.keys | {key})

    def is_watched(self, entered: Entered) -> bool:
        """See ``Rule.is_watched``."""
        return not self.is_simple or bool(entered.keys)

    def fits(self, entered: Entered, written: bytes, values: NetworkSearch) -> bool | None:
        """See ``Rule.fits``."""
        return None if self.competing_items(entered, written, values).keys else True

    def competing_items(self, entered: Entered, written: bytes, values: NetworkSearch) -> CompetingItems:
        """The contested keys that the open item may still become."""
        return competing_items(self.contested(entered, values), self.begun(written), written)

    def contested(self, entered: Entered, values: NetworkSearch) -> frozenset[bytes]:
        """The keys that are entered, and those that others may need: with any other key, what has begun can end."""
        return entered.keys

    def state(self, entered: Entered, written: bytes, reach: int) -> Hashable:
        """See ``Rule.state``."""
        return entered.keys, written


@dataclass(frozen=True, eq=False)
class LengthRule(Rule):
    """Bounds on the length of a string of any kind, in characters."""

    low: int
    high: int | None  # the largest number; None is no bound
    string: CountedString  # the string's states in the component
    _choices: ClassVar[int] = 2  # characters: with room for these there are more strings than any text has

    def _count(self, written: bytes) -> int:
        """How many characters there are, with those that are owed."""
        return self.string.characters(written) + self.string.owed_after(written)

    def end(self, entered: Entered, written: bytes | None) -> Entered | None:
        """See ``Rule.end``."""
        if written is not None:
            count = self.string.characters(written)
            if count < self.low or (self.high is not None and count > self.high):
                return None
        return NOTHING_ENTERED

    def bounds(self, count: int, reach: int) -> tuple[int, int | None] | None:
        """How many characters may follow ``count``, at least and at most; None where that restricts no token.

        ``high`` counts as none where as many characters may follow as a token has (``reach`` bytes), and there is
        still a choice then.
        """
        low, high = max(0, self.low - count), None if self.high is None else self.high - count
        if high is not None and high >= reach + self.string.most_owed + self._choices:
            high = None
        return None if not low and high is None else (low, high)

    def is_watched(self, entered: Entered) -> bool:
        """See ``Rule.is_watched``."""
        return True

    def fits(self, entered: Entered, written: bytes, values: NetworkSearch) -> bool:
        """See ``Rule.fits``."""
        if self.high is None or len(written) + self.string.most_owed <= self.high:
            return True
        return self._count(written) <= self.high

    def state(self, entered: Entered, written: bytes, reach: int) -> Hashable:
        """See ``Rule.state``: far from both bounds all counts are the same."""
        count = self.string.characters(written)
        reach += self.string.most_owed + self._choices
        room = reach if self.high is None else min(reach, self.high - count)
        last = written[-CHARACTER_BYTES:]
        return max(0, self.low - count), room, last if b"\\" in last else b""

    def leaves_choice(self, entered: Entered, written: bytes) -> bool:
        """See ``Rule.leaves_choice``."""
        return self.high is None or self._count(written) + self._choices <= self.high

    def debt(self, entered: Entered, written: bytes | None) -> int:
        """See ``Rule.debt``."""
        return 0 if written is None else max(0, self.low - self._count(written))


@dataclass(frozen=True)
class NameRule(Different):
    """Different names, by their texts."""

    required: frozenset[bytes]  # names that have to come
    low: int  # the least number of members
    high: int | None  # the largest number of members; None is no bound
    listed: frozenset[bytes]  # names that are listed, and that can be written
    languages: tuple[int, ...]  # the components of the names that are not listed
    any_order: bool  # whether all names may come everywhere

    def begin(self, entered: Entered, at: int, *, required: bool) -> Entered | None:
        """See ``Rule.begin``."""
        if self.high is None:
            return super().begin(entered, at, required=required)
        room = self.high - len(entered.keys)
        may = room > 0 and (len(self.required - entered.keys) >= room) == required
        return Entered(entered.keys, at) if may else None

    def may_close(self, entered: Entered) -> bool:
        """See ``Rule.may_close``."""
        return len(entered.keys) >= self.low and self.required <= entered.keys

    def may_continue(self, entered: Entered, values: NetworkSearch) -> bool:
        """See ``Rule.may_continue``."""
        count = len(entered.keys)
        if self.high is not None and count >= self.high:
            return False
        return not self.required <= entered.keys or self._has_more_than(count, values)

    def is_possible(self, values: NetworkSearch) -> bool | None:
        """See ``Rule.is_possible``: where names come in an order, those that are left must never run out."""
        if not self.any_order:
            return True if all(map(values.is_unbounded, self.languages)) else None
        if not self.required <= self.listed:
            return False
        if self._has_more_than(self.low - 1, values):
            return True
        return False if all(map(values.are_all_known, self.languages)) else None

    def debt(self, entered: Entered, written: bytes | None) -> int:
        """See ``Rule.debt``."""
        missing = self.required - entered.keys
        others = max(0, self.low - len(entered.keys) - len(missing))
        return sum(len(name) + _MEMBER for name in missing) + _MEMBER * others

    def _has_more_than(self, count: int, values: NetworkSearch) -> bool:
        missing = count - len(self.listed)
        for component in self.languages:
            if missing < 0 or values.more_than(component, missing):
                return True
            missing -= len(values.first(component, missing))
        return missing < 0


@dataclass(frozen=True)
class ItemRule(Different):
    """Different items."""

    items: tuple[int | None, ...]  # the components of the first items, then of all others; None where none may stand
    low: int  # the least number of items
    ordered: bool  # whether equal items have their members in the same order
    one_spelling: bool

    @property
    def is_simple(self) -> bool:
        """See ``Rule.is_simple``."""
        return len(self.items) == 1

    def key(self, text: bytes) -> bytes:
        """See ``Different.key``."""
        return key_of(text, ordered=self.ordered)

    def begun(self, text: bytes) -> Begun:
        """See ``Different.begun``."""
        return begun(text, ordered=self.ordered)

    def may_continue(self, entered: Entered, values: NetworkSearch) -> bool:
        """See ``Rule.may_continue``."""
        return self._has_room(entered.keys, max(self.low, len(entered.keys) + 1), values)

    def leaves_room(self, entered: Entered, values: NetworkSearch) -> bool:
        """See ``Rule.leaves_room``."""
        return self.is_simple or self._has_room(entered.keys, self.low, values)

    def contested(self, entered: Entered, values: NetworkSearch) -> frozenset[bytes]:
        """See ``Different.contested``: items that still have to come, and have few values."""
        if self.is_simple:
            return entered.keys
        count = len(entered.keys)
        following = {*self.items[count + 1 :], self.items[-1]}
        most = max(self.low, count + _AT_ONCE)
        few = [item for item in following if item is not None and not values.more_than(item, most - 1)]
        return entered.keys.union(*(values.first(item, most) for item in few))

    def listed(self, component: int, values: ValueSearch) -> list[Value]:
        """The shortest values of items, of which ways out have some."""
        return values.texts(component, self.low, _LISTED)

    def extra(self, size_of: Callable[[int], int], values: ValueSearch) -> int:
        """Bytes that different items take, where they are as short as they can be, beside those of the shortest."""
        extra = 0
        for index in range(self.low):
            component = self.items[min(index, len(self.items) - 1)]
            lengths = [len(value.text) for value in values.texts(component, self.low)] if component is not None else []
            if component is None or (self.is_simple and len(lengths) < self.low):
                return 0  # there is no such array
            extra += max(0, (lengths[index] if self.is_simple else max(lengths)) - size_of(component))
        return extra

    def is_possible(self, values: NetworkSearch) -> bool | None:
        """See ``Rule.is_possible``."""
        if self._has_room(frozenset(), self.low, values):
            return True
        bounded = [item for item in self.items if item is not None and not values.is_unbounded(item)]
        return False if all(map(values.are_all_known, bounded)) else None

    def _has_room(self, keys: frozenset[bytes], length: int, values: NetworkSearch) -> bool:
        """Whether the array can have this length after these items."""
        choices = []
        for index in range(len(keys), length):
            component = self.items[min(index, len(self.items) - 1)]
            if component is None:
                return False
            if values.more_than(component, length - 1):
                if self.is_simple:
                    return True
                continue  # whatever the others are, there is one more
            if self.is_simple:
                return False
            choices.append([key for key in values.first(component, length) if key not in keys])
        return _are_different(choices)


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
