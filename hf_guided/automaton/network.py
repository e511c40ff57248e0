"""Reads texts by a network: an RTN with registers.

A *frame* is a state of a component, with what is entered in its register, on top of the frames to return to. A text may
be read in several ways, so its state is several frames. Equal frames are one object, and frames that differ only in
where they return to become one (a graph-structured stack), so overlapping recursion does not multiply them.

A byte is read only if the text can still be finished. Without registers every state of a component can; an item or a
name that has begun like one that is entered already must have another way to end (network_search.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from functools import cached_property
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from ..errors import CompileLimitExceeded
from .frame import Frame, Frames, Text
from .network_graph import NetworkGraph
from .network_search import NetworkSearch
from .reached_rules import ReachedRules
from .registers import NOTHING_ENTERED, Entered, Rule
from .rtn import Component, Components, Mark

MAX_FRAMES = 1024  # of one text


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

    Attributes:
        rules, reach, rule: see ``ReachedRules``.
    """

    def __init__(self, components: Components, rule: Callable[[int], Rule | None], *, ordered: bool):
        self.components, self.ordered = components, ordered
        self._rules = ReachedRules(components, rule)
        self.rules, self.reach, self.rule = self._rules.known, self._rules.reach, self._rules.of
        self._moves = _MovesByNumber(components)
        self._frames: WeakValueDictionary[tuple[int, int, Entered | None, tuple[Frame, ...]], Frame]
        self._frames = WeakValueDictionary()

    @cached_property
    def graph(self) -> NetworkGraph:
        """What comes after each state of a component, and how far the ends are."""
        return NetworkGraph(self.components, self._rules.starts_open, self._rules.has_many_values)

    @cached_property
    def search(self) -> NetworkSearch:
        """What may still come."""
        return NetworkSearch(self)

    @cached_property
    def start(self) -> Frames:
        """The frames of a text without a byte."""
        return (self.enter(0, ()),)

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
        self.reach(component)
        entered = NOTHING_ENTERED if component in self.rules else None
        return self.frame(component, self.start_of(component), entered, below)

    def start_of(self, component: int) -> int:
        """The first state of a component."""
        return self._moves[component].start

    def calls(self, component: int, state: int) -> list[tuple[int, int]]:
        """What is called in a state: the callee, or the mark, and the state after it."""
        return self._moves[component].calls.get(state, [])

    def accepts(self, component: int, state: int) -> bool:
        """Whether the component may end in a state."""
        return self._moves[component].accepting[state]

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
            raise CompileLimitExceeded(f"the native engine reads the text in more than {MAX_FRAMES} ways at once")
        return list(reached)

    def _asked(self, mark: Mark, frame: Frame, text: Text) -> Entered | None:
        """What is entered after a mark; None if the register refuses it."""
        entered, rule = frame.entered, self.rules[frame.component]
        assert entered is not None
        if mark in (Mark.BEGIN, Mark.BEGIN_REQUIRED):
            return rule.begin(entered, text.end, required=mark == Mark.BEGIN_REQUIRED)
        if mark == Mark.END:
            return rule.end(entered, text.since(entered.begin))
        may = rule.may_close(entered) if mark == Mark.CLOSE else rule.may_continue(entered, self.search)
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
                    fits = rule.fits(owner.entered, written, self.search)
                    if fits is False or (fits is None and not self.search.can_end(frame, owner, above, text)):
                        return False
                    leaves_choice = rule.leaves_choice(owner.entered, written)
            if leaves_choice:
                above.append(owner)
        return True

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
