"""outlines-core: regular expressions and choices as a table of states and tokens, built in advance.

Its search is leftmost-first: of ``a|ab`` it takes ``a`` and stops, and in ``(ab)*`` there is no move from ``ab`` except
by a token that holds a whole ``ab`` more. Neither happens where a match can end at one point only. So the pattern is
put between two marks, a character that none of its texts contains: then the Index covers all its texts; a text begins
after the first mark, and is complete where the second may follow. What leaves no ASCII character for that is refused.

Every byte is also a token, with an id above the vocabulary's: so marks can be written, and forced bytes be seen.
Only tokens made of the pattern's own bytes take part, because every state tries every token.

It knows no limits, cannot be interrupted, and aborts the process when memory ends: it runs in the compile worker, and
gets only constraints that the native engine accepts, whose work is counted. So the size limit is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..automaton.limits import WorkMeter, allowance
from ..automaton.nfa import regex_dfa
from ..constraints.values import Choice, Constraint, JsonSchema, Regex
from ..errors import CompileLimitExceeded, Loss
from ..options import OUTLINES
from ..regex import Node, UnsupportedRegex, alphabet, alt, parse_fullmatch, text, to_pattern
from ..vocabulary.layout import WORD_BITS, words
from .adapter import Adapter, Build, Made
from .outlines_index import BuiltIndex, build_index
from .subprocess_worker import SHARED, job_limits

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

MASK_BYTES = 16 * 2**20  # of one constraint; a thousand masks of 131k tokens


class OutlinesBackend(Adapter):
    """The adapter.

    Args:
        vocabulary: the vocabulary to compile for.
    """

    name = "outlines"
    title = "outlines-core"

    def __init__(self, vocabulary: Vocabulary):
        import outlines_core

        super().__init__(vocabulary)
        self._new_guide = outlines_core.Guide
        self._first_byte = words(vocabulary.padded_size) * WORD_BITS

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        constraint.check()
        raise self._unsupported(
            constraint.kind,
            "outlines-core turns a JSON Schema into a regular expression that means something else; use llguidance, or "
            "the native engine",
        )

    def _text(self, constraint: Constraint) -> Build:
        if isinstance(constraint, Choice):
            node = alt(*map(text, constraint.options))
        elif isinstance(constraint, Regex):
            try:
                node = parse_fullmatch(constraint.pattern)
            except UnsupportedRegex as error:
                raise self._unsupported("regex", str(error)) from None
        else:
            raise self._unsupported(constraint.kind, "outlines-core has no such constraint")
        try:
            pattern = to_pattern(node)
        except UnsupportedRegex as error:
            raise self._unsupported("regex", str(error)) from None
        used = alphabet(node)
        mark = next((code for code in range(128) if chr(code) not in used), None)
        if mark is None:
            raise self._unsupported(
                constraint.kind,
                "outlines-core needs an ASCII character that no text has, to mark where texts end; leave one out that "
                r"you do not need, as in [^\x00] instead of [\s\S], or use llguidance",
            )
        # Beyond ASCII every byte counts as used: surplus tokens only cost time.
        beyond = any(last >= 128 for _, last in used.ranges)
        letters = bytes(byte for byte in range(256) if (chr(byte) in used if byte < 128 else beyond))
        return lambda: self._built(node, pattern, mark, letters)

    def _built(self, node: Node, pattern: str, mark: int, letters: bytes) -> Made:
        self._check_size(node)
        tokens = {
            token_id: data
            for token_id, data in enumerate(self.vocabulary.token_bytes)
            if data is not None and not data.translate(None, letters)
        }
        try:
            limits = job_limits(allowance())
            built = SHARED.run(self.title, limits, build_index, pattern, mark, tokens, letters, self._first_byte)
        except ValueError as error:  # the pattern was generated here, so its syntax is right and its size is the cause
            raise CompileLimitExceeded(
                f"outlines-core gave up: {error}; make the constraint smaller, or use llguidance"
            ) from None
        language = _Language(built, self._new_guide, self._first_byte, mark)
        masks = min(MASK_BYTES, built.states * self._first_byte // 8)
        return Made(lambda: _Engine(language, [built.start]), built.nbytes + masks)

    def _check_size(self, node: Node) -> None:
        try:
            regex_dfa(node, WorkMeter(OUTLINES))
        except CompileLimitExceeded as error:
            raise CompileLimitExceeded(f"too large for outlines-core too: {error}") from None


class _Language:
    """The part that the engines of one constraint share; thread safe."""

    def __init__(self, built: BuiltIndex, new_guide: Callable[[Any], Any], first_byte: int, mark: int):
        self.first_byte = first_byte
        self.forced = built.forced
        self._next: Callable[[int, int], int | None] = built.index.get_next_state
        self._end = first_byte + mark
        # The state and token by which a state was first reached: so every chain of them leads to the start.
        self._before: dict[int, tuple[int, int] | None] = {built.start: None}
        self.mask = _masks(built.index, new_guide, self._before, self._end, first_byte // WORD_BITS)

    def after(self, state: int, token_id: int) -> int | None:
        target = self._next(state, token_id)
        if target is not None:
            self._before.setdefault(target, (state, token_id))
        return target

    def may_end(self, state: int) -> bool:
        return self._next(state, self._end) is not None


def _masks(
    index: Any, new_guide: Callable[[Any], Any], before: dict[int, tuple[int, int] | None], mark: int, row: int
) -> Callable[[int], NDArray[np.int32]]:
    """(state) -> (row,) int32, read-only: the allowed tokens, cached for the latest states.

    A Guide writes a mask of 100,000 tokens in a fiftieth of the time it takes to list them, but has to be led to the
    state token by token.
    """

    @lru_cache(max(1, MASK_BYTES // (row * 4)))
    def mask_of(state: int) -> NDArray[np.int32]:
        path = []
        while (step := before[state]) is not None:
            state, token_id = step
            path.append(token_id)
        guide = new_guide(index)
        for token_id in (mark, *reversed(path)):
            guide.advance(token_id, False)
        bits = np.empty(row + words(257), np.int32)  # the bytes and its end of sequence too
        guide.write_mask_into(bits.ctypes.data, len(bits), bits.itemsize)
        mask: NDArray[np.int32] = bits[:row].copy()
        mask.flags.writeable = False
        return mask

    return mask_of


class _Engine:
    def __init__(self, language: _Language, states: list[int]):
        self._language = language
        self._states = states  # one per prefix, the start first

    def accept(self, token_id: int) -> bool:
        after = self._language.after(self._states[-1], token_id)
        if after is None:
            return False
        self._states.append(after)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        ahead = self.fork()
        return next((count for count, token_id in enumerate(token_ids) if not ahead.accept(token_id)), len(token_ids))

    def rollback(self, num_tokens: int) -> None:
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> _Engine:
        return _Engine(self._language, self._states.copy())

    def fill(self, bitmask: Tensor, row: int) -> None:
        mask = self._language.mask(self._states[-1])
        bitmask[row].numpy()[: len(mask)] = mask

    def is_completed(self) -> bool:
        return self._language.may_end(self._states[-1])

    def jump_forward_bytes(self) -> bytes:
        """The loop ends: every state has a path to the end, so a cycle of forced bytes is impossible."""
        state: int | None = self._states[-1]
        forced = bytearray()
        while state is not None and (byte := self._language.forced.get(state)) is not None:
            forced.append(byte)
            state = self._language.after(state, self._language.first_byte + byte)
        return bytes(forced)
