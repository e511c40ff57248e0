"""A schema as a network of small automata that call each other: one for the values of each position.

The same shapes and tracks as `lark.py` and `lower.py` write, but every value inside another is a call, so recursion and
places for any JSON value cost nothing. White space is taken in every way that an engine writes it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ..regex import ANYTHING, Node, alt, concat, json_spellings, parse_fullmatch
from .grammar import Content, contents, too_deep_is_a_limit
from .layout import Layout, layout_around
from .lower import Builder, Lowering
from .normalize import Normalizer
from .scalars import language_of, quoted
from .shapes import ANY, BooleanClause, Clause, NullClause, NumberClause, Position, StringClause, string_language
from .tracks import Edge, Entry, Track

_ANY_STRING = parse_fullmatch(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_ANY_NUMBER = parse_fullmatch(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ANY_NAME = string_language(StringClause())
Callee = Position | Node  # a position, or the language of one whose values have no children


class Caller(Builder, Protocol):
    """A builder that can also call."""

    def call(self, callee: Callee, start: int) -> int:
        """A value of the callee behind a state; gives the state behind it."""
        ...


class Positions:
    """The positions of a schema, each to be lowered on its own.

    Args:
        n: the schema.
        whitespace: "flexible" or "compact".
        closed: whether objects that declare properties and do not speak of others have no others.

    Raises:
        InvalidConstraint: no value satisfies it.
        CompileLimitExceeded: it is too large.
    """

    def __init__(self, n: Normalizer, *, whitespace: str, closed: bool):
        any_content = _any_content()
        self._contents = {ANY: any_content}
        for position, content in contents(n, closed=closed).items():
            self._contents[position] = Content(
                [_without_upper_bound(clause) for clause in content.scalars],
                any_content.arrays if content.any_array else content.arrays,
                any_content.objects if content.any_object else content.objects,
            )
        self._layout = layout_around(whitespace)
        self.root = self.callee(n.root)

    def callee(self, position: Position) -> Callee:
        """What is called for a value at a position: the same where the same scalars may stand."""
        content = self._contents[position]
        if content.arrays or content.objects:
            return position
        languages = [_tolerant(clause) for clause in content.scalars]
        return position if None in languages else alt(*(one for one in languages if one is not None))

    @too_deep_is_a_limit()
    def lower(self, callee: Callee, builder: Caller) -> tuple[int, int]:
        """Build the automaton of what is called.

        Returns:
            The state before a value, and the one behind it.

        Raises:
            NotRegular: a scalar is not.
        """
        start = builder.state()
        if isinstance(callee, Node):
            return start, builder.regex(callee, start)
        return start, _Calling(self, self._contents, builder, self._layout).content(
            callee, self._contents[callee], start
        )


class _Calling(Lowering):
    def __init__(self, positions: Positions, found: dict[Position, Content], builder: Caller, layout: Layout):
        super().__init__(found, builder, layout)
        self._positions, self._caller = positions, builder

    def value(self, position: Position, start: int) -> int:
        """A call in place of the value."""
        return self._caller.call(self._positions.callee(position), start)

    def language(self, clause: Clause) -> Node | None:
        """As any engine spells it."""
        return _tolerant(clause)

    def _entry(self, entry: Entry, start: int) -> int:
        if entry.name is None or isinstance(entry.name, str):
            return super()._entry(entry, start)
        # Engines differ in how a name that is not declared may be spelled.
        name = _ANY_STRING if entry.name == _ANY_NAME else quoted(json_spellings(entry.name))
        return self.value(entry.value, self._builder.regex(concat(name, self._layout.colon), start))


def _tolerant(clause: Clause) -> Node | None:
    """The texts of a clause's values, and what else engines let pass: huge exponents, halves of surrogate pairs."""
    if clause == StringClause():
        return _ANY_STRING
    language = language_of(clause)
    if language is not None and isinstance(clause, NumberClause) and language == language_of(NumberClause()):
        return _ANY_NUMBER
    return language


def _without_upper_bound(clause: Clause) -> Clause:
    """Any string may end once it is long enough, so the way out does not depend on how long it may get."""
    if isinstance(clause, StringClause) and clause.values is None and clause.language is ANYTHING:
        return replace(clause, high=None)
    return clause


def _any_content() -> Content:
    def track(entry: Entry) -> Track:
        found = Track(accepting={0})
        end = found.state()
        found.accepting.add(end)
        found.edges[0].append(Edge((entry,), end, 1, None))
        return found

    return Content(
        scalars=[NullClause(), BooleanClause(), NumberClause(), StringClause()],
        arrays=[track(Entry(None, ANY))],
        objects=[track(Entry(_ANY_NAME, ANY))],
    )
