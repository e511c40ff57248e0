"""The rows of a call on the device, written in place: their tokens, and whether they have ended."""

from __future__ import annotations

from torch import Tensor

from .device_logprobs import packed_logprobs
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
        top_logprobs: how many alternatives the log probabilities have; None: there are no log probabilities.
    """

    def __init__(
        self, lane: Lane, ids: Tensor, choice: DeviceChoice, output: RowOutput, *, top_logprobs: int | None = None
    ):
        self._lane = lane
        self._ids = ids
        self._choice = choice
        self._output = output
        self._top = top_logprobs
        self.logprobs: Tensor | None = None  # ``packed_logprobs`` of the last step

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
        ids = self._ids
        if self._choice.reads_ids:
            ids = ids[:, : ids.shape[1] - self._lane.capacity + position]
        chosen = self._choice(ids, logits)
        if self._top is not None and self._choice.scores is not None:
            self.logprobs = packed_logprobs(self._choice.scores, self._output.last, self._top)
        return chosen

    def last(self) -> Tensor:
        """(rows, 1) int64, the last token of each row; ``take`` overwrites it."""
        return self._output.last
