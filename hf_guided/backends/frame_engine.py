"""The engines of the native backend: where each row's text is in a network, and the masks of these places.

All rows of a constraint share one ``FrameMasks``. To it the place of a text is a number, of a *set*; masks belong to
sets, so rows at the same place have the same mask, which is computed once. Where few tokens are left, a mask depends on
their number too.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..automaton.frame_machine import FrameMachine, Mask
from ..automaton.network import Network
from ..automaton.token_trie import TokenTrie
from ..errors import BackendError
from .base import MaskedEngine

MASK_BYTES = 3 * 2**20  # maximum memory of the masks that are kept
_MOST_KNOWN = 10_000  # sets whose mask is known
_ENDLESS, _NEVER = sys.maxsize - 1, sys.maxsize  # tokens left: no limit; and that a mask is not to be found again
_MOST_PATHS = 1_000  # paths tried after one hazard; where more are needed, it is refused


class _Kept(NamedTuple):
    """A mask of a set, without a limit, or where as many tokens as ``enough`` are left."""

    mask: Mask
    enough: int


class FrameMasks:
    """A machine that reads the texts of all rows, and the masks of its sets. Thread safe; see ``Stepper``."""

    def __init__(self, machine: FrameMachine):
        self.machine = machine
        # Masks by number; and by set, with whether the text may stop. All are dropped if they take too many bytes.
        self._kept: dict[int, _Kept] = {}
        self._known: dict[int, tuple[_Kept, bool]] = {}
        self._generation = machine.generation

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most, the components aside."""
        return self.machine.nbytes + MASK_BYTES

    def accept(self, engines: Sequence[FrameEngine], token_ids: Sequence[int]) -> list[bool]:
        """See ``Stepper.accept``."""
        machine = self.machine
        with machine.lock:
            machine.refresh(len(engines))
            numbers = machine.read_each(self._here(engines), token_ids)
        for engine, number, token_id in zip(engines, numbers, token_ids, strict=True):
            if number:
                engine._numbers.append(number)
                engine._taken.append(token_id)
        return [number > 0 for number in numbers]

    def mask_keys(self, engines: Sequence[FrameEngine], tokens_left: Sequence[int | None]) -> list[Hashable | None]:
        """See ``Stepper.mask_keys``."""
        machine = self.machine
        with machine.lock:
            keys = machine.mask_keys(self._here(engines), tokens_left)
            mark = machine.generation
        return [None if key < 0 else (mark, key) for key in keys]

    def write_mask(self, engine: FrameEngine, words: NDArray[np.int32], tokens_left: int | None) -> bool:
        """See ``MaskedEngine.write_mask``."""
        machine = self.machine
        with machine.lock:
            here = engine._numbers[-1] if engine._generation is machine.generation else engine.here()
            known = self._known.get(here) if self._generation is machine.generation else None
            if known is None or (tokens_left is not None and tokens_left < known[0].enough):
                known = self._found(here, tokens_left)  # the search takes as long as all else
        kept, may_stop = known
        kept.mask.write(words)
        return may_stop

    def _found(self, here: int, tokens_left: int | None) -> tuple[_Kept, bool]:
        machine = self.machine
        self._forget()
        for _ in range(2):  # a mask may turn out to be that of this set alone
            key = machine.mask_key(here, tokens_left)
            is_near, key = key < 0, machine.mask_key(here, None) if key < 0 else key
            kept = self._within(key >> 1, tokens_left) if is_near else self._whole(key >> 1, tokens_left)
            if kept is not None:
                found = kept, bool(key & 1)
                if kept.enough < _NEVER and len(self._known) < _MOST_KNOWN:
                    self._known[here] = found
                return found
        raise BackendError("the native engine failed: it does not know the names in the text; please report it")

    def _here(self, engines: Sequence[FrameEngine]) -> list[int]:
        """The numbers of their sets."""
        now = self.machine.generation  # a call for each engine takes as long as to read its token
        return [engine._numbers[-1] if engine._generation is now else engine.here() for engine in engines]

    def _whole(self, number: int, tokens_left: int | None) -> _Kept | None:
        """The mask where the limit refuses nothing."""
        kept = self._kept.get(number)
        if kept is None and (mask := self.machine.mask(number)) is not None:
            kept = self._keep(number, _Kept(mask, _ENDLESS))
        if kept is not None and tokens_left is not None and tokens_left < kept.enough:
            kept = self._kept[number] = kept._replace(enough=tokens_left)
        return kept

    def _within(self, number: int, tokens_left: int | None) -> _Kept | None:
        """The mask where the limit may refuse tokens."""
        assert tokens_left is not None, "without a limit all tokens are allowed"
        found = self.machine.mask_within(number, tokens_left)
        if found is None:
            return None
        mask, enough = found
        if enough <= tokens_left:
            return self._keep(number, _Kept(mask, enough))
        if self.machine.needed(number) <= tokens_left:
            return _Kept(mask, _NEVER)
        whole = self._whole(number, None)
        return whole and whole._replace(enough=_NEVER)

    def _keep(self, number: int, kept: _Kept) -> _Kept:
        self._kept[number] = kept
        self.machine.kept_bytes += kept.mask.nbytes
        return kept

    def _forget(self) -> None:
        """Drop all masks where they take too much, or the machine has forgotten what their numbers mean."""
        machine = self.machine
        if self._generation is not machine.generation or machine.kept_bytes >= MASK_BYTES:
            self._kept.clear()
            self._known.clear()
            machine.kept_bytes = 0
            self._generation = machine.generation


