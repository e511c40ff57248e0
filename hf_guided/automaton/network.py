"""Reads texts by a network: an RTN with registers.

A *frame* is a state of a component, with what is entered in its register, on top of the frames to return to. A text may
be read in several ways, so its state is several frames. Equal frames are one object, and frames that differ only in
where they return to become one (a graph-structured stack), so overlapping recursion does not multiply them.

A byte is read only if the text can still be finished. Without registers every state of a component can; an item or a
name that has begun like one that is entered already must have another way to end, which is searched (``_can_end``).
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from functools import cached_property, reduce
from itertools import count
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..errors import CompileLimitExceeded
from ..schema.registers import Mark
from .after_fork import renew_in_child
from .network_graph import NetworkGraph
from .registers import NOTHING_ENTERED, Different, Entered, Rule
from .rtn import Component, Components
from .shortest_paths import UNREACHABLE
from .written_values import OUTSIDE, SPACE, key_of, lexed

MAX_FRAMES = 1024  # of one text
_MAX_SEARCH = 5_000  # frames looked at for one way to end
_MAX_ENDINGS = 20_000  # remembered
_EXACTLY = 1 << 30  # more bytes than any bound
_MAX_VALUES = 100_000  # frames looked at for all values of a component


class Frame:
    """A state of a row; only ``Network.frame`` creates it.

    Args:
        component: its number.
        state: in the component.
        entered: in the component's register; None if it has none.
        below: the frames after the component; none for the root. Several only where nothing has begun in any.
        rule: of the component.
    """

    __slots__ = ("__weakref__", "below", "component", "entered", "has_begun", "is_watched", "state")

    def __init__(
        self, component: int, state: int, entered: Entered | None, below: tuple[Frame, ...], rule: Rule | None
    ):
        self.component, self.state, self.entered, self.below = component, state, entered, below
        self.has_begun = False  # whether something has begun, here or below; and whether it may not end as it likes
        self.is_watched = False
        if below:
            self.has_begun, self.is_watched = below[0].has_begun, below[0].is_watched
        if entered is not None and rule is not None and entered.has_begun:
            self.has_begun, self.is_watched = True, self.is_watched or rule.is_watched(entered)

    def stack(self) -> Iterator[Frame]:
        """This frame and those below, as far as there is one each: so all in which something has begun."""
        frame = self
        yield frame
        while len(frame.below) == 1:
            (frame,) = frame.below
            yield frame


Frames = tuple[Frame, ...]


class Text(NamedTuple):
    """A text that is being read, in two parts.

    Args:
        before: the first part; None if it is not at hand.
        begin: where the second part begins.
        path: the second part.
    """

    before: bytes | bytearray | None
    begin: int
    path: bytes = b""

    @property
    def end(self) -> int:
        """The length of both."""
        return self.begin + len(self.path)

    def since(self, begin: int) -> bytes | None:
        """The text from a place on; None if it is not at hand."""
        if begin >= self.begin:
            return self.path[begin - self.begin :]
        return None if self.before is None else bytes(self.before[begin : self.begin]) + self.path

    def plus(self, data: bytes) -> Text:
        """The text with more bytes."""
        return Text(self.before, self.begin, self.path + data)


class _Moves(NamedTuple):
    """The moves of a component, for one look at a time.

    Args:
        table: a row for each state.
        classes: the length of a row.
        letters: the class of each byte.
        start: its first state.
        calls: of each state that has some: the callee, or the mark, and the state after it.
        accepting: of each state, whether the component may end.
    """

    table: memoryview[int]
    classes: int
    letters: bytes
    start: int
    calls: dict[int, list[tuple[int, int]]]
    accepting: list[bool]

    @classmethod
    def of(cls, component: Component) -> _Moves:
        """Those of a component."""
        dfa = component.dfa
        table = np.ascontiguousarray(dfa.table, np.int32)
        byte_class = dfa.byte_class.astype(np.uint8).tobytes()
        calls: dict[int, list[tuple[int, int]]] = {}
        for callee, after_call in component.calls:
            for state in np.flatnonzero(after_call).tolist():
                calls.setdefault(state, []).append((callee, int(after_call[state])))
        return cls(
            table.data.cast("B").cast("i"), dfa.table.shape[1], byte_class, dfa.start, calls, dfa.accepting.tolist()
        )


class _MovesByNumber(dict[int, _Moves]):
    """The moves of components, each made when it is first asked for: the compiled loops need none.

    Args:
        components: by number.
    """

    def __init__(self, components: Components):
        super().__init__()
        self._components = components

    def __missing__(self, component: int) -> _Moves:
        moves = self[component] = _Moves.of(self._components[component])
        return moves


class Network:
    """A network; thread safe.

    Args:
        components: the root first; only those that a text reaches are looked up, and may be built then.
        rule: of the register of a component, by number; None if it has none.
        ordered: whether equal values have their members in the same order.
    """

    def __init__(self, components: Components, rule: Callable[[int], Rule | None], *, ordered: bool):
        self.components, self._rule, self.ordered = components, rule, ordered
        self.rules: dict[int, Rule] = {}  # of the components that were reached
        self._moves = _MovesByNumber(components)
        self._reached: set[int] = set()
        self.graph = NetworkGraph(components, self._starts_open)
        self._frames: WeakValueDictionary[tuple[int, int, Entered | None, tuple[Frame, ...]], Frame]
        self._frames = WeakValueDictionary()
        self._values: dict[int, _Values] = {}
        self._endings: dict[Hashable, bool] = {}
        self._renew_locks()
        renew_in_child(self)

    @cached_property
    def start(self) -> Frames:
        """The frames of a text without a byte."""
        return (self.enter(0, ()),)

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()
        self._reach_lock = threading.Lock()  # taken last: the graph asks for rules too

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._renew_locks()

    def reach(self, component: int) -> None:
        """Build a component, if it is not there yet, and its rule."""
        with self._reach_lock:
            if component not in self._reached:
                _ = self.components[component]
                rule = self._rule(component)
                if rule is not None:
                    self.rules[component] = rule
                self._reached.add(component)  # last, for other threads look here

    def rule(self, component: int) -> Rule | None:
        """Of the register of a component; None if it has none."""
        self.reach(component)
        return self.rules.get(component)

    def _starts_open(self, component: int) -> bool:
        rule = self.rule(component)
        return rule is not None and rule.starts_open

    # -- frames

    def frame(self, component: int, state: int, entered: Entered | None, below: tuple[Frame, ...]) -> Frame:
        """The frame; as a rule the same object for equal ones."""
        key = component, state, entered, below
        known = self._frames.get(key)
        if known is None:
            known = self._frames[key] = Frame(component, state, entered, below, self.rules.get(component))
        return known

    def enter(self, component: int, below: tuple[Frame, ...]) -> Frame:
        """The frame at the start of a component."""
        if component not in self._reached:
            self.reach(component)
        entered = NOTHING_ENTERED if component in self.rules else None
        return self.frame(component, self._moves[component].start, entered, below)

    def leaves(self, component: int, state: int) -> bool:
        """Whether anything but bytes may come in a state."""
        moves = self._moves[component]
        return moves.accepting[state] or state in moves.calls

    def everywhere(self, frames: Iterable[Frame], text: Text) -> list[Frame]:
        """These frames, and those that calls, marks and the ends of components lead to."""
        reached = dict.fromkeys(frames)
        todo = list(reached)
        while todo:
            frame = todo.pop()
            component, state, entered, below = frame.component, frame.state, frame.entered, frame.below
            moves = self._moves[component]
            more: list[Frame] = []
            if moves.accepting[state]:
                more += below
            for callee, after in moves.calls.get(state, ()):
                if callee >= 0:
                    more.append(self.enter(callee, (self.frame(component, after, entered, below),)))
                elif (then := self._asked(Mark(callee), frame, text)) is not None:
                    more.append(self.frame(component, after, then, below))
            for frame in more:
                if frame not in reached:
                    reached[frame] = None
                    todo.append(frame)
        if len(reached) > MAX_FRAMES:
            raise CompileLimitExceeded(f"the network reads the text in more than {MAX_FRAMES} ways at once")
        return list(reached)

    def _asked(self, mark: Mark, frame: Frame, text: Text) -> Entered | None:
        """What is entered after a mark; None if the register refuses it."""
        entered, rule = frame.entered, self.rules[frame.component]
        assert entered is not None
        if mark in (Mark.BEGIN, Mark.BEGIN_REQUIRED):
            return rule.begin(entered, text.end, required=mark == Mark.BEGIN_REQUIRED)
        if mark == Mark.END:
            return rule.end(entered, text.since(entered.begin))
        may = rule.may_close(entered) if mark == Mark.CLOSE else rule.may_continue(entered, self)
        return entered if may else None

    def is_completed(self, frames: Frames, text: Text) -> bool:
        """Whether the text may end."""
        return any(
            not frame.below and self._moves[frame.component].accepting[frame.state]
            for frame in self.everywhere(frames, text)
        )

    # -- reading

    def read(self, frames: Frames, data: bytes, text: Text) -> Frames:
        """The frames after some more bytes; empty if they do not fit.

        Args:
            frames: after ``text``.
            data: the bytes.
            text: before them.
        """
        for byte in data:
            after = self.moved(self.everywhere(frames, text), byte)
            text = text.plus(bytes((byte,)))
            frames = tuple(frame for frame in after if self.is_alive(frame, text))
        return frames

    def moved(self, frames: Iterable[Frame], byte: int) -> Frames:
        """The frames after one byte, without a look at registers."""
        after: dict[Frame, None] = {}
        for frame in frames:
            moves = self._moves[frame.component]
            state = moves.table[frame.state * moves.classes + moves.letters[byte]]
            if state:
                after[self.frame(frame.component, state, frame.entered, frame.below)] = None
        return self._together(after)

    def _together(self, frames: Collection[Frame]) -> tuple[Frame, ...]:
        """Frames with one instead of those that differ only in where they return to, and in which nothing has begun."""
        if len(frames) == 1:
            return tuple(frames)
        alike: dict[Hashable, list[Frame]] = {}
        for frame in frames:
            alone = frame if frame.has_begun else not frame.below
            alike.setdefault((frame.component, frame.state, frame.entered, alone), []).append(frame)
        return tuple(some[0] if len(some) == 1 else self._one(some) for some in alike.values())

    def _one(self, alike: list[Frame]) -> Frame:
        below = self._together(dict.fromkeys(under for frame in alike for under in frame.below))
        return self.frame(alike[0].component, alike[0].state, alike[0].entered, below)

    def next_bytes(self, frames: Frames, text: Text) -> set[int]:
        """The bytes that may come, as far as automata know."""
        following: set[int] = set()
        for frame in self.everywhere(frames, text):
            following.update(byte for byte, _ in self.graph.moves(frame.component, frame.state, 256))
        return following

    def is_alive(self, frame: Frame, text: Text) -> bool:
        """Whether every item and name that has begun can become one that is not entered yet."""
        if not frame.is_watched:
            return True
        above: list[Frame] = []  # those that leave a choice, where a component has one
        for owner in frame.stack():
            if not owner.is_watched:
                break
            leaves_choice = True
            if owner.entered is not None and owner.entered.has_begun:
                rule, written = self.rules[owner.component], text.since(owner.entered.begin)
                if written is not None:  # else it is known to fit
                    fits = rule.fits(owner.entered, written)
                    if fits is False or (fits is None and not self._can_end_anyhow(frame, owner, above, text)):
                        return False
                    leaves_choice = rule.leaves_choice(owner.entered, written)
            if leaves_choice:
                above.append(owner)
        return True

    def _can_end_anyhow(self, frame: Frame, owner: Frame, above: Iterable[Frame], text: Text) -> bool:
        """Whether what has begun in a frame can end: certainly where there are ways without number above it."""
        if any(self.graph.is_unbounded(place.component, place.state) for place in above):
            return True
        rule, entered = self.rules[owner.component], owner.entered
        assert entered is not None
        if isinstance(rule, Different) and rule.is_simple and _is_level(frame, owner):
            endings, written = self.graph.endings(frame.component, frame.state), text.since(entered.begin)
            if endings is not None and written is not None:
                return any([rule.key(written + ending) not in entered.keys for ending in endings])
        return self._can_end(frame, owner, text)

    def _can_end(self, frame: Frame, owner: Frame, text: Text) -> bool:
        """Whether the item or name that has begun in a frame can end as one that is not entered yet."""
        key = self.place(frame, text, _EXACTLY, owner)
        known = self._endings.get(key)
        if known is None:
            known = self._has_ending(frame, owner, text)
            if len(self._endings) >= _MAX_ENDINGS:
                self._endings.clear()
            self._endings[key] = known
        return known

    def place(self, frame: Frame, text: Text, reach: int, last: Frame | None = None) -> Hashable:
        """What the next bytes depend on.

        Args:
            frame: after the text.
            text: so far.
            reach: how many bytes.
            last: the lowest frame that matters; None is the root.
        """
        parts: list[Hashable] = []
        for place in frame.stack():
            if not place.has_begun:
                parts.append(place)
                break
            entered: Hashable = place.entered
            if place.entered is not None and place.entered.has_begun:
                written = text.since(place.entered.begin)
                if written is not None:
                    entered = self.rules[place.component].state(place.entered, written, reach)
            parts.append((place.component, place.state, entered))
            if place is last:
                break
        return tuple(parts)

    def _has_ending(self, frame: Frame, owner: Frame, text: Text) -> bool:
        rule, entered = self.rules[owner.component], owner.entered
        assert entered is not None
        for frames, _ in self.search(frame, text, owner, len(entered.keys) + 1, _MAX_SEARCH):
            for place in frames:
                if _is_level(place, owner) and place.entered is not None and not place.entered.has_begun:
                    if rule.leaves_room(place.entered, self):
                        return True
        return False

    def search(
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
        queue = [(self._distance(frame, owner), 0, 0, reduce(lexed, written or b"", OUTSIDE), frame, text)]
        for _ in range(most):
            if not queue:
                return
            *_, inside, frame, text = heapq.heappop(queue)  # of equally short ways the one that has come furthest
            frames = self.everywhere([frame], text)
            yield frames, text
            for place in frames:
                if owner is not None and not _is_inside(place, owner):
                    continue
                is_above = owner is None or not _is_level(place, owner)
                below = min((self._distance(under, owner) for under in place.below), default=0) if is_above else 0
                for byte, state in self.graph.moves(place.component, place.state, width):
                    after = self.frame(place.component, state, place.entered, place.below)
                    if byte in SPACE and inside == OUTSIDE and not self._is_nearer(after, place):
                        continue  # it means nothing
                    longer = text.plus(bytes((byte,)))
                    # The distance is not looked at where it is not needed: it takes all components that may come.
                    length = len(longer.path) + (below + self._own_distance(after) if is_above else 0)
                    if length < UNREACHABLE:
                        rank = length, -len(longer.path), -next(order)
                        heapq.heappush(queue, (*rank, lexed(inside, byte), after, longer))

    def _is_nearer(self, frame: Frame, before: Frame) -> bool:
        """Whether a frame is nearer to the end of the component than another one."""
        distance = self.graph.distance
        return distance(frame.component, frame.state) < distance(before.component, before.state)

    def _distance(self, frame: Frame, owner: Frame | None) -> int:
        """Bytes to the end of the components above the owner, or of all, at least."""
        total = 0
        for place in frame.stack():
            if owner is not None and _is_level(place, owner):
                break
            total += self._own_distance(place)
        return total

    def _own_distance(self, frame: Frame) -> int:
        """Bytes to the end of the frame's component, and those of what its register still wants."""
        distance = self.graph.distance(frame.component, frame.state)
        return distance if frame.entered is None else distance + self.rules[frame.component].debt(frame.entered)

    # -- values

    def more_than(self, component: int, count: int) -> bool:
        """See ``registers.Values``."""
        return self.is_unbounded(component) or len(self.first(component, count + 1)) > count

    def is_unbounded(self, component: int) -> bool:
        """See ``registers.Values``."""
        return self.graph.is_unbounded(component, self.components[component].dfa.start)

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
            values = self._values[component] = _Values(self, component)
        return values


def _is_level(place: Frame, owner: Frame) -> bool:
    """Whether both are in the same array or object of a text."""
    return place.below == owner.below and place.component == owner.component


def _is_inside(place: Frame, owner: Frame) -> bool:
    """Whether what has begun in the owner has not ended."""
    return any(_is_level(frame, owner) and frame.entered == owner.entered for frame in place.stack())


class _Values:
    """The values of a component, the shortest first, as many as were asked for."""

    def __init__(self, network: Network, component: int):
        self.are_all_known = False
        self._keys: dict[bytes, None] = {}
        self._left = self._all(network, component)

    def first(self, count: int) -> list[bytes]:
        """The keys of so many values, or of all."""
        while len(self._keys) < count:
            key = next(self._left, None)
            if key is None:
                break
            self._keys[key] = None
        return list(self._keys)[:count]

    def _all(self, network: Network, component: int) -> Iterator[bytes]:
        looked_at = 0
        for frames, text in network.search(network.enter(component, ()), Text(b"", 0), None, 256, _MAX_VALUES):
            looked_at += 1
            if network.is_completed(tuple(frames), text):
                yield key_of(text.path, ordered=network.ordered)
        self.are_all_known = looked_at < _MAX_VALUES
