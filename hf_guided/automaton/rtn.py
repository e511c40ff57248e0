"""Recursive transition networks (RTNs): finite automata that call each other, with a stack of return addresses.

A *component* is one automaton over bytes in which some moves are calls: the text of another component comes there. A
call is built as bytes that no UTF-8 text has, and is removed again once the automaton is minimal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..regex import Node
from ..schema.registers import Mark
from .byte_dfa import ByteDfa
from .language_cache import language_dfa
from .limits import WorkMeter
from .nfa import NfaBuilder

_FIRST = 0xF5  # bytes from here on are in no UTF-8 text
_DIGITS = 256 - _FIRST
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Component:
    """One automaton.

    Args:
        dfa: its moves by bytes; a state that has only calls may look as if it had no path to the end.
        calls: the called component, or a ``Mark`` of a register; and for each state the state after it, 0 where there
            is none.
    """

    dfa: ByteDfa
    calls: tuple[tuple[int, NDArray[np.int64]], ...] = ()


class ComponentBuilder(NfaBuilder):
    """An NFA in which some moves are calls."""

    def __init__(self, meter: WorkMeter):
        super().__init__(meter)
        self.callees: dict[Hashable, int] = {}
        self._pending: list[tuple[int, int, int]] = []

    def call(self, callee: Hashable, start: int, end: int) -> None:
        """Add the texts of another component between two states."""
        self._pending.append((start, self.callees.setdefault(callee, len(self.callees)), end))

    def component(self, start: int, end: int, number: Callable[[Hashable], int]) -> Component:
        """The minimal automaton of all paths from one state to the other.

        Args:
            start: where the paths begin.
            end: where the paths end.
            number: gives the number of a callee.
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
            after_call = np.arange(dfa.states)
            for digit in _code(callee, width):
                after_call = dfa.table[after_call, dfa.byte_class[digit]].astype(np.int64)
            calls.append((number(name), after_call))
        return Component(_text_alone(dfa) if calls else dfa, tuple(calls))


def _code(callee: int, width: int) -> list[int]:
    return [_FIRST + callee // _DIGITS**digit % _DIGITS for digit in range(width)]


def _text_alone(dfa: ByteDfa) -> ByteDfa:
    """The automaton without the moves by bytes that encode calls."""
    kept, byte_class = np.unique(dfa.byte_class[:_FIRST], return_inverse=True)
    table = np.concatenate((dfa.table[:, kept], np.zeros((dfa.states, 1), dfa.table.dtype)), 1)
    classes = np.full(256, len(kept))
    classes[:_FIRST] = byte_class.reshape(-1)
    return ByteDfa(table, classes.astype(np.uint8), dfa.accepting, dfa.start)


def build_rtn(
    root: Name | Node, build: Callable[[Name, ComponentBuilder], tuple[int, int]], meter: WorkMeter
) -> dict[Name | Node, Component]:
    """Build the RTN of a root.

    Args:
        root: its name. A component may also be called by a regular language, its texts.
        build: adds a component of a name to a builder, and returns its first and its last state.
        meter: limits for all components in total.

    Returns:
        All components that are called, by name, in the order of their numbers; the root's is 0.
    """
    numbers: dict[Any, int] = {root: 0}
    components: dict[Name | Node, Component] = {}
    states = 0
    names = [root]

    def number(name: Any) -> int:
        if isinstance(name, Mark):
            return int(name)
        if name not in numbers:
            numbers[name] = len(names)
            names.append(name)
        return numbers[name]

    for name in names:  # grows meanwhile
        if isinstance(name, Node):
            components[name] = Component(language_dfa(name, meter))
        else:
            builder = ComponentBuilder(meter)
            start, end = build(name, builder)
            components[name] = builder.component(start, end, number)
        states += components[name].dfa.states
        meter.check_states(states)
    return components


def callers(components: Iterable[Component]) -> dict[int, set[int]]:
    """For each component the components that call it."""
    callers_of: dict[int, set[int]] = {}
    for number, component in enumerate(components):
        for callee, _ in component.calls:
            callers_of.setdefault(callee, set()).add(number)
    return callers_of
