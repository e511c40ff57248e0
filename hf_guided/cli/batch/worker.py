"""One process's share of a job: the batches that it still has to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from ...constraints.json_text import is_json
from ...errors import HFGuidedError, UsageError, cause
from ...generation.row_answers import Outcome, RowAnswers, RowRequest, RowSettings
from ...session.stats import SessionStats
from .arguments import Shard
from .job import Job
from .lines import Answer
from .parts import AnswerLocation
from .rows import Rows
from .tables import BadRow


class Share(NamedTuple):
    """Which batches belong to a process.

    Args:
        process: its number.
        processes: how many there are.
    """

    process: int
    processes: int

    def of_shard(self, shard: Shard | None) -> Share:
        """The share of this process in a shard of the rows; in all of them without one."""
        if shard is None:
            return self
        return Share(shard.number * self.processes + self.process, shard.count * self.processes)

    def batches(self, answered: Sequence[AnswerLocation | None], batch_size: int) -> Iterator[range]:
        """The rows of each batch that has to be run, in order.

        Args:
            answered: for each row, where its answer is; None if it has none yet.
            batch_size: rows of a batch.
        """
        starts = range(self.process * batch_size, len(answered), self.processes * batch_size)
        for first in starts:
            rows = range(first, min(first + batch_size, len(answered)))
            if any(answered[row] is None for row in rows):
                yield rows


class Worker:
    """Answers batches of rows.

    Args:
        job: its options.
        rows: the input.
        model: on its device.
        tokenizer: of the model.

    Raises:
        HFGuidedError: options with which no row can be answered.
    """

    def __init__(self, job: Job, rows: Rows, model: Any, tokenizer: Any):
        if job.chat and not tokenizer.chat_template:
            raise UsageError("--chat: this tokenizer has no chat template; leave --chat out, and write prompts in full")
        names = [field.name for field in fields(RowSettings)]
        settings = RowSettings(**{name: getattr(job, name) for name in names})
        self._rows, self._answers = rows, RowAnswers(model, tokenizer, rows.default, settings)

    @property
    def spent(self) -> list[SessionStats]:
        """The statistics of each call of ``generate``."""
        return self._answers.spent

    def answer(self, batch: Sequence[int]) -> list[Answer]:
        """The answers of these rows, in order. A row that cannot be answered fails alone."""
        outcomes: dict[int, Outcome] = {}
        requests: dict[int, RowRequest] = {}
        for row in batch:
            try:
                requests[row] = self._rows.request(row)
            except (BadRow, HFGuidedError) as error:
                outcomes[row] = error
        answers = self._answers.answer(list(requests.values()), list(requests))
        outcomes |= dict(zip(requests, answers, strict=True))
        return [_answered(row, outcomes[row]) for row in batch]


def _answered(row: int, result: Outcome) -> Answer:
    if isinstance(result, Exception):
        return Answer(row, False, {"error": cause(result)})
    line: dict[str, Any] = {"text": result.text}
    if is_json(result.value):  # the match of a pattern is not
        line["value"] = result.value
    line |= {"finish_reason": result.finish_reason, "tokens": len(result.token_ids)}
    if result.error is not None or result.finish_reason != "stop":
        return Answer(
            row, False, line | {"error": result.error or f"the answer did not finish: {result.finish_reason}"}
        )
    return Answer(row, True, line)
