"""A regular language as one automaton over bytes, through which every token is walked anew: an oracle for masks.

Only for vocabularies with a token for every byte: there every state of a minimal automaton leads to the end.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.vocabulary.tokens import Vocabulary


class OneAutomaton:
    """One position.

    Args:
        dfa: a minimal automaton.
        vocabulary: the tokens.
    """

    def __init__(self, dfa: ByteDfa, vocabulary: Vocabulary):
        self._dfa, self._vocabulary, self._states = dfa, vocabulary, [dfa.start]
        self._tokens, self._columns = _columns(vocabulary)

    def allowed(self) -> list[int]:
        """The tokens that may come, ascending."""
        states = np.full(len(self._tokens), self._states[-1])
        for longer, letters in self._columns:
            states[longer] = self._dfa.table[states[longer], self._dfa.byte_class[letters]]
        stops = self._vocabulary.stop_token_ids if self.is_completed() else ()
        return sorted([*self._tokens[states != 0].tolist(), *stops])

    def accept_token(self, token_id: int) -> bool:
        """Read a text token."""
        state = self._dfa.advance(self._states[-1], self._vocabulary.token_bytes[token_id] or b"")
        self._states += [state] * (state != 0)
        return state != 0

    def rollback(self, num_tokens: int) -> None:
        """Take back the last tokens."""
        del self._states[len(self._states) - num_tokens :]

    def is_completed(self) -> bool:
        """Whether the text may end here."""
        return bool(self._dfa.accepting[self._states[-1]])

    def jump_forward_bytes(self) -> bytes:
        """The bytes that every text continues with."""
        state, forced = self._states[-1], bytearray()
        while not self._dfa.accepting[state]:
            targets = self._dfa.table[state][self._dfa.byte_class]
            [*possible] = np.flatnonzero(targets)
            if len(possible) > 1:
                break
            forced.append(possible[0])
            state = int(targets[possible[0]])
        return bytes(forced)


@lru_cache(maxsize=8)
def _columns(vocabulary: Vocabulary) -> tuple[NDArray[np.int64], list[tuple[NDArray[np.int64], NDArray[np.uint8]]]]:
    """(tokens,) the text tokens; and for each column which of them are long enough, and their bytes there."""
    tokens = [(token_id, data) for token_id, data in enumerate(vocabulary.token_bytes) if data]
    columns = []
    for column in range(max(len(data) for _, data in tokens)):
        longer = [(number, data[column]) for number, (_, data) in enumerate(tokens) if len(data) > column]
        columns.append((np.array([number for number, _ in longer]), np.array([byte for _, byte in longer], np.uint8)))
    return np.array([token_id for token_id, _ in tokens]), columns
