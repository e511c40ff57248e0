"""The rows of Parquet files, and of folders that the package datasets has saved."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...constraints.json_text import is_json
from ...errors import UsageError
from ...generation.row_answers import without_missing
from .tables import BadRow, Table


class ArrowTable(Table):
    """Rows of typed columns.

    Args:
        columns: those that ``fields`` holds, where they are there.

    Raises:
        ValueError: two columns have one name.
    """

    schema: pa.Schema

    def __init__(self, columns: Sequence[str]):
        if len(set(self.schema.names)) != len(self.schema.names):
            raise ValueError(f"a name stands for two columns: {', '.join(self.schema.names)}")
        self._read = [name for name in columns if name in self.schema.names]

    @abstractmethod
    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """These columns of these rows, in order."""

    def fields(self, row: int) -> dict[str, Any]:
        """See ``Table``."""
        try:
            [fields] = self.take([row], self._read).to_pylist()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadRow(f"cannot be read: {error}") from error
        return {name: without_missing(value) for name, value in fields.items()}

    def carried(self, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """See ``Table``."""
        taken = self.take(rows, columns).to_pylist() if columns else [{} for _ in rows]
        return [{name: value for name, value in fields.items() if is_json(value)} for fields in taken]

    def missing(self, columns: Sequence[str]) -> list[str]:
        """See ``Table``."""
        return [name for name in dict.fromkeys(columns) if name not in self.schema.names]

    def names(self) -> list[str]:
        """See ``Table``."""
        return list(self.schema.names)

    def check_prompts(self, prompt_column: str, constraint_column: str) -> None:
        """See ``Table``."""
        kind = self.schema.field(prompt_column).type
        if not (_is_text(kind) or _is_chat(kind)):
            raise UsageError(
                f"--prompt-column {prompt_column}: expected texts or lists of messages, got a column of {kind}"
            )
        if constraint_column in self.schema.names:
            kind = self.schema.field(constraint_column).type
            if not (_is_text(kind) or pa.types.is_null(kind)):  # Arrow gives every row the keys of all rows
                raise UsageError(
                    f"--constraint-column {constraint_column}: expected JSON as text, got a column of {kind}"
                )

    def check_json(self, columns: Sequence[str]) -> None:
        """See ``Table``."""
        for name in columns:
            kind = self.schema.field(name).type
            if not _is_json(kind):
                raise UsageError(
                    f"--columns {name}: JSON and CSV have no {kind}; write Parquet or a datasets folder, or drop it"
                )


class ParquetTable(ArrowTable):
    """A Parquet file, a row group at a time.

    Args:
        file: to be read.
        columns: see ``ArrowTable``.
    """

    def __init__(self, file: Path, columns: Sequence[str]):
        self._file = pq.ParquetFile(file)
        self.schema = self._file.schema_arrow
        super().__init__(columns)
        groups = range(self._file.num_row_groups)
        self._starts = [0, *accumulate(self._file.metadata.row_group(group).num_rows for group in groups)]
        self._kept: tuple[Any, pa.Table] | None = None  # the row group that was read last

    def __len__(self) -> int:
        return int(self._starts[-1])

    def close(self) -> None:
        """See ``Table``."""
        self._file.close()

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """See ``ArrowTable``."""
        pieces = [pa.table({name: pa.array([], self.schema.field(name).type) for name in columns})]
        groups = [bisect_right(self._starts, row) - 1 for row in rows]
        first = 0
        while first < len(rows):
            last = first
            while last < len(rows) and groups[last] == groups[first]:
                last += 1
            start = self._starts[groups[first]]
            pieces.append(self._group(groups[first], columns).take([row - start for row in rows[first:last]]))
            first = last
        return pa.concat_tables([piece.replace_schema_metadata(None) for piece in pieces])

    def _group(self, group: int, columns: Sequence[str]) -> pa.Table:
        key = (group, tuple(columns))
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self._file.read_row_group(group, columns=list(columns)).select(list(columns)))
        return self._kept[1]


class DatasetsTable(ArrowTable):
    """A folder of ``Dataset.save_to_disk``.

    Args:
        folder: to be read.
        columns: see ``ArrowTable``.
    """

    def __init__(self, folder: Path, columns: Sequence[str]):
        import datasets

        loaded = datasets.load_from_disk(str(folder))
        if isinstance(loaded, datasets.DatasetDict):
            raise UsageError(f"--input {folder}: has the splits {', '.join(loaded)}; give the folder of one, inside it")
        self._rows = loaded.with_format("arrow")
        self.schema, self.features = loaded.features.arrow_schema, loaded.features
        super().__init__(columns)

    def __len__(self) -> int:
        return len(self._rows)

    def close(self) -> None:
        """See ``Table``."""
        del self._rows  # unmaps the files

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """See ``ArrowTable``."""
        if not columns or not rows:
            return pa.table({name: pa.array([], self.schema.field(name).type) for name in columns})
        taken = self._rows.select_columns(list(columns))[list(rows)]
        return pa.table({name: taken[name] for name in columns})


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_chat(kind: pa.DataType) -> bool:
    return _is_list(kind) and bool(pa.types.is_struct(kind.value_type))


def _is_json(kind: pa.DataType) -> bool:
    if _is_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    types = pa.types
    return _is_text(kind) or any(
        has(kind) for has in (types.is_null, types.is_boolean, types.is_integer, types.is_floating)
    )
