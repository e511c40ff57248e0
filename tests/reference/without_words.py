"""All strings of an automaton but some words, in numpy: an oracle for words.c, also for its count of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.fragments import Fragment, from_dfa
from hf_guided.automaton.limits import WorkMeter
from tests.reference.minimal import productive


def without_words(whole: ByteDfa, words: Sequence[bytes], meter: WorkMeter) -> Fragment | None:
    """As that of products.py."""
    # A state for each prefix of a word, beside the state of the automaton there; the first is that of no byte.
    beside, left_out = [whole.start], list[int]()
    after: dict[int, int] = {}  # from a state and a byte after it, 256 times the one plus the other
    letters: dict[int, int] = {}  # each byte of a word gets a class of its own
    rows: dict[int, list[int]] = {}
    whole_class = whole.byte_class.tolist()
    for word in words:
        here = 0
        for byte in word:
            there = after.get(here << 8 | byte)
            if there is None:
                if (row := rows.get(beside[here])) is None:
                    row = rows[beside[here]] = whole.table[beside[here]].tolist()
                if not (state := row[whole_class[byte]]):
                    break
                there = after[here << 8 | byte] = len(beside)
                beside.append(state)
                letters.setdefault(byte, len(letters))
            here = there
        else:
            left_out.append(here)
        meter.spend(1 + len(word))
    states, classes = whole.table.shape
    byte_class = whole.byte_class.astype(np.int64)
    columns = np.append(np.arange(classes), byte_class[[*letters]]) if letters else np.arange(classes)
    byte_class[[*letters]] = classes + np.arange(len(letters))
    meter.spend_cells(2 * (states + len(beside)) * len(columns))
    used, byte_class = np.unique(byte_class, return_inverse=True)
    table = whole.table[:, columns[used]].astype(np.int32)
    table = np.concatenate((table, table[beside]))
    edges = np.array([*after], np.int64)
    table[states + (edges >> 8), byte_class[edges & 255]] = np.arange(states + 1, len(table))
    accepting = np.concatenate((whole.accepting, whole.accepting[beside]))
    accepting[[states + prefix for prefix in left_out]] = False
    kept = _reached(table, states)
    number = np.zeros(len(table), np.int64)
    number[kept] = np.arange(len(kept))
    table, accepting, start = productive(number[table[kept]], accepting[kept], int(number[states]), meter)
    if not start:
        return None
    meter.spend_cells(table.size)
    return from_dfa(ByteDfa(table, byte_class.astype(np.uint8), accepting, start))


def _reached(table: NDArray[Any], start: int) -> NDArray[np.int64]:
    """The dead state, and those that the start leads to, in order."""
    reached = np.zeros(len(table), np.bool_)
    reached[0] = True
    todo = np.array([start])
    while len(todo):
        reached[todo] = True
        after = np.unique(table[todo])
        todo = after[~reached[after]]
    return np.flatnonzero(reached)
