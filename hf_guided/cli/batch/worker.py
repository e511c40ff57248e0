"""One process's answers: from a row's columns to its request, and to the line of its answer."""

from __future__ import annotations

import argparse
import json
from dataclasses import fields
from typing import Any

from ...constraints.coerce import coerce
from ...constraints.json_text import is_json
from ...constraints.values import Constraint, laid_out
from ...errors import HFGuidedError, UsageError, cause
from ...generation.row_answers import Outcome, RowAnswers, RowRequest, RowSettings, without_missing
from ...session.stats import SessionStats
from .parts import Answer
from .tables import BadRow, Row, Table

CONSTRAINT_COLUMN = "response_format"  # where no other is named


def settings_of(arguments: argparse.Namespace) -> RowSettings:
    """How rows are answered.

    Raises:
        InvalidArgument: not in this way.
    """
    return RowSettings(**{field.name: getattr(arguments, field.name) for field in fields(RowSettings)})


class Worker:
    """Answers batches of rows, in the rows' order.

    Args:
        arguments: of the command line.
        table: the rows.
        default: the constraint of rows without one of their own.
        model: on its device.
        tokenizer: of the model.

    Raises:
        HFGuidedError: options with which no row can be answered.
    """

    def __init__(
        self, arguments: argparse.Namespace, table: Table, default: Constraint | None, model: Any, tokenizer: Any
    ):
        if arguments.chat and not tokenizer.chat_template:
            raise UsageError("--chat: this tokenizer has no chat template; leave --chat out, and write prompts in full")
        self._arguments, self._default = arguments, default
        columns = arguments.prompt_column, arguments.constraint_column or CONSTRAINT_COLUMN, arguments.documents_column
        self._rows, self._is_typed = enumerate(table.rows(columns)), table.schema is not None
        self._answers = RowAnswers(model, tokenizer, default, settings_of(arguments))

    @property
    def spent(self) -> list[SessionStats]:
        """The statistics of each call of ``generate``."""
        return self._answers.spent

    def answer(self, batch: range) -> list[Answer]:
        """The answers of these rows, in order. A row that cannot be answered fails alone."""
        outcomes: dict[int, Outcome] = {}
        requests: dict[int, RowRequest] = {}
        for row in batch:
            changed = BadRow("the input has changed while the job ran: the row is not there any more")
            values = next((values for number, values in self._rows if number == row), changed)
            if self._is_typed and isinstance(values, dict):
                values = {name: without_missing(value) for name, value in values.items()}
            try:
                requests[row] = request_of(values, self._arguments, self._default)
            except (BadRow, HFGuidedError) as error:
                outcomes[row] = error
        answers = self._answers.answer(list(requests.values()), list(requests))
        outcomes |= dict(zip(requests, answers, strict=True))
        return [_answered(row, outcomes[row]) for row in batch]


def request_of(values: Row, arguments: argparse.Namespace, default: Constraint | None) -> RowRequest:
    """The request of a row.

    Args:
        values: of the row, or why it has none.
        arguments: of the command line: which column is what, and the layout of JSON in a row's own constraint.
        default: the constraint of rows without one of their own.

    Raises:
        BadRow: it cannot be read, or there is no prompt.
        InvalidConstraint: its constraint is none.
    """
    if isinstance(values, BadRow):
        raise values
    prompt = values.get(arguments.prompt_column)
    if not isinstance(prompt, (str, list)) or not prompt:
        raise BadRow(
            f"expected a text or a list of messages as {arguments.prompt_column!r}, got {json.dumps(prompt)[:80]}; "
            f"fields there are: {', '.join(map(repr, values))}"
        )
    own = values.get(arguments.constraint_column or CONSTRAINT_COLUMN)
    is_given = own is not None and own != ""  # CSV has no other form for a missing value
    layout = arguments.whitespace, arguments.indent, arguments.spelling
    constraint = laid_out(coerce(own), *layout) if is_given else default
    if arguments.chat and isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    # A plain text has no template that would show documents: there the column is one of the row's own.
    documents = None if isinstance(prompt, str) else values.get(arguments.documents_column)
    if documents is not None and not (
        isinstance(documents, list) and all(isinstance(document, dict) for document in documents)
    ):
        raise BadRow(
            f"expected a list of objects as {arguments.documents_column!r}, got {json.dumps(documents)[:80]}; "
            "--documents-column names another column"
        )
    return RowRequest(prompt, constraint, documents)


def _answered(row: int, result: Outcome) -> Answer:
    if isinstance(result, Exception):
        return Answer(row, False, {"error": cause(result)})
    line: dict[str, Any] = {"text": result.text}
    if is_json(result.value):  # the match of a pattern is not
        line["value"] = result.value
    line |= {"finish_reason": result.finish_reason, "tokens": len(result.token_ids)}
    if result.error is None and result.finish_reason == "stop":
        return Answer(row, True, line)
    line["error"] = result.error or f"the answer did not finish: {result.finish_reason}"
    return Answer(row, False, line)
