"""A deterministic automaton over bytes as one dense table: minimal or nearly so, and every state can reach the end.

State 0 is dead: it leads to itself and never ends. A language that has no string at all starts there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import core
from .compiled_minimal import compiled_minimal
from .limits import EDGES, SORTED, WorkMeter
from .refine import refine

_FEW_TWINS = 8  # states with the same row as another; where there are more, whole parts may be there twice
_PAIRS_AT_ONCE = 1 << 18  # entries of a product's table made before they are counted

# (bytes of the first, bytes of the second) -> (of the result); on the flags "accepts" of two states
Combine = Callable[[NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class ByteDfa:
    """A language of byte strings; immutable, shared by threads.

    Args:
        table: (states, classes) uint16 or uint32, where a class of bytes leads.
        byte_class: (256,) uint8 or int64, the class of each byte.
        accepting: (states,) whether the string so far is in the language.
        start: the state at the beginning.
    """

    table: NDArray[Any] = field(repr=False)
    byte_class: NDArray[np.uint8] = field(repr=False)
    accepting: NDArray[np.bool_] = field(repr=False)
    start: int

    @property
    def states(self) -> int:
        """How many, the dead one included."""
        return len(self.table)

    @property
    def nbytes(self) -> int:
        """Bytes of memory the arrays take."""
        return self.table.nbytes + self.byte_class.nbytes + self.accepting.nbytes

    def advance(self, state: int, data: bytes) -> int:
        """The state after these bytes."""
        for byte in data:
            state = int(self.table[state, self.byte_class[byte]])
        return state

    def accepts(self, data: bytes) -> bool:
        """Whether the string is in the language."""
        return bool(self.accepting[self.advance(self.start, data)])

    @cached_property
    def class_sizes(self) -> NDArray[np.int64]:
        """(classes,) how many bytes each class has."""
        return np.bincount(self.byte_class, minlength=self.table.shape[1])

    @cached_property
    def forced(self) -> NDArray[np.int16]:
        """(states,) the one byte that every continuation begins with; -1 where there is a choice, or may be an end."""
        live = self.table != 0
        only = (live @ self.class_sizes == 1) & ~self.accepting
        byte_of = np.zeros(self.table.shape[1], np.int16)
        byte_of[self.byte_class] = np.arange(256)
        return np.where(only, byte_of[live.argmax(1)], -1).astype(np.int16)

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """All moves between live states: (edges,) source, class, target."""
        sources, classes = np.nonzero(self.table)
        return sources, classes, self.table[sources, classes].astype(np.int64)

    def language_size(self) -> int | None:
        """How many strings the language has; None if there are infinitely many."""
        if not self.start:
            return 0
        sources, classes, targets = self.edges()
        starts = np.searchsorted(sources, np.arange(self.states + 1)).tolist()
        nexts, byte_counts = targets.tolist(), self.class_sizes[classes].tolist()
        open_edges = np.bincount(targets, minlength=self.states).tolist()
        # Topological order, begun at the one state that nothing leads to; a cycle leaves some state out.
        counts: list[int] = [0] * self.states  # byte strings that lead to the state
        counts[self.start] = 1
        ready, seen = ([] if open_edges[self.start] else [self.start]), 0
        while ready:
            state = ready.pop()
            seen += 1
            for i in range(starts[state], starts[state + 1]):
                target = nexts[i]
                counts[target] += counts[state] * byte_counts[i]
                open_edges[target] -= 1
                if not open_edges[target]:
                    ready.append(target)
        if seen < self.states - 1:
            return None
        return sum(count for count, ends in zip(counts, self.accepting.tolist(), strict=True) if ends)


NOTHING = ByteDfa(np.zeros((1, 1), np.uint16), np.zeros(256, np.uint8), np.zeros(1, np.bool_), 0)


def finished(
    table: NDArray[Any],
    byte_class: NDArray[Any],
    accepting: NDArray[np.bool_],
    start: int,
    meter: WorkMeter,
    *,
    minimal: bool = True,
) -> ByteDfa:
    """The automaton of a table in which every state but 0 is reached from the start and reaches the end.

    Args:
        table: (states, classes); row 0 is the dead state's.
        byte_class: (256,) the class of each byte.
        accepting: (states,) bool.
        start: where it begins.
        meter: counts the work.
        minimal: False if it need not be made minimal where no two states have the same row, as it mostly is then.
    """
    if not start:
        return NOTHING
    if not minimal:
        for _ in range(_FEW_TWINS):
            meter.spend_cells(2 * table.size)
            same_as = _same_as(table, accepting)
            kept = np.flatnonzero(same_as == np.arange(len(table)))
            if len(kept) == len(table):
                return _made(table, byte_class, accepting, start)
            if len(table) - len(kept) > _FEW_TWINS:
                break
            number = np.searchsorted(kept, same_as)
            table, accepting, start = number[table[kept]], accepting[kept], int(number[start])
    meter.spend_cells((SORTED + 1) * table.size)  # for states of any kind, and with or without the compiled loops
    if core.CORE is not None:
        return _from_columns(*compiled_minimal(core.CORE, table, accepting, start, meter), byte_class)
    labels = np.where(accepting, 2, 1)
    labels[0] = 0
    labels = np.unique(labels, return_inverse=True)[1].reshape(-1)
    labels = refine(table, labels, meter)
    # One state of each block, the dead one first, the others in the order in which they were found.
    _, chosen, block = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(chosen)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    renamed = number[block.reshape(-1)]
    chosen = chosen[order]
    return _made(renamed[table[chosen]], byte_class, accepting[chosen], int(renamed[start]))


def _made(table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int) -> ByteDfa:
    """The automaton of a finished table; only its columns are merged."""
    return _from_columns(*_without_twins(table), accepting, start, byte_class)


def _from_columns(
    columns: NDArray[Any], which: NDArray[np.int64], accepting: NDArray[np.bool_], start: int, byte_class: NDArray[Any]
) -> ByteDfa:
    """The automaton of a table.

    Args:
        columns: (states, distinct columns) of the table.
        which: (columns,) which of them each column was.
        accepting: (states,).
        start: where it begins.
        byte_class: (256,) the column of each byte.
    """
    width: type[Any] = np.uint16 if len(columns) <= 1 << 16 else np.uint32
    return ByteDfa(
        table=np.ascontiguousarray(columns, width),
        byte_class=which[byte_class].astype(np.uint8),
        accepting=accepting,
        start=start,
    )


def _same_as(table: NDArray[Any], accepting: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(states,) the first state that has the same row, and ends or does not end alike.

    By a random hash, and then compared: states that collide stay as they are.
    """
    factors = np.random.default_rng(0).integers(0, 1 << 64, table.shape[1] + 1, np.uint64)
    hashes = table.astype(np.uint64) @ factors[:-1] + accepting * factors[-1]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    same_as: NDArray[np.int64] = first[which.reshape(-1)]
    twins = np.flatnonzero(same_as != np.arange(len(table)))
    others = same_as[twins]
    equal = (table[twins] == table[others]).all(1) & (accepting[twins] == accepting[others])
    same_as[twins] = np.where(equal, others, twins)
    return same_as


