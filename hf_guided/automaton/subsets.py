"""From an NFA over bytes to the minimal DFA: subset construction, on ranges of bytes rather than on single ones.

Sets of states are only needed where an NFA leaves a choice: in its own states, and where two pieces begin alike. A
state inside a piece that is reached alone is a state of the DFA as it is. It gets its number when it is first
reached, together with all that follow inside, and the rows of all copies of a piece are written at once.

    set of states ──byte──► set of states          row by row
    set of states ──byte──► inside of a piece ──► ... ──► exit: set of states         by arrays

Some members of a set can be left out, because another member has all their paths to the end. ``x{3,60}`` is sixty
copies of x in a row, and a text may end after the third or any later one. So from a state in the fourth copy every
string leads to the end that does so from the same state in the fifth: the fourth *dominates* the fifth. Sets of states
that differ in dominated members alone accept the same strings. Without this, texts that can be split into repetitions
in many ways make sets with every possible count, and a set for every such set of counts.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import NOTHING, ByteDfa, Counts, minimal_dfa
from .core import CORE, record
from .fragments import FIRST, Fragment, Literal
from .limits import SORTED, SUBSET_MEMBERS, WorkMeter, looking, no_memory

_MOST_MEMBERS = (1 << 31) - 1  # the most members of an NFA: the loops keep their numbers as int32
_NO_MEMORY, _STOPPED = -1, -2  # as in subsets.c
_MAX_NESTING = 4  # repetitions inside one another that are distinguished; outer ones are left as they are
Piece = tuple[int, Fragment | Literal, int]  # source, what is between, target


class Repetition(NamedTuple):
    """Copies of one part of an NFA, one after another, of which each dominates the next; numbers are consecutive."""

    first_state: int  # the first state of the first copy
    states: int  # the number of states of one copy
    first_piece: int  # the first piece of the first copy
    pieces: int  # the number of pieces of one copy
    copies: int


class Copies(NamedTuple):
    """The copies of repetitions that the states and the pieces of an NFA are in."""

    state_index: NDArray[np.int64]  # (states,) the same state in the first copies
    piece_index: NDArray[np.int64]  # (pieces,) the same piece in the first copies
    state_ranks: NDArray[np.int32]  # (states, levels) the number of its copy, those of inner repetitions first
    piece_ranks: NDArray[np.int32]  # (pieces, levels) the same for pieces


@dataclass(frozen=True)
class Nfa:
    """States 0, 1 ... and the pieces between them."""

    states: int
    pieces: list[Piece]  # languages without the empty string that lead from state to state
    skips: list[tuple[int, int]]  # source and target of each edge without a byte
    repetitions: list[Repetition]  # the inner ones first

    @property
    def members(self) -> int:
        """Number of states, those inside pieces too."""
        return self.states + sum(piece.states - FIRST for _, piece, _ in self.pieces)

    def copies(self, meter: WorkMeter) -> Copies | None:
        """The copies of the repetitions; None where nothing is repeated."""
        if not self.repetitions:
            return None
        nested: list[tuple[int, Repetition]] = []  # and their levels: none, one ... repetitions are inside
        around: list[tuple[int, int]] = []  # first state and level of those that no later one has inside yet
        for repetition in self.repetitions:
            level = 0
            while around and around[-1][0] >= repetition.first_state:
                level = max(level, around.pop()[1] + 1)
            around.append((repetition.first_state, level))
            if level < _MAX_NESTING:
                nested.append((level, repetition))
        levels = 1 + max(level for level, _ in nested)
        state_index, piece_index = np.arange(self.states, dtype=np.int64), np.arange(len(self.pieces), dtype=np.int64)
        state_ranks, piece_ranks = (np.zeros((len(each), levels), np.int32) for each in (state_index, piece_index))
        for level, (first_state, states, first_piece, pieces, copies) in nested:
            for index, ranks, first, size in (
                (state_index, state_ranks, first_state, states),
                (piece_index, piece_ranks, first_piece, pieces),
            ):
                every = slice(first, first + size * copies)
                index[every] = np.tile(index[first : first + size], copies)
                ranks[every, level] = np.repeat(np.arange(copies), size)
        meter.spend(len(self.repetitions) + self.states + len(self.pieces))
        return Copies(state_index, piece_index, state_ranks, piece_ranks)


def determinize(nfa: Nfa, start: int, end: int, meter: WorkMeter) -> ByteDfa:
    """The automaton of all byte strings on a path from ``start`` to ``end``."""
    meter.check_states(nfa.members, _MOST_MEMBERS)
    sources, pieces, targets = zip(*nfa.pieces, strict=True) if nfa.pieces else ((), (), ())
    numbers: dict[Fragment | Literal, int] = {}
    fragment_of = array("i", [numbers.setdefault(piece, len(numbers)) for piece in pieces])
    fragments, data = _described(numbers)
    skips = array("i", chain.from_iterable(nfa.skips))
    arrays = fragments, fragment_of, array("i", sources), array("i", targets), skips
    copies = nfa.copies(meter)
    of_copies: list[int | None] = [None] * 4 if copies is None else [each.ctypes.data for each in copies]
    counts, minimal_counts = (ctypes.c_int64 * 5)(), Counts()
    with looking(meter) as look:
        struct, place = record(  # the fields of ``Nfa`` of subsets.c
            *(each.buffer_info()[0] for each in arrays),
            nfa.states, len(pieces), len(nfa.skips), len(numbers), start, end,
            -1 if copies is None else copies.state_ranks.shape[1],
            *of_copies, meter.limits.max_states, meter.left, look,
        )  # fmt: skip
        handle = CORE.subsets_begin(place, counts)
        try:
            status, work, states, members, columns = counts
            if not handle or status == _NO_MEMORY:
                raise no_memory()
            if status == _STOPPED:
                return NOTHING  # but ``looking`` raises
            meter.spend(work)
            meter.check_states(members // SUBSET_MEMBERS)
            meter.check_states(states)
            if states <= 1:
                return NOTHING
            meter.spend_cells((SORTED + 1) * states * columns)
            minimal = CORE.subsets_minimal(handle, minimal_counts)
        finally:
            if handle:
                CORE.subsets_end(handle)
            del struct, data  # the loops read them until now
    return minimal_dfa(minimal, minimal_counts)


def _described(fragments: Iterable[Fragment | Literal]) -> tuple[array[int], array[int]]:
    """``Fragment`` of subsets.c for each, and the texts of literals, which they point to."""
    data = array("B", b"".join(piece.data for piece in fragments if isinstance(piece, Literal)))
    address = data.buffer_info()[0]
    rows: list[int] = []
    for piece in fragments:
        if isinstance(piece, Literal):
            rows += 0, 0, 0, 0, piece.states, 0, address
            address += len(piece.data)
        else:
            rows += piece.described
    return array("q", rows), data
