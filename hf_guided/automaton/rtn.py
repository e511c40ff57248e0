"""Recursive transition networks (RTNs): finite automata that call each other, with a stack of return addresses.

A *component* is one automaton over bytes in which some moves are calls: the text of another component comes there.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..options import CompileLimits
from ..regex import Node
from .after_fork import renew_in_child
from .byte_dfa import ByteDfa
from .call_codes import call_codes, take_calls
from .counted_string import CountedString
from .fragments import Fragment, Literal
from .limits import WorkMeter
from .lru_bytes import ByteCache
from .nfa import NfaBuilder, language_dfa

_KEPT_BYTES, _LARGEST_KEPT = 8 * 2**20, 512 * 2**10  # of all shapes, and of one: a large one would push out hundreds
_QUOTE = ord('"')
_MOST_PIECES = 1_000  # of an NFA whose shape is kept
_PIECE_BYTES = 200  # of the key of a kept shape, for each piece
Name = TypeVar("Name", bound=Hashable)


class LaterLanguage(ABC):
    """A regular language that is worked out when its component is built; hashable."""

    @property
    @abstractmethod
    def language(self) -> Node:
        """Its texts."""


Language: TypeAlias = Node | LaterLanguage  # a component may also be called by its texts


class Mark(IntEnum):
    """A move without a text, where a register is asked, or told something; the callee of a call."""

    BEGIN = -1  # here an item begins, or the name of a member
    BEGIN_REQUIRED = -2  # here the name of a member begins that is still missing, because there is no room for others
    END = -3  # the item, or the name, ends here
    MORE = -4  # another item or member will come
    CLOSE = -5  # none will come


@dataclass(frozen=True, eq=False)
class Shape:
    """A component but for what it calls: components that differ only there share one, as a rule.

    Args:
        dfa: its moves by bytes; a state that has only calls may look as if it had no path to the end.
        after_calls: (calls, states) int32, the state after each call; 0 where there is none.
    """

    dfa: ByteDfa
    after_calls: NDArray[np.int32]

    @cached_property
    def leaves(self) -> NDArray[np.bool_]:
        """(states,) whether anything but bytes may come: a call, or the end."""
        return self.after_calls.any(0) | self.dfa.accepting if len(self.after_calls) else self.dfa.accepting

    @cached_property
    def counted_string(self) -> CountedString:
        """The string between the calls of ``Mark.BEGIN`` and ``Mark.END``; in JSON a quote comes before the first."""
        begin, end = self.after_calls
        return CountedString.of(self.dfa, int(begin.max()), end, in_json=not begin[self.dfa.start])

    @property
    def string_of_any_spelling(self) -> CountedString:
        """That string, if its characters have several spellings."""
        return CountedString.of_any_spelling(self.dfa, int(self.after_calls[0].max()))

    @property
    def nbytes(self) -> int:
        """Bytes of memory the arrays take."""
        return self.dfa.nbytes + self.after_calls.nbytes


@dataclass(frozen=True, eq=False)
class Component:
    """One automaton.

    Args:
        shape: all of it but what it calls.
        callees: of each call of the shape the called component, or a ``Mark`` of a register.
    """

    shape: Shape
    callees: tuple[int, ...] = ()

    @classmethod
    def without_calls(cls, dfa: ByteDfa) -> Component:
        """That of a regular language."""
        return cls(Shape(dfa, np.empty((0, dfa.states), np.int32)))

    @property
    def dfa(self) -> ByteDfa:
        """See ``Shape``."""
        return self.shape.dfa

    @property
    def called(self) -> list[int]:
        """The components among its callees."""
        return [callee for callee in self.callees if callee >= 0]

    @cached_property
    def calls(self) -> tuple[tuple[int, NDArray[np.int32]], ...]:
        """Each callee, and for each state the state after it."""
        return tuple(zip(self.callees, self.shape.after_calls, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return Component, (self.shape, self.callees)


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
        """The minimal automaton of all paths from one state to the other.

        Args:
            start: where the paths begin.
            end: where the paths end.
            number: gives the number of a callee.
        """
        shape = self._kept_shape(start, end) if self._is_usual else self._shape(start, end)
        return Component(shape, tuple(map(number, self.callees)))

    @property
    def _is_usual(self) -> bool:
        """Whether another schema may well have an equal one: none that has names of its own."""
        if len(self._pieces) > _MOST_PIECES:
            return False
        words = [part for _, row, _ in self._pending for part in row if isinstance(part, bytes)]
        words += [piece.data for _, piece, _ in self._pieces if isinstance(piece, Literal)]
        return not any([word[0] == _QUOTE for word in words])

    def _kept_shape(self, start: int, end: int) -> Shape:
        """The same object for equal NFAs: strings, and lists of a few types, are in every schema."""
        content, alike = [], dict[Hashable, Fragment | Literal]()
        for i, (source, piece, target) in enumerate(self._pieces):
            of_piece = piece.content, isinstance(piece, Literal)
            content.append((source, of_piece, target))
            self._pieces[i] = source, alike.setdefault(of_piece, piece), target  # or the work would not be the same
        key = (
            start, end, self._states, len(self.callees), tuple(content), tuple(self._pending), tuple(self._skips),
            tuple(self._repetitions), self._meter.limits,
        )  # fmt: skip
        kept = _kept_shapes.get(key)
        if kept is not None:
            self._meter.spend(kept.work)  # kept or not: earlier compiles must not decide what is served
            return kept.shape
        before = self._meter.work
        shape = self._shape(start, end)
        held = _PIECE_BYTES * (len(content) + len(self._pending) + len(self._skips))
        made = _KeptShape(shape, self._meter.work - before, held)
        if made.nbytes <= _LARGEST_KEPT:
            _kept_shapes.put(key, made)
        return shape

    def _shape(self, start: int, end: int) -> Shape:
        codes = call_codes(len(self.callees))
        self._meter.spend(len(self._pending))
        alike = dict[bytes, Literal]()  # commas and colons are many
        for source, row, target in self._pending:
            data = b"".join([part if isinstance(part, bytes) else codes[part] for part in row])
            self._pieces.append((source, alike.get(data) or alike.setdefault(data, Literal(data)), target))
        dfa = self.dfa(start, end)
        return Shape(dfa, take_calls(dfa, codes))


class _KeptShape(NamedTuple):
    """A shape.

    Args:
        shape: the shape.
        work: the steps that it took to make it.
        key_bytes: held by its key.
    """

    shape: Shape
    work: int
    key_bytes: int

    @property
    def nbytes(self) -> int:
        return self.shape.nbytes + self.key_bytes + 2048


_kept_shapes: ByteCache[_KeptShape] = ByteCache(_KEPT_BYTES)


class Components(Protocol):
    """Components by number."""

    def __getitem__(self, number: int) -> Component:
        """The component; IndexError if there is none."""
        ...

    def __len__(self) -> int:
        """How many there are."""
        ...


class Rtn(Generic[Name]):
    """The components of an RTN by number, each built when it is first needed; thread safe.

    Args:
        root: the name of the component that has number 0. A component may also be called by a regular language, its
            texts.
        build: adds a component of a name to a builder, and returns its first and its last state.
        limits: of each component alone, for those that are built later: outside of a compile nothing counts the total.
    """

    def __init__(
        self,
        root: Name | Language,
        build: Callable[[Name, ComponentBuilder], tuple[int, int]],
        limits: CompileLimits | None = None,
    ):
        self._build, self._limits = build, limits
        self._numbers: dict[Name | Language, int] = {root: 0}
        self._names = [root]
        self._components: dict[int, Component] = {}
        self._lock = threading.RLock()
        renew_in_child(self)

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """How many components there are, as far as those that are built call others."""
        return len(self._names)

    def __getitem__(self, number: int) -> Component:
        """The component; IndexError if there is none."""
        component = self._components.get(number)
        return self.built(number, WorkMeter(self._limits)) if component is None else component

    def name(self, number: int) -> Name | Language:
        """What it was called."""
        return self._names[number]

    def known_number(self, name: Name | Language) -> int | None:
        """Of the component of a name; None if nothing that is built calls it."""
        return self._numbers.get(name)

    def number(self, name: Name | Language) -> int:
        """Of the component of a name: a new one, if nothing has called it."""
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

    def _callee(self, name: Any) -> int:  # what a builder has called
        return int(name) if isinstance(name, Mark) else self.number(name)


def build_rtn(
    root: Name | Language, build: Callable[[Name, ComponentBuilder], tuple[int, int]], meter: WorkMeter
) -> dict[Name | Language, Component]:
    """All components of an RTN, by name, in the order of their numbers; the root's is 0.

    Args:
        root: see ``Rtn``.
        build: see ``Rtn``.
        meter: limits for all components in total.
    """
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
