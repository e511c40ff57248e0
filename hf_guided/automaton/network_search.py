"""Searches where a network reads: ways to the end of an open item, and the values of a component.

Where an item or a name may be one that is entered already, and the automata alone do not know another one, ways are
tried, the shortest first.
"""

from __future__ import annotations

import heapq
import weakref
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from functools import reduce
from itertools import count, islice, takewhile
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakMethod

from .after_fork import Shared
from .frame import Frame, Text, is_level
from .frame_exits import UNREACHABLE
from .registers import Different, Entered
from .rtn import Mark
from .written_values import OUTSIDE, SPACE, key_of, lexed

if TYPE_CHECKING:
    from .network import Network

_MAX_SEARCH = 5_000  # frames looked at for one way to end
_MAX_ENDINGS, _MAX_OTHERS = 20_000, 300  # remembered
_EXACTLY = 1 << 30  # more bytes than any bound
_MAX_VALUES = 100_000  # frames looked at for all values of a component
_MAX_REPEATED = 500  # texts in a row that mean values which are known: in all spellings there are infinitely many texts


Found = TypeVar("Found")


class NetworkSearch(Shared):
    """Searches in one network, and the values of its components; thread safe."""

    def __init__(self, network: Network):
        self._network: Network = weakref.proxy(network)  # or only a full collection could free either
        self._graph = network.graph
        self._ways = _Ways(self._network)
        self._values: dict[int, _Kept[bytes]] = {}
        self._endings: dict[Hashable, bool] = {}
        self._after_items: dict[tuple[int, int], int] = {}  # a state of an array after an item of a component
        self._others: dict[Hashable, _Kept[tuple[bytes, bytes]]] = {}
        self.shortcut: WeakMethod[Callable[[Frame, Frame, Text], bool]] | None = None  # see ``ExitTexts.can_end``
        super().__init__()

    def can_end(self, frame: Frame, owner: Frame, above: Iterable[Frame], text: Text) -> bool:
        """Whether an item or name that is open in ``owner`` can end as one that is not entered yet.

        ``above`` are frames from there up in which infinitely many values are certain, if the automaton has them.
        """
        if any(self._graph.is_unbounded(place.component, place.state) for place in above):
            return True
        rule, entered = self._network.rules[owner.component], owner.entered
        assert entered is not None
        if isinstance(rule, Different) and rule.is_simple and is_level(frame, owner):
            endings, written = self._graph.endings(frame.component, frame.state), text.since(entered.begin)
            if endings is not None and written is not None:
                return any(rule.key(written + ending) not in entered.keys for ending in endings)
        key = self._network.place(frame, text, _EXACTLY, owner)
        known = self._endings.get(key)
        if known is None:
            shortcut = None if self.shortcut is None else self.shortcut()
            known = (shortcut is not None and shortcut(frame, owner, text)) or self._has_ending(frame, owner, text)
            if len(self._endings) >= _MAX_ENDINGS:
                self._endings.clear()
            self._endings[key] = known
        return known

    def _has_ending(self, frame: Frame, owner: Frame, text: Text) -> bool:
        width = 1 + sum(len(place.entered.keys) for place in frame.stack() if place.entered is not None)
        return self.another(frame, owner, text, width) is not None

    def another(self, frame: Frame, owner: Frame, text: Text, width: int) -> bytes | None:
        """The shortest way to end what is open in ``owner`` as one that is not entered and leaves room for the rest.

        ``width`` bytes of each class are tried, at least. None if no way was found.
        """
        rule, entered = self._network.rules[owner.component], owner.entered
        assert entered is not None
        # Where other items are entered, or more of them, the ways are the same: they are found once.
        network, stack = self._network, [*frame.stack()]
        above = [*takewhile(lambda place: not is_level(place, owner), stack)]
        state = stack[len(above)].state  # not the owner's, which may be from before the item
        calls = network.calls(owner.component, state)
        if not above and len(calls) == 1 and calls[0][0] >= 0 and not self._graph.moves(owner.component, state, 1):
            above, state = [network.enter(calls[0][0], ())], calls[0][1]
        if above and Mark.END in [mark for mark, _ in network.calls(owner.component, state)]:
            state = self._after_items.setdefault((owner.component, above[-1].component), state)
        bare = below = network.frame(owner.component, state, Entered(begin=entered.begin), owner.below)
        for place in reversed(above):
            bare = network.frame(place.component, place.state, place.entered, (bare,))
        written = text.since(entered.begin)
        if written is not None:
            text = Text(None, entered.begin, written)  # the rest changes with the row
        width = 1 << (width - 1).bit_length()
        key = self._network.place(bare, text, _EXACTLY, below), width
        with self._lock:
            others = self._others.get(key)
            if others is None:
                if len(self._others) >= _MAX_OTHERS:
                    self._others.clear()
                others = self._others[key] = _Kept(_ends(self._ways, bare, below, text, width))
            for path, item in others:
                if item not in entered.keys and rule.leaves_room(Entered(entered.keys | {item}), self):
                    return path
        return None

    def more_than(self, component: int, count: int) -> bool:
        """Whether a component has more different values."""
        return self.is_unbounded(component) or len(self.first(component, count + 1)) > count

    def is_unbounded(self, component: int) -> bool:
        """Whether there is any number of values, also where some of them are not wanted."""
        return self._graph.is_unbounded(component, self._network.start_of(component))

    def first(self, component: int, count: int) -> list[bytes]:
        """The keys of ``count`` different values; fewer where there are no more, or no more were found."""
        with self._lock:
            return list(islice(self._values_of(component), count))

    def are_all_known(self, component: int) -> bool:
        """Whether ``first`` has found all values there are."""
        with self._lock:
            return self._values_of(component).are_all

    def _values_of(self, component: int) -> _Kept[bytes]:
        values = self._values.get(component)
        if values is None:
            values = self._values[component] = _Kept(_values(self._ways, self._network, component))
        return values


