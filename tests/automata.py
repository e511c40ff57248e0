"""Byte automata that are not ours: outlines-core's, over the 256 bytes, between two marker bytes.

Between markers nothing is left of its leftmost-first search (by itself ``a|ab`` refuses ``ab``), so what remains is
the true automaton of the language. The markers themselves are taken out of the language:
no other bytes can stand there, and a marker must not be taken for a letter.
"""

from __future__ import annotations

from collections.abc import Iterable

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.regex import CharSet, Node, only, to_pattern
from hf_guided.vocabulary.tokens import Vocabulary

_OPEN, _CLOSE = 1, 2
_LETTERS = ~CharSet([(_OPEN, _CLOSE)])


def unmarked(node: Node) -> Node:
    """The strings of a language that have no marker in them."""
    return only(node, _LETTERS)


def without_markers(vocabulary: Vocabulary) -> Vocabulary:
    """The vocabulary, unable to write a marker."""
    tokens = tuple(None if data is None or {_OPEN, _CLOSE} & set(data) else data for data in vocabulary.token_bytes)
    return Vocabulary(tokens, vocabulary.stop_token_ids, vocabulary.padded_size, vocabulary.tokenizer)


class OutlinesDfa:
    """States are any hashable; ``step`` gives None where no string of the language goes on."""

    def __init__(self, node: Node):
        import outlines_core

        vocabulary = outlines_core.Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
        index = outlines_core.Index(f"\\x01(?:{to_pattern(unmarked(node))})\\x02", vocabulary)
        self._moves = index.get_transitions()
        self.start = self._moves[index.get_initial_state()][_OPEN]

    def step(self, state: int, byte: int) -> int | None:
        after = self._moves.get(state, {}).get(byte)
        return None if byte in (_OPEN, _CLOSE) else after

    def accepts(self, state: int) -> bool:
        return _CLOSE in self._moves.get(state, {})

    def steps(self, state: int, data: Iterable[int]) -> int | None:
        for byte in data:
            after = self.step(state, byte)
            if after is None:
                return None
            state = after
        return state


def same_language(ours: ByteDfa, theirs: OutlinesDfa) -> bool:
    """Walk both automata at once, by all bytes, wherever they lead."""
    seen = {(ours.start, theirs.start)}
    todo = list(seen)
    while todo:
        mine, other = todo.pop()
        if bool(ours.accepting[mine]) != theirs.accepts(other):
            return False
        for byte in range(256):
            after, after_other = ours.advance(mine, bytes([byte])), theirs.step(other, byte)
            if (after == 0) != (after_other is None):
                return False
            if after_other is not None and (after, after_other) not in seen:
                seen.add((after, after_other))
                todo.append((after, after_other))
    return True
