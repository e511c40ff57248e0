"""A network of automata that call each other: what a stack of return addresses makes of finite automata.

A *frame* is one automaton over bytes in which some moves are calls: the text of another frame stands there. A call is
built as bytes that no UTF-8 text has, and taken out again once the automaton is minimal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .limits import WorkMeter
from .nfa import NfaBuilder

_FIRST = 0xF5  # bytes from here on are in no UTF-8 text
_DIGITS = 256 - _FIRST
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Frame:
    """One automaton.

    Args:
        dfa: its moves by bytes; a state from which only calls lead on may look as if it had no way out.
        calls: the frame that is called, and for each state the one behind the call, 0 where there is no such call.
    """

    dfa: ByteDfa
    calls: tuple[tuple[int, NDArray[np.int64]], ...] = ()


class FrameBuilder(NfaBuilder):
    """An NFA some of whose moves are calls."""

    def __init__(self, meter: WorkMeter):
        super().__init__(meter)
        self.callees: dict[Hashable, int] = {}
        self._pending: list[tuple[int, int, int]] = []

    def call(self, callee: Hashable, start: int, end: int) -> None:
        """The texts of another frame between two states."""
        self._pending.append((start, self.callees.setdefault(callee, len(self.callees)), end))

    def frame(self, start: int, end: int, number: Callable[[Hashable], int]) -> Frame:
        """The minimal automaton of all ways from one state to the other.

        Args:
            start: where they begin.
            end: where they end.
            number: of a callee.
        """
        width = 1
        while _DIGITS**width < len(self.callees):
            width += 1
        for source, callee, target in self._pending:
            *digits, last = _code(callee, width)
            for digit in digits:
                before, source = source, self.state()
                self.edge(before, digit, digit, source)
            self.edge(source, last, last, target)
        dfa = self.dfa(start, end)
        calls = []
        for name, callee in self.callees.items():
            behind = np.arange(dfa.states)
            for digit in _code(callee, width):
                behind = dfa.table[behind, dfa.byte_class[digit]].astype(np.int64)
            calls.append((number(name), behind))
        return Frame(_text_alone(dfa) if calls else dfa, tuple(calls))


def _code(callee: int, width: int) -> list[int]:
    return [_FIRST + callee // _DIGITS**place % _DIGITS for place in range(width)]


def _text_alone(dfa: ByteDfa) -> ByteDfa:
    """The automaton without the moves by bytes that stand for calls."""
    kept, byte_class = np.unique(dfa.byte_class[:_FIRST], return_inverse=True)
    table = np.concatenate((dfa.table[:, kept], np.zeros((dfa.states, 1), dfa.table.dtype)), 1)
    classes = np.full(256, len(kept))
    classes[:_FIRST] = byte_class.reshape(-1)
    return ByteDfa(table, classes.astype(np.uint8), dfa.accepting, dfa.start)


def network(root: Name, build: Callable[[Name, FrameBuilder], tuple[int, int]], meter: WorkMeter) -> list[Frame]:
    """All frames that the root calls, itself the first.

    Args:
        root: its name.
        build: adds what one frame is to a builder, and gives the states before and behind it.
        meter: limits of them all.
    """
    numbers: dict[Any, int] = {root: 0}
    frames: list[Frame] = []
    states = 0
    names = [root]

    def number(name: Any) -> int:
        if name not in numbers:
            numbers[name] = len(names)
            names.append(name)
        return numbers[name]

    for name in names:  # grows meanwhile
        builder = FrameBuilder(meter)
        start, end = build(name, builder)
        frames.append(builder.frame(start, end, number))
        states += frames[-1].dfa.states
        meter.check_states(states)
    return frames


def callers(frames: Iterable[Frame]) -> dict[int, set[int]]:
    """For each frame those that call it."""
    found: dict[int, set[int]] = {}
    for number, frame in enumerate(frames):
        for callee, _ in frame.calls:
            found.setdefault(callee, set()).add(number)
    return found
