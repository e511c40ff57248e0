"""Typed rows: Parquet files and folders that the package datasets has saved, and answers beside them.

Values that are copied stay Arrow's from the input to the output, so that they keep their types. Values of JSONL and
CSV get types only for such an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import UsageError
from .parts import Answer
from .places import digest, sync
from .tables import BadRow, Row, Table, as_cells, copied

_LARGEST = 2**63
_TOGETHER = 1000  # rows in memory
_BAD_VALUES = pa.ArrowException, ValueError, OverflowError  # no UTF-8, or a time past the last year
# Columns of answers that are no texts.
_PLAIN = {"tokens": pa.int64(), "shortened": pa.bool_(), "thinking_cut": pa.bool_(), "log_mass": pa.float64()}
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
_Group = tuple[int, Callable[[list[str]], Iterable[Any]]]  # rows that are damaged together, and what reads columns


def parquet_table(file: Path) -> Table:
    """The rows of a Parquet file; raises ValueError where it is none, or two columns have one name."""
    parquet = pq.ParquetFile(file)

    def group(number: int) -> _Group:
        rows = parquet.metadata.row_group(number).num_rows
        return rows, lambda columns: parquet.iter_batches(_TOGETHER, row_groups=[number], columns=columns)

    return _table(parquet.schema_arrow, [group(number) for number in range(parquet.num_row_groups)])


def datasets_table(folder: Path) -> Table:
    """The rows of a folder of ``Dataset.save_to_disk``; raises UsageError where it has several splits."""
    import datasets

    loaded = datasets.load_from_disk(str(folder))
    if isinstance(loaded, datasets.DatasetDict):
        raise UsageError(f"--input {folder}: has the splits {', '.join(loaded)}; give the folder of one, inside it")
    rows = loaded.with_format("arrow")
    schema = loaded.features.arrow_schema
    return _table(schema, [(len(loaded), lambda columns: rows.select_columns(columns).iter(_TOGETHER))])


def _table(schema: pa.Schema, groups: Sequence[_Group]) -> Table:
    names = schema.names
    if len(set(names)) != len(names):
        raise ValueError(f"a name stands for two columns: {', '.join(names)}")

    def chosen(columns: Sequence[str]) -> list[str]:
        return [name for name in columns if name in names] or names[:1]  # no column has no rows

    def pieces(columns: Sequence[str]) -> Iterator[Any]:
        try:
            for _, read in groups:
                yield from read(chosen(columns))
        except (pa.ArrowException, OSError) as error:
            raise UsageError(f"--input: the columns {', '.join(chosen(columns))} cannot be read: {error}") from error

    def rows(columns: Sequence[str]) -> Iterator[Row]:
        for length, read in groups:
            left = length
            try:
                for piece in read(chosen(columns)):
                    left -= len(piece)
                    yield from _rows_of(piece)
            except (pa.ArrowException, OSError) as error:
                yield from repeat(_unreadable(error), left)

    return Table(sum(length for length, _ in groups), lambda: names, rows, schema, pieces)


def _rows_of(piece: Any) -> Iterator[Row]:
    """The rows of a piece; a value that Python cannot hold costs its own row only."""
    try:
        rows = piece.to_pylist()
    except _BAD_VALUES as error:
        rows = (
            [_unreadable(error)]
            if len(piece) == 1
            else (row for i in range(len(piece)) for row in _rows_of(piece.slice(i, 1)))
        )
    yield from rows


def _unreadable(error: Exception) -> BadRow:
    return BadRow(f"cannot be read: {error}")


def check_types(schema: pa.Schema, prompt_column: str, constraint_column: str) -> None:
    """Raise UsageError unless prompts are texts or lists of messages, and constraints are JSON as text."""
    kind = schema.field(prompt_column).type
    if not (_is_text(kind) or (_is_list(kind) and pa.types.is_struct(kind.value_type))):
        raise UsageError(
            f"--prompt-column {prompt_column}: expected texts or lists of messages, got a column of {kind}"
        )
    if constraint_column in schema.names:
        kind = schema.field(constraint_column).type
        if not (_is_text(kind) or pa.types.is_null(kind)):  # Arrow gives every row the keys of all rows
            raise UsageError(f"--constraint-column {constraint_column}: expected JSON as text, got a column of {kind}")


def check_copied(schema: pa.Schema, columns: Sequence[str], output_format: str) -> None:
    """Raise UsageError where one of these columns is of a type that the output format does not have."""
    for name in columns:
        kind = schema.field(name).type
        if output_format == "datasets":
            import datasets

            try:
                datasets.Features.from_arrow_schema(pa.schema([schema.field(name)]))
            except ValueError as error:
                raise UsageError(f"--columns {name}: {error}; write Parquet, or drop it") from error
        elif output_format != "parquet" and not _is_json(kind):
            raise UsageError(
                f"--columns {name}: JSON and CSV have no {kind}; write Parquet or a datasets folder, or drop it"
            )


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_json(kind: pa.DataType) -> bool:
    if _is_list(kind):
        return _is_json(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_json(field.type) for field in kind)
    types = pa.types
    return _is_text(kind) or any(
        has(kind) for has in (types.is_null, types.is_boolean, types.is_integer, types.is_floating)
    )


def write_stream(
    file: Path, table: Table, columns: Sequence[str], answers: Iterator[Answer], own: Sequence[str]
) -> None:
    """Write answers with these columns as a stream of Arrow; see ``formats.write``.

    What is made of it maps it into memory: an output may be larger than the memory is.
    """
    typed = _typed(table, columns) if table.schema is None else table
    fields = [
        pa.field("row", pa.int64()),
        *(typed.schema.field(name) for name in columns),
        *(pa.field(name, _PLAIN.get(name, pa.string())) for name in own),
    ]
    metadata = typed.schema.metadata or {}
    schema = pa.schema(fields, {key: metadata[key] for key in metadata if key == b"huggingface"})
    with pa.ipc.new_stream(file, schema) as writer:
        first = 0
        answer = next(answers, None)
        for piece in typed.pieces(columns):
            here = []
            while answer is not None and answer.row < first + len(piece):
                here.append(answer)
                answer = next(answers, None)
            if here:
                carried = piece.take([answer.row - first for answer in here])
                cells = [as_cells(answer.line) for answer in here]
                values: dict[str, Any] = {name: carried[name] for name in columns}
                values |= {name: _texts([cell.get(name) for cell in cells]) for name in own}
                values["row"] = [answer.row for answer in here]
                values |= {name: [answer.line.get(name) for answer in here] for name in _PLAIN}
                writer.write_table(pa.table(values, schema=schema))
            first += len(piece)


def _typed(table: Table, columns: Sequence[str]) -> Table:
    """A table of JSON or texts with a type for each column: that of all its values, or JSON as text."""
    kinds: dict[str, set[type]] = {name: set() for name in columns}
    for row in table.rows(columns) if columns else ():
        for name, value in copied(row, columns).items():
            fits = not isinstance(value, int) or -_LARGEST <= value < _LARGEST
            kinds[name].add(type(value) if fits else object)
    schema = pa.schema([("row", pa.int64()), *((name, _type(kinds[name] - {type(None)})) for name in columns)])

    def read(_: Sequence[str]) -> Iterator[pa.Table]:
        rows = enumerate(table.rows(columns))
        while some := list(islice(rows, _TOGETHER)):
            lines = [copied(fields, columns) for _, fields in some]
            values: dict[str, list[Any]] = {name: [line.get(name) for line in lines] for name in columns}
            for name in columns:  # a column that is only partly text is JSON in all rows
                if pa.types.is_string(schema.field(name).type):
                    values[name] = _texts([as_cells({"": value}).get("") for value in values[name]])
            yield pa.table({"row": [row for row, _ in some]} | values, schema=schema)

    return _table(schema, [(table.length, read)])


def _type(kinds: set[type]) -> pa.DataType:
    return _TYPES.get(next(iter(kinds)), pa.string()) if len(kinds) == 1 else pa.string()


def _texts(values: Sequence[str | None]) -> list[str | None]:
    """Escape halves of surrogate pairs, which UTF-8 cannot hold."""
    return [None if value is None else value.encode("utf-8", "backslashreplace").decode() for value in values]


def write_parquet(file: Path, stream: Path) -> None:
    """Write the rows of a stream of Arrow as Parquet."""
    with pa.memory_map(str(stream)) as source:
        pq.write_table(pa.ipc.open_stream(source).read_all(), file, row_group_size=_TOGETHER)
    sync(file)


def save_dataset(folder: Path, stream: Path) -> None:
    """Write the rows of a stream of Arrow as a folder of datasets."""
    import datasets
    from datasets.table import MemoryMappedTable

    rows = MemoryMappedTable.from_file(str(stream))
    # Images and class labels stay unchanged, by the metadata of the schema.
    info = datasets.DatasetInfo(features=datasets.Features.from_arrow_schema(rows.schema))
    dataset = datasets.Dataset(rows, info, fingerprint=digest(stream)[:16])  # the default depends on the time
    datasets.disable_progress_bars()
    dataset.save_to_disk(str(folder), num_shards=None if len(dataset) else 1)  # it loads nothing without a shard
    for file in folder.iterdir():
        sync(file)
