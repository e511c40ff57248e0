"""The values of a network's components, found by reading their texts: the shortest first."""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Generator, Iterator
from functools import cache, cached_property
from itertools import count, islice, takewhile
from typing import NamedTuple

from .after_fork import Shared
from .component_tables import ComponentTables
from .frame_exits import ANY_LETTERS
from .frame_machine import FrameMachine
from .network import Network
from .token_trie import trie_of
from .written_values import OUTSIDE, SPACE, key_of, lexed

_MOST_LOOKS = 100_000  # texts looked at for all values of a component; several times as many may come next
_MOST_NEXT = 200_000  # these
_FEW_LOOKS = 1_000  # texts looked at for some values that may be left out
_MOST_REPEATED = (
    500  # texts in a row that mean values which are known: in all spellings there are infinitely many texts
)
_LETTERS: list[int] = ANY_LETTERS[:-1].tolist()


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
            found = list(islice(self._of(component), low))
            if low < high:
                found += islice(self._of(component).quick(), low, high)
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
        return ComponentTables(trie_of(*_single_bytes()))

    def _of(self, component: int) -> _Kept:
        kept = self._known.get(component)
        if kept is None:
            # One for each: while it reads, it may ask for the values of components inside.
            values = weakref.proxy(self)
            machine = FrameMachine(self._network, self._tables, (), lambda number: None, values, lists=False)
            kept = self._known[component] = _Kept(_found(machine, component, ordered=self._network.ordered))
        return kept


class _Kept:
    """The results of a generator, as far as it was asked for; ``are_all`` if it has ended and says so."""

    def __init__(self, left: Generator[Value | None, None, bool]):
        self._known: list[Value] = []
        self._left, self.are_all, self._is_slow = left, False, False

    def __iter__(self) -> Iterator[Value]:
        return self._found()

    def quick(self) -> Iterator[Value]:
        """Those that are found in few looks."""
        return takewhile(lambda value: value.looks <= _FEW_LOOKS, self._found(is_quick=True))

    def _found(self, *, is_quick: bool = False) -> Iterator[Value]:
        for index in count():
            while index == len(self._known):
                if is_quick and self._is_slow:
                    return
                try:
                    value = next(self._left)
                except StopIteration as end:
                    self.are_all |= bool(end.value)
                    return
                if value is None:
                    self._is_slow = True
                else:
                    self._known.append(value)
            yield self._known[index]


def _found(machine: FrameMachine, component: int, *, ordered: bool) -> Generator[Value | None, None, bool]:
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
            if not repeated:
                keys.add(key)
                yield Value(key, text, looks)
    return not queue


def _means_nothing(without: list[int], spaced: list[int]) -> bool:
    """Whether white space need not come: what comes after it may come at once."""
    return any(without[byte] and spaced[byte] for byte in range(256) if byte not in SPACE)


@cache
def _single_bytes() -> tuple[list[bytes], list[int], int]:
    return [bytes((byte,)) for byte in range(256)], list(range(256)), 256
