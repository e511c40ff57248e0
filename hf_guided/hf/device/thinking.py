"""Thinking before an answer: states in front of those of the answer's automaton, which move by tokens, not by bytes.

They are the numbers after the automaton's own states, of three kinds:

- free: one for each number of matched bytes of the end marker. The row may think on.
- ending: one for each of those. The row has to write the end marker, because its limit of thinking tokens is used up,
  or because no more tokens are left than the marker and the shortest answer need. A row is never said to be in such a
  state: it is in the free one, and the ending one stands in for it where tokens are counted.
- opening: one for each token of the start marker that is still to come.

A special token of a marker has no bytes, and a token that contains the end of the marker begins the answer too. Those
are looked up one by one; where other tokens lead is a table that all constraints after these markers share.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...automaton.byte_dfa import ByteDfa
from ...automaton.token_trie import TokenTrie
from ...automaton.token_walk import TokenWalk
from ...backends.automaton import AutomatonEngine, Language
from ...session.reasoning import ReasoningGate
from ...session.reasoning_gate import AnswerPrefixes, ReasoningEngine

_NO_TOKEN = -1
_text_moves: WeakKeyDictionary[ReasoningGate, NDArray[np.int32]] = WeakKeyDictionary()


def text_moves(gate: ReasoningGate, tokens: TokenTrie) -> NDArray[np.int32]:
    """(end_length, tokens) int32: the matched bytes of the end marker after each text token; 0 for other tokens.

    Args:
        gate: finds the end marker; the result is kept as long as it lives.
        tokens: the text tokens of its vocabulary, without the special tokens of the markers.
    """
    moves = _text_moves.get(gate)
    if moves is None:
        moves = _text_moves[gate] = _computed_text_moves(gate, tokens)
    return moves


def _computed_text_moves(gate: ReasoningGate, tokens: TokenTrie) -> NDArray[np.int32]:
    # State 0 of an automaton is dead. After the marker its bytes do not matter here: such tokens are few.
    after = gate.moves_of_byte() + 1
    table = np.concatenate([np.zeros((1, 256), np.int64), after, np.full((1, 256), len(after) + 1)])
    dfa = ByteDfa(table.astype(np.uint16), np.arange(256, dtype=np.uint8), np.zeros(len(table), np.bool_), 1)
    walk = TokenWalk(dfa, tokens)
    moves = np.zeros((len(after), len(gate.vocabulary.token_bytes)), np.int32)
    for matched, found in enumerate(moves):
        nodes, states = walk.nodes(1 + matched)
        token_ids, counts = tokens.tokens_at(nodes)
        found[token_ids] = np.repeat(states, counts) - 1
    return moves


class ThinkingLanguage:
    """A constraint after thinking, as states; immutable, shared by all rows that think before it, on any thread.

    Args:
        language: of the answer.
        prefixes: of the same constraint after the same thinking.
    """

    def __init__(self, language: Language, prefixes: AnswerPrefixes):
        self.language = language
        self.moves: dict[tuple[int, int], int] = language.moves  # those of the answer are remembered
        self._prefixes, self._gate = prefixes, prefixes.gate
        self._answer = language.walk.dfa.start
        self._first_free = language.walk.dfa.states
        self._end_length = self._gate.end_length
        self._first_opening = self._first_free + 2 * self._end_length

    @classmethod
    def of(cls, engine: ReasoningEngine) -> ThinkingLanguage:
        """That of a row that thinks first, whose answer is the automaton's; rows with other limits share it."""
        answer, markers = engine.answer_engine, replace(engine.prefixes.gate.reasoning, max_tokens=None)
        assert isinstance(answer, AutomatonEngine), "eligibility.py lets no other engine in"
        made = answer.language.derived
        if markers not in made:
            made.setdefault(markers, cls(answer.language, engine.prefixes))
        found: ThinkingLanguage = made[markers]
        return found

    def state_of(self, engine: ReasoningEngine) -> int:
        """The state of a row of this constraint."""
        state, answer = engine.state, engine.answer_engine
        assert isinstance(answer, AutomatonEngine), "eligibility.py lets no other engine in"
        if not engine.is_thinking:
            return answer.state
        return self._opening(state.unwritten) if state.unwritten else self._first_free + state.matched

    def think_until(self, engine: ReasoningEngine) -> int | None:
        """The number of further tokens after which a row has to end its thinking; None without a limit."""
        most, state = engine.prefixes.gate.reasoning.max_tokens, engine.state
        return None if most is None else max(0, most - state.thought) + state.unwritten

    def move(self, state: int, token_id: int) -> int:
        """As ``Language.move``; a row that has to end its thinking may take fewer tokens."""
        if state < self._first_free:
            return self.language.move(state, token_id)
        if not 0 <= token_id < len(self.language.token_bytes):
            return 0
        place = state - self._first_free
        if place >= self._end_length:
            only, target = self.forced_moves[place - self._end_length].tolist()
            return int(target) if token_id == only else 0
        if not self._prefixes.words(place)[token_id >> 5] >> (token_id & 31) & 1:
            return 0
        matched = int(self._after_text[place, token_id])
        return self._moved(place, token_id) if self._is_apart(token_id, matched) else self._first_free + matched

    def free_moves(self) -> NDArray[np.int32]:
        """(end_length, tokens) int32: where a row that may think on is led by each token; 0 for refused ones."""
        moves = np.zeros_like(self._after_text)
        special = np.array([data is None for data in self.language.token_bytes])
        for matched, found in enumerate(moves):
            words = self._prefixes.words(matched)
            may = np.unpackbits(words.view(np.uint8), bitorder="little")[: len(found)].astype(np.bool_)
            found[may] = self._first_free + self._after_text[matched, may]
            apart = special | (self._after_text[matched] == self._end_length)
            for token_id in np.flatnonzero(may & apart).tolist():
                found[token_id] = self._moved(matched, token_id)
        return moves

    @property
    def _after_text(self) -> NDArray[np.int32]:
        return text_moves(self._gate, self.language.walk.tokens)

    def _is_apart(self, token_id: int, matched: int) -> bool:
        """Whether a token is special, or ends the marker."""
        return matched == self._end_length or self.language.token_bytes[token_id] is None

    @cached_property
    def forced_moves(self) -> NDArray[np.int32]:
        """(end_length + start tokens, 2) int32: the only token of each ending and opening state, and its target."""
        gate = self._gate
        ending = [
            (gate.first_token(matched), self._moved(matched, gate.first_token(matched)))
            if gate.can_end(matched)
            else (_NO_TOKEN, 0)
            for matched in range(self._end_length)
        ]
        opening = [
            (gate.start_ids[-unwritten], self._opening(unwritten - 1))
            for unwritten in range(1, len(gate.start_ids) + 1)
        ]
        return np.array(ending + opening, np.int32)

    @property
    def can_end(self) -> NDArray[np.bool_]:
        """(states,) whether tokens may lead there."""
        free = [self._gate.can_end(matched) for matched in range(self._end_length)]
        return np.array([*self.language.can_end, *free, *free, *[True] * len(self._gate.start_ids)])

    @cached_property
    def needed(self) -> NDArray[np.int64]:
        """(states,) tokens to the end of the answer, the stop token included, if thinking ends now."""
        answers = self.language.budget[0].needed
        least = int(answers[self._answer])
        free = [self._gate.tokens_to_end(matched) + least for matched in range(self._end_length)]
        opening = [unwritten + free[0] for unwritten in range(1, len(self._gate.start_ids) + 1)]
        return np.concatenate([answers, np.array([*free, *free, *opening], answers.dtype)])

    @property
    def forced_within(self) -> int:
        """With this number of tokens left, or fewer, thinking has to end."""
        return self._gate.max_tokens_to_end + int(self.needed[self._answer])

    def _opening(self, unwritten: int) -> int:
        return self._first_opening + unwritten - 1 if unwritten else self._first_free

    def _moved(self, matched: int, token_id: int) -> int:
        """Where an allowed token leads."""
        moved = self._gate.move(matched, token_id)
        assert moved is not None, "a token that is not allowed"
        if moved.matched < self._end_length:
            return self._first_free + moved.matched
        return self.language.walk.advance(self._answer, moved.rest)


AnyLanguage: TypeAlias = Language | ThinkingLanguage
