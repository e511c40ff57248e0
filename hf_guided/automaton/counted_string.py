r"""Where a string whose characters are counted stands: whether one may begin here, and how many are owed.

Characters are owed where something has begun that has to be finished. A mark is kept out of the strings of a tag: where
a string has it, its first character is written as ``\u003c``. No other character is, so the rest of the mark follows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .token_trie import TokenTrie
from .written_values import characters, first_bytes


class _Place(IntEnum):
    """What comes next in a string."""

    CHARACTER = 0
    LAST_BYTE = 1  # of a character
    TWO_BYTES = 2
    THREE_BYTES = 3
    LAST_DIGIT = 4
    TWO_DIGITS = 5
    THREE_DIGITS = 6
    FOUR_DIGITS = 7
    ESCAPE = 8  # what follows a backslash

    def after(self, byte: int, in_json: bool) -> _Place:
        """What comes after a byte that may come here."""
        if self is _Place.ESCAPE:
            return _Place.FOUR_DIGITS if byte == ord("u") else _Place.CHARACTER
        if self in (_Place.LAST_BYTE, _Place.LAST_DIGIT):
            return _Place.CHARACTER
        if self is not _Place.CHARACTER:
            return _Place(self - 1)
        if in_json and byte == _BACKSLASH:
            return _Place.ESCAPE
        return _Place(sum(byte >= first for first in (0xC0, 0xE0, 0xF0)))


class CountedString(NamedTuple):
    """The states of a component inside a string.

    Args:
        dfa: of the component.
        start: the state before the first character.
        begins: (states,) whether a character may begin there.
        owed: (states,) int32, how many have to begin before the string may end; one that has begun is not counted.
        most_owed: the largest of these.
        closing: the byte that comes after the last character.
        in_json: whether characters may be escapes, each in one way; else all are written as they are.
    """

    dfa: ByteDfa
    start: int
    begins: NDArray[np.bool_]
    owed: NDArray[np.int32]
    most_owed: int
    closing: int
    in_json: bool

    @classmethod
    def of(cls, dfa: ByteDfa, start: int, after: NDArray[np.int32], *, in_json: bool) -> CountedString:
        """A string.

        Args:
            dfa: of the component.
            start: the state before the first character.
            after: (states,) that in which the string has ended; 0 where it may not end.
            in_json: see the class.
        """
        places = {start: _Place.CHARACTER}
        follows = _FOLLOWS[in_json]
        before: dict[int, list[int]] = defaultdict(list)
        classes, todo = dfa.byte_class.tolist(), [start]
        while todo:
            state = todo.pop()
            row, following = dfa.table[state].tolist(), follows[places[state]]
            for letter, place in dict.fromkeys(zip(classes, following, strict=True)):
                if target := row[letter]:
                    before[target].append(state)
                    if target not in places:
                        places[target] = place
                        todo.append(target)
        begins = np.zeros(dfa.states, np.bool_)
        begins[[state for state, place in places.items() if place is _Place.CHARACTER]] = True
        owed = dict.fromkeys(np.flatnonzero(after).tolist(), 0)
        nearest = deque(owed)
        while nearest:  # those that owe fewer first
            target = nearest.popleft()
            for state in before[target]:
                if state not in owed:
                    owed[state] = owed[target] + int(begins[state])
                    (nearest.append if begins[state] else nearest.appendleft)(state)
        of_states = np.zeros(dfa.states, np.int32)
        of_states[list(owed)] = list(owed.values())
        ended = dfa.table[after.max()]
        closing = int(np.flatnonzero(ended[dfa.byte_class])[0])
        return cls(dfa, start, begins, of_states, max(owed.values()), closing, in_json)

    def characters_on(self, tokens: TokenTrie) -> NDArray[np.int64]:
        """(nodes,) how many characters of such a string are on the way to each node of a vocabulary."""
        return tokens.json_characters if self.in_json else tokens.characters

    def characters(self, written: bytes) -> int:
        """How many characters there are, one that has only begun counted."""
        return characters(written) if self.in_json else first_bytes(written)

    def owed_after(self, written: bytes) -> int:
        """How many characters are owed after what is written of the string."""
        return int(self.owed[self.dfa.advance(self.start, written)]) if self.most_owed else 0


_BACKSLASH = ord("\\")
_FOLLOWS = [[[place.after(byte, in_json) for byte in range(256)] for place in _Place] for in_json in (False, True)]
