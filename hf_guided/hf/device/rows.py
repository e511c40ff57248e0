"""The rows of a call on the device, written in place: their tokens, and whether they have ended."""

from __future__ import annotations

from torch import Tensor

from .lane import Lane
from .row_output import RowOutput
from .token_choice import DeviceChoice


class DeviceRows:
    """The rows of one generate() call.

    Args:
        lane: the rows, at their beginning.
        ids: (rows, prompt + capacity) int64, the prompts, and after them the lane's tokens.
        choice: chooses tokens for the lane, and appends them.
        output: where it does so.
    """

    def __init__(self, lane: Lane, ids: Tensor, choice: DeviceChoice, output: RowOutput):
        self._lane = lane
        self._ids = ids
        self._choice = choice
        self._output = output

    @property
    def capacity(self) -> int:
        """The maximum number of tokens for each row."""
        return self._lane.capacity

    def take(self, logits: Tensor, position: int) -> Tensor:
        """Let every row choose a token.

        Args:
            logits: (rows, vocab) float32, written.
            position: how many tokens each row has; only processors before the masks use it.

        Returns:
            (rows,) int64, a new tensor; -1 if no token could be chosen. Tokens of ended rows are discarded.
        """
        return self._choice(self._ids[:, : self._ids.shape[1] - self._lane.capacity + position], logits)

    def last(self) -> Tensor:
        """(rows, 1) int64, the last token of each row; ``take`` overwrites it."""
        return self._output.last
