"""Assigns logits and scores to the output tokens of the fast loop.

The logits of an output token come from the forward pass of the token before it. The loop chooses tokens only from the
last columns of a pass; the columns before them belong to forced text and to verified drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...session.logprobs import LogprobRecorder, Position
from .sequences import SequenceState


class StepLogprobs:
    """Collects the choices of one forward pass of the fast loop, and records them at the end of the step."""

    def __init__(self, recorder: LogprobRecorder, sequences: Sequence[SequenceState]):
        self._recorder = recorder  # gets every position once, in order
        self._sequences = sequences
        # For each row of the pass: its tokens in the cache before, and the number of tokens that were run.
        self._run = {i: (sequence.prompt_length - 1, 1) for i, sequence in enumerate(sequences)}
        self._chosen: dict[tuple[int, int], tuple[int, int]] = {}  # (row, index of a token) -> token id, score index

    @staticmethod
    def pending(sequence: SequenceState) -> bool:
        """Whether a finished row has forced text whose logits no forward pass has given yet."""
        return sequence.finished and sequence.unfed > 1

    def begin(self, run: dict[int, tuple[int, int]]) -> None:
        """Start a pass: for each of its rows, its tokens in the cache before, and the number of tokens that run now."""
        self._run = run

    def chose(self, row: int, index: int, token_id: int, scores: int) -> None:
        """Note a token that was chosen or verified in this step; forced text may still replace it.

        ``index`` is its index among the row's tokens, prompt included; ``scores`` is that of its scores.
        """
        self._chosen[row, index] = token_id, scores

    def end(self, logits: Tensor, scores: Tensor | None) -> None:
        """Record the tokens of the step whose logits the pass has given; all of them are final now.

        The last column of ``logits`` (rows, columns, vocab) belongs to a row's last token. ``scores`` are those of the
        step, (positions, vocab); None if no token was chosen.
        """
        rows: list[int] = []
        columns: list[int] = []
        positions: list[Position] = []
        for i, (before, width) in self._run.items():
            sequence = self._sequences[i]
            # ``num_fed`` has no rejected drafts.
            for index in range(before + 1, min(sequence.num_fed + 1, len(sequence.token_ids))):
                token_id = sequence.token_ids[index]
                chosen, score_index = self._chosen.get((i, index), (None, None))
                rows.append(i)
                columns.append(index - before - 1 - width)
                positions.append(Position(i, token_id, score_index if chosen == token_id else None))
        self._chosen.clear()
        if positions:
            self._recorder.record(logits[rows, columns], positions, scores)
