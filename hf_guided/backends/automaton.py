"""The native engine: regular expressions, choices and JSON Schema of bounded depth as one automaton over bytes.

Everything about the future of an output is known from its state, an integer. So masks are made once per state and
looked up, rollback forgets integers, and no token is allowed from which the end cannot be reached with this
vocabulary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from ..automaton.budget import NEVER, TokenBudget, token_budget
from ..automaton.budget_masks import BudgetMasks
from ..automaton.byte_dfa import ByteDfa
from ..automaton.dawg import dawg_dfa
from ..automaton.json_string_masks import string_forms
from ..automaton.limits import WorkMeter
from ..automaton.nfa import NfaBuilder, regex_dfa
from ..automaton.reach import reach
from ..automaton.token_masks import TokenMasks
from ..automaton.token_trie import token_trie
from ..automaton.token_walk import TokenWalk
from ..constraints.values import Choice, Constraint, JsonSchema, Regex
from ..errors import Loss, UnsupportedConstraint, UnwritableConstraint
from ..options import CompileLimits
from ..regex import NOTHING, UnsupportedRegex, parse_fullmatch
from ..schema.normalize import Normalizer
from ..schema.to_nfa import NotRegular, regular
from .adapter import Build, Made, PortableAdapter
from .base import CompiledConstraint

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_NOTHING = "the pattern matches nothing"
_MOST_MOVES = 4096  # cached for one language
_MOVE_BYTES = 200  # of a cached move: its key, two ints and a slot of the dict


class AutomatonBackend(PortableAdapter):
    """The adapter; building it takes half a second for 131k tokens, compiling milliseconds.

    Args:
        vocabulary: the vocabulary to compile for.
        limits: of one compile; of counting the tokens to the end, its seconds once more.
    """

    name = title = "automaton"
    keeps_budget = keeps_masks = True
    bounds_depth = canonical_spelling = True

    def __init__(self, vocabulary: Vocabulary, limits: CompileLimits | None = None):
        super().__init__(vocabulary)
        self._limits = CompileLimits() if limits is None else limits
        self._tokens = token_trie(vocabulary)
        string_forms(self._tokens)  # now, so that no first mask has to wait for it

    def _schema(self, constraint: JsonSchema) -> tuple[Build, Sequence[Loss]]:
        n = Normalizer.of(constraint)
        try:
            closed, spelling = constraint.extra == "forbid", constraint.style.spelling
            schema = regular(n, closed=closed, spelling=spelling, max_depth=constraint.max_depth)
        except NotRegular as error:
            reason = error.reason if error.keyword else f"{error.reason}; hg.JsonSchema(..., max_depth=...) bounds it"
            losses = [*n.losses, Loss(error.pointer, error.keyword or constraint.kind, reason)]
            raise UnsupportedConstraint("the automaton does not take this JSON Schema", losses) from None

        def make(meter: WorkMeter) -> ByteDfa:
            builder = NfaBuilder(meter, in_pieces=True)
            return builder.dfa(*schema.build(builder, constraint.style), minimal=False)

        return lambda: self._built(constraint, make), n.losses

    def _text(self, constraint: Constraint) -> Build:
        if isinstance(constraint, Choice):
            words = [option.encode() for option in constraint.options]
            return lambda: self._built(constraint, lambda meter: dawg_dfa(words, meter))
        if not isinstance(constraint, Regex):
            raise self._unsupported(constraint.kind, "the automaton has no such constraint")
        try:
            node = parse_fullmatch(constraint.pattern)
        except UnsupportedRegex as error:
            raise self._unsupported("regex", str(error)) from None
        if node == NOTHING:
            raise self._unsupported("regex", _NOTHING)
        return lambda: self._built(constraint, lambda meter: regex_dfa(node, meter))

    def _built(self, constraint: Constraint, make: Callable[[WorkMeter], ByteDfa]) -> Made:
        meter = WorkMeter(self._limits)
        dfa = make(meter)
        if not dfa.start:
            raise self._unsupported(constraint.kind, _NOTHING)  # known only now: an empty intersection
        language = Language(TokenWalk(dfa, self._tokens), self.vocabulary, meter)
        if not language.can_end[dfa.start]:
            raise UnwritableConstraint(
                f"no text of {constraint} can be written with the tokens of this vocabulary; use a model whose "
                "tokenizer can write it (any byte-level BPE, or SentencePiece with byte fallback)"
            )
        return Made(lambda: AutomatonEngine(language, [dfa.start]), language.nbytes)

    @override
    def packed(self, compiled: CompiledConstraint) -> ByteDfa:
        """Its automaton."""
        return cast(AutomatonEngine, compiled.new_engine()).language.walk.dfa

    @override
    def _unpack(self, packed: ByteDfa) -> Made:
        language = Language(TokenWalk(packed, self._tokens), self.vocabulary, WorkMeter(self._limits))
        return Made(lambda: AutomatonEngine(language, [packed.start]), language.nbytes)


class Language:
    """The part that the engines of one constraint share; thread safe.

    Args:
        walk: the automaton and the vocabulary's trie.
        vocabulary: the tokens by id.
        meter: limits of the compile, of which this is the last part.
    """

    def __init__(self, walk: TokenWalk, vocabulary: Vocabulary, meter: WorkMeter):
        self.walk, self.token_bytes = walk, vocabulary.token_bytes
        self._reach = reach(walk, meter)
        self.can_end = self._reach.can_end.tolist()
        self.masks = TokenMasks(walk, self._reach.can_end)
        self.accepting = walk.dfa.accepting.tolist()
        self.forced = walk.dfa.forced.tolist()
        self.moves: dict[tuple[int, int], int] = {}  # (state, token) -> result of ``move``: texts repeat themselves
        self._limits = meter.limits
        self._budget: tuple[TokenBudget, BudgetMasks] | None = None
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, including all masks except the rarely used ones of budgets."""
        states = self.walk.dfa.states
        moves = _MOVE_BYTES * min(_MOST_MOVES, states * len(self.token_bytes))
        return self.walk.dfa.nbytes + self.walk.nbytes + self.masks.nbytes + moves + 24 * states

    def after(self, state: int, token_id: int) -> int:
        """The state after a text token; 0 if the token is not allowed."""
        target = self.walk.advance(state, self.token_bytes[token_id] or b"")
        return target if self.can_end[target] else 0

    def move(self, state: int, token_id: int) -> int:
        """The state after a token, remembered; 0 if it is not allowed, or not text."""
        is_text = 0 <= token_id < len(self.token_bytes) and self.token_bytes[token_id] is not None
        target = self.after(state, token_id) if is_text else 0
        if len(self.moves) < _MOST_MOVES:
            self.moves[state, token_id] = target
        return target

    @property
    def budget(self) -> tuple[TokenBudget, BudgetMasks]:
        """Tokens to the end from every state, and masks that respect a budget; counted when first requested."""
        with self._lock:
            if self._budget is None:
                budget = token_budget(self.walk, self._reach, WorkMeter(self._limits))
                self._budget = budget, BudgetMasks(self.walk, self.masks, budget)
            return self._budget


