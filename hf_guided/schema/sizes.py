"""Sizes that are plain to see without building anything: of an automaton, and of the least text of a value.

After the same text an array or an object is in one state of its content automaton, as long as no two members have the
same name. So the automaton has a state for each place in the content, and where there are alternatives, one for each
set of those that are left. For patterns and the like only building tells.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from decimal import Decimal

from ..constraints.json_style import JsonStyle
from ..regex import ANYTHING, AllBut, Node
from .content_automata import ContentAutomaton, DifferentNames, Edge, Entry, left_out_length
from .grammar import Content
from .scalars import constant_text, listed_texts, long_string
from .shapes import BooleanClause, Clause, NullClause, NumberClause, Position, StringClause

_SCALAR = 64  # any number, or one character of a string in all its spellings
_BRACKETS = 64  # brackets and white space
_MOST_SIDES = 4  # alternatives for an array or an object
_FORMAT = 5_000  # the largest format
_BOUNDED, _FEW_DIGITS = 2_000, 30  # numbers between bounds that have no more digits, nor zeros after them
_FEW_EXCLUDED = 8
_FRACTIONS = 10_000  # all numbers that are no integers
_ENTRY = 16  # any entry
_SPELLING = 6  # bytes of a character at most, in the one spelling that a listed string has
_PLAIN = frozenset(NumberClause(integral, point_zero=point) for integral in (None, True) for point in (False, True))
_NO_INTEGERS = frozenset(NumberClause(False, point_zero=point) for point in (False, True))
_NEVER = 1 << 29  # bytes of a text that is not known, or that there is none of
_DIGITS = tuple(map(Decimal, range(10)))
_FREE = 90  # characters that have one byte in a JSON string


def size_of_content(content: Content, marks: tuple[str, ...]) -> int | None:
    """About how many states and moves there are, those of what is called aside; None if that is not known.

    ``marks`` are what no string holds.
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
            left_out = left_out_length(clause.language)
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
        if clause.integral is False or clause.factors or len(clause.excluded) > _FEW_EXCLUDED:
            return None
        return _BOUNDED if all(map(_has_few_digits, (clause.low, clause.high, *clause.excluded))) else None
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
    for edge in (edge for edges in automaton.edges for edge in edges):
        for name, _ in edge.entries:
            characters = left_out_length(name) if isinstance(name, Node) else len(name or "")
            if characters is None:
                return None
            places = _ENTRY * _times(marks) if isinstance(name, Node) else _ENTRY
            size += max(edge.low, edge.high or 1) * (places + _SPELLING * characters)
    return size


class LeastSizes:
    """Bytes that are enough for the values of a schema: what a token limit has to leave for them.

    Never fewer than the shortest text of a value has. Where only its automaton tells, the answer is None.

    Args:
        contents_of: of the positions, children mostly after their parents.
        style: how values are written.
        marks: what no string holds.
    """

    def __init__(self, contents_of: dict[Position, Content], style: JsonStyle, marks: tuple[str, ...]):
        self._style, self._marks = style, marks
        self._separator = 2 if style.whitespace == "compact" else 1  # bytes of a comma or a colon
        self._sizes: dict[Position, int] = {}
        self._names: dict[str | Node, int] = {}
        waiting = [*reversed(contents_of)] if style.indent is None else []  # an indentation depends on the depth
        while waiting:
            left = [position for position in waiting if not self._find(position, contents_of[position])]
            if len(left) == len(waiting):
                break
            waiting = left

    def at(self, position: Position) -> int | None:
        """Bytes that are enough for a value at a position."""
        return self._sizes.get(position)

    def of_scalars(self, clauses: Iterable[Clause]) -> int | None:
        """Bytes that are enough for a value of one of these clauses."""
        sizes = [size for clause in clauses if (size := self._scalar(clause)) is not None]
        return min(sizes, default=None)

    def _find(self, position: Position, content: Content) -> bool:
        """Find the size of a position, unless it depends on what is not known yet."""
        size = min([self.of_scalars(content.scalars) or _NEVER, *map(self._entries, content.automata)])
        if size < _NEVER:
            self._sizes[position] = size
        return size < _NEVER

    def _scalar(self, clause: Clause) -> int | None:
        texts = listed_texts(clause, self._style.spelling, self._marks)
        if texts is not None:
            return min((len(text.encode()) for text in texts), default=None)
        if isinstance(clause, NumberClause):
            return 1 if clause.integral is not False and any(map(clause.has, _DIGITS)) else None
        if isinstance(clause, StringClause) and clause.language == ANYTHING:
            return 2 + clause.low
        return None

    def _entries(self, automaton: ContentAutomaton) -> int:
        """Bytes that are enough for an array or an object: each entry counts with a comma, and one has none."""
        if isinstance(automaton.register, DifferentNames):
            return self._members(automaton, automaton.register)
        if automaton.register is not None and automaton.register.low > 1:
            return _NEVER  # only values tell
        costs = [0 if state in automaton.accepting else _NEVER for state in range(len(automaton.edges))]
        changed = True
        while changed:
            changed = False
            for state in reversed(range(len(costs))):  # most edges lead to later ones
                ways = [costs[target] for target in automaton.skips[state]]
                ways += [costs[edge.target] + edge.low * self._entry(edge) for edge in automaton.edges[state]]
                cost = min(ways, default=_NEVER)
                if cost < costs[state]:
                    costs[state], changed = cost, True
        return 2 + max(0, costs[0] - self._separator)

    def _members(self, automaton: ContentAutomaton, register: DifferentNames) -> int:
        """Bytes that are enough for an object whose register counts different names."""
        if not register.any_order:
            return _NEVER
        required, others = list[int](), list[int]()
        named = {entry.name: self._separator + self._named(entry) for entry in automaton.entries()}
        more = max(0, register.low - sum(name in register.required for name in named))
        for name, cost in named.items():
            if isinstance(name, str):
                (required if name in register.required else others).append(cost)
            elif name is not None and cost < _NEVER:
                shortest = self._name(name)
                others += [cost + length - shortest for length in _lengths(name, more)]
        chosen = required + sorted(others)[:more]
        return min(_NEVER, 2 + max(0, sum(chosen) - self._separator)) if len(chosen) >= register.low else _NEVER

    def _entry(self, edge: Edge) -> int:
        return self._separator + min(map(self._named, edge.entries), default=_NEVER)

    def _named(self, entry: Entry) -> int:
        value = self._sizes.get(entry.value, _NEVER)
        if entry.name is None or value >= _NEVER:
            return value
        if entry.name not in self._names:
            self._names[entry.name] = self._name(entry.name)
        return min(_NEVER, self._names[entry.name] + self._separator + value)

    def _name(self, name: str | Node) -> int:
        if isinstance(name, str):
            return len(constant_text(name, self._marks).encode())
        return next(iter(_lengths(name, 1)), _NEVER)


def _lengths(name: Node | None, count: int) -> list[int]:
    """Bytes of the shortest names of a language, at least, with their quotes; none where they are not plain to see."""
    left_out = name.words if isinstance(name, AllBut) else () if name == ANYTHING else None
    lengths: list[int] = []
    for length in itertools.count() if left_out is not None else ():
        if len(lengths) >= count:
            break
        free = _FREE**length - sum(len(word) == length for word in left_out or ())
        lengths += [2 + length] * min(max(0, free), count - len(lengths))
    return lengths
