"""Columns of prompts in, columns of answers out: what frameworks for data sets ask for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..constraints.coerce import coerce
from ..constraints.json_text import is_json
from ..constraints.values import Choice, JsonObject, JsonSchema
from ..errors import HFGuidedError, InvalidArgument, PromptError, cause, shown
from ..generation.row_answers import Outcome, RowAnswers, RowRequest, RowSettings, without_missing

ANSWER = ("text", "value", "finish_reason", "tokens", "shortened", "thinking_cut", "log_mass", "error")


class AnswerColumns:
    """Answers the rows of batches that come as columns.

    Args:
        model: on its device.
        tokenizer: of the model.
        constraint: of every row without one of its own, in any form that ``hg.generate`` takes; None is free.
        settings: how rows are answered.
        prompt_column: holds texts, or chats (lists of messages).
        constraint_column: may hold a row's own JSON Schema or response_format, as JSON.
        row_column: holds the numbers of rows, from which their seeds are made; greedy answers need none.
        chat: send texts as a user's message.

    Raises:
        HFGuidedError: the constraint cannot be enforced, or not within this number of tokens.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        constraint: Any,
        settings: RowSettings,
        *,
        prompt_column: str,
        constraint_column: str | None = None,
        row_column: str | None = None,
        chat: bool = False,
    ):
        self._constraint = coerce(constraint)
        self._answers = RowAnswers(model, tokenizer, self._constraint, settings)
        if self.samples and row_column is None:
            raise InvalidArgument(
                "temperature: samples need row_column=, a column with the number of each row, so that a row is "
                "answered in the same way when the job is run again; temperature=0 is greedy, whatever the generation "
                "config says"
            )
        self._batch_size = settings.batch_size
        self._prompt_column, self._constraint_column = prompt_column, constraint_column
        self._row_column, self._chat = row_column, chat

    @property
    def samples(self) -> bool:
        """Whether answers are sampled, so that they depend on the numbers of the rows."""
        return self._answers.samples

    def __call__(self, batch: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """The columns of the answers.

        Args:
            batch: columns of equal length; a row without a constraint of its own has None or an empty text there.

        Returns:
            The columns ``ANSWER``: "value" is JSON; "error" says why a row has no answer, and is None where it has one.

        Raises:
            InvalidArgument: a column is not there.
        """
        prompts = self._column(batch, self._prompt_column)
        numbers: Sequence[Any] = range(len(prompts))
        if self._row_column is not None:
            given = self._column(batch, self._row_column)
            numbers = given if self.samples else numbers
        own = [None] * len(prompts)
        if self._constraint_column is not None:
            own = self._column(batch, self._constraint_column)
        lines: list[dict[str, Any]] = []
        for first in range(0, len(prompts), self._batch_size):
            part = slice(first, first + self._batch_size)
            lines += self._lines(numbers[part], prompts[part], own[part])
        return {name: [line.get(name) for line in lines] for name in ANSWER}

    def _lines(self, numbers: Sequence[Any], prompts: Sequence[Any], own: Sequence[Any]) -> list[dict[str, Any]]:
        outcomes: dict[int, Outcome] = {}
        requests: dict[int, RowRequest] = {}
        rows: list[int] = []
        for place, (number, prompt, constraint) in enumerate(zip(numbers, prompts, own, strict=True)):
            try:
                row, requests[place] = self._row(number), self._request(prompt, constraint)
                rows.append(row)
            except HFGuidedError as error:
                outcomes[place] = error
        answers = self._answers.answer(list(requests.values()), rows)
        outcomes |= dict(zip(requests, answers, strict=True))
        return [_line(outcomes[place], requests.get(place)) for place in range(len(prompts))]

    def _row(self, number: Any) -> int:
        # A column of integers in which one is missing comes as floats.
        if type(number) is int or (isinstance(number, float) and number.is_integer()):
            return int(number)
        raise InvalidArgument(f"expected a whole number as {self._row_column!r}, the row's seed, got {shown(number)}")

    def _request(self, prompt: Any, constraint: Any) -> RowRequest:
        prompt = without_missing(_plain(prompt))
        if not isinstance(prompt, (str, list)) or not prompt:
            raise PromptError(f"expected a text or a list of messages as {self._prompt_column!r}, got {shown(prompt)}")
        if self._chat and isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        constraint = _plain(constraint)
        is_given = constraint is not None and constraint != ""
        return RowRequest(prompt, coerce(constraint) if is_given else self._constraint)

    def _column(self, batch: Mapping[str, Sequence[Any]], name: str) -> list[Any]:
        if name not in batch:
            raise InvalidArgument(f"{name}: no such column; the columns are {', '.join(batch) or 'none'}")
        values = batch[name]
        return values.tolist() if hasattr(values, "tolist") else list(values)


def _plain(value: Any) -> Any:
    """A cell without numpy: Ray gives lists as arrays, and NaN in the place of null where a batch has only nulls."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _line(outcome: Outcome, request: RowRequest | None) -> dict[str, Any]:
    if isinstance(outcome, Exception):
        return {"error": cause(outcome)}
    line: dict[str, Any] = {"text": outcome.text, "finish_reason": outcome.finish_reason}
    line |= {"tokens": len(outcome.token_ids), "shortened": outcome.shortened, "thinking_cut": outcome.thinking_cut}
    line["log_mass"] = outcome.log_mass
    if outcome.error is not None or outcome.finish_reason != "stop":
        return line | {"error": outcome.error or f"the answer did not finish: {outcome.finish_reason}"}
    if request is not None and isinstance(request.constraint, (JsonSchema, JsonObject)):
        line["value"] = json.dumps(json.loads(outcome.text), ensure_ascii=False)
    elif request is not None and isinstance(request.constraint, Choice):  # the value may be the member of an Enum
        line["value"] = json.dumps(outcome.text, ensure_ascii=False)
    elif is_json(outcome.value):  # the match of a pattern is not
        line["value"] = json.dumps(outcome.value, ensure_ascii=False)
    return line
