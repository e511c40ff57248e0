"""An engine without the tokens that end inside a character which no token can complete.

Needed only with vocabularies that have such tokens (``WritableTexts.hazards``): next to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..automaton.network import Network
from ..automaton.token_trie import TokenTrie

if TYPE_CHECKING:
    from torch import Tensor

    from .frame_engine import FrameEngine
    from .network import NetworkEngine

_MOST_LOOKS = 1_000  # ways tried after one hazard; where more are needed, it is refused


class HazardEngine:
    """Looks ahead where a hazard may come: it is refused unless the text can be completed after it.

    After any other token it can: the network below has only texts that are rows of tokens.

    Args:
        engine: of the network; a ``NetworkEngine`` keeps no budgets, so the methods of budgets are not called then.
        tokens: the vocabulary.
        hazards: (n,) tokens.
    """

    def __init__(self, engine: FrameEngine | NetworkEngine, tokens: TokenTrie, hazards: NDArray[np.int64]):
        self._engine, self._tokens, self._hazards = engine, tokens, hazards
        self._words, self._ids = tokens.mask(hazards), frozenset(hazards.tolist())

    @property
    def network(self) -> Network:
        """What the engine reads."""
        return self._engine.network

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        if token_id in self._ids and not self._leads_on(token_id):
            return False
        return self._engine.accept(token_id)

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        if self._ids.isdisjoint(token_ids):
            return self._engine.validate(token_ids)
        twin = self.fork()
        return next((count for count, token_id in enumerate(token_ids) if not twin.accept(token_id)), len(token_ids))

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        self._engine.rollback(num_tokens)

    def fork(self) -> HazardEngine:
        """See ``Engine.fork``."""
        return HazardEngine(self._engine.fork(), self._tokens, self._hazards)

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        """See ``MaskedEngine.mask``."""
        words = self._engine.mask(tokens_left)
        hazards = self._among(words)
        if hazards and tokens_left is not None and self.can_finish_in(tokens_left):
            refused = [token_id for token_id in hazards if not self._leads_out(token_id, tokens_left - 1)]
        else:
            refused = [token_id for token_id in hazards if not self._leads_on(token_id)]
        return words & ~self._tokens.mask(np.array(refused)) if refused else words

    def fill(self, bitmask: Tensor, row: int) -> None:
        """See ``Engine.fill``."""
        words = self.mask()
        bitmask[row].numpy()[: len(words)] = words

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        words = self.mask(tokens_left)
        bitmask[row].numpy()[: len(words)] = words

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``; after a hazard there may be a way that is not known."""
        return self._engine.min_tokens_to_finish()

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """See ``BudgetedEngine.can_finish_in``: bytes tell nothing after a hazard, where not each is a token."""
        needed = self.min_tokens_to_finish()
        return None if needed is None else needed <= tokens_left

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return self._engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        return self._engine.jump_forward_bytes()

    def _among(self, words: NDArray[np.int32]) -> list[int]:
        """The hazards in a mask."""
        ids = self._hazards
        found: list[int] = ids[(words[ids >> 5] >> (ids & 31) & 1).astype(np.bool_)].tolist()
        return found

    def _leads_out(self, token_id: int, tokens_left: int) -> bool:
        """Whether a way to the end is known after a hazard, and so many tokens are enough for it."""
        twin = self.fork()
        return twin.accept(token_id) and bool(twin.can_finish_in(tokens_left))

    def _leads_on(self, token_id: int) -> bool:
        """Whether the text can be completed after a hazard, if need be by more hazards."""
        paths: list[list[int]] = [[token_id]]
        for path in paths:  # grows meanwhile, the shortest first
            if self._engine.validate(path) < len(path):
                continue
            twin = self._engine.fork()
            for step in path:
                twin.accept(step)
            words = twin.mask()
            if twin.is_completed() or (words & ~self._words).any():
                return True
            if len(paths) < _MOST_LOOKS:
                paths += [[*path, hazard] for hazard in self._among(words)]
        return False