class _Ways:
    def __init__(self, network: Network):
        self._network, self._graph = network, network.graph

    def __call__(
        self, frame: Frame, text: Text, owner: Frame | None, width: int, most: int
    ) -> Iterator[tuple[list[Frame], Text]]:
        """Ways to continue that mean different values, the shortest first: where each leads, and its text.

        The text of a string that has begun is at hand. They stop where what has begun in ``owner`` has ended. Of each
        class ``width`` bytes are tried, and one more for each item of an inner list, which none of the next items may
        repeat: bytes that lead to the same state differ only in what is entered. At most ``most`` frames are looked at.
        """
        order = count(1)
        written = None if owner is None or owner.entered is None else text.since(owner.entered.begin)
        queue = [(self._distance(frame, owner, text), 0, 0, reduce(lexed, written or b"", OUTSIDE), frame, text)]
        for _ in range(most):
            if not queue:
                return
            *_, inside, frame, text = heapq.heappop(queue)  # the one of equally short ways that has come furthest
            frames = self._network.everywhere([frame], text, owner)
            yield frames, text
            for place in frames:
                if owner is not None and not place.is_inside(owner):
                    continue
                is_above = owner is None or not is_level(place, owner)
                below = min((self._distance(under, owner, text) for under in place.below), default=0) if is_above else 0
                for byte, state in self._graph.moves(place.component, place.state, width + _inner_items(place, owner)):
                    after = self._network.frame(place.component, state, place.entered, place.below)
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
        if self._network.accepts(component, place.state):
            return True
        without = dict(self._graph.moves(component, place.state, 256))
        return any(without.get(byte) == to for byte, to in self._graph.moves(component, after.state, 256))

    def _distance(self, frame: Frame, owner: Frame | None, text: Text) -> int:
        """Bytes to the end of the components above the owner, or of all, at least."""
        total = 0
        for place in frame.stack():
            if owner is not None and is_level(place, owner):
                break
            total += self._own_distance(place, text)
        return total

    def _own_distance(self, frame: Frame, text: Text) -> int:
        """Bytes to the end of the frame's component, and those of what its register still wants."""
        distance = self._graph.distance(frame.component, frame.state)
        if frame.entered is None:
            return distance
        written = text.since(frame.entered.begin) if frame.entered.has_begun else None
        return distance + self._network.rules[frame.component].debt(frame.entered, written)


def _inner_items(place: Frame, owner: Frame | None) -> int:
    """The number of items entered in the lists inside of the one that is searched for."""
    if owner is None:
        return 0
    inner = takewhile(lambda under: not is_level(under, owner), place.stack())
    return sum([len(under.entered.keys) for under in inner if under.entered is not None])


class _Kept(Generic[Found]):
    """The results of a generator, as far as it was asked for; ``are_all`` if it has ended and says so."""

    def __init__(self, left: Generator[Found, None, bool]):
        self._known: list[Found] = []
        self._left, self.are_all = left, False

    def __iter__(self) -> Iterator[Found]:
        for index in count():
            if index == len(self._known):
                try:
                    self._known.append(next(self._left))
                except StopIteration as end:
                    self.are_all |= bool(end.value)
                    return
            yield self._known[index]


def _ends(
    ways: _Ways, frame: Frame, owner: Frame, text: Text, width: int
) -> Generator[tuple[bytes, bytes], None, bool]:
    """The ways to end an open item, the shortest first, each with the key of the item."""
    for frames, there in ways(frame, text, owner, width, _MAX_SEARCH):
        for place in frames:
            if not place.is_inside(owner) and place.entered is not None:
                (key,) = place.entered.keys
                yield there.path[len(text.path) :], key
    return False


def _values(ways: _Ways, network: Network, component: int) -> Generator[bytes, None, bool]:
    """The keys of a component's values, the shortest first."""
    keys: set[bytes] = set()
    repeated = looked_at = 0
    for frames, text in ways(network.enter(component, ()), Text(b"", 0), None, 256, _MAX_VALUES):
        looked_at += 1
        if network.is_completed(tuple(frames), text):
            key = key_of(text.path, ordered=network.ordered)
            repeated = repeated + 1 if key in keys else 0
            if repeated > _MAX_REPEATED:
                return False
            if not repeated:
                keys.add(key)
                yield key
    return looked_at < _MAX_VALUES
