"""Any engine behind a gate: free text until the end marker, then the engine, from the first byte behind it.

While a row thinks its engine waits at the start of the grammar. A token that holds the end of the marker and the
beginning of the answer gives the engine the rest of its bytes, in tokens of their own. Masks while thinking depend on
little (how much of the marker the text ends with), and are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..backends.base import BudgetedEngine, CompiledConstraint, Engine, MaskedEngine
from ..errors import CompileLimitExceeded, UnwritableConstraint
from .reasoning import Gate, Opening


def gated(compiled: CompiledConstraint, gate: Gate, opening: Opening) -> CompiledConstraint:
    """The same constraint behind thinking; as it is where the prompt leaves nothing to think.

    Args:
        compiled: for the vocabulary that the gate was made for, or that with more tokens as text.
        gate: the markers.
        opening: what of the thinking the prompt holds.
    """
    if opening is Opening.ALL:
        return compiled
    gate = gate.over(compiled.vocabulary)
    behind = _Behind(gate, compiled)
    start = _Place(unwritten=len(gate.start_ids) if opening is Opening.NOTHING else 0)
    return replace(
        compiled,
        vocabulary=gate.vocabulary,
        new_engine=lambda: GatedEngine(behind, compiled.new_engine(), [start]),
    )


class _Place(NamedTuple):
    """Where a row stands behind one token.

    Args:
        unwritten: tokens of the start marker that are still to come.
        thought: tokens since.
        matched: bytes of the end marker that the thinking ends with.
        given: tokens that the engine took for the last one.
        rest: what of the last one stands behind the marker, if it holds its end.
    """

    unwritten: int = 0
    thought: int = 0
    matched: int = 0
    given: int = 0
    rest: bytes = b""


class _Behind:
    """What the engines of one constraint share: which beginnings of an answer may share a token with the marker."""

    def __init__(self, gate: Gate, compiled: CompiledConstraint):
        self.gate, self.compiled = gate, compiled
        self._beginnings: dict[bytes, tuple[tuple[int, ...], int | None] | None] = {b"": ((), self._least())}
        self._words: dict[int, NDArray[np.int32]] = {}

    def token_ids(self, rest: bytes) -> tuple[int, ...] | None:
        """The tokens by which the engine takes the beginning of an answer; None if it does not."""
        found = self._beginning(rest)
        return None if found is None else found[0]

    def needed(self, rest: bytes) -> int | None:
        """How many tokens are enough to finish behind it, as ``BudgetedEngine.min_tokens_to_finish``."""
        found = self._beginning(rest)
        return None if found is None else found[1]

    def words(self, matched: int) -> NDArray[np.int32]:
        """(words,) read-only: what may come next while there is no need to end."""
        words = self._words.get(matched)
        if words is None:
            free = self.gate.free(matched)
            taken = [token_id for token_id, rest in free.glued.items() if self.token_ids(rest) is not None]
            words = free.words | self.gate.vocabulary.bitmask_of(taken)
            words.flags.writeable = False
            self._words[matched] = words
        return words

    def too_long(self, matched: int, room: int) -> list[int]:
        """The tokens of those that begin an answer which cannot be finished in so many more."""
        found = []
        for token_id, rest in self.gate.free(matched).glued.items():
            needed = self.needed(rest)
            if needed is None or needed > room:
                found.append(token_id)
        return found

    def _beginning(self, rest: bytes) -> tuple[tuple[int, ...], int | None] | None:
        if rest not in self._beginnings:
            self._beginnings[rest] = self._found_beginning(rest)
        return self._beginnings[rest]

    def _found_beginning(self, rest: bytes) -> tuple[tuple[int, ...], int | None] | None:
        engine = self.compiled.new_engine()
        try:
            token_ids = self.compiled.vocabulary.encode_bytes(rest)
            if not all(map(engine.accept, token_ids)):
                return None
            return tuple(token_ids), self._needed(engine)
        except (CompileLimitExceeded, UnwritableConstraint):
            return None  # the marker can be written without it

    def _least(self) -> int | None:
        return self._needed(self.compiled.new_engine())

    def _needed(self, engine: Engine) -> int | None:
        return cast(BudgetedEngine, engine).min_tokens_to_finish() if self.compiled.keeps_budget else None


class GatedEngine:
    """One position, in the thinking or behind it.

    Args:
        behind: shared by all engines of the constraint.
        engine: of the answer; at its start while the row thinks.
        places: one per token taken, the start first.
    """

    def __init__(self, behind: _Behind, engine: Engine, places: list[_Place]):
        self._behind, self._gate = behind, behind.gate
        self._engine = engine
        self._places = places

    @property
    def is_thinking(self) -> bool:
        """Whether the answer has not begun yet."""
        return self._places[-1].matched < self._gate.whole

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        place = self._places[-1]
        if not self.is_thinking:
            if not self._is_answer(token_id) or not self._engine.accept(token_id):
                return False
            self._places.append(place._replace(given=1, rest=b""))
            return True
        moved = self._moved(place, token_id)
        if moved is None:
            return False
        place, given = moved
        for one in given:
            self._engine.accept(one)
        self._places.append(place)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        place, given = self._places[-1], cast("tuple[int, ...]", ())
        count = 0
        while place.matched < self._gate.whole:
            if count == len(token_ids) or (moved := self._moved(place, token_ids[count])) is None:
                return count
            place, given = moved
            count += 1
        answer = list(token_ids[count:])
        text = next((i for i, token_id in enumerate(answer) if not self._is_answer(token_id)), len(answer))
        return count + self._engine.validate([*given, *answer[:text]]) - len(given)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        kept = len(self._places) - num_tokens
        given = sum(place.given for place in self._places[kept:])
        if given:
            self._engine.rollback(given)
        del self._places[kept:]

    def fork(self) -> GatedEngine:
        """See ``Engine.fork``."""
        return GatedEngine(self._behind, self._engine.fork(), self._places.copy())

    def fill(self, bitmask: Tensor, row: int) -> None:
        """See ``Engine.fill``."""
        if self.is_thinking:
            self._write(self._thinking_mask(None), bitmask, row)
        else:
            self._engine.fill(bitmask, row)
            self._only_answer(bitmask, row)

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        if self.is_thinking:
            self._write(self._thinking_mask(tokens_left), bitmask, row)
        else:
            cast(BudgetedEngine, self._engine).fill_within(bitmask, row, tokens_left)
            self._only_answer(bitmask, row)

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        """See ``MaskedEngine.mask``."""
        return (
            self._thinking_mask(tokens_left) if self.is_thinking else cast(MaskedEngine, self._engine).mask(tokens_left)
        )

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``; never while thinking."""
        return not self.is_thinking and self._engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``; special tokens have no bytes that could be written ahead."""
        place = self._places[-1]
        if not self.is_thinking:
            return self._engine.jump_forward_bytes()
        if not self._gate.is_text:
            return b""
        if place.unwritten:
            return self._gate.vocabulary.decode_bytes(self._gate.start_ids[-place.unwritten :])
        return self._gate.bytes_to_end(place.matched) if self._must_end(place) else b""

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``: if thinking ended now."""
        if not self.is_thinking:
            return cast(BudgetedEngine, self._engine).min_tokens_to_finish()
        place, least = self._places[-1], self._behind.needed(b"")
        return None if least is None else place.unwritten + self._gate.tokens_to_end(place.matched) + least

    @property
    def answer(self) -> tuple[int, bytes] | None:
        """After how many tokens the answer began, and what of it shared the last of those; None while thinking."""
        if self.is_thinking:
            return None
        count = next(i for i, place in enumerate(self._places) if place.matched == self._gate.whole)
        return count, self._places[count].rest

    def _must_end(self, place: _Place) -> bool:
        most = self._gate.reasoning.max_tokens
        return most is not None and place.thought >= most

    def _moved(self, place: _Place, token_id: int) -> tuple[_Place, tuple[int, ...]] | None:
        """Behind a token more of thinking, and what of it is the answer's; None where it may not come."""
        if place.unwritten:
            expected = self._gate.start_ids[-place.unwritten]
            return (place._replace(unwritten=place.unwritten - 1), ()) if token_id == expected else None
        if self._must_end(place) and token_id != self._gate.first_token(place.matched):
            return None
        moved = self._gate.move(place.matched, token_id)
        given = None if moved is None else self._behind.token_ids(moved.rest)
        if moved is None or given is None:
            return None
        return _Place(0, place.thought + 1, moved.matched, len(given), moved.rest), given

    def _thinking_mask(self, tokens_left: int | None) -> NDArray[np.int32]:
        gate, place = self._gate, self._places[-1]
        if place.unwritten:
            return gate.vocabulary.bitmask_of([gate.start_ids[-place.unwritten]])
        least = self._behind.needed(b"")
        if self._must_end(place):
            return gate.vocabulary.bitmask_of([gate.first_token(place.matched)])
        if tokens_left is None or least is None or tokens_left < gate.tokens_to_end(place.matched) + least:
            return self._behind.words(place.matched)
        room = tokens_left - 1
        if room < gate.longest_way + least:
            return gate.vocabulary.bitmask_of([gate.first_token(place.matched)])
        out = self._behind.too_long(place.matched, room)
        words = self._behind.words(place.matched)
        return words & ~gate.vocabulary.bitmask_of(out) if out else words

    def _is_answer(self, token_id: int) -> bool:
        return self._behind.compiled.vocabulary.is_text(token_id)

    def _only_answer(self, bitmask: Tensor, row: int) -> None:
        """Take out the marker's special tokens: the engine may have left anything there."""
        words = self._behind.compiled.vocabulary.text_words
        bitmask[row].numpy()[: len(words)] &= words

    @staticmethod
    def _write(words: NDArray[np.int32], bitmask: Tensor, row: int) -> None:
        bitmask[row].numpy()[: len(words)] = words
