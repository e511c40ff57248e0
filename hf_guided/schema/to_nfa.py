"""Writes the values of a schema between the states of an NFA: the shapes and content automata that `to_lark.py` writes.

Every value inside another is a call, so recursion and positions for any JSON value cost nothing. An array or an object
is built from its end: what comes after an entry is built once for each state.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from decimal import Decimal
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from ..automaton.rtn import Mark
from ..constraints.json_style import JsonStyle
from ..regex import EMPTY, Node, alt, concat, only_text
from .content_automata import MOST_APART, ContentAutomaton, Edge, Entry
from .depth import ANY_ITEMS, ANY_MEMBERS
from .grammar import Content
from .layout import Layout, layout_of
from .ranges import undecided_factors
from .registers import DifferentNames
from .scalars import constant_text, listed_texts, numbers_without_undecided
from .shapes import NumberClause, Position

if TYPE_CHECKING:
    from .to_network import Callee, RegisteredPositions

Row: TypeAlias = tuple[Hashable, ...]  # words and callees, one after the other
_MOST_PARTS = 200  # the most parts of a constant that is written without calls


class NotRegular(Exception):
    """The schema has texts that no finite automaton separates from others.

    Args:
        pointer: JSON pointer of the schema in question.
        keyword: which keyword of it, if it is one.
        reason: why.
    """

    def __init__(self, pointer: str, keyword: str, reason: str):
        super().__init__(f"{pointer or '/'}: {reason}")
        self.pointer, self.keyword, self.reason = pointer, keyword, reason


class Builder(Protocol):
    """What makes the automaton; it may raise when it grows too large."""

    def state(self) -> int:
        """A new state."""
        ...

    def need(self, states: int) -> None:
        """Give up at once if there may not be so many states."""
        ...

    def epsilon(self, source: int, target: int) -> None:
        """Add a move that takes no character."""
        ...

    def add(self, node: Node, start: int, end: int) -> None:
        """Add the texts of a formal language between two states."""
        ...

    def regex(self, node: Node, start: int) -> int:
        """Add the texts of a formal language after a state; return the state after them."""
        ...

    def add_word(self, word: bytes, start: int, end: int) -> None:
        """Add a text, which is not empty, between two states."""
        ...

    def add_words(self, words: Iterable[bytes], start: int, end: int) -> None:
        """Add any of the texts between two states."""
        ...

    def add_multiples(self, node: Node, factors: tuple[Decimal, ...], start: int, end: int) -> None:
        """Add the numbers of a language that are multiples of each factor, between two states."""
        ...

    def call(self, callee: Hashable, start: int, end: int) -> None:
        """Add the texts of the callee between two states."""
        ...

    def row(self, parts: Row, start: int, end: int) -> None:
        """Add words, which are bytes, and the texts of callees between two states; one after the other."""
        ...


class ValueSlot(NamedTuple):
    """A value to be built.

    Args:
        position: of the value in the schema.
        end: the state after it.
        level: how many brackets are open around it, where the layout depends on that; None elsewhere.
    """

    position: Position
    end: int
    level: int | None


class Writer:
    """Writes values between states.

    Args:
        positions: whose values it calls.
        builder: takes the states.
        style: how values are written.
    """

    def __init__(self, positions: RegisteredPositions, builder: Builder, style: JsonStyle):
        self._positions, self.builder, self._style = positions, builder, style
        self._callees: dict[tuple[Position, int | None], Callee] = {}

    @cached_property
    def _calls_space(self) -> bool:
        """Whether white space has many states: it is a component then, the same for all."""
        return self._style.is_flexible

    def fill(self, content: Content, slot: ValueSlot, start: int) -> None:
        """Everything between the state before a value and the one after it; ``content`` says what it may be."""
        builder, spelling, marks = self.builder, self._style.spelling, self._positions.marks
        languages: list[Node] = []
        for clause in content.scalars:
            if (texts := listed_texts(clause, spelling, marks)) is not None:
                builder.add_words((text.encode() for text in texts), start, slot.end)
            elif isinstance(clause, NumberClause) and (factors := undecided_factors(clause)):
                builder.add_multiples(numbers_without_undecided(clause, spelling), factors, start, slot.end)
            else:
                languages += filter(None, [self._positions.language(clause)])
        if languages:
            builder.add(alt(*languages), start, slot.end)
        layout = layout_of(self._style, None if slot.level is None else slot.level + 1)
        arrays = (ANY_ITEMS,) if content.any_array else content.arrays
        objects = (ANY_MEMBERS,) if content.any_object else content.objects
        self._container(slot, start, layout, layout.begin_array, arrays, layout.close_array)
        self._container(slot, start, layout, layout.begin_object, objects, layout.close_object)
        for clause in content.scalars:
            if string := self._positions.long_string(clause):
                builder.call(string, start, slot.end)

    def _container(
        self,
        slot: ValueSlot,
        start: int,
        layout: Layout,
        begin: Node,
        automata: tuple[ContentAutomaton, ...],
        closing: Node,
    ) -> None:
        if automata:
            opened = self.builder.state()
            self.lay(begin, start, opened)
            inside = slot._replace(level=None if slot.level is None else slot.level + 1)
            for automaton in automata:
                inner = Inner(automaton, inside, layout, closing)
                if automaton.register is None:
                    Entries(self, inner).build(opened)
                else:
                    self.builder.call(self._positions.track(inner), opened, slot.end)

    def callee(self, position: Position, level: int | None) -> Callee:
        """The callee for a value at a position; the items of a counted array all have the same."""
        callee = self._callees.get((position, level))
        if callee is None:
            callee = self._callees[position, level] = self._positions.callee(position, level)
        return callee

    def name(self, name: Node, start: int) -> int:
        """Write the name of a member, any of a language; returns the state after it."""
        end = self.builder.state()
        self.builder.add(self.names(name), start, end)
        return end

    def word(self, name: str) -> bytes:
        """How a name is written."""
        return constant_text(name, self._positions.marks).encode()

    def names(self, language: Node) -> Node:
        """How the names of a language are written."""
        return self._positions.names_text(language)

    def lay(self, node: Node, start: int, end: int) -> None:
        """Text of the layout between two states."""
        if self._calls_space and node is not EMPTY:
            self.builder.call(node, start, end)
        else:
            self.builder.add(node, start, end)

    def part(self, node: Node) -> Row:
        """Text of the layout as a part of a row."""
        if node is EMPTY:
            return ()
        word = None if self._calls_space else only_text(node)
        return (node if word is None else word.encode(),)

    def constant(self, position: Position, level: int | None) -> Row | None:
        """The only value at a position as a row without calls of values; None if there may be several."""
        content = self._positions.content(position)
        if content.any_array or content.any_object or len(content.scalars) + len(content.automata) != 1:
            return None
        for clause in content.scalars:
            texts = listed_texts(clause, self._style.spelling, self._positions.marks)
            few = [] if texts is None else [*islice(texts, 2)]
            return (few[0].encode(),) if len(few) == 1 else None
        level = self._positions.inside(position, level).level
        (automaton,), inside = content.automata, None if level is None else level + 1
        layout = layout_of(self._style, inside)
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


class Inner(NamedTuple):
    """The inside of an array or an object.

    Args:
        automaton: its entries.
        slot: its end, and how many brackets are open inside.
        layout: of the inside.
        closing: its last bracket.
    """

    automaton: ContentAutomaton
    slot: ValueSlot
    layout: Layout
    closing: Node


class Entries:
    """One content automaton after its opening bracket.

    For each of its states there are two states of the NFA: one after an entry and its white space, where a comma
    or the closing bracket comes next, and one after the comma, where an entry must come.
    """

    def __init__(self, writer: Writer, inner: Inner):
        self._writer, self._builder = writer, writer.builder
        self._automaton, self._inside, self._layout, self._closing = inner
        automaton, self._end = inner.automaton, inner.slot.end
        self._after: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._todo: list[int] = []
        self._colon, self._space = writer.part(self._layout.colon), writer.part(self._layout.space)
        self._has_many_edges = max(map(len, automaton.edges)) > MOST_APART
        self._last = concat(self._layout.last, self._closing)
        self._skips = [
            [*skips, *(edge.target for edge in edges if edge.low == 0)]
            for skips, edges in zip(automaton.skips, automaton.edges, strict=True)
        ]
        skipped_from: list[list[int]] = [[] for _ in self._skips]
        for state, targets in enumerate(self._skips):
            for target in targets:
                skipped_from[target].append(state)
        self._ends = _reaching(automaton.accepting, skipped_from)
        self._going_on = _reaching([state for state, edges in enumerate(automaton.edges) if edges], skipped_from)

    def build(self, opened: int) -> None:
        """Lay the entries and the closing bracket, from the state after the opening one."""
        builder = self._builder
        self._writer.lay(self._layout.first, opened, self._before_entry(0))
        if 0 in self._ends:
            builder.add(self._closing, self.closed(opened), self._end)
        while self._todo:
            state = self._todo.pop()
            before = self._before[state]
            for target in self._skips[state]:
                builder.epsilon(before, self._before_entry(target))
            for edge in self._automaton.edges[state]:
                self._run(edge, before)

    def _before_entry(self, state: int) -> int:
        known = self._before.get(state)
        if known is None:
            known = self._before[state] = self._builder.state()
            self._todo.append(state)
        return known

    def _after_entry(self, state: int) -> int:
        """Where white space has come already."""
        known = self._after.get(state)
        if known is None:
            known = self._after[state] = self._builder.state()
            if state in self._ends:
                self._builder.add(self._last, self.closed(known), self._end)
            if state in self._going_on:
                self._writer.lay(self._layout.comma, self.continued(known), self._before_entry(state))
        return known

    def closed(self, state: int) -> int:
        """The state where the end has been decided on."""
        return state

    def continued(self, state: int) -> int:
        """The state where another entry has been decided on."""
        return state

    def _run(self, edge: Edge, before: int) -> None:
        """``low`` to ``high`` entries in a row."""
        if edge.high == 1:  # most are one
            self._entries(edge, before, self._after_entry(edge.target))
            return
        builder, low = self._builder, max(edge.low, 1)
        builder.need(edge.high or low)  # one for each count
        for count in range(1, low if edge.high is None else edge.high):
            after = builder.state()
            self._entries(edge, before, after)
            if count >= low:
                builder.epsilon(after, self._after_entry(edge.target))
            before = builder.state()
            self._writer.lay(self._layout.comma, self.continued(after), before)
        after = self._after_entry(edge.target)
        if edge.high is None:
            before, once = builder.state(), before
            builder.epsilon(once, before)
            after, last = builder.state(), after
            builder.epsilon(after, last)
            self._writer.lay(self._layout.comma, self.continued(after), before)
        self._entries(edge, before, after)

    def _entries(self, edge: Edge, before: int, after: int) -> None:
        """One entry, and the white space after it."""
        for entry in edge.entries:
            self.entry(entry, before, after)

    def entry(self, entry: Entry, start: int, after: int) -> None:
        """One item, or one member, as one row between two states, and the white space after it."""
        value = self._value(entry)
        if isinstance(entry.name, str):
            self._builder.row((self._writer.word(entry.name), *self._colon, *value), start, after)
        elif entry.name is None:
            self._builder.row(value, start, after)
        else:
            self._builder.row((*self._colon, *value), self._writer.name(entry.name, start), after)

    def _value(self, entry: Entry, *marks: Mark) -> Row:
        """A value, and the white space after it."""
        # A constant may tell many alternatives apart: each as a call of its own would be followed for long.
        value = self._writer.constant(entry.value, self._inside.level) if self._has_many_edges and not marks else None
        return *(value or (self._writer.callee(entry.value, self._inside.level),)), *marks, *self._space


class RegisteredEntries(Entries):
    """Writes entries with marks around them."""

    def __init__(self, writer: Writer, inner: Inner):
        super().__init__(writer, inner)
        self._register = inner.automaton.register

    def _marked(self, mark: Mark, start: int) -> int:
        end = self._builder.state()
        self._builder.call(mark, start, end)
        return end

    def closed(self, state: int) -> int:
        """See ``Entries.closed``."""
        return self._marked(Mark.CLOSE, state)

    def continued(self, state: int) -> int:
        """See ``Entries.continued``."""
        return self._marked(Mark.MORE, state)

    def entry(self, entry: Entry, start: int, after: int) -> None:
        """As ``Entries.entry``, with marks."""
        name, register = entry.name, self._register
        if name is None:
            self._builder.row((Mark.BEGIN, *self._value(entry, Mark.END)), start, after)
            return
        begins = [Mark.BEGIN]
        if isinstance(register, DifferentNames) and register.high is not None and name in register.required:
            begins.append(Mark.BEGIN_REQUIRED)
        named = self._writer.word(name) if isinstance(name, str) else self._writer.names(name)
        for begin in begins:
            self._builder.row((begin, named, Mark.END, *self._colon, *self._value(entry)), start, after)


def _reaching(states: Iterable[int], skipped_from: list[list[int]]) -> set[int]:
    """The states from which one of these is reached without an entry."""
    todo = list(states)
    reaching = set(todo)
    while todo:
        for source in skipped_from[todo.pop()]:
            if source not in reaching:
                reaching.add(source)
                todo.append(source)
    return reaching
