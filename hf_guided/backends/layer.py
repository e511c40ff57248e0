"""An engine that wraps another: it delegates every call, and records the accepted tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from ..vocabulary.bitmask import WORD_BITS, allocate_bitmask
from .base import Engine, MaskedEngine

if TYPE_CHECKING:
    from torch import Tensor


class Layer(ABC):
    """Delegates every call. A subclass adds its own knowledge, and ``fork``.

    Args:
        engine: at the start of the grammar, or after ``taken``.
        taken: the tokens accepted so far.
    """

    def __init__(self, engine: Engine, taken: Sequence[int] = ()):
        self.engine = engine
        self.taken = list(taken)

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        accepted = self.engine.accept(token_id)
        if accepted:
            self.taken.append(token_id)
        return accepted

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        return self.engine.validate(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        self.engine.rollback(num_tokens)
        del self.taken[len(self.taken) - num_tokens :]

    def fill(self, bitmask: Tensor, row: int) -> None:
        """See ``Engine.fill``."""
        self.engine.fill(bitmask, row)

    @abstractmethod
    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """See ``BudgetedEngine.can_finish_in``."""
        needed = self.min_tokens_to_finish()
        return None if needed is None else needed <= tokens_left

    @abstractmethod
    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""

    @abstractmethod
    def is_far(self, tokens_left: int) -> bool:
        """Whether this budget certainly forbids no token here."""

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        """See ``MaskedEngine.mask``, where the engine below keeps its masks."""
        kept = cast(MaskedEngine, self.engine).mask()
        if tokens_left is None or self.is_far(tokens_left):
            return kept
        bitmask = allocate_bitmask(1, WORD_BITS * len(kept))
        self.fill_within(bitmask, 0, tokens_left)
        return cast("NDArray[np.int32]", bitmask[0].numpy())

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return self.engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        return self.engine.jump_forward_bytes()
