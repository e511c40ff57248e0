"""What may still come where a network reads: ways to the end of what has begun, and the values of a component.

Where an item or a name may be one that is entered already, and the automata alone do not know another one, ways are
tried, the shortest first.
"""

from __future__ import annotations

import heapq
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import reduce
from itertools import count
from typing import Protocol

from .after_fork import renew_in_child
from .frame import Frame, Frames, Text
from .network_graph import NetworkGraph
from .registers import Different, Entered, Rule
from .shortest_paths import UNREACHABLE
from .written_values import OUTSIDE, SPACE, key_of, lexed

_MAX_SEARCH = 5_000  # frames looked at for one way to end
_MAX_ENDINGS = 20_000  # remembered
_EXACTLY = 1 << 30  # more bytes than any bound
_MAX_VALUES = 100_000  # frames looked at for all values of a component


class Reader(Protocol):
    """What reads: see ``Network``."""

    rules: dict[int, Rule]
    ordered: bool

    @property
    def graph(self) -> NetworkGraph:
        """See ``Network.graph``."""
        ...

    def start_of(self, component: int) -> int:
        """Its first state."""
        ...

    def accepts(self, component: int, state: int) -> bool:
        """See ``Network.accepts``."""
        ...

    def frame(self, component: int, state: int, entered: Entered | None, below: tuple[Frame, ...]) -> Frame:
        """See ``Network.frame``."""
        ...

    def enter(self, component: int, below: tuple[Frame, ...]) -> Frame:
        """See ``Network.enter``."""
        ...

    def everywhere(self, frames: Iterable[Frame], text: Text) -> list[Frame]:
        """See ``Network.everywhere``."""
        ...

    def is_completed(self, frames: Frames, text: Text) -> bool:
        """See ``Network.is_completed``."""
        ...

    def place(self, frame: Frame, text: Text, reach: int, last: Frame | None = None) -> Hashable:
        """See ``Network.place``."""
        ...


