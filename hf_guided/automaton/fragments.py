"""Small deterministic automata that are put between two states of an NFA, as often as needed, as one piece each.

What a piece is made of is worked out once: a bounded string is a thousand times the same character, an object has the
same white space everywhere. The states inside a piece need no sets of states, so ``subsets.py`` copies them by
whole arrays.

State 0 is dead. State 1 is the exit, where the piece ends and nothing continues; the others come after it. The start
is none of them: nothing leads back to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ..regex import CharSet
from .byte_dfa import ByteDfa
from .core import address
from .utf8 import START, utf8_steps

EXIT = 1
FIRST = 2  # of the states that are neither dead nor the exit


class Fragment:
    """A language that has strings; immutable, except for results computed on first use.

    Args:
        table: (states, segments) int32, where each segment of bytes leads; row 1 is the exit's, and empty.
        bounds: (segments + 1,) the first byte of each segment, then 256.
        start: (segments,) int32, where the start leads.
        is_end: (states,) uint8, whether it may end in a state other than the exit.
        nullable: whether the empty string is in it.
    """

    __slots__ = ("__dict__", "bounds", "is_end", "nullable", "start", "states", "table")

    def __init__(
        self,
        table: NDArray[np.int32],
        bounds: NDArray[np.int64],
        start: NDArray[np.int32],
        is_end: NDArray[np.uint8],
        nullable: bool,
    ):
        self.table, self.start = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(start, np.int32)
        self.bounds = np.ascontiguousarray(bounds, np.int64)
        self.is_end, self.nullable = is_end, nullable
        self.states = len(table)

    @cached_property
    def content(self) -> bytes:
        """The same for equal pieces."""
        content = blake2b(b"%d %d" % (self.states, self.nullable), digest_size=16)
        for array in (self.bounds, self.table, self.start, self.is_end):
            content.update(array.data)
        return content.digest()

    @cached_property
    def described(self) -> tuple[int, ...]:
        """``Fragment`` of subsets.c."""
        arrays = self.table, self.bounds, self.start, self.is_end
        return *map(address, arrays), self.states, self.table.shape[1], 0


class Literal:
    """A single string of one byte or more; has what ``Fragment`` has, but no table.

    Args:
        data: the string.
    """

    __slots__ = ("content", "data", "states")
    nullable = False

    def __init__(self, data: bytes):
        self.data = self.content = data
        self.states = len(data) + 1  # after the first byte comes state 2


@lru_cache(maxsize=1024)
def one_of(charset: CharSet) -> Fragment:
    """One character of a set, in UTF-8."""
    return from_steps(*utf8_steps(charset))


def from_steps(states: int, steps: Iterable[tuple[int, int, int, int]]) -> Fragment:
    """A piece from its edges: source, first byte, last byte, target; START and END are two of the states."""
    edges = np.array(list(steps), np.int64).reshape(-1, 4)
    bounds = np.unique(np.concatenate((edges[:, 1], edges[:, 2] + 1, [0, 256])))
    table = np.zeros((states, len(bounds) - 1), np.int32)
    for source, low, high, target in zip(
        *(
            column.tolist()
            for column in (edges[:, 0], *np.searchsorted(bounds, (edges[:, 1], edges[:, 2] + 1)), edges[:, 3])
        ),
        strict=True,
    ):
        table[source, low:high] = target
    start = table[START].copy()
    table[START] = 0  # the dead state is row 0 here
    return Fragment(table, bounds, start, np.zeros(states, np.uint8), nullable=False)


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
