"""One row of a decode loop that keeps its rows itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..row import Row


@dataclass
class Line:
    """One row of the batch, and its text.

    Args:
        row: its place in the grammar.
        token_ids: prompt, padding included, and output so far.
        prompt_length: how many of them are the prompt.
        unfed: how many of the last are not in the model's cache yet.
        padding: how many of the prompt are padding.
        likely: tokens that will probably come next, for the model to confirm.
        over: whether it has ended.
        streamed: how many of the tokens the streamer has.
    """

    row: Row
    token_ids: list[int]
    prompt_length: int
    unfed: int = 0
    padding: int = 0
    likely: Sequence[int] = ()
    over: bool = False
    streamed: int = 0

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.token_ids) - self.prompt_length
