"""An engine that wraps another: it delegates every call, and records the accepted tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .base import Engine

if TYPE_CHECKING:
    from torch import Tensor


class Layer:
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

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return self.engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        return self.engine.jump_forward_bytes()
