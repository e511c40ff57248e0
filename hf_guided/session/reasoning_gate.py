"""Any engine after a reasoning gate: free text until the end marker, then the engine, from the first byte after it.

While a row thinks, its engine waits at the start of the grammar. If a token contains the end of the marker and the
beginning of the answer, the engine is given the rest of its bytes, as other tokens. Masks during thinking depend only
on how much of the marker the text ends with, and are cached.

Between the marker and the answer the model may write the *space* that its chat template writes there, or a part of it.
It is line ends, and no part of the answer; but an answer that can begin with line ends itself has the first ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..backends.base import BudgetedEngine, CompiledConstraint, Engine, MaskedEngine
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..errors import BackendError, CompileLimitExceeded, UnwritableConstraint
from .reasoning import Opening, ReasoningGate, Space

_MOST_LEAD = 16  # line ends; an answer that can begin with as many needs no other space before it
_ANSWER_SHARE = 4  # one in four tokens of a limit is left for the answer, if the caller does not limit the thinking


def gate_constraint(compiled: CompiledConstraint, gate: ReasoningGate | None, opening: Opening) -> CompiledConstraint:
    """The same constraint after thinking; unchanged without a gate, or if the prompt leaves no thinking.

    It is compiled for the gate's vocabulary, or for that with more tokens as text.
    """
    if gate is None or opening is Opening.ALL:
        return compiled
    gate = gate.for_vocabulary(compiled.vocabulary)
    beginnings = AnswerBeginnings(gate, compiled)
    start = ThinkingState(unwritten=len(gate.start_ids) if opening is Opening.NOTHING else 0)
    return replace(
        compiled,
        vocabulary=gate.vocabulary,
        new_engine=lambda: ReasoningEngine(beginnings, compiled.new_engine(), [start]),
        keeps_budget=True,  # thinking keeps it, also where the answer's engine does not
    )


def thinking_was_cut(engine: Engine | None, max_new_tokens: int | None) -> bool:
    """Whether the thinking of a row with this engine has ended because no token was left, and not by the model.

    The one who has written the first token of the end marker has ended it. True too where the marker had to come, and
    other processors have forbidden it. ``max_new_tokens`` is None if the output has no limit, or it is not known.
    """
    if not isinstance(engine, ReasoningEngine):
        return False
    states = engine._states
    taken = max(taken for taken, state in enumerate(states) if not state.matched)  # before that token
    left = None if max_new_tokens is None else max_new_tokens - taken
    return engine._must_end(states[taken], left, taken)


def space_before(constraint: Constraint | None, compiled: CompiledConstraint | None, gate: ReasoningGate) -> Space:
    """The space that may stand between the thinking and an answer, and is no part of what is read back.

    Free text, also that beside tool calls, can begin with it, and is read back without it.
    """
    if compiled is None or not gate.space.extra:
        return gate.space
    text = (gate.space.character * gate.space.extra).decode()
    if isinstance(constraint, ToolCalls) and constraint.plain(f"{text}.")[1] >= len(text):
        return gate.space
    return AnswerBeginnings(gate.for_vocabulary(compiled.vocabulary), compiled).space


class ThinkingState(NamedTuple):
    """A row's state after one token."""

    unwritten: int = 0  # tokens of the start marker that are still to come
    thought: int = 0  # tokens since then
    matched: int = 0  # bytes of the end marker that the thinking ends with
    lead: int | None = 0  # characters of the space that the text has after the marker; None after another character
    given: int = 0  # tokens that the engine accepted for the last one
    rest: bytes = b""  # the bytes of the last token that belong to the answer, if it has others too


class Beginning(NamedTuple):
    """The beginning of an answer that shares a token with the marker."""

    token_ids: tuple[int, ...]  # what the engine accepts for it
    needed: int | None  # tokens that suffice to finish the answer after it; see ``BudgetedEngine.min_tokens_to_finish``


class Spaced(NamedTuple):
    """A token with characters of the space that are no part of the answer."""

    token_ids: tuple[int, ...]  # what the engine accepts for it
    answer: bytes  # the bytes that it adds to the answer, often none
    needed: int | None  # see ``Beginning``
    lead: int | None  # the lead of the state after the token


