"""Writes values into the components of a network: every value inside another is a call, and marks tell registers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from typing_extensions import override

from ..automaton.rtn import Mark
from ..constraints.json_style import JsonStyle
from ..regex import (
    EMPTY,
    Node,
    only_text,
)
from .content_automata import MOST_APART, Entry
from .grammar import Content
from .registers import DifferentNames
from .scalars import Values, listed_texts
from .shapes import Clause, Kind, Position
from .to_nfa import Builder, Entries, Inner, NfaWriter, ValueSlot

_MOST_PARTS = 200  # the most parts of a constant that is written without calls


if TYPE_CHECKING:
    from .to_network import Positions


class Inside(NamedTuple):
    """A position.

    Args:
        position: of a value.
        level: with an indentation, how many brackets are open around it.
        schema: its name, where one RTN has several.
        only: the one kind of values that there are here; None is all.
        as_elements: whether they are elements instead of JSON.
    """

    position: Position
    level: int | None
    schema: str = ""
    only: Kind | None = None
    as_elements: bool = False


Callee = Inside | Node | Values  # or the formal language of a position whose values have no children
Row = tuple[Hashable, ...]  # words and callees, one after the other


class Caller(Builder, Protocol):
    """A builder that can also call."""

    def call(self, callee: Hashable, start: int, end: int) -> None:
        """The text of the callee between two states."""
        ...

    def row(self, parts: Row, start: int, end: int) -> None:
        """Words, which are bytes, and the texts of callees between two states; one after the other."""
        ...


class NetworkWriter(NfaWriter):
    """Writes a call for every value inside another, and for insides that have a register.

    Args:
        positions: whose values it calls.
        contents, builder, style, marks: see ``NfaWriter``.
    """

    def __init__(
        self,
        positions: Positions,
        contents: Mapping[Position, Content],
        builder: Caller,
        style: JsonStyle,
        marks: tuple[str, ...],
    ):
        super().__init__(contents, builder, style, marks)
        self._positions, self._caller = positions, builder
        self._called: dict[ValueSlot, int] = {}
        self._callees: dict[tuple[Position, int | None], Callee] = {}

    def value(self, slot: ValueSlot) -> int:
        """A call instead of the value."""
        start = self._called.get(slot)
        if start is None:
            start = self._called[slot] = self._caller.state()
            self._caller.call(self.callee(slot.position, slot.level), start, slot.end)
        return start

    def callee(self, position: Position, level: int | None) -> Callee:
        """The callee for a value at a position; the items of a counted array all have the same."""
        callee = self._callees.get((position, level))
        if callee is None:
            callee = self._callees[position, level] = self._positions.callee(position, level)
        return callee

    @cached_property
    def _calls_space(self) -> bool:
        """Whether white space has many states: it is a component then, the same for all."""
        return self._style.is_flexible

    @override
    def fill(self, slot: ValueSlot, start: int) -> None:
        super().fill(slot, start)
        for clause in self._contents[slot.position].scalars:
            if string := self._positions.long_string(clause):
                self._caller.call(string, start, slot.end)

    @override
    def language(self, clause: Clause) -> Node | None:
        return self._positions.language(clause)

    @override
    def names(self, language: Node) -> Node:
        return self._positions.names_text(language)

    def part(self, node: Node) -> Row:
        """Text of the layout as a part of a row."""
        if node is EMPTY:
            return ()
        word = None if self._calls_space else only_text(node)
        return (node if word is None else word.encode(),)

    def constant(self, position: Position, level: int | None) -> Row | None:
        """The only value at a position as a row without calls of values; None if there may be several."""
        content = self._contents[position]
        if content.any_array or content.any_object or len(content.scalars) + len(content.automata) != 1:
            return None
        for clause in content.scalars:
            texts = listed_texts(clause, self._style.spelling, self._marks)
            few = [] if texts is None else [*islice(texts, 2)]
            return (few[0].encode(),) if len(few) == 1 else None
        level = self._positions.inside(position, level).level
        (automaton,), inside = content.automata, None if level is None else level + 1
        layout = self.layout(inside)
        begin, close = layout.begin_object, layout.close_object
        if content.arrays:
            begin, close = layout.begin_array, layout.close_array
        row, state, before = self.part(begin), 0, layout.first
        while automaton.edges[state]:
            edge, *others = automaton.edges[state]
            is_only = not others and not automaton.skips[state] and state not in automaton.accepting
            if automaton.register or not is_only or (edge.low, edge.high, len(edge.entries)) != (1, 1, 1):
                return None
            ((name, value),) = edge.entries
            if isinstance(name, Node) or (inner := self.constant(value, inside)) is None:
                return None
            named = () if name is None else (self.word(name), *self.part(layout.colon))
            row += (*self.part(before), *named, *inner, *self.part(layout.space))
            if len(row) > _MOST_PARTS:
                return None
            state, before = edge.target, layout.comma
        if automaton.skips[state] or state not in automaton.accepting:
            return None
        return *row, *self.part(layout.last if state else EMPTY), *self.part(close)

    @override
    def lay(self, node: Node, start: int, end: int) -> None:
        if self._calls_space and node is not EMPTY:
            self._caller.call(node, start, end)
        else:
            super().lay(node, start, end)

    @override
    def entries(self, inner: Inner, opened: int) -> None:
        if inner.automaton.register is None:
            _Rows(self, inner, self._caller).build(opened)
        else:
            self._caller.call(self._positions.track(inner), opened, inner.slot.end)


class _Rows(Entries):
    """Writes each entry as one row of words and calls."""

    _writer: NetworkWriter

    def __init__(self, writer: NetworkWriter, inner: Inner, builder: Caller):
        super().__init__(writer, inner)
        self._caller = builder
        self._colon, self._space = writer.part(self._layout.colon), writer.part(self._layout.space)
        self._has_many_edges = max(map(len, inner.automaton.edges)) > MOST_APART

    def entry(self, entry: Entry, start: int, after: int) -> None:
        value = self._value(entry)
        if isinstance(entry.name, str):
            self._caller.row((self._writer.word(entry.name), *self._colon, *value), start, after)
        elif entry.name is None:
            self._caller.row(value, start, after)
        else:
            self._caller.row((*self._colon, *value), self._writer.name(entry.name, start), after)

    def _value(self, entry: Entry, *marks: Mark) -> Row:
        """A value, and the white space after it."""
        # A constant may tell many alternatives apart: each as a call of its own would be followed for long.
        value = self._writer.constant(entry.value, self._inside.level) if self._has_many_edges and not marks else None
        return *(value or (self._writer.callee(entry.value, self._inside.level),)), *marks, *self._space


class RegisteredRows(_Rows):
    """Writes entries with marks around them."""

    def __init__(self, writer: NetworkWriter, inner: Inner, builder: Caller):
        super().__init__(writer, inner, builder)
        self._register = inner.automaton.register

    def _marked(self, mark: Mark, start: int) -> int:
        end = self._caller.state()
        self._caller.call(mark, start, end)
        return end

    @override
    def closed(self, state: int) -> int:
        return self._marked(Mark.CLOSE, state)

    @override
    def continued(self, state: int) -> int:
        return self._marked(Mark.MORE, state)

    @override
    def entry(self, entry: Entry, start: int, after: int) -> None:
        name, register = entry.name, self._register
        if name is None:
            self._caller.row((Mark.BEGIN, *self._value(entry, Mark.END)), start, after)
            return
        begins = [Mark.BEGIN]
        if isinstance(register, DifferentNames) and register.high is not None and name in register.required:
            begins.append(Mark.BEGIN_REQUIRED)
        named = self._writer.word(name) if isinstance(name, str) else self._writer.names(name)
        for begin in begins:
            self._caller.row((begin, named, Mark.END, *self._colon, *self._value(entry)), start, after)
