"""One process's share of a job: its batches that are not done yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import HFGuidedError
from ..generation import generate
from ..guide import Guide
from ..result import GuidedResult
from ..seeds import row_seed
from ..stats import SessionStats
from .job import Job
from .parts import Answer, Place
from .rows import Asked, BadRow, Rows


class Share(NamedTuple):
    """Which batches belong to a process.

    Args:
        process: its number.
        processes: how many there are.
    """

    process: int
    processes: int

    def batches(self, places: Sequence[Place | None], batch_size: int) -> Iterator[range]:
        """The rows of each batch that has to be run, in order."""
        starts = range(self.process * batch_size, len(places), self.processes * batch_size)
        for first in starts:
            rows = range(first, min(first + batch_size, len(places)))
            if any(places[row] is None for row in rows):
                yield rows


class Worker:
    """Answers batches of rows.

    Args:
        job: what is asked.
        rows: the input.
        model: on its device.
        tokenizer: its tokenizer.
    """

    def __init__(self, job: Job, rows: Rows, model: Any, tokenizer: Any):
        self._job, self._rows, self._model, self._tokenizer = job, rows, model, tokenizer
        self._guide = Guide(tokenizer, model)
        self.spent: list[SessionStats] = []  # one for each call of generate()
        self._settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": job.max_new_tokens}
        if job.temperature is not None:
            self._settings |= {"do_sample": True, "temperature": job.temperature, "top_p": job.top_p or 1.0}

    def answer(self, batch: Sequence[int]) -> list[Answer]:
        """The answers of these rows, in order. A row that cannot be asked fails alone."""
        answers: dict[int, Answer] = {}
        fields: dict[int, dict[str, Any]] = {}
        asked: dict[int, Asked] = {}
        for row in batch:
            try:
                fields[row] = self._rows.fields(row)
                asked[row] = self._rows.asked(fields[row])
            except (BadRow, HFGuidedError) as error:
                answers[row] = _failed(row, fields.get(row, {}), error)
        try:
            results = self._results(asked)
        except (HFGuidedError, ValueError, TypeError) as error:
            if len(asked) == 1:
                results, [row] = {}, asked
                answers[row] = _failed(row, fields[row], error)
            else:  # one of them cannot be asked: which, they say one by one
                return [one for row in batch for one in self.answer([row])]
        answers |= {row: _answered(row, fields[row], result) for row, result in results.items()}
        return [answers[row] for row in batch]

    def _results(self, asked: dict[int, Asked]) -> dict[int, GuidedResult]:
        if not asked:
            return {}
        results = generate(
            self._model,
            self._tokenizer,
            [one.prompt for one in asked.values()],
            [one.constraint for one in asked.values()],
            guide=self._guide,
            backend=self._job.backend,
            batch_size=self._job.batch_size,
            seed=[row_seed(self._job.seed, row) for row in asked],
            progress=False,
            stats=self.spent.append,
            **self._settings,
        )
        return dict(zip(asked, results, strict=True))


def _answered(row: int, fields: dict[str, Any], result: GuidedResult) -> Answer:
    line = _named(row, fields) | {"text": result.text}
    if result.value is None or isinstance(result.value, (str, dict, list, int, float)):  # no match of a pattern
        line["value"] = result.value
    line |= {"finish_reason": result.finish_reason, "tokens": len(result.token_ids)}
    if result.error is not None or result.finish_reason != "stop":
        return Answer(
            row, False, line | {"error": result.error or f"the answer did not finish: {result.finish_reason}"}
        )
    return Answer(row, True, line)


def _failed(row: int, fields: dict[str, Any], error: Exception) -> Answer:
    return Answer(row, False, _named(row, fields) | {"error": f"{type(error).__name__}: {error}"})


def _named(row: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {"row": row} | ({"id": fields["id"]} if "id" in fields else {})