class AnswerBeginnings:
    """Beginnings of an answer that may share a token with the marker; shared by the engines of one constraint."""

    def __init__(self, gate: ReasoningGate, compiled: CompiledConstraint):
        self.gate, self.compiled = gate, compiled
        self.mark = object()  # identifies the masks of this constraint
        self._known: dict[bytes, Beginning | None] = {}
        self._words: dict[int, NDArray[np.int32]] = {}
        self._spaces: dict[int, dict[int, Spaced]] = {}

    @cached_property
    def space(self) -> Space:
        """The gate's space, with what the answer itself can begin with."""
        space = self.gate.space
        try:
            own = self._own_lead(space.character) if space.extra else 0
        except BackendError:  # a row meets it too, and ends
            own = _MOST_LEAD
        return space._replace(own=own, extra=0 if own == _MOST_LEAD else space.extra)

    def _own_lead(self, character: bytes) -> int:
        engine = self.compiled.new_engine()
        for count in range(1, _MOST_LEAD + 1):
            try:
                token_ids = self.compiled.vocabulary.encode_bytes(character * count)
            except UnwritableConstraint:
                return count - 1
            if engine.validate(token_ids) < len(token_ids):
                return count - 1
        return _MOST_LEAD

    def spaced(self, lead: int | None) -> dict[int, Spaced]:
        """The tokens that may follow ``lead`` characters of the space and are not, or not whole, of the answer."""
        if lead is None or not self.space.extra:
            return {}
        if lead not in self._spaces:
            found, vocabulary = {}, self.compiled.vocabulary
            before = self.space.character * lead
            for token_id in vocabulary.starting_with(self.space.character):
                data = vocabulary.token_bytes[token_id] or b""
                answer = self.space.added(lead, data)
                if len(answer) == len(data) or (whole := self.of(self.space.answer(before + data))) is None:
                    continue
                token_ids = tuple(vocabulary.encode_bytes(answer)) if answer else ()
                found[token_id] = Spaced(token_ids, answer, whole.needed, self.space.lead(lead, data))
            self._spaces[lead] = found
        return self._spaces[lead]

    def of(self, rest: bytes) -> Beginning | None:
        """The beginning with these bytes; None if the engine refuses it."""
        if rest in self._known:
            return self._known[rest]
        engine = self.compiled.new_engine()
        beginning: Beginning | None = None
        try:
            token_ids = self.compiled.vocabulary.encode_bytes(rest) if rest else []
            if all(map(engine.accept, token_ids)):
                budgeted = self.compiled.keeps_budget
                needed = cast(BudgetedEngine, engine).min_tokens_to_finish() if budgeted else None
                beginning = Beginning(tuple(token_ids), needed)
        except (CompileLimitExceeded, UnwritableConstraint):
            if not rest:  # the marker can be written without these bytes, but not the answer
                raise
        return self._known.setdefault(rest, beginning)

    @property
    def needed(self) -> int | None:
        """The tokens that suffice for a whole answer; None if that is not known."""
        beginning = self.of(b"")
        return None if beginning is None else beginning.needed

    def words(self, matched: int) -> NDArray[np.int32]:
        """(words,) read-only: the allowed tokens while thinking need not end."""
        words = self._words.get(matched)
        if words is None:
            free = self.gate.free(matched)
            taken = [token_id for token_id, beginning in self.glued(matched).items() if beginning is not None]
            words = free.words | self.gate.vocabulary.bitmask_of(taken)
            words.flags.writeable = False
            self._words[matched] = words
        return words

    def glued(self, matched: int) -> dict[int, Beginning | None]:
        """The tokens that contain the end of the marker and more, with what they begin; None if it is refused."""
        glued = self.gate.free(matched).glued
        return {token_id: self.of(self.space.answer(rest)) for token_id, rest in glued.items()}


