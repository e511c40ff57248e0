"""The rows of a JSONL file, by number, without holding them all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..coerce import coerce
from ..constraints import Constraint


class BadRow(Exception):
    """A row that cannot be asked; its text says why."""


@dataclass(frozen=True)
class Asked:
    """One row.

    Args:
        prompt: a text, or a chat.
        constraint: of this row; None is free.
        documents: for its chat template; None if it has none.
    """

    prompt: Any
    constraint: Constraint | None
    documents: list[dict[str, Any]] | None


class Rows:
    """The lines of a file that are not blank.

    Args:
        file: JSONL; each line an object.
        prompt_field: holds a text, or a chat (a list of messages).
        constraint_field: may hold a response_format or JSON Schema, in place of ``default``.
        documents_field: may hold a chat's documents.
        default: the constraint of rows without one of their own.
        chat: send a text as a user's message.
    """

    def __init__(
        self,
        file: Path,
        prompt_field: str,
        constraint_field: str,
        documents_field: str,
        default: Constraint | None,
        chat: bool,
    ):
        self._prompt_field, self._constraint_field = prompt_field, constraint_field
        self._documents_field = documents_field
        self.default, self._chat = default, chat
        self._stream = file.open("rb")
        starts, place = [], 0
        for line in self._stream:
            if line.strip():
                starts.append(place)
            place += len(line)
        self._starts = np.array(starts, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def close(self) -> None:
        """Let go of the file."""
        self._stream.close()

    def fields(self, row: int) -> dict[str, Any]:
        """What a row's line holds.

        Raises:
            BadRow: it is no JSON object.
        """
        self._stream.seek(int(self._starts[row]))
        try:
            fields = json.loads(self._stream.readline())
        except (ValueError, RecursionError) as error:  # of JSON, and of UTF-8
            raise BadRow(f"expected a line of JSON: {error}") from error
        if not isinstance(fields, dict):
            raise BadRow(f"expected a JSON object, got {type(fields).__name__}")
        return fields

    def asked(self, fields: dict[str, Any]) -> Asked:
        """What the fields of a row ask for.

        Raises:
            BadRow: there is no prompt.
            InvalidConstraint: its constraint is none.
        """
        prompt = fields.get(self._prompt_field)
        if not isinstance(prompt, (str, list)) or not prompt:
            raise BadRow(
                f"expected a text or a list of messages as {self._prompt_field!r}, got {json.dumps(prompt)[:80]}; "
                f"fields there are: {', '.join(map(repr, fields))}"
            )
        own = fields.get(self._constraint_field)
        constraint = self.default if own is None else coerce(own)
        if self._chat and isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        # A plain text has no template that would show documents: there the field is one of the row's own.
        documents = None if isinstance(prompt, str) else fields.get(self._documents_field)
        if documents is not None and not (
            isinstance(documents, list) and all(isinstance(one, dict) for one in documents)
        ):
            raise BadRow(
                f"expected a list of objects as {self._documents_field!r}, got {json.dumps(documents)[:80]}; "
                "--documents-field names another field"
            )
        return Asked(prompt, constraint, documents)
