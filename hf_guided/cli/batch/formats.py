"""The formats of data sets: their names and endings, what each needs, and what reads and writes it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePath

from ...errors import UsageError
from .arguments import FORMATS
from .parts import Answer
from .tables import Table, csv_table, jsonl_table, write_lines

ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet", "": "datasets"}
_PACKAGES = {"parquet": "pyarrow", "datasets": "datasets"}
DONE = ("text", "value", "finish_reason", "tokens", "shortened", "thinking_cut", "log_mass")
FAILED = ("error", "text", "finish_reason", "tokens", "shortened", "thinking_cut", "log_mass")
_TABLES = {"jsonl": jsonl_table, "csv": csv_table}


def format_of(path: PurePath, name: str | None, flag: str) -> str:
    """The format of a file, or of a folder of the package datasets.

    Args:
        path: a folder, or a name without an ending, is "datasets".
        name: of the format; None goes by the path.
        flag: that the path was given with.

    Raises:
        UsageError: the ending says nothing, or a package is missing.
    """
    format_name = name or ("datasets" if isinstance(path, Path) and path.is_dir() else ENDINGS.get(path.suffix.lower()))
    if format_name is None:
        raise UsageError(
            f"{flag} {path}: the ending {path.suffix!r} is none of {', '.join(filter(None, ENDINGS))}; give the format "
            f"with {flag}-format {'|'.join(FORMATS)}"
        )
    package = _PACKAGES.get(format_name)
    if package is not None and find_spec(package) is None:
        raise UsageError(
            f"{flag} {path}: the format {format_name} needs the package {package}, which is not installed; "
            "pip install 'hf-guided[data]'"
        )
    return format_name


def open_table(path: Path, format_name: str) -> Table:
    """The rows of a data set, in one of ``FORMATS``; raises UsageError where it cannot be read as that."""
    try:
        if is_text(format_name):
            return _TABLES[format_name](path)
        from .arrow import datasets_table, parquet_table

        return parquet_table(path) if format_name == "parquet" else datasets_table(path)
    except OSError as error:
        raise UsageError(f"cannot read {path} as {format_name}: {error.strerror or error}") from error
    except (ValueError, csv.Error) as error:  # a ValueError is also Arrow's
        raise UsageError(f"cannot read {path} as {format_name}: {error}") from error


def is_text(format_name: str) -> bool:
    """Return whether columns of the format have no types."""
    return format_name in _TABLES


def write(
    path: Path, format_name: str, table: Table, columns: Sequence[str], answers: Iterator[Answer], done: bool
) -> None:
    """Write answers beside columns of their rows, and have them on the disk.

    Args:
        path: a file, or a folder, which is not there yet.
        format_name: one of ``FORMATS``.
        table: the rows that were answered.
        columns: of theirs, to be copied.
        answers: in the rows' order.
        done: whether they belong to the output, not to the failures.
    """
    own = DONE if done else FAILED
    if is_text(format_name):
        write_lines(path, table, columns, answers, own, as_csv=format_name == "csv")
        return
    from .arrow import save_dataset, write_parquet, write_stream

    stream = path.with_name(f"{path.name}.arrow")
    write_stream(stream, table, columns, answers, own)
    (write_parquet if format_name == "parquet" else save_dataset)(path, stream)
    stream.unlink()
