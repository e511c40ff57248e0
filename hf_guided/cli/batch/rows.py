"""The request of each row of a data set."""

from __future__ import annotations

import json
from typing import Any

from ...constraints.coerce import coerce
from ...constraints.values import Constraint, laid_out
from ...errors import UsageError
from ...generation.row_answers import RowRequest
from .tables import BadRow, Table

CONSTRAINT_COLUMN = "response_format"  # where no other is named


class Rows:
    """The rows of a table as prompts and constraints.

    Args:
        table: the data set.
        prompt_column: holds a text, or a chat (a list of messages).
        constraint_column: may hold a response_format or JSON Schema, instead of ``default``; None is
            "response_format", which need not be there.
        documents_column: may hold a chat's documents.
        default: the constraint of rows without one of their own.
        chat: send a text as a user's message.
        layout: ``whitespace``, ``indent`` and ``spelling`` of JSON in a row's own request, see ``laid_out``.
    """

    def __init__(
        self,
        table: Table,
        prompt_column: str,
        constraint_column: str | None,
        documents_column: str,
        default: Constraint | None,
        chat: bool,
        layout: tuple[Any, int | None, Any] = (None, None, None),
    ):
        self._table = table
        self._prompt_column, self._constraint_column = prompt_column, constraint_column
        self._documents_column = documents_column
        self.default, self._chat, self._layout = default, chat, layout

    def __len__(self) -> int:
        return len(self._table)

    def close(self) -> None:
        """Let go of the table."""
        self._table.close()

    def check(self) -> None:
        """See that the columns are there, before a model is loaded.

        Raises:
            UsageError: one is not there, or holds something else.
        """
        check_columns(self._table, [self._prompt_column], "--prompt-column")
        if self._constraint_column is not None:
            check_columns(self._table, [self._constraint_column], "--constraint-column")
        self._table.check_prompts(self._prompt_column, self._constraint_column or CONSTRAINT_COLUMN)

    def request(self, row: int) -> RowRequest:
        """The request of a row.

        Raises:
            BadRow: it cannot be read, or there is no prompt.
            InvalidConstraint: its constraint is none.
        """
        fields = self._table.fields(row)
        prompt = fields.get(self._prompt_column)
        if not isinstance(prompt, (str, list)) or not prompt:
            raise BadRow(
                f"expected a text or a list of messages as {self._prompt_column!r}, got {json.dumps(prompt)[:80]}; "
                f"fields there are: {', '.join(map(repr, fields))}"
            )
        own = fields.get(self._constraint_column or CONSTRAINT_COLUMN)
        is_given = own is not None and own != ""  # CSV has no other form for a missing value
        constraint = laid_out(coerce(own), *self._layout) if is_given else self.default
        if self._chat and isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        # A plain text has no template that would show documents: there the column is one of the row's own.
        documents = None if isinstance(prompt, str) else fields.get(self._documents_column)
        if documents is not None and not (
            isinstance(documents, list) and all(isinstance(document, dict) for document in documents)
        ):
            raise BadRow(
                f"expected a list of objects as {self._documents_column!r}, got {json.dumps(documents)[:80]}; "
                "--documents-column names another column"
            )
        return RowRequest(prompt, constraint, documents)


def check_columns(table: Table, columns: list[str], flag: str) -> None:
    """See that columns are there.

    Raises:
        UsageError: one is not.
    """
    if missing := table.missing(columns):
        raise UsageError(
            f"{flag} {', '.join(missing)}: no such column; the columns are {', '.join(table.names()) or 'none'}"
        )
