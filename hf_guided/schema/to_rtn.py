"""A schema as an RTN (automaton/rtn.py): one small automaton for the values of each position.

It has the shapes and content automata that `to_lark.py` and `to_nfa.py` write, but every value inside another is a
call, so recursion and positions for any JSON value cost nothing. All white space that an engine writes is accepted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple, Protocol

from ..constraints.json_style import JsonStyle
from ..regex import ANYTHING, Node, alt, json_spellings, parse_fullmatch
from .context import too_deep_is_a_limit
from .depth import ANY_CONTENT, within_depth
from .grammar import Content, contents
from .layout import Layout, layout_around
from .normalize import Normalizer
from .ranges import undecided_factors
from .scalars import Values, language_of, numbers_without_undecided, quoted, without
from .shapes import ANY, Clause, Kind, NumberClause, Position, StringClause
from .to_nfa import Builder, NfaWriter, Regular, ValueSlot

_ANY_STRING = parse_fullmatch(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_ANY_NUMBER = parse_fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


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


class Positions:
    """The positions of a schema, each to be lowered on its own.

    Args:
        n: the schema.
        style: how an engine writes values; with any spelling, in every spelling that some engine writes.
        closed: whether objects that declare properties and do not speak of others have no others.
        schema: a name, where one RTN has several.
        marks: what none of the texts holds, see ``without``.
        max_depth: see ``within_depth``.

    Raises:
        InvalidConstraint: no value satisfies it.
        CompileLimitExceeded: it is too large.

    Attributes:
        name, marks: the arguments.
        position, level: of a whole text.
        root: its callee.
    """

    def __init__(
        self,
        n: Normalizer,
        style: JsonStyle,
        *,
        closed: bool,
        schema: str = "",
        marks: tuple[str, ...] = (),
        max_depth: int | None = None,
    ):
        self._style, self.name, self.marks = style, schema, marks
        self.position, self._own = within_depth(n.root, self._contents(n, closed), max_depth)
        self._schema = Regular(self.position, {ANY: ANY_CONTENT, **self._own}, None, None)
        self.level = None if style.indent is None else 0
        self.root = self.callee(self.position, self.level)

    def _contents(self, n: Normalizer, closed: bool) -> dict[Position, Content]:
        return {
            position: replace(content, scalars=tuple(map(_without_upper_bound, content.scalars)))
            for position, content in contents(n, closed=closed, spelling=self._style.spelling).items()
        }

    def callee(self, position: Position, level: int | None) -> Callee:
        """The callee for a value at a position: the same where the same scalars are allowed."""
        content = self._schema.contents[position]
        if content.arrays or content.objects or content.any_array or content.any_object:
            return Inside(position, level, self.name)
        languages: list[Node] = []
        for clause in content.scalars:
            language = self.language(clause)
            if language is None:
                return Inside(position, level, self.name)
            languages.append(language)
        return alt(*languages)

    def long_string(self, clause: Clause, closing: str | None = None) -> Hashable | None:
        """The name of a component for a string that a register counts; None if there is none.

        Args:
            clause: of values without children.
            closing: the mark after a string whose characters are written as they are; None for a JSON string.
        """
        return None

    def language(self, clause: Clause) -> Node | None:
        """The texts of a clause's values, and what else engines let pass of them."""
        if self._style.is_canonical:
            return language_of(clause, "canonical", self.marks)
        language = _tolerant(clause)
        return without(language, self.marks) if isinstance(clause, StringClause) and language is not None else language

    @too_deep_is_a_limit()
    def build(self, callee: Inside, builder: Caller) -> tuple[int, int]:
        """Build the automaton of a callee.

        Returns:
            The state before a value, and the one after it.

        Raises:
            NotRegular: a scalar is not.
        """
        start = builder.state()
        end = builder.state()
        schema = self._schema
        if callee.only is not None:
            schema = replace(schema, contents={**schema.contents, callee.position: self.container(callee)})
        slot = ValueSlot(callee.position, end, None, callee.level)
        self._writer(schema, builder).fill(slot, start)
        return start, end

    def _writer(self, schema: Regular, builder: Caller) -> NfaWriter:
        return _Tolerant(self, schema, builder, self._style, self.marks)

    def content(self, position: Position) -> Content:
        """The values at a position."""
        return self._schema.contents[position]

    def container(self, callee: Inside) -> Content:
        """The values of one kind that are allowed at a position: arrays or objects."""
        content = self.content(callee.position)
        if callee.only == "array":
            return Content(arrays=content.arrays, any_array=content.any_array)
        return Content(objects=content.objects, any_object=content.any_object)

    def add_multiples(self, clause: NumberClause, start: int, end: int, builder: Builder) -> None:
        """Add the numbers of a clause that digits do not decide between two states."""
        numbers = numbers_without_undecided(clause, self._style.spelling)
        builder.add_multiples(numbers, undecided_factors(clause), start, end)


class CallingWriter(NfaWriter):
    """Writes a call for every value inside another.

    Args:
        positions: whose values it calls.
        schema, builder, style, marks: see ``NfaWriter``.
    """

    def __init__(
        self, positions: Positions, schema: Regular, builder: Caller, style: JsonStyle, marks: tuple[str, ...]
    ):
        super().__init__(schema, builder, style, marks)
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


class _Tolerant(CallingWriter):
    """Writes what any engine accepts."""

    def layout(self, level: int | None) -> Layout:
        """As any engine lays it out."""
        return layout_around(self._style, level)

    def language(self, clause: Clause) -> Node | None:
        """As any engine spells it."""
        return self._positions.language(clause)

    def names(self, language: Node) -> Node:
        """Engines differ in how a name that is not declared may be spelled."""
        if self._style.is_canonical:
            return super().names(language)
        return without(_ANY_STRING if language == ANYTHING else quoted(json_spellings(language)), self._marks)


def _tolerant(clause: Clause) -> Node | None:
    """The texts of a clause's values, and what else engines let pass: huge exponents, halves of surrogate pairs."""
    if clause == StringClause():
        return _ANY_STRING
    language = language_of(clause, "any")
    if language is not None and isinstance(clause, NumberClause) and language == language_of(NumberClause(), "any"):
        return _ANY_NUMBER
    return language


def _without_upper_bound(clause: Clause) -> Clause:
    """The shortest path to the end of a string does not depend on its longest length: if it is too long, all are.

    Engines leave no path from states where all are; and an automaton that counts the length of a pattern is large.
    """
    return replace(clause, high=None) if isinstance(clause, StringClause) and clause.values is None else clause
