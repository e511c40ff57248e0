"""The formats of data sets: their names and endings, and what each needs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path, PurePath

from ...errors import UsageError
from .arguments import FORMATS
from .tables import CsvTable, JsonLinesTable, Table

ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet", "": "datasets"}
_PACKAGES = {"parquet": "pyarrow", "datasets": "datasets"}
_EXTRA = "data"


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
            f"pip install 'hf-guided[{_EXTRA}]'"
        )
    return format_name


def open_table(path: Path, format_name: str, columns: Sequence[str]) -> Table:
    """The rows of a data set.

    Args:
        path: where it is.
        format_name: one of ``FORMATS``.
        columns: what ``Table.fields`` has to hold, where it is there.

    Raises:
        UsageError: it cannot be read, or is of another format.
    """
    try:
        if format_name == "jsonl":
            return JsonLinesTable(path)
        if format_name == "csv":
            return CsvTable(path)
        from .arrow_tables import DatasetsTable, ParquetTable

        return (ParquetTable if format_name == "parquet" else DatasetsTable)(path, columns)
    except OSError as error:
        raise UsageError(f"cannot read {path} as {format_name}: {error.strerror or error}") from error
    except ValueError as error:  # of csv, and of Arrow
        raise UsageError(f"cannot read {path} as {format_name}: {error}") from error
