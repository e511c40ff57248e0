"""The values of a network's components, found by reading their texts: the shortest first."""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Generator, Iterator
from functools import cache, cached_property, partial
from itertools import count, islice, takewhile
from typing import NamedTuple

from .after_fork import Shared
from .component_tables import ComponentTables
from .frame_machine import FrameMachine
from .network import Network
from .token_trie import TokenTrie, trie_of
from .written_values import OUTSIDE, SPACE, key_of, lexed

_MOST_LOOKS = 100_000  # texts looked at for all values of a component; several times as many may come next
_MOST_NEXT = 200_000  # these
_FEW_LOOKS = 1_000  # texts looked at for some values that may be left out
# Texts in a row that mean values which are known: in all spellings there are infinitely many texts.
_MOST_REPEATED = 500
_HELD_LOOKS = 100  # texts looked at whose sets are held
_READABLE = b'"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ _'
_LETTERS = [*_READABLE, *(byte for byte in range(256) if byte not in _READABLE)]  # the order to take them in


class Value(NamedTuple):
    """A value, by its key, and its text."""

    key: bytes
    text: bytes
    looks: int = 0  # texts looked at before it was found


class ValueSearch(Shared):
    """The values of a network's components; thread safe."""

    def __init__(self, network: Network):
        self._network = network
        self._known: dict[int, _Kept] = {}
        super().__init__()

    def more_than(self, component: int, number: int) -> bool:
        """Whether a component has more different values."""
        return self.is_unbounded(component) or len(self.first(component, number + 1)) > number

    def is_unbounded(self, component: int) -> bool:
        """Whether there is any number of values, also where some of them are not wanted."""
        return self._network.graph.is_unbounded(component, self._network.components[component].dfa.start)

    def texts(self, component: int, low: int, high: int = 0) -> list[Value]:
        """``low`` different values, and up to ``high`` if that is quick; fewer where no more were found."""
        with self._lock:
            kept = self._of(component)
            found = list(islice(kept, low))
            if low < high:
                found += islice(kept.quick(), low, high)
            kept.rest()
            return found

    def first(self, component: int, number: int) -> list[bytes]:
        """The keys of these values."""
        return [value.key for value in self.texts(component, number)]

    def are_all_known(self, component: int) -> bool:
        """Whether ``first`` has found all values there are."""
        with self._lock:
            return self._of(component).are_all

    @cached_property
    def _tables(self) -> ComponentTables:
        return ComponentTables(_single_bytes())

    def _of(self, component: int) -> _Kept:
        kept = self._known.get(component)
        if kept is None:
            # A machine for each: while it reads, it may ask for the values of components inside.
            values, network, tables = weakref.proxy(self), self._network, self._tables
            kept = self._known[component] = _Kept(
                lambda: FrameMachine(network, tables, (), lambda number: None, values, lists=False),
                component,
                network.ordered,
            )
        return kept


class _Kept:
    """The values of a component, as far as they were asked for; ``are_all`` if there are no others."""

    def __init__(self, machine: Callable[[], FrameMachine], component: int, ordered: bool):
        self._search = partial(_found, machine, component, ordered)
        self._known: list[Value] = []
        self._left: Iterator[Value | None] | None = self._search(0)
        self.are_all = self._is_slow = False

    def __iter__(self) -> Iterator[Value]:
        return self._found()

    def quick(self) -> Iterator[Value]:
        """The values that are found in few looks."""
        return takewhile(lambda value: value.looks <= _FEW_LOOKS, self._found(is_quick=True))

    def rest(self) -> None:
        """Hold no large machine: the search begins again where more is asked for."""
        if self._left is not None and (self._is_slow or (self._known and self._known[-1].looks > _HELD_LOOKS)):
            self._left = self._search(len(self._known))

    def _found(self, *, is_quick: bool = False) -> Iterator[Value]:
        for index in count():
            while index == len(self._known):
                if self._left is None or (is_quick and self._is_slow):
                    return
                try:
                    value = next(self._left)
                except StopIteration as end:
                    self._left, self.are_all = None, bool(end.value)
                    return
                if value is None:
                    self._is_slow = True
                else:
                    self._known.append(value)
            yield self._known[index]


def _found(
    new_machine: Callable[[], FrameMachine], component: int, ordered: bool, known: int
) -> Generator[Value | None, None, bool]:
    """The values after some that are known; None once where it takes long. Returns whether they are all."""
    machine = new_machine()
    keys: set[bytes] = set()
    seen = repeated = looks = 0
    with machine.lock:
        queue = [(0, 0, 0, b"", OUTSIDE, machine.enter(component))]
    while queue and looks < _MOST_LOOKS and seen < _MOST_NEXT:
        looks += 1
        if looks == _FEW_LOOKS:
            yield None
        *_, text, place, number = heapq.heappop(queue)  # the one of equally short texts that has come furthest
        with machine.lock:
            is_whole, onwards = machine.is_completed(number), machine.onwards(number)
            for byte in _LETTERS:
                to = onwards[byte]
                if not to or (byte in SPACE and place == OUTSIDE and _means_nothing(onwards, machine.onwards(to))):
                    continue
                seen += 1
                rank = len(text) + 1 + machine.size(to), -len(text), -seen
                heapq.heappush(queue, (*rank, text + bytes((byte,)), lexed(place, byte), to))
        if is_whole:
            key = key_of(text, ordered=ordered)
            repeated = repeated + 1 if key in keys else 0
            if repeated > _MOST_REPEATED:
                return False
            keys.add(key)
            if not repeated and len(keys) > known:
                yield Value(key, text, looks)
    return not queue


def _means_nothing(without: list[int], spaced: list[int]) -> bool:
    """Whether white space need not come: what comes after it may come at once."""
    return any(without[byte] and spaced[byte] for byte in range(256) if byte not in SPACE)


@cache
def _single_bytes() -> TokenTrie:
    return trie_of([bytes((byte,)) for byte in range(256)], range(256), 256)