class ReasoningEngine(MaskedEngine):
    """A position in the thinking or in the answer.

    Args:
        beginnings: shared by all engines of the constraint.
        engine: of the answer; at its start while the row thinks.
        states: one for each token taken, after that of the start.
    """

    def __init__(self, beginnings: AnswerBeginnings, engine: Engine, states: list[ThinkingState]):
        self._beginnings, self._gate = beginnings, beginnings.gate
        self._engine, self._is_budgeted = engine, beginnings.compiled.keeps_budget
        self._states = states

    @property
    def is_thinking(self) -> bool:
        """Whether the thinking has not ended yet."""
        return self._is_before_end(self._states[-1])

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        state = self._states[-1]
        moved = self._moved(state, token_id)
        if moved is None:
            if self.is_thinking or not self._is_answer(token_id) or not self._engine.accept(token_id):
                return False
            self._states.append(self._answered(state, token_id))
            return True
        state, given = moved
        for answer_id in given:
            self._engine.accept(answer_id)
        self._states.append(state)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        state, answer = self._states[-1], list[int]()
        counts = []  # lengths of the answer, after each token
        for token_id in token_ids:
            if (moved := self._moved(state, token_id)) is not None:
                state, given = moved
            elif self._is_before_end(state) or not self._is_answer(token_id):
                break
            else:
                state, given = self._answered(state, token_id), (token_id,)
            answer += given
            counts.append(len(answer))
        accepted = self._engine.validate(answer)
        return sum(count <= accepted for count in counts)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        kept = len(self._states) - num_tokens
        given = sum(state.given for state in self._states[kept:])
        if given:
            self._engine.rollback(given)
        del self._states[kept:]

    def fork(self) -> ReasoningEngine:
        """See ``Engine.fork``."""
        return ReasoningEngine(self._beginnings, self._engine.fork(), self._states.copy())

    def fill(self, bitmask: Tensor, row: int, tokens_left: int | None = None) -> None:
        """See ``BudgetedEngine.fill``."""
        if self.is_thinking:
            self.write_mask(bitmask[row].numpy(), tokens_left)
            return
        if tokens_left is None or not self._is_budgeted:
            self._engine.fill(bitmask, row)
        else:
            cast(BudgetedEngine, self._engine).fill(bitmask, row, tokens_left)
        # Not the marker's special tokens: the engine may have set any bits for them.
        words = self._beginnings.compiled.vocabulary.text_words
        bitmask[row].numpy()[: len(words)] &= words
        self._add_space(bitmask[row].numpy(), tokens_left)

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        """See ``MaskedEngine.write_mask``."""
        if not self.is_thinking:
            completed = cast(MaskedEngine, self._engine).write_mask(words, tokens_left)
            self._add_space(words, tokens_left)
            return completed
        mask = self._thinking_mask(tokens_left)
        words[len(mask) :] = 0
        words[: len(mask)] = mask
        return False

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """See ``MaskedEngine.mask_key``."""
        if not self.is_thinking:
            key = cast(MaskedEngine, self._engine).mask_key(tokens_left)
            spaces, allowed = self._spaces(tokens_left)
            if not spaces or key is None:
                return key
            return (self._beginnings.mark, self._states[-1].lead, key) if len(allowed) == len(spaces) else None
        matched = self._states[-1].matched
        is_kept = self._thinking_mask(tokens_left) is self._beginnings.words(matched)
        return (self._beginnings.mark, matched) if is_kept else None

    def is_near_limit(self, tokens_left: int) -> bool:
        """See ``BudgetedEngine.is_near_limit``; False while thinking, see ``unlimited_thinking``."""
        if self.is_thinking or not self._is_budgeted:
            return False
        return cast(BudgetedEngine, self._engine).is_near_limit(tokens_left)

    def unlimited_thinking(self, tokens_left: int | None) -> NDArray[np.int32] | None:
        """See ``BudgetedEngine.unlimited_thinking``."""
        state = self._states[-1]
        if state.unwritten or not self.is_thinking:
            return None
        words = self._beginnings.words(state.matched)
        return None if self._thinking_mask(tokens_left) is words else words

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``; never while thinking."""
        return not self.is_thinking and self._engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``; special tokens have no bytes that could be jumped over."""
        state = self._states[-1]
        if not self.is_thinking:
            return b"" if self._spaces()[0] else self._engine.jump_forward_bytes()
        if not self._gate.is_text:
            return b""
        if state.unwritten:
            return self._gate.vocabulary.decode_bytes(self._gate.start_ids[-state.unwritten :])
        return self._gate.end[state.matched :] if self._must_end(state) else b""

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``; counted as if thinking ended now."""
        if not self.is_thinking:
            return cast(BudgetedEngine, self._engine).min_tokens_to_finish() if self._is_budgeted else None
        state, least = self._states[-1], self._beginnings.needed
        return None if least is None else state.unwritten + self._gate.tokens_to_end[state.matched] + least

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """See ``BudgetedEngine.can_finish_in``."""
        if not self.is_thinking:
            return cast(BudgetedEngine, self._engine).can_finish_in(tokens_left) if self._is_budgeted else None
        needed = self.min_tokens_to_finish()
        return None if needed is None else needed <= tokens_left

    @property
    def answer(self) -> tuple[int, bytes] | None:
        """How many tokens came before the answer, and its bytes within the last of them; None while thinking."""
        if self.is_thinking:
            return None
        first = next((i for i, state in enumerate(self._states) if state.given), len(self._states))
        rest = self._states[first].rest if first < len(self._states) else b""
        return (first, rest) if rest else (first - 1, b"")

    def _is_before_end(self, state: ThinkingState) -> bool:
        return state.matched < self._gate.end_length

    def _spaces(self, tokens_left: int | None = None) -> tuple[dict[int, Spaced], list[int]]:
        """The tokens that continue the space after the marker, and those of them that leave room for the answer."""
        found = self._beginnings.spaced(self._states[-1].lead)
        if tokens_left is None or self._beginnings.needed is None:
            return found, list(found)
        return found, [i for i, to in found.items() if to.needed is not None and to.needed < tokens_left]

    def _add_space(self, words: NDArray[np.int32], tokens_left: int | None) -> None:
        if allowed := self._spaces(tokens_left)[1]:
            mask = self._gate.vocabulary.bitmask_of(allowed)
            words[: len(mask)] |= mask

    def _must_end(self, state: ThinkingState, tokens_left: int | None = None, taken: int = 0) -> bool:
        """Whether the end marker, or the rest of it, has to be written after a state of a row that thinks.

        The output has ``taken`` tokens before the state, and may get ``tokens_left`` after it; None without a limit.
        """
        most, least = self._gate.reasoning.max_tokens, self._beginnings.needed
        if most is not None and state.thought >= most:
            return True
        if tokens_left is None:
            return False
        room = tokens_left - 1 - self._gate.max_tokens_to_end  # for the answer, after one more token of thinking
        if most is None and room < -((taken + tokens_left) // -_ANSWER_SHARE):
            return True
        # Where the answer does not fit in any case, the limit changes nothing.
        return least is not None and room < least <= tokens_left - self._gate.tokens_to_end[state.matched]

    def _answered(self, state: ThinkingState, token_id: int) -> ThinkingState:
        """The state after a token of the answer alone."""
        data = self._gate.vocabulary.token_bytes[token_id] or b""
        return state._replace(lead=self._beginnings.space.lead(state.lead, data), given=1, rest=b"")

    def _moved(self, state: ThinkingState, token_id: int) -> tuple[ThinkingState, tuple[int, ...]] | None:
        """The state after one more token of thinking or of the space after it, and the answer's tokens in it.

        None if the token is not allowed, or begins the answer, or continues it.
        """
        if not self._is_before_end(state):
            if (found := self._beginnings.spaced(state.lead).get(token_id)) is None:
                return None
            return state._replace(lead=found.lead, given=len(found.token_ids), rest=found.answer), found.token_ids
        if state.unwritten:
            expected = self._gate.start_ids[-state.unwritten]
            return (state._replace(unwritten=state.unwritten - 1), ()) if token_id == expected else None
        if self._must_end(state) and token_id != self._gate.first_token(state.matched):
            return None
        if (moved := self._gate.move(state.matched, token_id)) is None:
            return None
        rest, lead = self._beginnings.space.answer(moved.rest), self._beginnings.space.lead(0, moved.rest)
        if (beginning := self._beginnings.of(rest)) is None:
            return None
        given = beginning.token_ids
        return ThinkingState(0, state.thought + 1, moved.matched, lead, len(given), rest), given

    def _thinking_mask(self, tokens_left: int | None) -> NDArray[np.int32]:
        gate, state, least = self._gate, self._states[-1], self._beginnings.needed
        if state.unwritten:
            return gate.vocabulary.bitmask_of([gate.start_ids[-state.unwritten]])
        if self._must_end(state, tokens_left, len(self._states) - 1):
            return gate.vocabulary.bitmask_of([gate.first_token(state.matched)])
        words = self._beginnings.words(state.matched)
        if tokens_left is None or least is None or tokens_left < gate.tokens_to_end[state.matched] + least:
            return words
        glued = self._beginnings.glued(state.matched)
        out = [i for i, to in glued.items() if to is None or to.needed is None or to.needed >= tokens_left]
        return words & ~gate.vocabulary.bitmask_of(out) if out else words

    def _is_answer(self, token_id: int) -> bool:
        return self._beginnings.compiled.vocabulary.is_text(token_id)