class NetworkSearch:
    """Searches in one network; thread safe. It has the values of components, see ``registers.Values``.

    Args:
        reader: the network.
    """

    def __init__(self, reader: Reader):
        self._reader: Reader = weakref.proxy(reader)  # or only a full collection could free either
        self._graph = reader.graph
        self._values: dict[int, _Values] = {}
        self._endings: dict[Hashable, bool] = {}
        self.shortcut: Callable[[Frame, Frame, Text], bool] | None = None  # see ``ExitTexts.can_end``
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._lock = threading.RLock()

    def can_end(self, frame: Frame, owner: Frame, above: Iterable[Frame], text: Text) -> bool:
        """Whether what has begun in a frame can end as an item or a name that is not entered yet.

        Args:
            frame: after the text.
            owner: the frame in which it has begun.
            above: frames from there on up where ways without number are certain, if the automaton has them.
            text: so far.
        """
        if any(self._graph.is_unbounded(place.component, place.state) for place in above):
            return True
        rule, entered = self._reader.rules[owner.component], owner.entered
        assert entered is not None
        if isinstance(rule, Different) and rule.is_simple and _is_level(frame, owner):
            endings, written = self._graph.endings(frame.component, frame.state), text.since(entered.begin)
            if endings is not None and written is not None:
                return any(rule.key(written + ending) not in entered.keys for ending in endings)
        key = self._reader.place(frame, text, _EXACTLY, owner)
        known = self._endings.get(key)
        if known is None:
            shortcut = self.shortcut
            known = (shortcut is not None and shortcut(frame, owner, text)) or self._has_ending(frame, owner, text)
            if len(self._endings) >= _MAX_ENDINGS:
                self._endings.clear()
            self._endings[key] = known
        return known

    def _has_ending(self, frame: Frame, owner: Frame, text: Text) -> bool:
        rule, entered = self._reader.rules[owner.component], owner.entered
        assert entered is not None
        width = 1 + sum(len(place.entered.keys) for place in frame.stack() if place.entered is not None)
        for frames, _ in self.ways(frame, text, owner, width, _MAX_SEARCH):
            for place in frames:
                if _is_level(place, owner) and place.entered is not None and not place.entered.has_begun:
                    if rule.leaves_room(place.entered, self):
                        return True
        return False

    def ways(
        self, frame: Frame, text: Text, owner: Frame | None, width: int, most: int
    ) -> Iterator[tuple[list[Frame], Text]]:
        """Ways to go on that mean different values, the shortest first: where each leads, and its text.

        Args:
            frame: where to begin.
            text: so far; what belongs to a string that has begun is at hand.
            owner: where to stop: what has begun there has ended.
            width: bytes tried of each class: those that lead to the same state differ only in what is entered.
            most: frames looked at.
        """
        order = count(1)
        written = None if owner is None or owner.entered is None else text.since(owner.entered.begin)
        queue = [(self._distance(frame, owner, text), 0, 0, reduce(lexed, written or b"", OUTSIDE), frame, text)]
        for _ in range(most):
            if not queue:
                return
            *_, inside, frame, text = heapq.heappop(queue)  # of equally short ways the one that has come furthest
            frames = self._reader.everywhere([frame], text)
            yield frames, text
            for place in frames:
                if owner is not None and not _is_inside(place, owner):
                    continue
                is_above = owner is None or not _is_level(place, owner)
                below = min((self._distance(under, owner, text) for under in place.below), default=0) if is_above else 0
                for byte, state in self._graph.moves(place.component, place.state, width):
                    after = self._reader.frame(place.component, state, place.entered, place.below)
                    if byte in SPACE and inside == OUTSIDE and self._means_nothing(place, after):
                        continue
                    longer = text.plus(bytes((byte,)))
                    # The distance is not looked at where it is not needed: it takes all components that may come.
                    length = len(longer.path) + (below + self._own_distance(after, longer) if is_above else 0)
                    if length < UNREACHABLE:
                        rank = length, -len(longer.path), -next(order)
                        heapq.heappush(queue, (*rank, lexed(inside, byte), after, longer))

    def _means_nothing(self, place: Frame, after: Frame) -> bool:
        """Whether white space need not come: the same may come without it, or the component end."""
        component, distance = place.component, self._graph.distance
        if distance(component, after.state) < distance(component, place.state):
            return False
        if self._reader.accepts(component, place.state):
            return True
        without = dict(self._graph.moves(component, place.state, 256))
        return any(without.get(byte) == to for byte, to in self._graph.moves(component, after.state, 256))

    def _distance(self, frame: Frame, owner: Frame | None, text: Text) -> int:
        """Bytes to the end of the components above the owner, or of all, at least."""
        total = 0
        for place in frame.stack():
            if owner is not None and _is_level(place, owner):
                break
            total += self._own_distance(place, text)
        return total

    def _own_distance(self, frame: Frame, text: Text) -> int:
        """Bytes to the end of the frame's component, and those of what its register still wants."""
        distance = self._graph.distance(frame.component, frame.state)
        if frame.entered is None:
            return distance
        written = text.since(frame.entered.begin) if frame.entered.has_begun else None
        return distance + self._reader.rules[frame.component].debt(frame.entered, written)

    # -- values

    def more_than(self, component: int, count: int) -> bool:
        """See ``registers.Values``."""
        return self.is_unbounded(component) or len(self.first(component, count + 1)) > count

    def is_unbounded(self, component: int) -> bool:
        """See ``registers.Values``."""
        return self._graph.is_unbounded(component, self._reader.start_of(component))

    def first(self, component: int, count: int) -> list[bytes]:
        """See ``registers.Values``."""
        with self._lock:
            return self._values_of(component).first(count)

    def are_all_known(self, component: int) -> bool:
        """See ``registers.Values``."""
        with self._lock:
            return self._values_of(component).are_all_known

    def _values_of(self, component: int) -> _Values:
        values = self._values.get(component)
        if values is None:
            values = self._values[component] = _Values(weakref.proxy(self), self._reader, component)
        return values


def _is_level(place: Frame, owner: Frame) -> bool:
    """Whether both are in the same array or object of a text."""
    return place.below == owner.below and place.component == owner.component


def _is_inside(place: Frame, owner: Frame) -> bool:
    """Whether what has begun in the owner has not ended."""
    return any(_is_level(frame, owner) and frame.entered == owner.entered for frame in place.stack())


class _Values:
    """The values of a component, the shortest first, as many as were asked for."""

    def __init__(self, search: NetworkSearch, reader: Reader, component: int):
        self.are_all_known = False
        self._keys: dict[bytes, None] = {}
        self._left = self._all(search, reader, component)

    def first(self, count: int) -> list[bytes]:
        """The keys of the first ``count`` values; of all, if there are fewer."""
        while len(self._keys) < count:
            key = next(self._left, None)
            if key is None:
                break
            self._keys[key] = None
        return list(self._keys)[:count]

    def _all(self, search: NetworkSearch, reader: Reader, component: int) -> Iterator[bytes]:
        looked_at = 0
        for frames, text in search.ways(reader.enter(component, ()), Text(b"", 0), None, 256, _MAX_VALUES):
            looked_at += 1
            if reader.is_completed(tuple(frames), text):
                yield key_of(text.path, ordered=reader.ordered)
        self.are_all_known = looked_at < _MAX_VALUES
