r"""A function for ``datasets.Dataset.map`` that reads values out of a column.

people = extract("path/to/model", constraint=Person, column="text", prompt="Who is it?\n{}")
answered = rows.map(people, batched=True, features=people.features(rows))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import datasets

from ..checkpoints.load import ModelSource
from ..constraints.coerce import coerce
from ..constraints.values import JsonObject, JsonSchema
from ..errors import InvalidArgument, cause
from ..generation.row_answers import RowSettings
from .answer_columns import AnswerColumns
from .dataset_features import Column, column_of


class extract:  # noqa: N801 - called as a function
    """Answers the rows of batches; can be pickled, so ``map`` may run several processes.

    Args:
        model: on its device; or a folder, an id on the Hub or "demo", which each process loads when it begins.
        tokenizer: of the model; None where the model is a name.
        constraint: of the answers, in any form that ``hg.generate`` takes.
        column: of the data set, with a text or a chat in each row.
        prompt: the prompt, with ``{}`` in the place of the row's text.
        into: the column for the values.
        errors: the column that says why a row has no value; None where it has one.
        row_column: holds the numbers of rows, from which the seeds of samples are made.
        class_labels: whether one of some texts is a ``ClassLabel``, which holds its number, instead of a text.
        chat: send the prompt as a user's message.
        loading: how a model is loaded that is a name: fields of ``ModelSource`` (``dtype``, ``device`` ...).
        **settings: how rows are answered: fields of ``RowSettings`` (``max_new_tokens``, ``batch_size`` ...). Samples
            need ``with_indices=True`` of ``map``, or ``row_column``.

    Raises:
        InvalidConstraint: the constraint is none.
        InvalidArgument: a model without a tokenizer, a prompt without a place for the text, or two columns of one name.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        constraint: Any = None,
        *,
        column: str,
        prompt: str = "{}",
        into: str = "value",
        errors: str = "error",
        row_column: str | None = None,
        class_labels: bool = False,
        chat: bool = False,
        loading: Mapping[str, Any] = MappingProxyType({}),
        **settings: Any,
    ):
        if isinstance(model, str) == (tokenizer is not None):
            raise InvalidArgument("tokenizer: expected one beside a model, and none beside the name of a model")
        if "{}" not in prompt:
            raise InvalidArgument(f"prompt: expected a text with {{}} in the place of the row's text, got {prompt!r}")
        if into == errors:
            raise InvalidArgument(f"into, errors: expected two columns, got {into!r} for both")
        self._model, self._tokenizer, self._constraint = model, tokenizer, constraint
        self._column, self._prompt, self._into, self._errors = column, prompt, into, errors
        self._row_column, self._class_labels, self._chat = row_column, class_labels, chat
        self._numbers = row_column or f"number of {column}"  # another name than that of the prompts
        self._loading = dict(loading)
        self._settings = RowSettings(**settings)
        self._is_json = isinstance(coerce(constraint), (JsonSchema, JsonObject))

    def features(self, rows: datasets.Dataset) -> datasets.Features:
        """The columns of the data set after ``map``, with the types of the values.

        Args:
            rows: before it.

        Raises:
            InvalidArgument: they do not have the columns that are read, or have one of those that are written.
        """
        self._check_columns(list(rows.features))
        return datasets.Features(
            {**rows.features, self._into: self._values.feature, self._errors: datasets.Value("string")}
        )

    def __call__(self, batch: Mapping[str, Any], indices: list[int] | None = None) -> dict[str, list[Any]]:
        """The columns of the answers.

        Args:
            batch: columns of the data set.
            indices: the numbers of the rows, from ``with_indices=True``.

        Raises:
            InvalidArgument: a column is not there, or would be replaced; or samples have no numbers.
        """
        self._check_columns(list(batch))
        prompts = [self._prompted(text) for text in batch[self._column]]
        if self._row_column is not None:
            indices = batch[self._row_column]
        if indices is None and self._answers.samples:
            raise InvalidArgument(
                "temperature: samples need the numbers of rows; call map(..., with_indices=True), or pass row_column; "
                "temperature=0 is greedy, whatever the generation config says"
            )
        numbers = range(len(prompts)) if indices is None else indices
        answers = self._answers({self._column: prompts, self._numbers: numbers})
        cells = [
            (None, error) if error is not None else self._cell(value if self._is_json else text)
            for text, value, error in zip(answers["text"], answers["value"], answers["error"], strict=True)
        ]
        return {self._into: [cell for cell, _ in cells], self._errors: [error for _, error in cells]}

    def _check_columns(self, names: list[str]) -> None:
        for argument, name in (("column", self._column), ("row_column", self._row_column)):
            if name is not None and name not in names:
                raise InvalidArgument(f"{argument}: no column {name!r}; the columns are {', '.join(names)}")
        for argument, name in (("into", self._into), ("errors", self._errors)):
            if name in names:
                raise InvalidArgument(
                    f"{argument}: expected the name of a new column, got {name!r}, which the rows have; the answers "
                    "would replace it"
                )

    def _prompted(self, text: Any) -> Any:
        return self._prompt.replace("{}", text) if isinstance(text, str) and text else text

    def _cell(self, text: str) -> tuple[Any, str | None]:
        try:
            value = json.loads(text) if self._is_json else text
            return None if value is None else self._values.cell(value), None
        except (InvalidArgument, ValueError, TypeError, AttributeError) as error:
            return None, cause(error)

    @cached_property
    def _values(self) -> Column:
        return column_of(coerce(self._constraint), class_labels=self._class_labels)

    @cached_property
    def _answers(self) -> AnswerColumns:
        model, tokenizer = self._model, self._tokenizer
        if isinstance(model, str):
            model, tokenizer = ModelSource(model, **self._loading).load()
        return AnswerColumns(
            model,
            tokenizer,
            self._constraint,
            self._settings,
            prompt_column=self._column,
            row_column=self._numbers,
            chat=self._chat,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_values", "_answers")}
