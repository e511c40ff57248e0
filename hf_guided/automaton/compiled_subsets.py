"""The subset construction by the compiled loops of subsets.c: the table of subsets.py, and its count of work."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..errors import CompileLimitExceeded
from .compiled_minimal import Counts, Minimal, taken
from .core import Core, record
from .fragments import Fragment, Literal
from .limits import SORTED, SUBSET_MEMBERS, WorkMeter
from .living_nfa import Nfa, Table
from .look import looking

MOST_MEMBERS = (1 << 31) - 1  # of an NFA: the loops keep their numbers as int32
_NO_MEMORY, _STOPPED = -1, -2  # as in subsets.c


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


def compiled_table(core: Core, nfa: Nfa, start: int, end: int, meter: WorkMeter) -> Table | None:
    """The table of the automaton of all strings from ``start`` to ``end``, or None if there is none.

    Args:
        core: the compiled loops; other threads run meanwhile.
        nfa: the NFA, of ``MOST_MEMBERS`` at most.
        start: before the strings.
        end: after them.
        meter: counts the work.

    Raises:
        CompileLimitExceeded: it is too large, or there is no memory for it.
    """
    with _constructed(core, nfa, start, end, meter) as subsets:
        if subsets is None:
            return None
        handle, states, rows, columns = subsets
        table, accepting = np.zeros((rows, columns), np.int32), np.zeros(rows, np.bool_)
        byte_class = np.empty(256, np.uint8)
        core.subsets_write(handle, byte_class.ctypes.data, table.ctypes.data, accepting.ctypes.data)
    return Table(table[:states], byte_class.astype(np.int64), accepting[:states])


def compiled_automaton(core: Core, nfa: Nfa, start: int, end: int, meter: WorkMeter) -> Minimal | None:
    """As ``compiled_table``, and then as ``finished``: the minimal automaton."""
    counts = Counts()
    with _constructed(core, nfa, start, end, meter) as subsets:
        if subsets is None:
            return None
        meter.spend_cells((SORTED + 1) * subsets.states * subsets.columns)
        minimal = core.subsets_minimal(subsets.handle, counts)
    return taken(core, minimal, counts)


@contextmanager
def _constructed(core: Core, nfa: Nfa, start: int, end: int, meter: WorkMeter) -> Iterator[_Subsets | None]:
    """The construction, or None if no string leads to the end."""
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
        handle = core.subsets_begin(place, counts)
        try:
            status, work, states, members, rows, columns = counts
            if not handle or status == _NO_MEMORY:
                raise CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")
            if status != _STOPPED:  # else ``looking`` raises when this is left
                meter.spend(work)
                meter.check_states(members // SUBSET_MEMBERS)
                meter.check_states(states)
            yield _Subsets(handle, states, rows, columns) if status != _STOPPED and states > 1 else None
        finally:
            if handle:
                core.subsets_end(handle)
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
