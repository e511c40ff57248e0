"""Recursive transition networks (RTNs): finite automata that call each other, with a stack of return addresses.

A *component* is one automaton over bytes in which some moves are calls: the text of another component comes there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..options import CompileLimits
from ..regex import Node
from .after_fork import Shared
from .byte_dfa import ByteDfa
from .core import CORE, address
from .counted_string import CountedString
from .fragments import Literal
from .limits import WorkMeter
from .lru_bytes import ByteCache
from .nfa import NfaBuilder, language_dfa

_FIRST_CALL = 0xF5  # while an automaton is built, calls are rows of bytes that no UTF-8 text has: those from here on
_DIGITS = 256 - _FIRST_CALL
_KEPT_BYTES, _KEY_BYTES = 4 * 2**20, 16 * 2**10  # maximum bytes of kept automata, and estimated bytes of one key
_MOST_PIECES = 200  # maximum number of pieces of a kept automaton
Name = TypeVar("Name", bound=Hashable)


class LaterLanguage(ABC):
    """A regular language that is worked out when its component is built; hashable."""

    @property
    @abstractmethod
    def language(self) -> Node:
        """The texts of the language."""


Language: TypeAlias = Node | LaterLanguage  # a component may also be called by its texts


class Mark(IntEnum):
    """A move without a text, where a register is asked, or changed; the callee of a call."""

    BEGIN = -1  # here an item begins, or the name of a member
    BEGIN_REQUIRED = -2  # here the name of a member begins that is still missing, because there is no room for others
    END = -3  # the item, or the name, ends here
    MORE = -4  # another item or member will come
    CLOSE = -5  # none will come


@dataclass(frozen=True, eq=False)
class Component:
    """Automaton of one component, and its calls."""

    # Moves by bytes; a state that has only calls may look as if it had no path to the end. Components share one DFA if
    # only their callees differ.
    dfa: ByteDfa
    after_calls: NDArray[np.int32]  # (calls, states) the state after each call; 0 where there is none
    callees: tuple[int, ...]  # the called component of each call, or a ``Mark`` of a register

    @classmethod
    def without_calls(cls, dfa: ByteDfa) -> Component:
        """The component of a regular language."""
        return cls(dfa, np.empty((0, dfa.states), np.int32), ())

    @property
    def called(self) -> list[int]:
        """The components among its callees."""
        return [callee for callee in self.callees if callee >= 0]

    @cached_property
    def calls(self) -> tuple[tuple[int, NDArray[np.int32]], ...]:
        """Each callee, and for each state the state after it."""
        return tuple(zip(self.callees, self.after_calls, strict=True))

    @cached_property
    def leaves(self) -> NDArray[np.bool_]:
        """(states,) whether anything but bytes may come: a call, or the end."""
        return self.after_calls.any(0) | self.dfa.accepting if self.callees else self.dfa.accepting

    @cached_property
    def counted_string(self) -> CountedString:
        """The string between the calls of ``Mark.BEGIN`` and ``Mark.END``; in JSON a quote comes before the first."""
        begin, end = self.after_calls
        return CountedString.of(self.dfa, int(begin.max()), end, in_json=not begin[self.dfa.start])

    @property
    def nbytes(self) -> int:
        """Bytes of memory the arrays take."""
        return self.dfa.nbytes + self.after_calls.nbytes


class ComponentBuilder(NfaBuilder):
    """An NFA in which some moves are calls."""

    def __init__(self, meter: WorkMeter):
        super().__init__(meter, in_pieces=True)
        self.callees: dict[Hashable, int] = {}
        self._pending: list[tuple[int, tuple[bytes | int, ...], int]] = []

    def call(self, callee: Hashable, start: int, end: int) -> None:
        """Add the texts of another component between two states."""
        self.row((callee,), start, end)

    def row(self, parts: Iterable[Hashable], start: int, end: int) -> None:
        """Add a row of words, which are bytes, and of the texts of other components between two states."""
        callees = self.callees
        row = [part if isinstance(part, bytes) else callees.setdefault(part, len(callees)) for part in parts]
        self._pending.append((start, tuple(row), end))

    def component(self, start: int, end: int, number: Callable[[Hashable], int]) -> Component:
        """The minimal automaton of all paths from one state to the other; ``number`` gives those of callees."""
        key, work_before = self._key(start, end), self._meter.work
        kept = None if key is None else _kept_automata.get(key)
        if kept is not None:
            self._meter.spend(kept.work)  # earlier compiles must not decide what is served
        else:
            dfa, after_calls = self._automaton(start, end)
            kept = _KeptAutomaton(dfa, after_calls, self._meter.work - work_before)
            if key is not None:
                _kept_automata.put(key, kept)
        return Component(kept.dfa, kept.after_calls, tuple(map(number, self.callees)))

    def _key(self, start: int, end: int) -> Hashable | None:
        """A key that equal NFAs share; None for automata with property names, which other schemas rarely have."""
        literals = [part for _, row, _ in self._pending for part in row if isinstance(part, bytes)]
        pieces = [(source, getattr(piece, "data", piece), target) for source, piece, target in self._pieces]
        literals += [piece for _, piece, _ in pieces if isinstance(piece, bytes)]
        if len(pieces) > _MOST_PIECES or any([literal.startswith(b'"') for literal in literals]):
            return None
        parts = tuple(pieces), tuple(self._pending), tuple(self._skips), tuple(self._repetitions)
        return start, end, self._states, len(self.callees), parts, self._meter.limits

    def _automaton(self, start: int, end: int) -> tuple[ByteDfa, NDArray[np.int32]]:
        codes = call_codes(len(self.callees))
        self._meter.spend(len(self._pending))
        alike = dict[bytes, Literal]()  # commas and colons are many
        for source, row, target in self._pending:
            data = b"".join([part if isinstance(part, bytes) else codes[part] for part in row])
            self._pieces.append((source, alike.get(data) or alike.setdefault(data, Literal(data)), target))
        dfa = self.dfa(start, end)
        return dfa, take_calls(dfa, codes)


class _KeptAutomaton(NamedTuple):
    dfa: ByteDfa
    after_calls: NDArray[np.int32]
    work: int  # the steps that it took to make it

    @property
    def nbytes(self) -> int:
        return self.dfa.nbytes + self.after_calls.nbytes + _KEY_BYTES


_kept_automata: ByteCache[_KeptAutomaton] = ByteCache(_KEPT_BYTES)


@lru_cache(maxsize=256)
def call_codes(callees: int) -> tuple[bytes, ...]:
    """The bytes that stand for each callee, as many for each."""
    width = 1
    while _DIGITS**width < callees:
        width += 1
    return tuple(bytes(_FIRST_CALL + callee // _DIGITS**i % _DIGITS for i in range(width)) for callee in range(callees))


def take_calls(dfa: ByteDfa, codes: Sequence[bytes]) -> NDArray[np.int32]:
    """(callees, states) the state after each call, 0 where there is none, taken out of an automaton.

    The automaton, which nothing else has yet, is written in place; it has bytes of the ``codes`` in calls alone. A byte
    of texts that leads wherever a call does is of the same class as that call's code, and its moves stay.
    """
    if not codes:
        return np.empty((0, dfa.states), np.int32)
    after_calls: NDArray[np.int32] = np.empty((len(codes), dfa.states), np.int32)
    narrow, wide = (address(dfa.table), None) if dfa.table.dtype == np.uint16 else (None, address(dfa.table))
    automaton = narrow, wide, *dfa.table.shape, address(dfa.byte_class)
    CORE.take_calls(*automaton, b"".join(codes), len(codes), len(codes[0]), address(after_calls))
    return after_calls


class Rtn(Shared, Generic[Name]):
    """The components of an RTN by number, each built when it is first needed; thread safe.

    A component is called by a name, or by a regular language, its texts; the root has number 0. ``build`` adds a
    component of a name to a builder, and returns its first and its last state. ``limits`` are of each component alone,
    for those that are built later: outside of a compile nothing counts the total.
    """

    def __init__(
        self,
        root: Name | Language,
        build: Callable[[Name, ComponentBuilder], tuple[int, int]],
        limits: CompileLimits | None = None,
    ):
        super().__init__()
        self._build, self._limits = build, limits
        self._numbers: dict[Name | Language, int] = {root: 0}
        self._names = [root]
        self._components: dict[int, Component] = {}

    def __len__(self) -> int:
        """Number of components, as far as those that are built call others."""
        return len(self._names)

    def __getitem__(self, number: int) -> Component:
        component = self._components.get(number)
        return self.built(number, WorkMeter(self._limits)) if component is None else component

    def name(self, number: int) -> Name | Language:
        """The name or language of a component."""
        return self._names[number]

    def known_number(self, name: Name | Language) -> int | None:
        """The number of the component of a name; None if nothing that is built calls it."""
        return self._numbers.get(name)

    def number(self, name: Name | Language) -> int:
        """The number of the component of a name: a new one, if nothing has called it."""
        with self._lock:
            number = self._numbers.get(name)
            if number is None:
                number = self._numbers[name] = len(self._names)
                self._names.append(name)
            return number

    def built(self, number: int, meter: WorkMeter) -> Component:
        """The component, built within limits if it is not there yet; its callees get numbers."""
        with self._lock:
            component = self._components.get(number)
            if component is None:
                component = self._components[number] = self._new(self._names[number], meter)
            return component

    def _new(self, name: Name | Language, meter: WorkMeter) -> Component:
        if isinstance(name, (Node, LaterLanguage)):
            language = name if isinstance(name, Node) else name.language
            return Component.without_calls(language_dfa(language, meter))
        builder = ComponentBuilder(meter)
        start, end = self._build(name, builder)
        return builder.component(start, end, self._callee)

    def _callee(self, name: Any) -> int:  # the number of a call in a builder
        return int(name) if isinstance(name, Mark) else self.number(name)


Components: TypeAlias = Sequence[Component] | Rtn[Any]  # by number


def build_rtn(
    root: Name | Language, build: Callable[[Name, ComponentBuilder], tuple[int, int]], meter: WorkMeter
) -> dict[Name | Language, Component]:
    """All components of an RTN (see ``Rtn``), by name, in the order of their numbers; the meter limits their total."""
    rtn, states = Rtn(root, build), 0
    components: dict[Name | Language, Component] = {}
    while len(components) < len(rtn):
        number = len(components)
        components[rtn.name(number)] = component = rtn.built(number, meter)
        states += component.dfa.states
        meter.check_states(states)
    return components


def callers(components: Mapping[int, Component]) -> dict[int, set[int]]:
    """For each component the components that call it."""
    callers_of: dict[int, set[int]] = {}
    for number, component in components.items():
        for callee, _ in component.calls:
            callers_of.setdefault(callee, set()).add(number)
    return callers_of
