"""About how large the automaton of a content is, where that is plain to see without building it.

After the same text an array or an object is in one state of its content automaton, as long as no two members have the
same name. So the automaton has a state for each place in the content, and where there are alternatives, one for each
set of those that are left. For patterns and the like only building tells.
"""

from __future__ import annotations

from decimal import Decimal

from ..regex import ANYTHING, Alt, Chars, Concat, Empty, Node, Not
from .content_automata import ContentAutomaton, Entry
from .grammar import Content
from .shapes import UNIVERSE, BooleanClause, Clause, NullClause, NumberClause, StringClause
from .to_network import long_string

_SCALAR = 64  # of any number, or one character of a string in all its spellings
_BRACKETS = 64  # of brackets and white space
_MOST_SIDES = 4  # alternatives for an array or an object
_ENTRY = 16  # of any entry
_SPELLING = 6  # bytes of a character at most, in the one spelling that a listed string has
_PLAIN: tuple[Clause, ...] = (UNIVERSE["number"][0], NumberClause(integral=True))


def size_of_content(content: Content, marks: tuple[str, ...]) -> int | None:
    """About how many states and moves there are, those of what is called aside; None if that is not known.

    Args:
        content: of a position.
        marks: what no string holds.
    """
    sides = max(len(content.arrays), len(content.objects))
    inside = [_size_of_automaton(automaton, marks) for automaton in (*content.arrays, *content.objects)]
    scalars = [_size_of_scalar(clause, marks) for clause in content.scalars]
    if sides > _MOST_SIDES or None in inside or None in scalars:
        return None
    alone = sum(size for size in scalars if size is not None)
    return _BRACKETS + alone + (1 << sides) * sum(_BRACKETS + size for size in inside if size is not None)


def is_endless(name: Node) -> bool:
    """Whether a language is any string, but for some that are listed: then there are any number of them."""
    return name == ANYTHING or (isinstance(name, Not) and _characters(name.body) is not None)


def _times(marks: tuple[str, ...]) -> int:
    """States of a string in one place: how much of a mark may have come, with an escape or without."""
    return 1 + sum(2 * len(mark) + _SPELLING for mark in marks)


def _size_of_scalar(clause: Clause, marks: tuple[str, ...]) -> int | None:
    if isinstance(clause, (NullClause, BooleanClause)):
        return 0
    if clause in _PLAIN:
        return _SCALAR
    if isinstance(clause, NumberClause) and clause.values is not None:
        return sum(map(_size_of_number, clause.values))
    if isinstance(clause, StringClause) and clause.values is not None:
        return _SPELLING * sum(len(value) + 2 for value in clause.values)
    if isinstance(clause, StringClause) and clause.language == ANYTHING:
        return _SCALAR * _times(marks) * (1 + (0 if long_string(clause, marks) else clause.high or clause.low))
    return None


def _size_of_number(number: Decimal) -> int:
    _, digits, exponent = number.as_tuple()
    return _SCALAR + len(digits) + abs(int(exponent))  # as many zeros may be written


def _size_of_automaton(automaton: ContentAutomaton, marks: tuple[str, ...]) -> int | None:
    entries: list[Entry] = []
    size, states = 0, len(automaton.edges)
    for edges in automaton.edges:
        for edge in edges:
            entries += edge.entries
            names = sum(_size_of_name(entry, marks) for entry in edge.entries)
            size += max(edge.low, edge.high or 1) * (_ENTRY * len(edge.entries) + names)
    keys = [entry.value if entry.name is None else entry.name for entry in entries]
    if len(set(keys)) < len(keys) and (any(automaton.skips) or max(map(len, automaton.edges)) > 1):
        return None
    others = {name for name in keys if isinstance(name, Node)}
    if len(others) > 1 or not all(map(is_endless, others)):
        return None
    return size + states * len(entries) // 4  # each of the members that may be left out leads to all that come later


def _size_of_name(entry: Entry, marks: tuple[str, ...]) -> int:
    if entry.name is None:
        return 0
    if isinstance(entry.name, str):
        return _SPELLING * len(entry.name)
    characters = _characters(entry.name.body) if isinstance(entry.name, Not) else 0
    return _SPELLING * (characters or 0) + _ENTRY * (_times(marks) - 1)


def _characters(words: Node) -> int | None:
    """The length of some words together; None if it is another kind of language."""
    branches = words.branches if isinstance(words, Alt) else (words,)
    parts = [part for branch in branches for part in (branch.parts if isinstance(branch, Concat) else (branch,))]
    if not all(isinstance(part, (Chars, Empty)) for part in parts):
        return None
    return sum(len(part.charset.ranges) for part in parts if isinstance(part, Chars))
