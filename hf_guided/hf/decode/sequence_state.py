"""One row of a decode loop that keeps its rows itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...session.row import Row


@dataclass
class Line:
    """One row of the batch, and its text. No line of scores, as in masks.py: a row has one of those for each guess.

    Args:
        row: its place in the grammar.
        token_ids: prompt, padding included, and output so far.
        prompt_length: how many of them are the prompt.
        unfed: how many of the last are not in the model's cache yet.
        padding: how many of the prompt are padding.
        likely: tokens that will probably come next, for the model to confirm.
        over: whether it has ended.
        told: how many of the tokens whoever listens has heard of.
        listener: hears of output that is final; or None.
    """

    row: Row
    token_ids: list[int]
    prompt_length: int
    unfed: int = 0
    padding: int = 0
    likely: Sequence[int] = ()
    over: bool = False
    told: int = 0
    listener: Callable[[Sequence[int]], None] | None = None

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.token_ids) - self.prompt_length

    def append(self, token_ids: Sequence[int], ends: Callable[[Sequence[int]], bool]) -> int:
        """Add tokens that the row has taken, up to the one that ends it.

        Args:
            token_ids: of output.
            ends: whether the last of prompt and output ends the row; asked once for every token.

        Returns:
            How many were added.
        """
        for count, token_id in enumerate(token_ids, 1):
            self.token_ids.append(token_id)
            self.unfed += 1
            if ends(self.token_ids):
                self.over = True
                return count
        return len(token_ids)

    def tell(self) -> None:
        """All tokens so far are final: let whoever listens hear of those that are new, if there are any."""
        if self.listener is not None and (fresh := self.token_ids[self.told :]):
            self.told = len(self.token_ids)
            self.listener(fresh)
