"""Writes the values of a schema as a finite automaton: the shapes and content automata that `to_lark.py` writes too.

It is built from the end: a value is built for the state that comes after it, and once for each such state. So parts
with equal ends are shared, and little work is left when the automaton is made minimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple, Protocol, TypeAlias

from ..constraints.json_style import JsonStyle
from ..regex import EMPTY, Node, alt, concat, json_spelling
from .content_automata import ContentAutomaton, Edge, Entry
from .depth import ANY_ITEMS, ANY_MEMBERS
from .grammar import Content
from .layout import Layout, layout_of
from .ranges import remainder_states, undecided_factors
from .scalars import constant_text, language_of, listed_texts, numbers_without_undecided, quoted, without
from .shapes import Clause, NumberClause, Position, pointer_of

MAX_REMAINDERS = 5_000  # of one multipleOf, for all decimal places in total

Containers: TypeAlias = "tuple[ContentAutomaton, ...]"


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


def check_remainders(position: Position, clause: Clause) -> None:
    """Raise NotRegular where a multipleOf has too many remainders."""
    if isinstance(clause, NumberClause):
        for factor in undecided_factors(clause):
            if remainder_states(factor) > MAX_REMAINDERS:
                reason = f"{factor} has more than {MAX_REMAINDERS} remainders to distinguish"
                raise NotRegular(clause.origin or pointer_of(position), "multipleOf", reason)


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


class NfaWriter:
    """Writes values between states.

    Args:
        contents: of every position.
        builder: takes the states.
        style: how values are written.
        marks: what none of the texts holds, see ``without``.
    """

    def __init__(
        self, contents: Mapping[Position, Content], builder: Builder, style: JsonStyle, marks: tuple[str, ...] = ()
    ):
        self._style, self._marks = style, marks
        self._contents = contents
        self._builder = builder
        self._starts: dict[ValueSlot, int] = {}
        self._todo: list[ValueSlot] = []

    def whole(self, slot: ValueSlot) -> int:
        """Build a value with all inside it; returns the state before it."""
        start = self.value(slot)
        while self._todo:
            slot = self._todo.pop()
            self.fill(slot, self._starts[slot])
        return start

    def value(self, slot: ValueSlot) -> int:
        """The state before a value."""
        start = self._starts.get(slot)
        if start is None:
            start = self._starts[slot] = self._builder.state()
            self._todo.append(slot)
        return start

    def fill(self, slot: ValueSlot, start: int) -> None:
        """Everything between the state before a value and the one after it."""
        content = self._contents[slot.position]
        languages: list[Node] = []
        for clause in content.scalars:
            if (texts := listed_texts(clause, self._style.spelling, self._marks)) is not None:
                self._builder.add_words((text.encode() for text in texts), start, slot.end)
            elif isinstance(clause, NumberClause) and (factors := undecided_factors(clause)):
                numbers = numbers_without_undecided(clause, self._style.spelling)
                self._builder.add_multiples(numbers, factors, start, slot.end)
            else:
                languages += filter(None, [self.language(clause)])
        if languages:
            self._builder.add(alt(*languages), start, slot.end)
        layout = self.layout(None if slot.level is None else slot.level + 1)
        arrays = (ANY_ITEMS,) if content.any_array else content.arrays
        objects = (ANY_MEMBERS,) if content.any_object else content.objects
        self._container(slot, start, layout, layout.begin_array, arrays, layout.close_array)
        self._container(slot, start, layout, layout.begin_object, objects, layout.close_object)

    def layout(self, level: int | None) -> Layout:
        """The text between values with ``level`` open brackets."""
        return layout_of(self._style, level)

    def language(self, clause: Clause) -> Node | None:
        """The texts of a clause's values."""
        return language_of(clause, self._style.spelling, self._marks)

    def name(self, name: str | Node, start: int) -> int:
        """Write the name of a member, or any of a language; returns the state after it."""
        end = self._builder.state()
        if isinstance(name, str):
            self._builder.add_word(self.word(name), start, end)
        else:
            self._builder.add(self.names(name), start, end)
        return end

    def word(self, name: str) -> bytes:
        """How a name is written."""
        return constant_text(name, self._marks).encode()

    def names(self, language: Node) -> Node:
        """How the names of a language are written."""
        return without(quoted(json_spelling(language)), self._marks)

    def _container(
        self, slot: ValueSlot, start: int, layout: Layout, begin: Node, automata: Containers, closing: Node
    ) -> None:
        if automata:
            opened = self._builder.state()
            self.lay(begin, start, opened)
            level = None if slot.level is None else slot.level + 1
            inside = ValueSlot(slot.position, slot.end, level)
            for automaton in automata:
                self.entries(Inner(automaton, inside, layout, closing), opened)

    def lay(self, node: Node, start: int, end: int) -> None:
        """Text of the layout between two states."""
        self._builder.add(node, start, end)

    def entries(self, inner: Inner, opened: int) -> None:
        """All entries of an array or an object after its opening bracket, and the closing bracket."""
        Entries(self, inner).build(opened)


class Inner(NamedTuple):
    """The inside of an array or an object.

    Args:
        automaton: its entries.
        slot: its end.
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

    def __init__(self, writer: NfaWriter, inner: Inner):
        self._writer, self._builder = writer, writer._builder
        self._automaton, self._inside, self._layout, self._closing = inner
        automaton, self._end = inner.automaton, inner.slot.end
        self._after: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._spaces: dict[int, int] = {}
        self._todo: list[int] = []
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

    def _spaced(self, after: int) -> int:
        """The state before the white space that comes before this one."""
        if self._layout.space is EMPTY:
            return after
        known = self._spaces.get(after)
        if known is None:
            known = self._spaces[after] = self._builder.state()
            self._writer.lay(self._layout.space, known, after)
        return known

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
        """One item, or one member, between two states, and the white space after it."""
        value = self._writer.value(ValueSlot(entry.value, self._spaced(after), self._inside.level))
        if entry.name is None:
            self._builder.epsilon(start, value)
            return
        # The colon on its own, for it is the same everywhere.
        self._writer.lay(self._layout.colon, self._writer.name(entry.name, start), value)


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
