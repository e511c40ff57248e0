"""Equivalent states of a table: Moore's rounds, but a round visits only states that it can still split.

A state is looked at again only when a state it leads to got a new label in the round before; when a block is split
its largest part keeps the label. So a chain of a thousand states costs a thousand small steps, not a million.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .acyclic import labels_of_acyclic, order_from_the_end
from .limits import WorkMeter

Ints = NDArray[np.int64]
_CHUNK = 1 << 20  # entries of the table looked at in one go
_FEW = 16  # so few states are split faster one by one


def refine(table: NDArray[Any], labels: Ints, meter: WorkMeter) -> Ints:
    """The coarsest labels, finer than the given ones, by which states with one label lead to states with one label.

    Args:
        table: (states, classes), where each class of bytes leads; state 0 leads to itself.
        labels: (states,) int64, numbered from 0 without gaps; no other state has that of state 0.
        meter: looks at the clock in every round.

    Returns:
        (states,) int64, numbered from 0 without gaps.
    """
    order = order_from_the_end(table)
    if order is not None:
        return labels_of_acyclic(table, labels, order)
    labels = labels.copy()
    before = _Predecessors(table)
    blocks = int(labels.max(initial=0)) + 1
    sizes = np.zeros(len(table) + blocks + 1, np.int64)
    sizes[:blocks] = np.bincount(labels, minlength=blocks)
    dirty = np.arange(len(table))
    while len(dirty):
        meter.look()
        if len(dirty) <= _FEW:
            changed = _split_few(table, labels, sizes, dirty.tolist(), blocks)
        else:
            changed = _split(table, labels, sizes, dirty, blocks)
        blocks += int(np.count_nonzero(sizes[blocks : blocks + len(changed)]))
        dirty = before.of(changed)
    return labels


class _Predecessors:
    """For each state, the states that lead to it; not for state 0."""

    def __init__(self, table: NDArray[Any]):
        states = len(table)
        pairs: list[Ints] = []
        step = max(1, _CHUNK // max(1, table.shape[1]))
        for begin in range(0, states, step):
            part = table[begin : begin + step].astype(np.int64)
            part *= states
            part += np.arange(begin, begin + len(part))[:, None]
            flat = part.ravel()
            flat = flat[flat >= states]
            if len(flat):
                flat.sort()
                pairs.append(flat[np.concatenate(([True], flat[1:] != flat[:-1]))])
        both = np.sort(np.concatenate(pairs)) if pairs else np.empty(0, np.int64)
        self._sources: Ints = both % states
        self._starts: Ints = np.searchsorted(both, np.arange(states + 1) * states)

    def of(self, targets: Ints) -> Ints:
        """All that lead to one of them, sorted."""
        if len(targets) == 1:
            return self._sources[self._starts[targets[0]] : self._starts[targets[0] + 1]]
        return np.unique(
            self._sources[ranges(self._starts[targets], self._starts[targets + 1] - self._starts[targets])]
        )


def ranges(starts: Ints, counts: Ints) -> Ints:
    """``starts[i], starts[i] + 1 ...``, ``counts[i]`` of them, one after another."""
    total = int(counts.sum())
    shift = starts - np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else starts
    indices: Ints = np.arange(total) + np.repeat(shift, counts)
    return indices


def _split_few(table: NDArray[Any], labels: Ints, sizes: Ints, dirty: list[int], blocks: int) -> Ints:
    groups: dict[int, dict[bytes, list[int]]] = {}
    for state in dirty:
        block = groups.setdefault(int(labels[state]), {})
        block.setdefault(labels[table[state]].tobytes(), []).append(state)
    changed: list[int] = []
    relabeled: list[tuple[list[int], int]] = []
    for label, block in groups.items():
        parts = list(block.values())
        clean = int(sizes[label]) - sum(map(len, parts))
        largest = max(parts, key=len)
        if clean >= len(largest):
            moved = parts
        else:
            moved = [part for part in parts if part is not largest]
            if clean:
                mine = {state for part in parts for state in part}
                moved.append([state for state in np.flatnonzero(labels == label).tolist() if state not in mine])
        for part in moved:
            relabeled.append((part, label))
            changed += part
    for part, label in relabeled:  # only now: a round sees the labels of the round before
        labels[part] = blocks
        sizes[label] -= len(part)
        sizes[blocks] = len(part)
        blocks += 1
    return np.array(changed, np.int64)


def _split(table: NDArray[Any], labels: Ints, sizes: Ints, dirty: Ints, blocks: int) -> Ints:
    first, group = _grouped(table, labels, dirty)
    counts = np.bincount(group, minlength=len(first))
    of_group = labels[dirty[first]]  # (groups,) the block each comes from
    order = np.lexsort((counts, of_group))
    last = np.concatenate((of_group[order][1:] != of_group[order][:-1], [True]))  # the largest group of its block
    largest = order[last]
    split = of_group[largest]
    dirty_in = np.bincount(of_group, weights=counts, minlength=blocks).astype(np.int64)[split]
    clean = sizes[split] - dirty_in
    keeps = clean < counts[largest]  # the largest group keeps the label, and the clean states move
    moves = np.ones(len(first), np.bool_)
    moves[largest[keeps]] = False
    fresh = np.full(len(first), -1)
    fresh[moves] = blocks + np.arange(int(moves.sum()))
    news = fresh[group]
    moved = news >= 0
    changed = [dirty[moved]]
    values = [news[moved]]
    displaced = split[keeps & (clean > 0)]
    if len(displaced):
        to = np.full(blocks, -1)
        to[displaced] = blocks + int(moves.sum()) + np.arange(len(displaced))
        is_dirty = np.zeros(len(table), np.bool_)
        is_dirty[dirty] = True
        states = np.flatnonzero((to[labels] >= 0) & ~is_dirty)
        changed.append(states)
        values.append(to[labels[states]])
    every, value = np.concatenate(changed), np.concatenate(values)
    np.subtract.at(sizes, labels[every], 1)
    labels[every] = value
    np.add.at(sizes, value, 1)
    return every


def _grouped(table: NDArray[Any], labels: Ints, states: Ints) -> tuple[Ints, Ints]:
    """States by their own label and those they lead to: one of each group, and the group of each.

    By a random hash, and then compared: should two groups ever collide, another hash is drawn.
    """
    random = np.random.default_rng(0)
    step = max(1, _CHUNK // max(1, table.shape[1]))
    parts = [states[begin : begin + step] for begin in range(0, len(states), step)]
    while True:
        salts = random.integers(0, 1 << 64, len(labels) + 1, np.uint64)
        factors = random.integers(0, 1 << 64, table.shape[1] + 1, np.uint64) | np.uint64(1)
        salted = salts[labels]
        hashes = np.empty(len(states), np.uint64)
        for i, part in enumerate(parts):
            hashes[i * step : i * step + len(part)] = salted[table[part]] @ factors[:-1] + salted[part] * factors[-1]
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        group = group.reshape(-1)
        for i, part in enumerate(parts):
            twins = states[first[group[i * step : i * step + len(part)]]]
            if (labels[part] != labels[twins]).any() or (labels[table[part]] != labels[table[twins]]).any():
                break
        else:
            return first, group
