"""Which logits and scores belong to which output token: in the fast loop, and in transformers' own loops.

Every output token has its logits in some forward pass: in that of the token before it. The loop chooses from the last
columns of a pass alone; the columns before them belong to text that was forced, and to verified drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...session.logprob_recorder import LogprobRecorder, Position
from .sequence_state import Line


class StepLogprobs:
    """Collects what is known of one forward pass of the fast loop, and records it at the end of the step.

    Args:
        recorder: gets every position once, in order.
        lines: the rows of the loop.
    """

    def __init__(self, recorder: LogprobRecorder, lines: Sequence[Line]):
        self._recorder = recorder
        self._lines = lines
        # For each row of the pass: how many of its tokens were in the cache before, and how many were run.
        self._run = {i: (line.prompt_length - 1, 1) for i, line in enumerate(lines)}
        self._chosen: dict[tuple[int, int], tuple[int, int]] = {}  # (row, index of a token) -> token id, line of scores

    @staticmethod
    def pending(line: Line) -> bool:
        """Whether a row that is over has forced text whose logits no forward pass has given yet."""
        return line.over and line.unfed > 1

    def begin(self, before: Sequence[int], blocks: Sequence[Sequence[int]]) -> None:
        """A forward pass begins.

        Args:
            before: for each row how many of its tokens are in the cache.
            blocks: for each row the tokens that it runs now.
        """
        self._run = {i: (before[i], len(block)) for i, block in enumerate(blocks) if block}

    def chose(self, row: int, index: int, token_id: int, line: int) -> None:
        """A token was chosen or verified in this step.

        Args:
            row: the row's number.
            index: of the token among the row's tokens, prompt included.
            token_id: the token; forced text may still take its place.
            line: of the scores it was chosen from.
        """
        self._chosen[row, index] = token_id, line

    def end(self, logits: Tensor, scores: Tensor | None) -> None:
        """All tokens of the step are final: record those whose logits the pass has given.

        Args:
            logits: (rows, columns, vocab), of the pass; a row's last token has the last column.
            scores: (lines, vocab), of the step; None if nothing was chosen.
        """
        rows: list[int] = []
        columns: list[int] = []
        positions: list[Position] = []
        for i, (before, width) in self._run.items():
            line = self._lines[i]
            run = len(line.token_ids) - line.unfed  # without rejected drafts
            for index in range(before + 1, min(run + 1, len(line.token_ids))):
                token_id = line.token_ids[index]
                chosen, place = self._chosen.get((i, index), (None, None))
                rows.append(i)
                columns.append(index - before - 1 - width)
                positions.append(Position(i, token_id, place if chosen == token_id else None))
        self._chosen.clear()
        if positions:
            self._recorder.record(logits[rows, columns], positions, scores)


def record_output(recorder: LogprobRecorder, output: Any, start: int, stop_token_ids: Sequence[int]) -> None:
    """Record a call of generate() that was made with ``output_logits``, ``output_scores`` and without beams.

    Args:
        recorder: of as many rows.
        output: what generate() returned.
        start: tokens before the output.
        stop_token_ids: tokens that end a row; what follows is padding.
    """
    running = list(range(len(output.sequences)))
    for step, (logits, scores) in enumerate(zip(output.logits, output.scores, strict=True)):
        token_ids = output.sequences[:, start + step].tolist()
        recorder.record(logits[running], [Position(i, token_ids[i], i) for i in running], scores)
        running = [i for i in running if token_ids[i] not in stop_token_ids]
        if not running:
            return
