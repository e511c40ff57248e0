"""All strings of an automaton but some words: the names of an object's other members are any but those declared."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa, finished, trimmed
from .limits import WorkMeter


def without_words(whole: ByteDfa, words: Iterable[bytes], meter: WorkMeter) -> ByteDfa:
    """The minimal automaton of what is left.

    Args:
        whole: has strings.
        words: those left out; others than its strings do no harm.
        meter: counts the work.
    """
    # A state for each prefix of a word, beside the state of the automaton there; the first is that of no byte.
    beside, ends = [whole.start], [bool(whole.accepting[whole.start])]
    after: dict[tuple[int, int], int] = {}
    for word in words:
        here = 0
        for byte in word:
            there = after.get((here, byte))
            if there is None:
                state = int(whole.table[beside[here], whole.byte_class[byte]])
                if not state:
                    break
                there = after[here, byte] = len(beside)
                beside.append(state)
                ends.append(bool(whole.accepting[state]))
            here = there
        else:
            ends[here] = False
        meter.spend(1 + len(word))
    # A class of its own for each byte of a word.
    letters = {byte: number for number, byte in enumerate(dict.fromkeys(byte for _, byte in after))}
    classes, byte_class = whole.table.shape[1], whole.byte_class.astype(np.int64)
    columns = np.append(np.arange(classes), byte_class[[*letters]]) if letters else np.arange(classes)
    byte_class[[*letters]] = classes + np.arange(len(letters))
    table = whole.table[:, columns].astype(np.int64)
    table = np.concatenate((table, table[beside]))
    meter.spend_cells(2 * table.size)
    states = whole.states
    for (here, byte), there in after.items():
        table[states + here, classes + letters[byte]] = states + there
    accepting = np.concatenate((whole.accepting, ends))
    used, byte_class = np.unique(byte_class, return_inverse=True)
    table = table[:, used]
    begun = table[states:]
    if (begun == whole.start).any() and (((begun > 0) & (begun < states)).any(1) | accepting[states:]).all():
        return finished(table, byte_class, accepting, states, meter)  # all states are reached, and reach the end
    kept = _reached(table, states)
    number = np.zeros(len(table), np.int64)
    number[kept] = np.arange(len(kept))
    return trimmed(number[table[kept]], byte_class, accepting[kept], int(number[states]), meter)


def _reached(table: NDArray[np.int64], start: int) -> NDArray[np.int64]:
    """The dead state, and those that the start leads to, in order."""
    reached = np.zeros(len(table), np.bool_)
    reached[0] = True
    todo = np.array([start])
    while len(todo):
        reached[todo] = True
        after = np.unique(table[todo])
        todo = after[~reached[after]]
    return np.flatnonzero(reached)
