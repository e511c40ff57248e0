"""Answers as Parquet files, and as folders that the package datasets loads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .arrow_tables import ArrowTable, DatasetsTable
from .job import digest
from .lines import Answer, as_cells
from .tables import BadRow, Table

_TYPES = {"tokens": pa.int64()}  # of an answer's columns; the others are texts
_LARGEST = 2**63


def write_arrow(
    table: Table,
    columns: Sequence[str],
    path: Path,
    chunks: Iterable[list[Answer]],
    own: Sequence[str],
    format_name: str,
) -> int:
    """Write answers; see ``Output.write``.

    Args:
        table: the rows that were answered.
        columns: of theirs, carried along.
        path: where to.
        chunks: the answers.
        own: the columns of an answer.
        format_name: "parquet" or "datasets".

    Returns:
        How many there were.
    """
    carried = _schema(table, columns)
    schema = pa.schema([("row", pa.int64()), *carried, *((name, _TYPES.get(name, pa.string())) for name in own)])
    # The rows of a datasets folder are written as an Arrow file first.
    file = path if format_name == "parquet" else path.with_name(f"{path.name}.arrow")
    count = 0
    with pq.ParquetWriter(file, schema) if file == path else pa.ipc.new_stream(file, schema) as writer:
        for chunk in chunks:
            writer.write_table(_table(table, columns, chunk, carried, own, schema))
            count += len(chunk)
    if file == path:
        _sync(path)
    else:
        _save_dataset(file, path, table)
    return count


def _table(
    table: Table,
    carried_columns: Sequence[str],
    chunk: list[Answer],
    carried: pa.Schema,
    own: Sequence[str],
    schema: pa.Schema,
) -> pa.Table:
    rows = [answer.row for answer in chunk]
    cells = [as_cells(answer.line) for answer in chunk]
    columns: dict[str, Any] = {"row": rows}
    if isinstance(table, ArrowTable):
        taken = table.take(rows, carried_columns)
        columns |= {name: taken[name] for name in carried_columns}
    else:
        columns |= _converted(table.carried(rows, carried_columns), carried)
    for name in own:
        values = [cell.get(name) for cell in cells]
        columns[name] = (
            [None if value is None else int(value) for value in values] if name in _TYPES else _texts(values)
        )
    return pa.table(columns, schema=schema)


def _schema(table: Table, columns: Sequence[str]) -> pa.Schema:
    """The types of columns: their own, or that of all values, or JSON as text."""
    if isinstance(table, ArrowTable):
        return pa.schema([table.schema.field(name) for name in columns])
    kinds: dict[str, set[type]] = {name: set() for name in columns}
    for row in range(len(table) if columns else 0):
        try:
            fields = table.fields(row)
        except BadRow:
            continue
        for name in columns:
            value = fields.get(name)
            fits = not isinstance(value, int) or -_LARGEST <= value < _LARGEST
            kinds[name].add(type(value) if fits else object)
    return pa.schema([(name, _type(kinds[name] - {type(None)})) for name in columns])


def _type(kinds: set[type]) -> pa.DataType:
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    return pa.float64() if kinds == {float} else pa.string()


def _converted(lines: Sequence[dict[str, Any]], schema: pa.Schema) -> dict[str, list[Any]]:
    """Values of JSON as these types have them; columns that are only partly text are JSON in all rows."""
    columns = {field.name: [line.get(field.name) for line in lines] for field in schema}
    return {
        field.name: _texts([as_cells({"": value}).get("") for value in columns[field.name]])
        if pa.types.is_string(field.type)
        else columns[field.name]
        for field in schema
    }


def _texts(values: Sequence[str | None]) -> list[str | None]:
    """Without halves of surrogate pairs, which UTF-8 cannot hold."""
    return [None if value is None else value.encode("utf-8", "backslashreplace").decode() for value in values]


def _save_dataset(file: Path, folder: Path, table: Table) -> None:
    import datasets
    from datasets.table import MemoryMappedTable

    rows = MemoryMappedTable.from_file(str(file))
    features = datasets.Features.from_arrow_schema(rows.schema)
    if isinstance(table, DatasetsTable):  # images and class labels stay unchanged
        features.update({name: feature for name, feature in table.features.items() if name in features})
    # The fingerprint that datasets makes depends on the time.
    dataset = datasets.Dataset(rows, datasets.DatasetInfo(features=features), fingerprint=digest(file)[:16])
    silent = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        dataset.save_to_disk(str(folder), num_shards=None if len(dataset) else 1)  # it cannot load what has no shard
    finally:
        if not silent:
            datasets.enable_progress_bars()
    for part in folder.iterdir():
        _sync(part)
    del dataset, rows  # unmaps the file
    file.unlink()


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())
