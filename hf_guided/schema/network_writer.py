"""Writes values into the components of a network: every value inside another is a call, and marks tell registers.

A component is built from its end: each part is built for the state after it, and once for each such state. So parts
with equal ends are shared, and little work is left when the automaton is made minimal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ..automaton.rtn import ComponentBuilder, Mark
from ..regex import EMPTY, Node, alt, concat, only_text
from .content_automata import ContentAutomaton, DifferentNames, Edge, Entry, Register
from .grammar import Content
from .layout import Layout, layout_of
from .ranges import undecided_factors
from .scalars import Values, constant_text, language_of, listed_texts
from .shapes import Clause, Kind, NumberClause, Position

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


Callee = Inside | Node | Values  # a position, or the formal language of values without children


class NetworkWriter:
    """Writes one component.

    Args:
        positions: whose values it calls.
        builder: takes the states.
        is_inline: whether the values inside a value are written in its place, instead of called.
    """

    def __init__(self, positions: Positions, builder: ComponentBuilder, *, is_inline: bool = False):
        self.positions, self.builder, self.is_inline = positions, builder, is_inline
        self.calls_space = positions.style.is_flexible  # white space has many states then: a component for all
        self._callee = cache(positions.callee)  # the items of a counted array all have the same
        self._inline: dict[tuple[Position, int | None, int], int] = {}
        self._todo: list[tuple[Position, int | None, int]] = []

    def write(self, whole: Inside, start: int, end: int) -> None:
        """Write the values of a position between two states."""
        self._value(self.positions.content_of(whole), whole.position, whole.level, start, end)
        while self._todo:
            inside, level, end = key = self._todo.pop()
            self._value(self.positions.content(inside), inside, level, self._inline[key], end)

    def _value(self, content: Content, position: Position, level: int | None, start: int, end: int) -> None:
        self._scalars(content.scalars, start, end)
        inside = None if level is None else level + 1
        layout = layout_of(self.positions.style, inside)
        for automata, begin in ((content.arrays, layout.begin_array), (content.objects, layout.begin_object)):
            if not automata:
                continue
            opened = self.builder.state()
            self.lay(begin, start, opened)
            for automaton in automata:
                if automaton.register is None:
                    self.entries(automaton, inside, opened, end, is_array=automata is content.arrays)
                else:
                    self.builder.call(self.positions.track(position, level, automaton), opened, end)

    def _scalars(self, clauses: Iterable[Clause], start: int, end: int) -> None:
        positions, builder = self.positions, self.builder
        languages: list[Node | None] = []
        for clause in clauses:
            if (texts := listed_texts(clause, positions.style.spelling, positions.marks)) is not None:
                builder.add_words((text.encode() for text in texts), start, end)
            elif string := positions.long_string(clause):
                builder.call(string, start, end)
            elif isinstance(clause, NumberClause) and undecided_factors(clause):
                positions.add_multiples(clause, start, end, builder)
            else:
                languages.append(language_of(clause, positions.style.spelling, positions.marks))
        if languages:
            builder.add(alt(*filter(None, languages)), start, end)

    def entries(self, automaton: ContentAutomaton, level: int | None, opened: int, end: int, *, is_array: bool) -> None:
        """All entries of an array or an object after its opening bracket, and the closing bracket."""
        layout = layout_of(self.positions.style, level)
        colon = None if self.calls_space else only_text(layout.colon)
        entry = partial(self._entry, automaton.register, level, layout.colon if colon is None else colon.encode())
        closing = layout.close_array if is_array else layout.close_object
        Entries(self.builder, automaton, layout, closing, end, entry, self.lay).build(opened)

    def _entry(
        self, register: Register | None, level: int | None, colon: Node | bytes, entry: Entry, start: int, after: int
    ) -> None:
        """Write an item, or a member."""
        builder, name = self.builder, entry.name
        if register is None:
            named: tuple[Hashable, ...] = ()
            if isinstance(name, str):
                named = self._word(name), colon
            elif name is not None:
                start, named = builder.regex(self.positions.names_text(name), start), (colon,)
            if not self.is_inline:
                builder.row((*named, self._called(entry, level)), start, after)
            elif named:
                builder.row(named, start, self._before(entry.value, level, after))
            else:
                builder.epsilon(start, self._before(entry.value, level, after))
        elif name is None:
            builder.row((Mark.BEGIN, self._callee(entry.value, level), Mark.END), start, after)
        else:
            begins = [Mark.BEGIN]
            if isinstance(register, DifferentNames) and register.high is not None and name in register.required:
                begins.append(Mark.BEGIN_REQUIRED)
            text = self._word(name) if isinstance(name, str) else self.positions.names_text(name)
            for begin in begins:
                builder.row((begin, text, Mark.END, colon, self._called(entry, level)), start, after)

    def lay(self, node: Node, start: int, end: int) -> None:
        """Text of the layout between two states."""
        if self.calls_space and node is not EMPTY:
            self.builder.call(node, start, end)
        else:
            self.builder.add(node, start, end)

    def _before(self, position: Position, level: int | None, end: int) -> int:
        """The state before a value that is written in its place."""
        key = position, level, end
        start = self._inline.get(key)
        if start is None:
            start = self._inline[key] = self.builder.state()
            self._todo.append(key)
        return start

    def _word(self, name: str) -> bytes:
        return constant_text(name, self.positions.marks).encode()

    def _called(self, entry: Entry, level: int | None) -> bytes | Callee:
        # A constant may tell many alternatives apart: each as a call of its own would be followed for long.
        return self._constant(entry.value) or self._callee(entry.value, level)

    def _constant(self, position: Position) -> bytes | None:
        """The text of the only value at a position, where it has no children; None if there may be several."""
        content = self.positions.content(position)
        if content.automata or len(content.scalars) != 1:
            return None
        texts = listed_texts(content.scalars[0], self.positions.style.spelling, self.positions.marks)
        few = [] if texts is None else [*islice(texts, 2)]
        return few[0].encode() if len(few) == 1 else None


class Entries:
    """Writes one content automaton and the text that closes it, with marks where it has a register.

    For each of its states there are two states of the component: one after an entry, where a comma or the closing
    bracket comes next, and one after the comma, where an entry must come. ``entry`` writes an entry between two states,
    and ``lay`` a text of the layout.
    """

    def __init__(
        self,
        builder: ComponentBuilder,
        automaton: ContentAutomaton,
        layout: Layout,
        closing: Node,
        end: int,
        entry: Callable[[Entry, int, int], None],
        lay: Callable[[Node, int, int], None],
    ):
        self._builder, self._automaton, self._layout = builder, automaton, layout
        self._closing, self._end, self._entry, self._lay = closing, end, entry, lay
        self._after: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._todo: list[int] = []
        skipped_from: list[list[int]] = [[] for _ in automaton.skips]
        for state, targets in enumerate(automaton.skips):
            for target in targets:
                skipped_from[target].append(state)
        self._ends = _reaching(automaton.accepting, skipped_from)
        self._going_on = _reaching([state for state, edges in enumerate(automaton.edges) if edges], skipped_from)

    def build(self, opened: int) -> None:
        """Write the entries and the closing text, from the state after the opening bracket."""
        self._lay(self._layout.first, opened, self._before_entry(0))
        if 0 in self._ends:
            self._builder.add(self._closing, self._marked(Mark.CLOSE, opened), self._end)
        while self._todo:
            state = self._todo.pop()
            before = self._before[state]
            for target in self._automaton.skips[state]:
                self._builder.epsilon(before, self._before_entry(target))
            for edge in self._automaton.edges[state]:
                self._run(edge, before)

    def _before_entry(self, state: int) -> int:
        known = self._before.get(state)
        if known is None:
            known = self._before[state] = self._builder.state()
            self._todo.append(state)
        return known

    def _after_entry(self, state: int) -> int:
        known = self._after.get(state)
        if known is None:
            known = self._after[state] = self._builder.state()
            spaced = self._spaced(known)
            if state in self._ends:
                closing = concat(self._layout.last, self._closing)
                self._builder.add(closing, self._marked(Mark.CLOSE, spaced), self._end)
            if state in self._going_on:
                self._comma(spaced, self._before_entry(state))
        return known

    def _spaced(self, after: int) -> int:
        """The state after the white space that follows an entry."""
        if self._layout.space is EMPTY:
            return after
        spaced = self._builder.state()
        self._lay(self._layout.space, after, spaced)
        return spaced

    def _comma(self, spaced: int, before: int) -> None:
        self._lay(self._layout.comma, self._marked(Mark.MORE, spaced), before)

    def _marked(self, mark: Mark, start: int) -> int:
        """The state after a mark, where there is a register; else the same state."""
        if self._automaton.register is None:
            return start
        end = self._builder.state()
        self._builder.call(mark, start, end)
        return end

    def _run(self, edge: Edge, before: int) -> None:
        """``low`` to ``high`` entries in a row."""
        builder, (entries, target, low, high) = self._builder, edge
        if high != 1:  # most are one
            builder.need(high or low)  # states, one for each count
        for count in range(1, low if high is None else high):
            after = builder.state()
            self._any_of(entries, before, after)
            if count >= low:
                builder.epsilon(after, self._after_entry(target))
            before = builder.state()
            self._comma(self._spaced(after), before)
        after = self._after_entry(target)
        if high is None:
            before, once = builder.state(), before
            builder.epsilon(once, before)
            after, last = builder.state(), after
            builder.epsilon(after, last)
            self._comma(self._spaced(after), before)
        self._any_of(entries, before, after)

    def _any_of(self, entries: Iterable[Entry], before: int, after: int) -> None:
        for entry in entries:
            self._entry(entry, before, after)


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