class FrameEngine(MaskedEngine):
    """Position of a row: the numbers of its sets, one per prefix, its tokens, and the machine's generation."""

    def __init__(
        self,
        masks: FrameMasks,
        network: Network,
        position: tuple[list[int], list[int], object] | None = None,
    ):
        self._masks, self._machine, self.network = masks, masks.machine, network
        if position is None:
            with masks.machine.lock:
                position = [masks.machine.start], [], masks.machine.generation
        self._numbers, self._taken, self._generation = position

    def here(self) -> int:
        """The number of its set; the machine's lock is held."""
        machine = self._machine
        if self._generation is not machine.generation:
            self._numbers, self._generation = machine.read_again(self._taken), machine.generation
        return self._numbers[-1]

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        return self._masks.accept((self,), (token_id,))[0]

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        with self._machine.lock:
            self._machine.refresh(len(token_ids))
            return len(self._machine.read(self.here(), token_ids))

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        if num_tokens:
            del self._numbers[-num_tokens:], self._taken[-num_tokens:]

    def fork(self) -> FrameEngine:
        """See ``Engine.fork``."""
        return FrameEngine(self._masks, self.network, (self._numbers.copy(), self._taken.copy(), self._generation))

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        """See ``MaskedEngine.write_mask``."""
        return self._masks.write_mask(self, words, tokens_left)

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """See ``MaskedEngine.mask_key``."""
        return self._masks.mask_keys((self,), (tokens_left,))[0]

    @property
    def stepper(self) -> FrameMasks:
        """See ``Engine.stepper``."""
        return self._masks

    def min_tokens_to_finish(self) -> int:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        with self._machine.lock:
            return self._machine.needed(self.here())

    def can_finish_in(self, tokens_left: int) -> bool:
        """See ``BudgetedEngine.can_finish_in``."""
        with self._machine.lock:
            return self._machine.can_finish_in(self.here(), tokens_left)

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        with self._machine.lock:
            return self._machine.is_completed(self.here())

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        with self._machine.lock:
            return self._machine.forced(self.here())


class HazardEngine(MaskedEngine):
    """Refuses tokens that end inside a character, unless the text can be completed after them.

    Few vocabularies have such tokens, the *hazards* (``WritableTexts.hazards``). After any other token the text can be
    completed: the network below has only texts that are sequences of tokens. ``can_finish_in`` counts in tokens, as
    bytes tell nothing after a hazard, where not each is a token.
    """

    def __init__(self, engine: FrameEngine, tokens: TokenTrie, hazards: NDArray[np.int64]):
        self._engine, self._tokens, self._hazards, self.network = engine, tokens, hazards, engine.network
        self._words, self._ids = tokens.mask(hazards), frozenset(hazards.tolist())

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        if token_id in self._ids and not self._leads_on(token_id):
            return False
        return self._engine.accept(token_id)

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        if self._ids.isdisjoint(token_ids):
            return self._engine.validate(token_ids)
        return super().validate(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        self._engine.rollback(num_tokens)

    def fork(self) -> HazardEngine:
        """See ``Engine.fork``."""
        return HazardEngine(self._engine.fork(), self._tokens, self._hazards)

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        """See ``MaskedEngine.write_mask``."""
        may_stop = self._engine.write_mask(words, tokens_left)
        hazards = self._among(words)
        if hazards and tokens_left is not None and self.can_finish_in(tokens_left):
            # A way to the end must be known after a hazard, and the rest of the budget be enough for it.
            twins = [(token_id, self.fork()) for token_id in hazards]
            refused = [each for each, twin in twins if not (twin.accept(each) and twin.can_finish_in(tokens_left - 1))]
        else:
            refused = [token_id for token_id in hazards if not self._leads_on(token_id)]
        if refused:
            words[: len(self._words)] &= ~self._tokens.mask(np.array(refused))
        return may_stop

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """See ``MaskedEngine.mask_key``."""
        words = np.empty_like(self._words)
        self._engine.write_mask(words, tokens_left)
        return None if self._among(words) else self._engine.mask_key(tokens_left)

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``; after a hazard there may be a path that is not known."""
        return self._engine.min_tokens_to_finish()

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return self._engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        return self._engine.jump_forward_bytes()

    def _among(self, words: NDArray[np.int32]) -> list[int]:
        ids = self._hazards
        found: list[int] = ids[(words[ids >> 5] >> (ids & 31) & 1).astype(np.bool_)].tolist()
        return found

    def _leads_on(self, token_id: int) -> bool:
        """Whether the text can be completed after a hazard, if need be by more hazards."""
        paths: list[list[int]] = [[token_id]]
        for path in paths:  # grows meanwhile, the shortest first
            if self._engine.validate(path) < len(path):
                continue
            twin = self._engine.fork()
            for step in path:
                twin.accept(step)
            words = np.empty_like(self._words)
            if twin.write_mask(words) or (words & ~self._words).any():
                return True
            if len(paths) < _MOST_PATHS:
                paths += [[*path, hazard] for hazard in self._among(words)]
        return False
