"""Two languages in one: what is in both, in either, or in the first alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import core
from .byte_dfa import NOTHING, ByteDfa, finished, trimmed
from .compiled_product import compiled_pairs
from .limits import EDGES, SORTED, WorkMeter

_PAIRS_AT_ONCE = 1 << 18  # entries of a product's table made before they are counted

# (bytes of the first, bytes of the second) -> (of the result); on the flags "accepts" of two states
Combine = Callable[[NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.bool_]]


class _Kind(NamedTuple):
    """A combination of two languages.

    Args:
        combine: false where both flags are: otherwise the result would accept endless byte strings.
        needs: whether nothing is in it that is not in the first, and that is not in the second.
    """

    combine: Combine
    needs: tuple[bool, bool]


_BOTH = _Kind(np.logical_and, (True, True))
_EITHER = _Kind(np.logical_or, (False, False))
_FIRST_ALONE = _Kind(lambda ours, theirs: ours & ~theirs, (True, False))


def intersection(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in both."""
    return _product(first, second, _BOTH, meter)


def union(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in one of them at least."""
    return _product(first, second, _EITHER, meter)


def difference(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in the first, and not in the second."""
    return _product(first, second, _FIRST_ALONE, meter)


def complement(first: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """Every valid UTF-8 text that is not in it."""
    return difference(utf8(), first, meter)


def _product(first: ByteDfa, second: ByteDfa, kind: _Kind, meter: WorkMeter) -> ByteDfa:
    if any(needed and not dfa.start for needed, dfa in zip(kind.needs, (first, second), strict=True)):
        return NOTHING
    both = first.byte_class.astype(np.int64) * 256 + second.byte_class
    codes, byte_class = np.unique(both, return_inverse=True)
    classes, batch = (codes // 256, codes % 256), max(1, _PAIRS_AT_ONCE // len(codes))
    if core.CORE is not None and (first.start or second.start):
        table, pairs = compiled_pairs(core.CORE, first, second, classes, kind.needs, batch, meter)
    else:
        table, pairs = _pairs(first, second, classes, kind.needs, batch, meter)
    accepting = kind.combine(first.accepting[pairs // second.states], second.accepting[pairs % second.states])
    return trimmed(table, byte_class.reshape(-1), accepting, min(1, len(pairs) - 1), meter)


def _pairs(
    first: ByteDfa,
    second: ByteDfa,
    classes: tuple[NDArray[np.int64], NDArray[np.int64]],
    needs: tuple[bool, bool],
    batch: int,
    meter: WorkMeter,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """See ``compiled_pairs``."""
    width, (ours_by, theirs_by) = second.states, classes
    start = first.start * width + second.start
    ours, theirs = first.table.astype(np.int64)[:, ours_by], second.table.astype(np.int64)[:, theirs_by]
    numbers = {0: 0} | ({start: 1} if start else {})
    rows: list[NDArray[np.int64]] = [np.zeros((1, len(ours_by)), np.int64)]
    reached = [*numbers]
    done = 1
    while done < len(reached):
        part = np.array(reached[done : done + batch])
        done += len(part)
        one, other = ours[part // width], theirs[part % width]
        row = one * width + other
        if needs[0]:
            row[one == 0] = 0
        if needs[1]:
            row[other == 0] = 0
        rows.append(row)
        distinct = np.unique(row).tolist()
        meter.spend_cells(SORTED * row.size)
        meter.spend(len(distinct) // EDGES)
        for pair in distinct:
            if pair not in numbers:
                numbers[pair] = len(numbers)
                reached.append(pair)
        meter.check_states(len(numbers))
    keys = np.array(reached)
    order = np.argsort(keys)
    table = order[np.searchsorted(keys[order], np.concatenate(rows))]
    return table, keys


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
