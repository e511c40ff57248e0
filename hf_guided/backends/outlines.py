"""outlines-core: regular expressions and choices as a table of states and tokens, built in advance.

Its search is leftmost-first: of ``a|ab`` it takes ``a`` and stops, and in ``(ab)*`` there is no move from ``ab`` except
by a token that holds a whole ``ab`` more. Neither happens where a match can end at one point only. So the pattern is
put between two marks, a character that none of its texts contains: then the Index covers all its texts; a text begins
after the first mark, and is complete where the second may follow.

Every byte is also a token, with an id above the vocabulary's: so marks can be written, and states be counted.
Only tokens made of the pattern's own bytes take part, because every state tries every token.

It knows no limits, cannot be interrupted, and aborts the process when memory ends. So its work is counted before: it
gets a pattern only where the states of its automaton, times the tokens, are few enough. It does not hold:

- JSON Schema: it turns one into a regular expression that means something else;
- look-ahead and look-behind, grammars, structural tags;
- patterns that leave no ASCII character for the marks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..automaton.limits import WorkMeter
from ..automaton.nfa import regex_dfa
from ..constraints.values import Constraint
from ..errors import CompileLimitExceeded
from ..options import OUTLINES, OUTLINES_MOST_STEPS
from ..regex import Node, UnsupportedRegex, alphabet, to_pattern
from ..vocabulary.layout import WORD_BITS, words
from .adapter import Adapter, Build, CompileResult
from .base import Engine

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

MASK_BYTES = 16 * 2**20  # masks of one constraint; a thousand of 131k tokens
_BUCKET = 9  # bytes of a hash table's bucket: token, state, and one of the table's own
_TABLE = 64  # bytes of a table in addition


class BuiltIndex(NamedTuple):
    """The part that the engines of one constraint share."""

    index: Any  # an ``outlines_core.Index``; its tokens are the vocabulary's, and ``first_byte + b`` for each byte b
    start: int  # the state at the beginning of the text
    states: int  # how many there are
    nbytes: int  # memory of the index


def build_index(pattern: str, mark: int, tokens: Mapping[int, bytes], letters: bytes, first_byte: int) -> BuiltIndex:
    """Build the Index of a plain pattern between two marks; raises ValueError where outlines-core gives up.

    The mark is an ASCII character in no text of the pattern; ``tokens`` may be of use, with ids below ``first_byte``,
    the id of byte 0 as a token; ``letters`` are the bytes of the pattern's texts.
    """
    import outlines_core

    ids: dict[bytes, list[int]] = {}
    for token_id, data in (*tokens.items(), *((first_byte + byte, bytes([byte])) for byte in (mark, *letters))):
        ids.setdefault(data, []).append(token_id)
    marked = f"\\x{mark:02x}"
    end_of_sequence = first_byte + 256  # the Index requires one, and allows it only after the second mark
    index = outlines_core.Index(f"{marked}(?:{pattern}){marked}", outlines_core.Vocabulary(end_of_sequence, ids))
    start = index.get_next_state(index.get_initial_state(), first_byte + mark)
    nbytes = 0
    states, seen = [start], {start}
    for state in states:  # the list grows meanwhile
        # A Rust hash table has a power of two slots, an eighth of them empty.
        nbytes += _TABLE + (_BUCKET << max(2, (len(index.get_allowed_tokens(state)) * 8 // 7).bit_length()))
        new = {index.get_next_state(state, first_byte + byte) for byte in letters} - {None} - seen
        seen |= new
        states += new
    return BuiltIndex(index, start, len(states), nbytes)


class OutlinesBackend(Adapter):
    """The adapter."""

    name = "outlines"
    title = "outlines-core"

    def __init__(self, vocabulary: Vocabulary):
        import outlines_core  # noqa: F401  # here, so that BackendUnavailable is raised at once

        super().__init__(vocabulary)
        self._first_byte = words(vocabulary.padded_size) * WORD_BITS

    def _text(self, constraint: Constraint) -> Build:
        return self._written(constraint, self._build_of)

    def _build_of(self, node: Node) -> Build:
        pattern = to_pattern(node)
        used = alphabet(node)
        mark = next((code for code in range(128) if chr(code) not in used), None)
        if mark is None:
            raise UnsupportedRegex(
                "outlines-core needs an ASCII character that no text has, to mark where texts end; leave one out that "
                r"you do not need, as in [^\x00] instead of [\s\S], or use llguidance"
            )
        # Beyond ASCII every byte counts as used: surplus tokens only cost time.
        beyond = any(last >= 128 for _, last in used.ranges)
        letters = bytes(byte for byte in range(256) if (chr(byte) in used if byte < 128 else beyond))
        return lambda: self._built(node, pattern, mark, letters)

    def _built(self, node: Node, pattern: str, mark: int, letters: bytes) -> CompileResult:
        try:
            states = len(regex_dfa(node, WorkMeter(OUTLINES)).table)
        except CompileLimitExceeded as error:
            raise CompileLimitExceeded(f"too large for outlines-core too: {error}") from None
        tokens = {
            token_id: data
            for token_id, data in enumerate(self.vocabulary.token_bytes)
            if data is not None and not data.translate(None, letters)
        }
        if states * len(tokens) > OUTLINES_MOST_STEPS:
            raise CompileLimitExceeded(
                f"outlines-core would try {len(tokens)} tokens in each of {states} states, and more than "
                f"{OUTLINES_MOST_STEPS} trials take too long; make the constraint smaller, or use native"
            )
        try:
            built = build_index(pattern, mark, tokens, letters, self._first_byte)
        except ValueError as error:  # the pattern was generated here, so its syntax is right and its size is the cause
            raise CompileLimitExceeded(
                f"outlines-core gave up: {error}; make the constraint smaller, or use llguidance"
            ) from None
        mask = partial(_mask, built.index, self.vocabulary, self._first_byte)
        kept = lru_cache(max(1, MASK_BYTES // (self._first_byte // 8)))(mask)
        end, masks = self._first_byte + mark, min(MASK_BYTES, built.states * self._first_byte // 8)
        return CompileResult(lambda: _Engine(built.index, end, kept, [built.start]), built.nbytes + masks)


def _mask(index: Any, vocabulary: Vocabulary, first_byte: int, state: int) -> NDArray[np.int32]:
    tokens = np.array(index.get_allowed_tokens(state), np.int64)
    return vocabulary.bitmask_of(tokens[tokens < first_byte])


class _Engine(Engine):
    def __init__(self, index: Any, end: int, mask: Callable[[int], NDArray[np.int32]], states: list[int]):
        self._index, self._end, self._mask = index, end, mask  # ``end`` is the token that is the second mark
        self._states = states  # one per prefix, the start first

    def accept(self, token_id: int) -> bool:
        after: int | None = self._index.get_next_state(self._states[-1], token_id)
        if after is None:
            return False
        self._states.append(after)
        return True

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> _Engine:
        return _Engine(self._index, self._end, self._mask, self._states.copy())

    def fill(self, bitmask: Tensor, row: int) -> None:
        mask = self._mask(self._states[-1])
        bitmask[row].numpy()[: len(mask)] = mask

    def is_completed(self) -> bool:
        return self._index.get_next_state(self._states[-1], self._end) is not None
