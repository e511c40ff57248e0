"""Answers as files: each beside the columns of its row that are carried along."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .lines import Answer, as_cells, as_line
from .rows import check_columns
from .tables import Table

DONE = ("text", "value", "finish_reason", "tokens")
FAILED = ("error", "text", "finish_reason", "tokens")
_TOGETHER = 1000  # answers in memory


@dataclass(frozen=True)
class Output:
    """How answers are written.

    Args:
        format_name: one of ``formats.FORMATS``.
        table: the rows that were answered.
        columns: of theirs, to be carried along.
    """

    format_name: str
    table: Table
    columns: tuple[str, ...]

    @classmethod
    def of(cls, format_name: str, table: Table, columns: list[str] | None) -> Output:
        """An output that can be written.

        Args:
            format_name: one of ``formats.FORMATS``.
            table: the rows.
            columns: to be carried along; None is "id", if there is one.

        Raises:
            UsageError: a column is not there, has a name that answers have, or cannot be written in this format.
        """
        if columns is None:
            columns = [] if table.missing(["id"]) else ["id"]
        else:
            check_columns(table, columns, "--columns")
        if taken := [name for name in columns if name in ("row", *DONE, *FAILED)]:
            raise UsageError(f"--columns {', '.join(taken)}: answers have columns of that name; rename it in the input")
        output = cls(format_name, table, tuple(dict.fromkeys(columns)))
        if not output.is_arrow:
            table.check_json(output.columns)
        return output

    @property
    def is_arrow(self) -> bool:
        """Whether its columns have types."""
        return self.format_name in ("parquet", "datasets")

    def write(self, path: Path, answers: Iterable[Answer], *, failed: bool) -> int:
        """Write answers, and have them on the disk.

        Args:
            path: a file, or a folder, which is not there yet.
            answers: in order.
            failed: whether they are failures.

        Returns:
            How many there were.
        """
        if self.is_arrow:
            from .arrow_outputs import write_arrow

            own = FAILED if failed else DONE
            return write_arrow(self.table, self.columns, path, _chunks(answers), own, self.format_name)
        lines = self._lines(answers)
        with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            if self.format_name == "csv":
                count = _write_csv(file, lines, ("row", *self.columns, *(FAILED if failed else DONE)))
            else:
                count = _write_jsonl(file, lines)
            file.flush()
            os.fsync(file.fileno())
        return count

    def _lines(self, answers: Iterable[Answer]) -> Iterator[dict[str, Any]]:
        for chunk in _chunks(answers):
            carried = self.table.carried([answer.row for answer in chunk], self.columns)
            for answer, fields in zip(chunk, carried, strict=True):
                yield {"row": answer.row} | fields | answer.line


def _chunks(answers: Iterable[Answer]) -> Iterator[list[Answer]]:
    iterator = iter(answers)
    while chunk := list(islice(iterator, _TOGETHER)):
        yield chunk


def _write_jsonl(file: Any, lines: Iterator[dict[str, Any]]) -> int:
    count = 0
    for line in lines:
        file.write(as_line(line).decode())
        count += 1
    return count


def _write_csv(file: Any, lines: Iterator[dict[str, Any]], header: tuple[str, ...]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    count = 0
    for line in lines:
        cells = as_cells(line)
        writer.writerow([cells.get(name, "") for name in header])
        count += 1
    return count
