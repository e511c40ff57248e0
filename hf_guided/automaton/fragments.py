"""Small deterministic automata that are put between two states of an NFA, as often as needed, as one piece each.

What a piece is made of is worked out once: a bounded string is a thousand times the same character, an object has the
same white space everywhere. The states inside a piece need no sets of states, so ``subsets.py`` copies them by
whole arrays.

State 0 is dead. State 1 is the exit, where the piece ends and nothing continues; the others come after it. The start
is none of them: nothing leads back to it.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ..regex import CharSet
from ..regex.charset import Range
from .byte_dfa import ByteDfa
from .core import address

EXIT = 1
FIRST = 2  # the first state that is neither dead nor the exit
_START = 0  # while one character is spelled: then no state is dead
# First and last code point, byte above the digits of the first byte, continuation bytes (six bits each) after it.
_LENGTHS = ((0x80, 0x7FF, 0xC0, 1), (0x800, 0xFFFF, 0xE0, 2), (0x10000, 0x10FFFF, 0xF0, 3))


class Fragment:
    """A language that has strings; immutable, except for results computed on first use."""

    __slots__ = ("__dict__", "bounds", "is_end", "nullable", "start", "states", "table")

    def __init__(
        self,
        table: NDArray[np.int32],  # (states, segments) the state after each segment of bytes; row 1 is the empty exit
        bounds: NDArray[np.int64],  # (segments + 1,) the first byte of each segment, then 256
        start: NDArray[np.int32],  # (segments,) the state after each segment from the start
        is_end: NDArray[np.uint8],  # (states,) whether it may end in a state other than the exit
        nullable: bool,  # whether the empty string is in it
    ):
        self.table, self.start = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(start, np.int32)
        self.bounds = np.ascontiguousarray(bounds, np.int64)
        self.is_end, self.nullable = is_end, nullable
        self.states = len(table)

    @cached_property
    def described(self) -> tuple[int, ...]:
        """``Fragment`` of subsets.c."""
        arrays = self.table, self.bounds, self.start, self.is_end
        return *map(address, arrays), self.states, self.table.shape[1], 0


class Literal:
    """A single string of one byte or more; has what ``Fragment`` has, but no table."""

    __slots__ = ("data", "states")
    nullable = False

    def __init__(self, data: bytes):
        self.data = data
        self.states = len(data) + 1  # after the first byte comes state 2


@lru_cache(maxsize=1024)
def one_of(charset: CharSet) -> Fragment:
    """One character of a set, in UTF-8."""
    ascii_steps = [(_START, first, min(last, 0x7F), EXIT) for first, last in charset.ranges if first <= 0x7F]
    states, steps = _others(tuple(each for each in charset.ranges if each[1] > 0x7F))
    edges = np.array([*ascii_steps, *steps], np.int64).reshape(-1, 4)
    bounds = np.unique(np.concatenate((edges[:, 1], edges[:, 2] + 1, [0, 256])))
    table = np.zeros((states, len(bounds) - 1), np.int32)
    segments = np.searchsorted(bounds, (edges[:, 1], edges[:, 2] + 1))
    for source, low, high, target in np.column_stack((edges[:, 0], *segments, edges[:, 3])).tolist():
        table[source, low:high] = target
    start = table[_START].copy()
    table[_START] = 0  # the dead state is row 0 here
    return Fragment(table, bounds, start, np.zeros(states, np.uint8), nullable=False)


@lru_cache(maxsize=1024)
def _others(ranges: tuple[Range, ...]) -> tuple[int, list[tuple[int, int, int, int]]]:
    r"""The characters that are not ASCII: ``\w`` and ``[\w.-]`` have the same ones, which take milliseconds.

    The result is how many states there are, _START and EXIT among them, and the steps: source, first byte, last byte,
    target.
    """
    # The state of each row of digits (ranges of what they write, how many digits): where it is the same, it is shared.
    numbers: dict[tuple[tuple[Range, ...], int], int] = {}
    todo = [
        (_START, tuple((max(a, low), min(b, high)) for a, b in ranges if a <= high and b >= low), count, lead)
        for low, high, lead, count in _LENGTHS
    ]
    steps: list[tuple[int, int, int, int]] = []
    for source, parts, count, lead in todo:  # grows meanwhile
        if not count:
            steps += [(source, lead + first, lead + last, EXIT) for first, last in parts]
            continue
        for first, last, rest in _by_first_digit(parts, 64**count):
            if (rest, count) not in numbers:
                numbers[rest, count] = len(numbers) + FIRST
                todo.append((numbers[rest, count], rest, count - 1, 0x80))
            steps.append((source, lead + first, lead + last, numbers[rest, count]))
    return len(numbers) + FIRST, steps


def _by_first_digit(ranges: tuple[Range, ...], unit: int) -> list[tuple[int, int, tuple[Range, ...]]]:
    """First digits side by side with the same numbers after them, and the ranges of those numbers."""
    if unit == 1:  # the last digit
        return [(first, last, ((0, 0),)) for first, last in ranges]
    after: dict[int, tuple[Range, ...]] = {}
    for first, last in ranges:
        for digit in range(first // unit, last // unit + 1):
            low = digit * unit
            after[digit] = (*after.get(digit, ()), (max(first, low) - low, min(last, low + unit - 1) - low))
    runs: list[tuple[int, int, tuple[Range, ...]]] = []
    for digit, rest in after.items():
        begin = runs.pop()[0] if runs and runs[-1][1:] == (digit - 1, rest) else digit
        runs.append((begin, digit, rest))
    return runs


def from_dfa(dfa: ByteDfa) -> Fragment | None:
    """A piece from an automaton; None if it has no string."""
    if not dfa.start:
        return None
    byte_class = dfa.byte_class
    changes = (byte_class[1:] != byte_class[:-1]).nonzero()[0]
    bounds = np.empty(len(changes) + 2, np.int64)
    bounds[0], bounds[1:-1], bounds[-1] = 0, changes + 1, 256
    full = dfa.table[:, byte_class[bounds[:-1]]]  # (states, segments)
    inner = np.array(full.any(1))
    number = np.zeros(dfa.states, np.int32)
    number[dfa.accepting & ~inner] = EXIT
    if not (full == dfa.start).any():
        inner[dfa.start] = False
    states = FIRST + int(np.count_nonzero(inner))
    number[inner] = np.arange(FIRST, states)
    table = np.zeros((states, full.shape[1]), np.int32)
    table[FIRST:] = number[full[inner]]
    is_end = np.zeros(states, np.uint8)
    is_end[FIRST:] = dfa.accepting[inner]
    return Fragment(table, bounds, number[full[dfa.start]], is_end, bool(dfa.accepting[dfa.start]))