def _without_twins(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct columns, and for each column which of them it is."""
    seen: dict[bytes, int] = {}
    columns = np.ascontiguousarray(table.T)
    which = np.array([seen.setdefault(column.tobytes(), len(seen)) for column in columns])
    first = np.array([int(np.argmax(which == i)) for i in range(len(seen))])
    return table[:, first], which


def backwards(
    sources: NDArray[Any], targets: NDArray[Any], states: int, ends: list[int], meter: WorkMeter
) -> NDArray[np.bool_]:
    """(states,) from where one of the ends can be reached along edges; the ends themselves too."""
    meter.spend(states + len(sources) // EDGES)
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(states + 1)).tolist()
    before = sources[order].tolist()
    alive = bytearray(states)
    for state in ends:
        alive[state] = 1
    todo = list(ends)
    while todo:
        state = todo.pop()
        for source in before[starts[state] : starts[state + 1]]:
            if not alive[source]:
                alive[source] = 1
                todo.append(source)
    return np.frombuffer(alive, np.bool_)


def trimmed(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """As ``finished``, but states that cannot reach the end may be among them."""
    sources, classes = np.nonzero(table)
    targets = table[sources, classes]
    live = backwards(sources, targets, len(table), np.flatnonzero(accepting).tolist(), meter)
    kept = np.concatenate(([0], np.flatnonzero(live)))
    number = np.zeros(len(table), np.int64)
    number[kept] = np.arange(len(kept))
    number[~live] = 0
    return finished(number[table[kept]], byte_class, accepting[kept], int(number[start]), meter)


def product(first: ByteDfa, second: ByteDfa, combine: Combine, meter: WorkMeter) -> ByteDfa:
    """The strings for which ``combine`` is true of "is in one" and "is in the other".

    ``combine`` must be false where both are: otherwise the result would accept endless byte strings.
    """
    both = first.byte_class.astype(np.int64) * 256 + second.byte_class
    codes, byte_class = np.unique(both, return_inverse=True)
    ours, theirs = first.table.astype(np.int64), second.table.astype(np.int64)
    ours_by, theirs_by = codes // 256, codes % 256
    width = second.states
    pairs = [np.zeros(1, np.int64), np.array([first.start * width + second.start])]
    numbers: dict[int, int] = {0: 0}
    numbers.setdefault(first.start * width + second.start, 1)
    rows: list[NDArray[np.int64]] = [np.zeros((1, len(codes)), np.int64)]
    step = max(1, _PAIRS_AT_ONCE // len(codes))
    todo = pairs[1] if len(numbers) > 1 else pairs[1][:0]
    reached_pairs: list[int] = todo.tolist()
    done = 0
    while done < len(reached_pairs):
        part = np.array(reached_pairs[done : done + step])
        done += len(part)
        row = ours[part // width][:, ours_by] * width + theirs[part % width][:, theirs_by]
        rows.append(row)
        distinct = np.unique(row).tolist()
        meter.spend_cells(SORTED * row.size)
        meter.spend(len(distinct) // EDGES)
        for pair in distinct:
            if pair not in numbers:
                numbers[pair] = len(numbers)
                reached_pairs.append(pair)
        meter.check_states(len(numbers))
    keys = np.array(list(numbers))
    order = np.argsort(keys)
    reached = np.concatenate(rows)
    table = order[np.searchsorted(keys[order], reached)]
    accepting = combine(first.accepting[keys // width], second.accepting[keys % width])
    return trimmed(table, byte_class.reshape(-1), accepting, numbers[first.start * width + second.start], meter)


def intersection(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in both."""
    return product(first, second, np.logical_and, meter)


def union(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in one of them at least."""
    return product(first, second, np.logical_or, meter)


def difference(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in the first, and not in the second."""
    return product(first, second, lambda ours, theirs: ours & ~theirs, meter)


def complement(first: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """Every valid UTF-8 text that is not in it."""
    return difference(utf8(), first, meter)


@lru_cache(maxsize=1)
def utf8() -> ByteDfa:
    """All valid UTF-8 texts; Unicode 15, table 3-7."""
    text, tail_1, tail_2, tail_3, after_e0, after_ed, after_f0, after_f4 = range(1, 9)
    steps = (
        *((text, 0x00, 0x7F, text), (text, 0xC2, 0xDF, tail_1), (text, 0xE0, 0xE0, after_e0)),
        *((text, 0xE1, 0xEF, tail_2), (text, 0xED, 0xED, after_ed), (text, 0xF0, 0xF0, after_f0)),
        *((text, 0xF1, 0xF3, tail_3), (text, 0xF4, 0xF4, after_f4)),
        *((tail_1, 0x80, 0xBF, text), (tail_2, 0x80, 0xBF, tail_1), (tail_3, 0x80, 0xBF, tail_2)),
        *((after_e0, 0xA0, 0xBF, tail_1), (after_ed, 0x80, 0x9F, tail_1)),
        *((after_f0, 0x90, 0xBF, tail_2), (after_f4, 0x80, 0x8F, tail_2)),
    )
    table = np.zeros((9, 256), np.int64)
    for source, low, high, target in steps:  # 0xED after its neighbours
        table[source, low : high + 1] = target
    accepting = np.zeros(9, np.bool_)
    accepting[text] = True
    return finished(table, np.arange(256), accepting, text, WorkMeter())
