"""The constraint of each row of a data set that TRL trains on."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..constraints.coerce import coerce
from ..constraints.values import Constraint
from ..errors import InvalidArgument, InvalidConstraint


class RowConstraints:
    """Finds the constraint of a row.

    Args:
        constraint: of rows without one of their own, in any form that ``hg.generate`` takes; or a function that returns
            the constraint of a prompt.
        column: of the data set; may hold a row's own constraint, such as a JSON Schema as JSON text.

    Raises:
        InvalidConstraint: the constraint is malformed.
    """

    def __init__(self, constraint: Any, column: str | None = None):
        is_function = inspect.isroutine(constraint) or isinstance(constraint, partial)
        self._of_prompt = constraint if is_function else None
        self.default: Constraint | None = None if is_function else coerce(constraint)
        self._column = column

    def of_row(self, row: Mapping[str, Any]) -> Constraint | None:
        """The constraint of a row; None is free.

        Raises:
            InvalidArgument: the row has no such column.
            InvalidConstraint: its constraint is malformed.
        """
        if self._column is None:
            return self.of_prompt(row["prompt"])
        self.check_column(row)
        own = row[self._column]
        if own is None or own == "":
            return self.of_prompt(row["prompt"])
        try:
            return coerce(own)
        except InvalidConstraint as error:
            raise InvalidConstraint(f"column {self._column!r}: {error}", pointers=error.pointers) from error

    def of_prompt(self, prompt: Any) -> Constraint | None:
        """The constraint of a row without one of its own.

        Raises:
            InvalidConstraint: what the caller's function has returned is no constraint.
        """
        return self.default if self._of_prompt is None else coerce(self._of_prompt(prompt))

    def check_column(self, columns: Any) -> None:
        """Raise InvalidArgument if the column is not among these; a data set that does not know its columns is None."""
        if self._column is not None and columns is not None and self._column not in columns:
            raise InvalidArgument(
                f"constraint_column: no column {self._column!r}; the columns are {', '.join(columns)}. Correct the "
                "name, and leave remove_unused_columns=False",
                name="constraint_column",
            )