class AutomatonEngine:
    """One position; all methods take time in the bytes of the tokens, but for the first mask of a state.

    Args:
        language: shared by all engines of the constraint.
        states: one per prefix, the start first.
    """

    def __init__(self, language: Language, states: list[int]):
        self._language = language
        self._states = states

    @property
    def language(self) -> Language:
        """The part shared with the other engines of its constraint."""
        return self._language

    @property
    def state(self) -> int:
        """The state of the automaton."""
        return self._states[-1]

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        states = self._states
        state = self._language.moves.get((states[-1], token_id))
        if state is None:
            state = self._language.move(states[-1], token_id)
        if state:
            states.append(state)
        return state != 0

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        state = self._states[-1]
        for count, token_id in enumerate(token_ids):
            state = self._language.after(state, token_id)
            if not state:
                return count
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> AutomatonEngine:
        """See ``Engine.fork``."""
        return AutomatonEngine(self._language, self._states.copy())

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        """See ``MaskedEngine.mask``."""
        if tokens_left is None:
            return self._language.masks.of(self._states[-1])
        return self._language.budget[1].of(self._states[-1], tokens_left)

    def fill(self, bitmask: Tensor, row: int) -> None:
        """See ``Engine.fill``."""
        self._write(self.mask(), bitmask, row)

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        self._write(self.mask(tokens_left), bitmask, row)

    @staticmethod
    def _write(words: NDArray[np.int32], bitmask: Tensor, row: int) -> None:
        bitmask[row].numpy()[: len(words)] = words

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return bool(self._language.accepting[self._states[-1]])

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``; the loop ends, because a cycle of forced bytes could not reach the end."""
        state, forced = self._states[-1], bytearray()
        while (byte := self._language.forced[state]) >= 0:
            forced.append(byte)
            state = self._language.walk.dfa.advance(state, bytes((byte,)))
        return bytes(forced)

    def min_tokens_to_finish(self) -> int:
        """See ``BudgetedEngine.min_tokens_to_finish``; the minimum, if the limits allowed to find it."""
        needed = int(self._language.budget[0].needed[self._states[-1]])
        assert needed < NEVER, "a state that no token may lead to"
        return needed

    def can_finish_in(self, tokens_left: int) -> bool:
        """See ``BudgetedEngine.can_finish_in``."""
        return self.min_tokens_to_finish() <= tokens_left
