"""One process's share of a job: its batches that are not done yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..chat_prompts import TemplateOptions, prepared
from ..errors import HFGuidedError, UsageError
from ..generation import generate
from ..guide import Guide
from ..prompts import encoded
from ..requests import check_budget, row_after_prefix
from ..result import GuidedResult
from ..seeds import row_seed
from ..stats import SessionStats
from .job import Job
from .lines import Answer
from .parts import Place
from .rows import Asked, Rows
from .tables import BadRow, is_json


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

    Raises:
        HFGuidedError: what no row can be answered with.
    """

    def __init__(self, job: Job, rows: Rows, model: Any, tokenizer: Any):
        self._job, self._rows, self._model, self._tokenizer = job, rows, model, tokenizer
        self._guide = Guide(tokenizer, model)
        self.spent: list[SessionStats] = []  # one for each call of generate()
        self._positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if job.chat and not tokenizer.chat_template:
            raise UsageError("--chat: this tokenizer has no chat template; leave --chat out, and write prompts in full")
        if rows.default is not None:
            compiled = self._guide.compile(rows.default, job.backend, budget=True)
            check_budget(row_after_prefix(compiled, b"", None), job.max_new_tokens)
        self._settings: dict[str, Any] = {"do_sample": False}
        if job.temperature is not None:
            self._settings |= {"do_sample": True, "temperature": job.temperature, "top_p": job.top_p or 1.0}

    def answer(self, batch: Sequence[int]) -> list[Answer]:
        """The answers of these rows, in order. A row that cannot be asked fails alone."""
        answers: dict[int, Answer] = {}
        asked: dict[int, Asked] = {}
        rooms: dict[int, int] = {}
        for row in batch:
            try:
                one = self._rows.asked(row)
                rooms[row] = self._room(one)
                asked[row] = one
            except Exception as error:  # a chat template may raise anything
                answers[row] = _failed(row, error)
        some = asked.keys()
        short = [row for row in some if rooms[row] < self._job.max_new_tokens]
        try:
            if len(some) > 1 and short:  # no other is to be cut for one that has less room
                apart = [[row for row in some if row not in short], *([row] for row in short)]
                answers |= {one.row: one for rows in apart for one in self.answer(rows)}
            elif some:
                results = self._results(asked, min(rooms[row] for row in some))
                answers |= {row: _answered(row, result) for row, result in results.items()}
        except (HFGuidedError, ValueError, TypeError) as error:
            if len(some) > 1:  # one of them cannot be asked: which, they say one by one
                return [one for row in batch for one in self.answer([row])]
            answers |= {row: _failed(row, error) for row in some}
        return [answers[row] for row in batch]

    def _room(self, asked: Asked) -> int:
        """How many tokens an answer may have: behind their last position models fail, or write nonsense.

        Raises:
            Exception: this prompt cannot be asked.
        """
        kwargs, describe = self._job.chat_template_kwargs, self._job.describe
        if kwargs and isinstance(asked.prompt, str):
            raise BadRow("--chat-template-kwargs: expected a chat, got a text, which no template renders; add --chat")
        options = TemplateOptions(kwargs, asked.documents, show_tools=True, describe=describe)
        prompt = prepared(self._tokenizer, asked.prompt, asked.constraint, options)
        length = len(encoded(self._guide.vocabulary, prompt, ""))
        if self._positions is None:
            return self._job.max_new_tokens
        if length >= self._positions:
            raise BadRow(f"a prompt of {length} tokens leaves no room: the model has {self._positions} positions")
        return min(self._job.max_new_tokens, int(self._positions) - length)

    def _results(self, asked: dict[int, Asked], max_new_tokens: int) -> dict[int, GuidedResult]:
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
            max_new_tokens=max_new_tokens,
            chat_template_kwargs=self._job.chat_template_kwargs,
            documents=[one.documents for one in asked.values()],
            describe=self._job.describe,
            **self._settings,
        )
        return dict(zip(asked, results, strict=True))


def _answered(row: int, result: GuidedResult) -> Answer:
    line: dict[str, Any] = {"text": result.text}
    if is_json(result.value):  # and no match of a pattern
        line["value"] = result.value
    line |= {"finish_reason": result.finish_reason, "tokens": len(result.token_ids)}
    if result.error is not None or result.finish_reason != "stop":
        return Answer(
            row, False, line | {"error": result.error or f"the answer did not finish: {result.finish_reason}"}
        )
    return Answer(row, True, line)


def _failed(row: int, error: Exception) -> Answer:
    return Answer(row, False, {"error": f"{type(error).__name__}: {error}"})
