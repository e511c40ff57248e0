r"""The states of a component in which the characters of a string are counted.

A tag keeps a mark out of its strings: a string that contains the mark writes its first character as ``\u003c``. No
other character may be written so, therefore the rest of the mark has to follow. These characters are *owed*: the
register keeps room for them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .token_trie import Nodes, TokenTrie

_BACKSLASH = ord("\\")


class _Expected(IntEnum):
    """The part of a string that is expected next.

    A part without a rule of its own in ``after`` is followed by the part with the next lower number.
    """

    CHARACTER = 0
    LAST_BYTE = 1  # the last byte of a character
    TWO_BYTES = 2
    THREE_BYTES = 3
    LAST_DIGIT = 4
    TWO_DIGITS = 5
    THREE_DIGITS = 6
    FOUR_DIGITS = 7
    SECOND_U = 8  # the letter of the second half of a surrogate pair
    SECOND_BACKSLASH = 9
    LAST_DIGIT_OF_FIRST_HALF = 10
    TWO_DIGITS_OF_FIRST_HALF = 11
    AFTER_D = 12  # three digits: the first tells whether of a surrogate pair; ambiguous where others continue alike
    ESCAPE = 13  # the character after a backslash

    def after(self, byte: int, in_json: bool) -> _Expected:
        """The part that is expected after a byte that may come here."""
        if self is _Expected.ESCAPE:
            return _Expected.FOUR_DIGITS if byte == ord("u") else _Expected.CHARACTER
        if self is _Expected.FOUR_DIGITS and byte in b"dD":
            return _Expected.AFTER_D
        if self is _Expected.AFTER_D:
            return _Expected.TWO_DIGITS_OF_FIRST_HALF if byte in b"89abAB" else _Expected.TWO_DIGITS
        if self in (_Expected.LAST_BYTE, _Expected.LAST_DIGIT):
            return _Expected.CHARACTER
        if self is not _Expected.CHARACTER:
            return _Expected(self - 1)
        if in_json and byte == _BACKSLASH:
            return _Expected.ESCAPE
        return _Expected(sum(byte >= first for first in (0xC0, 0xE0, 0xF0)))


class AmbiguousString(Exception):
    """A state is reached inside of a character and between two: its automaton does not tell how many there are."""


class CountedString(NamedTuple):
    """The states of a component inside a string."""

    dfa: ByteDfa
    start: int  # the state before the first character
    begins: NDArray[np.bool_]  # (states,) whether a character may begin there
    owed: NDArray[np.int32]  # (states,) int32, how many more have to begin before the end, without one that has begun
    most_owed: int  # the largest of these
    following: bytes | None  # the bytes that may come after the last character; None where they are not known
    in_json: bool  # whether characters may be escapes; else all are written as they are

    @classmethod
    def of(cls, dfa: ByteDfa, start: int, after: NDArray[np.int32], *, in_json: bool) -> CountedString:
        """A string; AmbiguousString if its characters cannot be counted.

        ``start`` is the state before the first character, and ``after`` (states,) that in which the string has ended; 0
        where it may not end.
        """
        expected = {start: _Expected.CHARACTER}
        follows = _FOLLOWS[in_json]
        before: dict[int, list[int]] = defaultdict(list)
        classes, todo = dfa.byte_class.tolist(), [start]
        while todo:
            state = todo.pop()
            row, following = dfa.table[state].tolist(), follows[expected[state]]
            for letter, next_one in dict.fromkeys(zip(classes, following, strict=True)):
                if target := row[letter]:
                    before[target].append(state)
                    if target not in expected:
                        expected[target] = next_one
                        todo.append(target)
                    elif expected[target] is not next_one:
                        raise AmbiguousString
        begins = np.zeros(dfa.states, np.bool_)
        begins[[state for state, here in expected.items() if here is _Expected.CHARACTER]] = True
        owed = dict.fromkeys(np.flatnonzero(after).tolist(), 0)
        nearest = deque(owed)
        while nearest:  # the least owed first
            target = nearest.popleft()
            for state in before[target]:
                if state not in owed:
                    owed[state] = owed[target] + int(begins[state])
                    (nearest.append if begins[state] else nearest.appendleft)(state)
        of_states = np.zeros(dfa.states, np.int32)
        of_states[list(owed)] = list(owed.values())
        ended = dfa.table[after.max()]  # all states after the string have the same moves
        closing = np.flatnonzero(ended[dfa.byte_class])[:1].tolist()
        return cls(dfa, start, begins, of_states, max(owed.values()), bytes(closing), in_json)

    @classmethod
    def of_characters(cls, dfa: ByteDfa, start: int, following: bytes | None) -> CountedString:
        """Characters as they are, after each of which the string may end, or continue: see ``is_free``.

        Nothing else in the component moves by bytes; ``start`` is the state before the first character.
        """
        nothing = np.zeros(dfa.states, np.int32)
        return cls(dfa, start, _between_characters(dfa) & dfa.table.any(1), nothing, 0, following, in_json=False)

    def characters_on(self, tokens: TokenTrie) -> NDArray[np.int64]:
        """(nodes,) how many characters of such a string are on the way to each node of a vocabulary."""
        return tokens.json_characters if self.in_json else tokens.characters

    def ends(self, nodes: Nodes) -> Nodes:
        """The nodes among some at which the string may end, because of the byte that comes next."""
        return nodes if self.following is None else nodes.before(self.following)


def is_free(dfa: ByteDfa) -> bool:
    """Whether a text of a language may end after each character, and continue: so it may have any length."""
    between = _between_characters(dfa)[1:]
    return bool(between.any() and (dfa.accepting & dfa.table.any(1))[1:][between].all())


def _between_characters(dfa: ByteDfa) -> NDArray[np.bool_]:
    """(states,) where no character has begun, in which other bytes come."""
    goes_on: NDArray[np.bool_] = (dfa.table[:, np.unique(dfa.byte_class[0x80:0xC0])] != 0).any(1)
    return ~goes_on


_FOLLOWS = [[[here.after(byte, in_json) for byte in range(256)] for here in _Expected] for in_json in (False, True)]
