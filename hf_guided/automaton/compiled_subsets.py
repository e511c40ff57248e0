"""The subset construction by the compiled loops of subsets.c: the table of subsets.py, and its count of work."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np

from ..errors import CompileLimitExceeded
from .core import Core
from .fragments import Fragment, Literal
from .limits import SUBSET_MEMBERS, WorkMeter
from .living_nfa import LivingNfa, Table
from .look import LOOK, looking

MOST_MEMBERS = (1 << 31) - 1  # of an NFA: the loops keep their numbers as int32
_NO_MEMORY, _STOPPED = -1, -2  # as in subsets.c


class _Arguments(ctypes.Structure):
    """``Nfa`` of subsets.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("fragments", "fragment_of", "target", "first")),
        *((name, ctypes.c_void_p) for name in ("starts", "skip_starts", "skips")),
        *((name, ctypes.c_int64) for name in ("outer", "pieces", "fragment_count", "start", "end", "levels")),
        *((name, ctypes.c_void_p) for name in ("state_index", "piece_index", "state_ranks", "piece_ranks")),
        ("fragment_at", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("max_states", "max_work")),
        ("look", LOOK),
    )


def compiled_table(core: Core, nfa: LivingNfa, meter: WorkMeter) -> Table | None:
    """The table of the automaton, or None if no string leads to the end.

    Args:
        core: the compiled loops; other threads run meanwhile.
        nfa: the NFA, of ``MOST_MEMBERS`` at most.
        meter: counts the work.

    Raises:
        CompileLimitExceeded: it is too large, or there is no memory for it.
    """
    numbers: dict[Fragment | Literal, int] = {}
    fragment_of = np.array([numbers.setdefault(piece, len(numbers)) for piece in nfa.pieces], np.int32)
    copies = nfa.copies
    numbered = () if copies is None else nfa.numbered_pieces
    fragment_at = np.array([numbers.setdefault(piece, len(numbers)) for piece in numbered], np.int32)
    fragments, data = _described(numbers)
    long = (nfa.firsts, nfa.starts, nfa.skip_starts, nfa.skips)  # numpy's own integers are shorter on some platforms
    arrays = [fragments, fragment_of, nfa.targets.astype(np.int32), *map(_as_int64, long)]
    if copies is not None:
        arrays += [*map(_as_int64, (copies.state_index, copies.piece_index))]
        arrays += [copies.state_ranks, copies.piece_ranks, fragment_at]
    addresses: list[int | None] = [array.ctypes.data for array in arrays]
    levels = -1 if copies is None else copies.state_ranks.shape[1]
    with looking(meter) as look:
        arguments = _Arguments(
            *addresses[:7], nfa.states, len(nfa.pieces), len(numbers), nfa.start, nfa.end, levels,
            *(addresses[7:] or [None] * 5), meter.limits.max_states, meter.left, look,
        )  # fmt: skip
        handle = core.subsets_begin(ctypes.byref(arguments))
        if not handle:
            raise _no_memory()
        try:
            return _run(core, handle, meter)
        finally:
            core.subsets_end(handle)
            del data  # the loops read it until now


def _as_int64(numbers: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(numbers, np.int64)


def _described(fragments: Iterable[Fragment | Literal]) -> tuple[np.ndarray, np.ndarray]:
    """(fragments, 7) int64, ``Fragment`` of subsets.c, and the texts of literals, which it points to."""
    data = np.frombuffer(b"".join(piece.data for piece in fragments if isinstance(piece, Literal)), np.uint8)
    address = data.ctypes.data
    rows = []
    for piece in fragments:
        if isinstance(piece, Literal):
            rows.append((0, 0, 0, 0, piece.states, 0, address))
            address += len(piece.data)
        else:
            rows.append((*piece.addresses, piece.states, piece.table.shape[1], 0))
    return np.array(rows, np.int64).reshape(-1, 7), data


def _run(core: Core, handle: int, meter: WorkMeter) -> Table | None:
    counts = np.zeros(3, np.int64)
    address = counts.ctypes.data
    status = core.subsets_run(handle, address)
    if _is_stopped(status):
        return None
    work, states, members = counts.tolist()
    meter.spend(work)
    meter.check_states(members // SUBSET_MEMBERS)
    meter.check_states(states)
    if states == 1:
        return None
    byte_class = np.empty(256, np.int64)
    status = core.subsets_measure(handle, byte_class.ctypes.data, address)
    if _is_stopped(status):
        return None
    rows, columns, total = counts.tolist()
    meter.spend(total - work)
    table, accepting = np.zeros((rows, columns), np.int32), np.zeros(rows, np.bool_)
    core.subsets_write(handle, byte_class.ctypes.data, rows, columns, table.ctypes.data, accepting.ctypes.data)
    return Table(table[:states], byte_class, accepting[:states])


def _is_stopped(status: int) -> bool:
    """Whether ``looking`` raises when this is left."""
    if status == _NO_MEMORY:
        raise _no_memory()
    return status == _STOPPED


def _no_memory() -> CompileLimitExceeded:
    return CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")
