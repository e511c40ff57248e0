"""A schema as a finite automaton: the shapes and content automata that `to_lark.py` writes, without recursion.

Schemas that are not regular are refused: those that refer to themselves, or allow any JSON value somewhere. With a
bound on the depth of nesting both are regular.

It is built from the end: a value is built for the state that comes after it, and once for each such state. So parts
with equal ends are shared, and little work is left when the automaton is made minimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, Protocol, TypeAlias

from ..constraints.json_style import JsonStyle, Spelling
from ..errors import InvalidConstraint
from ..regex import EMPTY, Node, alt, concat, json_spelling
from .content_automata import ContentAutomaton, Edge, Entry
from .context import too_deep_is_a_limit
from .depth import ANY_CONTENT, ANY_ITEMS, ANY_MEMBERS
from .grammar import Content, all_pruned, completable, contents
from .layout import Layout, has_levels, layout_of
from .normalize import Normalizer
from .ranges import remainder_states, undecided_factors
from .scalars import constant_text, language_of, listed_texts, numbers_without_undecided, quoted, without
from .shapes import ANY, Clause, NumberClause, Position, pointer_of

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


@dataclass(frozen=True)
class Regular:
    """A schema that a finite automaton can say; nothing is built yet.

    Args:
        root: the position of the whole text.
        contents: of each position.
        alive: for each number of levels from 0 on, the positions that have a value of this number of levels of nesting
            at most; the last goes for all greater ones. None if nothing bounds them.
        max_depth: how many levels there may be.
    """

    root: Position
    contents: Mapping[Position, Content]
    alive: tuple[frozenset[Position], ...] | None
    max_depth: int | None

    @too_deep_is_a_limit()
    def build(self, builder: Builder, style: JsonStyle) -> tuple[int, int]:
        """Build the automaton of the JSON texts of all values that satisfy the schema.

        Args:
            builder: takes the states.
            style: how values are written.

        Returns:
            The state before the text, and the one after it.

        Raises:
            CompileLimitExceeded: it is too large.
        """
        return NfaWriter(self, builder, style).build()


@too_deep_is_a_limit()
def regular(n: Normalizer, *, closed: bool, spelling: Spelling, max_depth: int | None = None) -> Regular:
    """See whether a finite automaton can say a schema; takes no longer than reading it.

    Args:
        n: the schema; what cannot be said is lost there.
        closed: whether objects that declare properties and do not speak of others have no others.
        spelling: which texts of a value there are.
        max_depth: how deeply arrays and objects may nest, the outermost counted; None is no bound.

    Raises:
        NotRegular: it refers to itself, or some value may be anything, and there is no bound on the depth; or there
            is a multipleOf with too many remainders.
        InvalidConstraint: no value satisfies it.
        CompileLimitExceeded: it is too large to decide this.
    """
    contents_of = contents(n, closed=closed, spelling=spelling)
    for position, content in contents_of.items():
        for clause in content.scalars:
            check_remainders(position, clause)
    if max_depth is None:
        check_finite(n.root, contents_of)
        return Regular(n.root, contents_of, None, None)
    contents_of = {**contents_of, ANY: ANY_CONTENT}
    alive = _by_levels(contents_of, max_depth)
    if n.root not in alive[-1]:
        raise InvalidConstraint(
            f"no value that satisfies the JSON Schema nests at most {max_depth} arrays and objects; raise max_depth"
        )
    return Regular(n.root, contents_of, alive, max_depth)


def check_remainders(position: Position, clause: Clause) -> None:
    """Raise NotRegular where a multipleOf has too many remainders."""
    if isinstance(clause, NumberClause):
        for factor in undecided_factors(clause):
            if remainder_states(factor) > MAX_REMAINDERS:
                reason = f"{factor} has more than {MAX_REMAINDERS} remainders to distinguish"
                raise NotRegular(clause.origin or pointer_of(position), "multipleOf", reason)


def check_finite(root: Position, contents_of: Mapping[Position, Content]) -> None:
    """Search from the root for a position that allows any value, or that contains itself."""
    if root == ANY:
        raise NotRegular("", "", "any value is allowed here")
    under_way: dict[Position, Iterator[Position]] = {}
    done: set[Position] = set()

    def enter(position: Position) -> None:
        content = contents_of[position]
        if content.any_array or content.any_object:
            raise NotRegular(pointer_of(position), "", "anything is allowed in it")
        under_way[position] = iter(dict.fromkeys(content.children()))

    enter(root)
    while under_way:
        position, left = next(reversed(under_way.items()))
        child = next(left, None)
        if child is None:
            del under_way[position]
            done.add(position)
        elif child == ANY:
            raise NotRegular(pointer_of(position), "", "any value is allowed here")
        elif child in under_way:
            raise NotRegular(pointer_of(child), "", "the schema refers to itself")
        elif child not in done:
            enter(child)


def _by_levels(contents_of: Mapping[Position, Content], max_depth: int) -> tuple[frozenset[Position], ...]:
    """See ``Regular.alive``."""
    levels = [frozenset(position for position, content in contents_of.items() if content.scalars)]
    while len(levels) <= max_depth:
        below = {*levels[-1]}
        alive = frozenset(
            position
            for position, content in contents_of.items()
            if position in below
            or content.any_array
            or content.any_object
            or any(completable(automaton, below) for automaton in content.automata)
        )
        levels.append(alive)
        if len(alive) == len(below):
            break
    return tuple(levels)


class ValueSlot(NamedTuple):
    """A value to be built.

    Args:
        position: of the value in the schema.
        end: the state after it.
        depth: how many levels of nesting are left; None is no bound.
        level: how many brackets are open around it, where the layout depends on that; None elsewhere.
    """

    position: Position
    end: int
    depth: int | None
    level: int | None


class NfaWriter:
    """Writes values between states.

    Args:
        schema: the content of every position.
        builder: takes the states.
        style: how values are written.
        marks: what none of the texts holds, see ``without``.
    """

    def __init__(self, schema: Regular, builder: Builder, style: JsonStyle, marks: tuple[str, ...] = ()):
        self._style, self._marks = style, marks
        self._schema = schema
        self._builder = builder
        self._starts: dict[ValueSlot, int] = {}
        self._todo: list[ValueSlot] = []

    def build(self) -> tuple[int, int]:
        """All of the schema: the state before it, and the one after it."""
        end = self._builder.state()
        level = 0 if has_levels(self._style) else None
        return self.whole(ValueSlot(self._schema.root, end, self._schema.max_depth, level)), end

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
        content = self._schema.contents[slot.position]
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
        arrays, objects = self._pruned(arrays, slot.depth), self._pruned(objects, slot.depth)
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

    def _pruned(self, automata: Containers, depth: int | None) -> Containers:
        """Tracks without values that nest more deeply than they may."""
        if self._schema.alive is None or depth is None:
            return automata
        if depth == 0:
            return ()
        alive = self._schema.alive[min(depth - 1, len(self._schema.alive) - 1)]
        return all_pruned(automata, alive)

    def _container(
        self, slot: ValueSlot, start: int, layout: Layout, begin: Node, automata: Containers, closing: Node
    ) -> None:
        if automata:
            opened = self._builder.state()
            self.lay(begin, start, opened)
            depth = None if slot.depth is None else slot.depth - 1
            level = None if slot.level is None else slot.level + 1
            inside = ValueSlot(slot.position, slot.end, depth, level)
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
        slot: its end, and what is left of the depth inside.
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
        value = self._writer.value(ValueSlot(entry.value, self._spaced(after), self._inside.depth, self._inside.level))
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
