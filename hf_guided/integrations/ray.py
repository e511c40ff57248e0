"""Rows of a Ray dataset, answered by actors with a model each.

answers = rows.map_batches(
    GuidedPredictor,
    fn_constructor_kwargs={"model": "path/to/model", "constraint": Person},
    batch_size=64,
    concurrency=2,
    num_gpus=1,
)
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..checkpoints.load import ModelSource
from ..errors import InvalidArgument
from ..generation.row_answers import RowSettings
from .answer_columns import ANSWER, AnswerColumns


class GuidedPredictor:
    """A class for ``ray.data.Dataset.map_batches``; each actor loads the model once.

    Args:
        model: a folder, an id on the Hub, or "demo".
        constraint: of every row without one of its own, in any form that ``hg.generate`` takes; None is free.
        prompt_column: holds texts, or chats (lists of messages).
        constraint_column: may hold a row's own JSON Schema or response_format, as JSON.
        row_column: holds the numbers of rows, from which their seeds are made; greedy answers need none.
        chat: send texts as a user's message.
        loading: how the model is loaded: fields of ``ModelSource`` (``dtype``, ``device``, ``revision`` ...).
        **settings: how rows are answered: fields of ``RowSettings`` (``max_new_tokens``, ``batch_size`` ...).

    Raises:
        HFGuidedError: no answer can be promised; the actor fails, and Ray says so.
    """

    def __init__(
        self,
        model: str,
        constraint: Any = None,
        *,
        prompt_column: str = "prompt",
        constraint_column: str | None = None,
        row_column: str | None = None,
        chat: bool = False,
        loading: Mapping[str, Any] = MappingProxyType({}),
        **settings: Any,
    ):
        self._columns = AnswerColumns(
            *ModelSource(model, **loading).load(),
            constraint,
            RowSettings(**settings),
            prompt_column=prompt_column,
            constraint_column=constraint_column,
            row_column=row_column,
            chat=chat,
        )

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with the columns of the answers.

        Args:
            batch: columns, as arrays of numpy: the format "numpy" of Ray, which is its default.

        Returns:
            The same columns, and "text", "value" (JSON), "finish_reason", "tokens", "shortened", "thinking_cut",
            "log_mass" and "error"; see ``AnswerColumns``.

        Raises:
            InvalidArgument: a column is not there, or has the name of an answer's column.
        """
        if taken := [name for name in ANSWER if name in batch]:
            raise InvalidArgument(
                f"columns {', '.join(taken)}: answers have columns of that name, which would replace the rows' own; "
                f"rename them before: rows.rename_columns({dict.fromkeys(taken, '...')!r})"
            )
        answers = self._columns(batch)
        return batch | {name: np.array(values, dtype=object) for name, values in answers.items()}
