"""About how large the automaton of a content is, where that is plain to see without building it.

After the same text an array or an object is in one state of its content automaton, as long as no two members have the
same name. So the automaton has a state for each place in the content, and where there are alternatives, one for each
set of those that are left. For patterns and the like only building tells.
"""

from __future__ import annotations

from decimal import Decimal

from ..regex import ANYTHING, AllBut, Alt, Chars, Concat, Empty, Node, Not
from .content_automata import ContentAutomaton
from .grammar import Content
from .long_string import long_string
from .shapes import BooleanClause, Clause, NullClause, NumberClause, StringClause

_SCALAR = 64  # of any number, or one character of a string in all its spellings
_BRACKETS = 64  # of brackets and white space
_MOST_SIDES = 4  # alternatives for an array or an object
_FORMAT = 5_000  # of the largest format
_BOUNDED, _FEW_DIGITS = 2_000, 30  # of numbers between bounds that have no more digits, nor zeros after them
_FEW_EXCLUDED = 8
_FRACTIONS = 10_000  # of all numbers that are no integers
_ENTRY = 16  # of any entry
_SPELLING = 6  # bytes of a character at most, in the one spelling that a listed string has
_PLAIN = frozenset(NumberClause(integral, point_zero=point) for integral in (None, True) for point in (False, True))

_NO_INTEGERS = frozenset(NumberClause(False, point_zero=point) for point in (False, True))


def size_of_content(content: Content, marks: tuple[str, ...]) -> int | None:
    """About how many states and moves there are, those of what is called aside; None if that is not known.

    Args:
        content: of a position.
        marks: what no string holds.
    """
    sides = max(len(content.arrays), len(content.objects))
    if sides > _MOST_SIDES:
        return None
    size = _BRACKETS
    for clause in content.scalars:
        if (alone := _size_of_scalar(clause, marks)) is None:
            return None
        size += alone
    for automaton in content.automata:
        if (inside := _size_of_automaton(automaton, marks)) is None:
            return None
        size += (_BRACKETS + inside) << (sides - 1)  # with each set of the others
    return size


def is_endless(name: Node) -> bool:
    """Whether a language is any string, but for some that are listed: then there are any number of them."""
    return _left_out(name) is not None


def _times(marks: tuple[str, ...]) -> int:
    """States of a string in one place: how much of a mark may have come, with an escape or without."""
    return 1 + sum(2 * len(mark) + _SPELLING for mark in marks)


def _size_of_scalar(clause: Clause, marks: tuple[str, ...]) -> int | None:
    if isinstance(clause, StringClause):
        if clause.values is not None:
            return _SPELLING * sum(len(value) + 2 for value in clause.values)
        if clause.is_format:
            return _FORMAT * _times(marks)
        if clause.language != ANYTHING:
            left_out = _left_out(clause.language)
            is_bounded = clause.low > 0 or clause.high is not None
            return None if left_out is None or is_bounded else _SCALAR * _times(marks) + 2 * _SPELLING * left_out
        return _SCALAR * _times(marks) * (1 + (0 if long_string(clause) else clause.high or clause.low))
    if isinstance(clause, NumberClause):
        if clause.values is not None:
            return sum(map(_size_of_number, clause.values))
        if clause in _PLAIN:
            return _SCALAR
        if clause in _NO_INTEGERS:
            return _FRACTIONS
        bounds = clause.low, clause.high
        if clause.integral is False or clause.factors or len(clause.excluded) > _FEW_EXCLUDED:
            return None
        return _BOUNDED if all(map(_has_few_digits, (*bounds, *clause.excluded))) else None
    return 0 if isinstance(clause, (NullClause, BooleanClause)) else None


def _has_few_digits(bound: Decimal | None) -> bool:
    if bound is None:
        return True
    _, digits, exponent = bound.as_tuple()
    return len(digits) <= _FEW_DIGITS and abs(int(exponent)) <= _FEW_DIGITS


def _size_of_number(number: Decimal) -> int:
    _, digits, exponent = number.as_tuple()
    return _SCALAR + len(digits) + abs(int(exponent))  # as many zeros may be written


def _size_of_automaton(automaton: ContentAutomaton, marks: tuple[str, ...]) -> int | None:
    keys = [entry.value if entry.name is None else entry.name for entry in automaton.entries()]
    if len(set(keys)) < len(keys) and (any(automaton.skips) or max(map(len, automaton.edges)) > 1):
        return None
    if len({name for name in keys if isinstance(name, Node)}) > 1:
        return None
    size = len(automaton.edges) * len(keys) // 4  # each member that may be left out leads to all that come later
    times = _times(marks)
    for edges in automaton.edges:
        for edge in edges:
            for entry in edge.entries:
                characters = _characters(entry.name)
                if characters is None:
                    return None
                places = _ENTRY * times if isinstance(entry.name, Node) else _ENTRY
                size += max(edge.low, edge.high or 1) * (places + _SPELLING * characters)
    return size


def _characters(name: str | Node | None) -> int | None:
    """How many characters a name has, or the names that it may not be; None if it is another kind of language."""
    if isinstance(name, Node):
        return _left_out(name)
    return len(name or "")


def _left_out(name: Node) -> int | None:
    """The length of some words together, where a language is all strings but those; None if it is another kind."""
    if isinstance(name, AllBut):
        return sum(map(len, name.words))
    if not isinstance(name, Not):
        return 0 if name == ANYTHING else None
    length = 0
    for branch in name.body.parts if isinstance(name.body, Alt) else (name.body,):
        for part in branch.parts if isinstance(branch, Concat) else (branch,):
            if isinstance(part, Chars):
                length += len(part.charset.ranges)
            elif not isinstance(part, Empty):
                return None
    return length
