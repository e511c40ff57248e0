"""One process's share of a job: the batches that it still has to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...constraints.values import Constraint
from ...errors import HFGuidedError, UsageError, cause
from ...generation.api import generate
from ...generation.chat_prompts import Prompt, TemplateOptions, prepared
from ...generation.guided_call import check_budgets, check_compiled
from ...generation.prompts import as_prompts, encoded
from ...guide import Guide
from ...hf.generation_settings import GenerationSettings
from ...hf.seeds import row_seed
from ...session.result import GuidedResult
from ...session.stats import SessionStats
from .job import Job
from .lines import Answer
from .parts import AnswerLocation
from .rows import Rows
from .tables import BadRow, is_json


class Share(NamedTuple):
    """Which batches belong to a process.

    Args:
        process: its number.
        processes: how many there are.
    """

    process: int
    processes: int

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


class _Ready(NamedTuple):
    """A row that can be answered.

    Args:
        prompt: with its tokens.
        constraint: of the answer; None is free.
        max_new_tokens: how many tokens the answer may have.
    """

    prompt: Prompt
    constraint: Constraint | None
    max_new_tokens: int


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
        self._job, self._rows, self._model, self._tokenizer = job, rows, model, tokenizer
        self._guide = Guide(tokenizer, model)
        self.spent: list[SessionStats] = []  # one for each call of generate()
        self._positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if job.chat and not tokenizer.chat_template:
            raise UsageError("--chat: this tokenizer has no chat template; leave --chat out, and write prompts in full")
        if rows.default is not None:
            requests = self._guide.requests([rows.default], [None], job.backend)
            check_compiled(requests)
            check_budgets(requests, GenerationSettings(model, {"max_new_tokens": job.max_new_tokens}), [()])
        self._settings: dict[str, Any] = {"do_sample": False}
        if job.temperature is not None:
            self._settings |= {"do_sample": True, "temperature": job.temperature, "top_p": job.top_p or 1.0}

    def answer(self, batch: Sequence[int]) -> list[Answer]:
        """The answers of these rows, in order. A row that cannot be answered fails alone."""
        answers: dict[int, Answer] = {}
        ready: dict[int, _Ready] = {}
        for row in batch:
            try:
                ready[row] = self._ready(row)
            except Exception as error:  # a chat template may raise anything
                answers[row] = _failed(row, error)
        # Rows with less room than the others run alone, so that no row is cut for another one's sake.
        short = [i for i, row in ready.items() if row.max_new_tokens < self._job.max_new_tokens]
        for rows in ([i for i in ready if i not in short], *([i] for i in short)):
            answers |= self._answers({i: ready[i] for i in rows})
        return [answers[row] for row in batch]

    def _answers(self, ready: dict[int, _Ready]) -> dict[int, Answer]:
        if not ready:
            return {}
        try:
            return {row: _answered(row, result) for row, result in self._results(ready).items()}
        except (HFGuidedError, ValueError, TypeError) as error:
            if len(ready) == 1:
                return {row: _failed(row, error) for row in ready}
            # One of them cannot be answered: each runs alone, and only that row fails.
            return {i: answer for i, row in ready.items() for answer in self._answers({i: row}).values()}

    def _ready(self, row: int) -> _Ready:
        """A row whose prompt is tokens, so that its chat is rendered once.

        Raises:
            Exception: this row cannot be answered.
        """
        given = self._rows.request(row)
        kwargs, describe = self._job.chat_template_kwargs, self._job.describe
        if kwargs and isinstance(given.prompt, str):
            raise BadRow("--chat-template-kwargs: expected a chat, got a text, which no template renders; add --chat")
        options = TemplateOptions(kwargs, given.documents, show_tools=True, describe=describe)
        [text_or_chat] = as_prompts([given.prompt])
        prompt = prepared(self._tokenizer, text_or_chat, given.constraint, options)
        tokens = encoded(self._guide.vocabulary, prompt, "")
        most, length = self._job.max_new_tokens, len(tokens)
        if self._positions is not None:  # after their last position models fail, or generate nonsense
            if length >= self._positions:
                raise BadRow(f"a prompt of {length} tokens leaves no room: the model has {self._positions} positions")
            most = min(most, int(self._positions) - length)
        return _Ready(replace(prompt, tokens=tokens), given.constraint, most)

    def _results(self, ready: dict[int, _Ready]) -> dict[int, GuidedResult]:
        results = generate(
            self._model,
            self._tokenizer,
            [row.prompt for row in ready.values()],
            [row.constraint for row in ready.values()],
            guide=self._guide,
            backend=self._job.backend,
            batch_size=self._job.batch_size,
            seed=[row_seed(self._job.seed, i) for i in ready],
            progress=False,
            stats=self.spent.append,
            max_new_tokens=min(row.max_new_tokens for row in ready.values()),
            **self._settings,
        )
        return dict(zip(ready, results, strict=True))


def _answered(row: int, result: GuidedResult) -> Answer:
    line: dict[str, Any] = {"text": result.text}
    if is_json(result.value):  # the match of a pattern is not
        line["value"] = result.value
    line |= {"finish_reason": result.finish_reason, "tokens": len(result.token_ids)}
    if result.error is not None or result.finish_reason != "stop":
        return Answer(
            row, False, line | {"error": result.error or f"the answer did not finish: {result.finish_reason}"}
        )
    return Answer(row, True, line)


def _failed(row: int, error: Exception) -> Answer:
    return Answer(row, False, {"error": cause(error)})
