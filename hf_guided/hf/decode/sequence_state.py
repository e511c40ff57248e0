"""The state of one row in a decode loop of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...session.row import Row


@dataclass
class SequenceState:
    """One row of the batch, and its tokens.

    Args:
        row: its state in the grammar.
        token_ids: prompt, padding included, and output so far.
        prompt_length: tokens of the prompt.
        unfed: how many of the last tokens are not in the model's cache yet.
        padding: tokens of padding in the prompt.
        likely: tokens that will probably come next, for the model to confirm.
        finished: whether the row has ended.
        num_reported: how many tokens the listener has been given.
        listener: called with final tokens of the output; True ends the row. Or None.
    """

    row: Row
    token_ids: list[int]
    prompt_length: int
    unfed: int = 0
    padding: int = 0
    likely: Sequence[int] = ()
    finished: bool = False
    num_reported: int = 0
    listener: Callable[[Sequence[int]], bool | None] | None = None

    @property
    def num_generated(self) -> int:
        """Tokens of output so far."""
        return len(self.token_ids) - self.prompt_length

    def append(self, token_ids: Sequence[int], ends: Callable[[Sequence[int]], bool]) -> int:
        """Append tokens that the row has taken, up to the one that ends it.

        Args:
            token_ids: of output.
            ends: called once for each token with the tokens so far; returns whether the last one ends the row.

        Returns:
            How many were added.
        """
        for count, token_id in enumerate(token_ids, 1):
            self.token_ids.append(token_id)
            self.unfed += 1
            if ends(self.token_ids):
                self.finished = True
                return count
        return len(token_ids)

    def report(self) -> None:
        """Report the new tokens to the listener; all tokens so far are final."""
        if self.listener is not None and (fresh := self.token_ids[self.num_reported :]):
            self.num_reported = len(self.token_ids)
            self.finished = bool(self.listener(fresh)) or self.finished
