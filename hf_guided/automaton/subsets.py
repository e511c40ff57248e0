"""From an NFA over bytes to the minimal DFA: subset construction, on ranges of bytes rather than on single ones.

Sets of states are only needed where an NFA leaves a choice: in its own states, and where two pieces begin alike. A
state inside a piece that is reached alone is a state of the DFA as it is. It gets its number when it is first
reached, together with all that follow inside, and the rows of all copies of a piece are written at once.

    set of states ──byte──► set of states          row by row
    set of states ──byte──► inside of a piece ──► ... ──► exit: set of states         by arrays
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from .byte_dfa import NOTHING, ByteDfa, Counts, minimal_dfa
from .core import CORE, record
from .fragments import FIRST, Fragment, Literal
from .limits import SORTED, SUBSET_MEMBERS, WorkMeter, looking, no_memory
from .repetitions import Copies, Repetition

_MOST_MEMBERS = (1 << 31) - 1  # the most members of an NFA: the loops keep their numbers as int32
_NO_MEMORY, _STOPPED = -1, -2  # as in subsets.c
Piece = tuple[int, Fragment | Literal, int]  # source, what is between, target


@dataclass(frozen=True)
class Nfa:
    """States 0, 1 ... and the pieces between them.

    Args:
        states: how many.
        pieces: languages without the empty string that lead from state to state.
        skips: source and target of each edge without a byte.
        repetitions: those in it, inner ones first.
    """

    states: int
    pieces: list[Piece]
    skips: list[tuple[int, int]]
    repetitions: list[Repetition]

    @property
    def members(self) -> int:
        """How many states there are, those inside pieces too."""
        return self.states + sum(piece.states - FIRST for _, piece, _ in self.pieces)

    def copies(self, meter: WorkMeter) -> Copies | None:
        """Of repetitions; None where nothing is repeated."""
        return Copies.of(self.repetitions, self.states, len(self.pieces), meter) if self.repetitions else None


class _Subsets(NamedTuple):
    """A construction that is done.

    Args:
        handle: for the loops.
        states: of the automaton.
        rows, columns: of its table; the rows after the states' are no part of it.
    """

    handle: int
    states: int
    rows: int
    columns: int


def determinize(nfa: Nfa, start: int, end: int, meter: WorkMeter) -> ByteDfa:
    """The automaton of all byte strings on a path from ``start`` to ``end``.

    Raises:
        CompileLimitExceeded: it is too large, or there is no memory for it.
    """
    counts = Counts()
    with _constructed(nfa, start, end, meter) as subsets:
        if subsets is None:
            return NOTHING
        meter.spend_cells((SORTED + 1) * subsets.states * subsets.columns)
        handle = CORE.subsets_minimal(subsets.handle, counts)
    return minimal_dfa(handle, counts)


@contextmanager
def _constructed(nfa: Nfa, start: int, end: int, meter: WorkMeter) -> Iterator[_Subsets | None]:
    """The construction, or None if no string leads to the end."""
    meter.check_states(nfa.members, _MOST_MEMBERS)
    sources, pieces, targets = zip(*nfa.pieces, strict=True) if nfa.pieces else ((), (), ())
    numbers: dict[Fragment | Literal, int] = {}
    fragment_of = array("i", [numbers.setdefault(piece, len(numbers)) for piece in pieces])
    fragments, data = _described(numbers)
    skips = array("i", chain.from_iterable(nfa.skips))
    arrays = fragments, fragment_of, array("i", sources), array("i", targets), skips
    copies, of_copies = nfa.copies(meter), list[np.ndarray]()
    if copies is not None:  # numpy's own integers are shorter on some platforms
        of_copies += (np.ascontiguousarray(index, np.int64) for index in (copies.state_index, copies.piece_index))
        of_copies += copies.state_ranks, copies.piece_ranks
    addresses: list[int | None] = [each.ctypes.data for each in of_copies]
    counts = (ctypes.c_int64 * 6)()
    with looking(meter) as look:
        struct, place = record(  # the fields of ``Nfa`` of subsets.c
            *(each.buffer_info()[0] for each in arrays),
            nfa.states, len(pieces), len(nfa.skips), len(numbers), start, end,
            -1 if copies is None else copies.state_ranks.shape[1],
            *(addresses or [None] * 4),
            meter.limits.max_states, meter.left, look,
        )  # fmt: skip
        handle = CORE.subsets_begin(place, counts)
        try:
            status, work, states, members, rows, columns = counts
            if not handle or status == _NO_MEMORY:
                raise no_memory()
            if status != _STOPPED:  # else ``looking`` raises when this is left
                meter.spend(work)
                meter.check_states(members // SUBSET_MEMBERS)
                meter.check_states(states)
            yield _Subsets(handle, states, rows, columns) if status != _STOPPED and states > 1 else None
        finally:
            if handle:
                CORE.subsets_end(handle)
            del struct, data  # the loops read them until now


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
