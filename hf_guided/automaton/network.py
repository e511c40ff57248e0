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
from weakref import WeakValueDictionary

import numpy as np

from ..errors import CompileLimitExceeded
from .after_fork import Shared
from .frame import Frame, Frames, Text
from .network_graph import NetworkGraph
from .network_search import NetworkSearch
from .registers import NOTHING_ENTERED, Entered, LengthRule, Rule
from .rtn import Component, Components, Mark

MAX_FRAMES = 1024  # maximum number of frames of one text
EXACTLY = 1 << 30  # more bytes than any bound


class _Moves:
    """The moves of a component, for one look at a time."""

    def __init__(self, component: Component):
        dfa = component.dfa
        # A row of ``classes`` states for each state.
        self.table: memoryview[int] = np.ascontiguousarray(dfa.table, np.int32).data.cast("B").cast("i")
        self.classes, self.start = dfa.table.shape[1], dfa.start
        self.letters: bytes = dfa.byte_class.astype(np.uint8).tobytes()
        self.accepting: list[bool] = dfa.accepting.tolist()
        self.calls: dict[int, list[tuple[int, int]]] = {}  # by state: callee or mark, and state after
        for callee, after_call in component.calls:
            for state in np.flatnonzero(after_call).tolist():
                self.calls.setdefault(state, []).append((callee, int(after_call[state])))


class Network(Shared):
    """A network; thread safe.

    Only components that a text reaches are looked up, and may be built then; ``rules`` are theirs. The root is the
    first. ``rule`` gives the rule of a component's register, by number; None if it has none. ``ordered`` says whether
    equal values have their members in the same order.
    """

    def __init__(self, components: Components, rule: Callable[[int], Rule | None], *, ordered: bool):
        self.components, self.ordered, self._new_rule = components, ordered, rule
        self.rules: dict[int, Rule] = {}
        self._reached: set[int] = set()
        self._known_moves: dict[int, _Moves] = {}
        self._frames: WeakValueDictionary[tuple[int, int, Entered | None, tuple[Frame, ...]], Frame]
        self._frames = WeakValueDictionary()
        super().__init__()

    def reach(self, component: int) -> None:
        """Build a component, if it is not there yet, and its rule."""
        if component in self._reached:
            return
        with self._lock:
            if component not in self._reached:
                _ = self.components[component]
                rule = self._new_rule(component)
                if rule is not None:
                    self.rules[component] = rule
                self._reached.add(component)  # last, for other threads look here

    def rule(self, component: int) -> Rule | None:
        """The rule of a component's register; None if it has none."""
        self.reach(component)
        return self.rules.get(component)

    def _moves(self, component: int) -> _Moves:
        moves = self._known_moves.get(component)
        if moves is None:  # the compiled loops need none
            moves = self._known_moves[component] = _Moves(self.components[component])
        return moves

    @cached_property
    def graph(self) -> NetworkGraph:
        """Facts about the states of components."""
        return NetworkGraph(self)

    @cached_property
    def search(self) -> NetworkSearch:
        """Searches for what may still come."""
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
        return self._moves(component).start

    def calls(self, component: int, state: int) -> list[tuple[int, int]]:
        """The calls in a state: the callee, or the mark, and the state after it."""
        return self._moves(component).calls.get(state, [])

    def accepts(self, component: int, state: int) -> bool:
        """Whether the component may end in a state."""
        return self._moves(component).accepting[state]

    def leaves(self, component: int, state: int) -> bool:
        """Whether anything but bytes may come in a state."""
        moves = self._moves(component)
        return moves.accepting[state] or state in moves.calls

    def everywhere(self, frames: Iterable[Frame], text: Text, owner: Frame | None = None) -> list[Frame]:
        """The frames, and those that calls, marks and the ends of components lead to.

        With an ``owner``, the array or object of a frame, none after the end of what is open there.
        """
        reached = dict.fromkeys(frames)
        todo = list(reached)
        while todo:
            frame = todo.pop()
            if owner is not None and not frame.is_inside(owner):
                continue
            component, state, entered, below = frame.component, frame.state, frame.entered, frame.below
            moves = self._moves(component)
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
        """The register after a mark; None if it refuses the mark."""
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
            not frame.below and self._moves(frame.component).accepting[frame.state]
            for frame in self.everywhere(frames, text)
        )

    # -- reading

    def read(self, frames: Frames, data: bytes, text: Text) -> Frames:
        """The frames after ``text`` and some more bytes; empty if they do not fit."""
        for byte in data:
            after = self.moved(self.everywhere(frames, text), byte)
            text = text.plus(bytes((byte,)))
            frames = tuple(frame for frame in after if self.is_productive(frame, text))
        return frames

    def moved(self, frames: Iterable[Frame], byte: int) -> Frames:
        """The frames after one byte, without a look at registers."""
        after: dict[Frame, None] = {}
        for frame in frames:
            moves = self._moves(frame.component)
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
        together = []
        for frame, *others in alike.values():
            if others:
                below = self._together(dict.fromkeys(under for one in (frame, *others) for under in one.below))
                frame = self.frame(frame.component, frame.state, frame.entered, below)
            together.append(frame)
        return tuple(together)

    def next_bytes(self, frames: Frames, text: Text) -> set[int]:
        """The bytes that may come, as far as automata know."""
        following: set[int] = set()
        for frame in self.everywhere(frames, text):
            following.update(byte for byte, _ in self.graph.moves(frame.component, frame.state, 256))
        return following

    def is_productive(self, frame: Frame, text: Text) -> bool:
        """Whether every item and name that has begun can become one that is not entered yet."""
        if not frame.is_watched:
            return True
        above: list[Frame] = []  # frames that leave a choice, where a component has one
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

    def open_string(self, frame: Frame) -> LengthRule | None:
        """The rule of the counted string that is open in a frame's own component."""
        rule = self.rules.get(frame.component)
        if isinstance(rule, LengthRule) and frame.entered is not None and frame.entered.has_begun:
            return rule
        return None

    def bounds(self, frame: Frame, text: Text, reach: int) -> tuple[int, int | None] | None:
        """How many characters may follow in that string: see ``LengthRule.bounds``."""
        rule = self.open_string(frame)
        if rule is None or frame.entered is None:
            return None
        written = text.since(frame.entered.begin)
        assert written is not None
        return rule.bounds(rule.string.characters(written), reach)

    def place(self, frame: Frame, text: Text, reach: int, last: Frame | None = None) -> Hashable:
        """All that the next ``reach`` bytes depend on, from the frames down to ``last``; None is the root."""
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
