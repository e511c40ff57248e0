"""The rows of a data set, read in their order and never held all at once; JSONL and CSV, with answers beside them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from ...constraints.json_text import is_json
from ...errors import UsageError
from .parts import Answer, as_line
from .places import sync

_LONGEST_FIELD = 2**31 - 1  # characters of a field in CSV; long documents exceed 131,072, Python's own limit


class BadRow(Exception):
    """A row that cannot be answered; its text says why."""


Row = dict[str, Any] | BadRow


@dataclass(frozen=True)
class Table:
    """The rows of a data set, read in their order and never held all at once.

    Args:
        length: how many rows there are.
        names: reads the columns, some of them more than once.
        rows: reads each row's values, as JSON has them, or why it has none; at least those of these columns.
        schema: of Arrow, where columns have types, so that all messages of a column have the same keys; else None.
        pieces: reads at least these columns, or any one, as tables of Arrow; None where columns have no types.
    """

    length: int
    names: Callable[[], Iterable[str]]
    rows: Callable[[Sequence[str]], Iterator[Row]]
    schema: Any = None
    pieces: Any = None

    def check(self, columns: Sequence[str], flag: str) -> None:
        """Raise UsageError where a column is not there; a table without rows may have any, if it names none."""
        missing = dict.fromkeys(columns)
        seen: dict[str, None] = {}
        for name in self.names() if columns else ():
            seen[name] = None
            missing.pop(name, None)
            if not missing:
                return
        if missing and (seen or self.length):
            names = ", ".join(islice(seen, 100)) or "none"
            raise UsageError(f"{flag} {', '.join(missing)}: no such column; the columns are {names}")


def jsonl_table(file: Path) -> Table:
    """The rows of JSONL, a JSON object a line, without blank lines; raises ValueError where the first are no JSON."""

    def lines() -> Iterator[tuple[int, bytes]]:
        with file.open("rb") as stream:
            yield from ((number, line) for number, line in enumerate(stream, 1) if line.strip())

    def rows(columns: Sequence[str] = ()) -> Iterator[Row]:
        for _, line in lines():
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError) as error:  # the line is no JSON, or no UTF-8
                yield BadRow(f"expected a line of JSON: {error}")
            else:
                is_row = isinstance(fields, dict)
                yield fields if is_row else BadRow(f"expected a JSON object, got {type(fields).__name__}")

    def names() -> Iterator[str]:
        return (name for fields in rows() if isinstance(fields, dict) for name in fields)

    _check_lines(list(islice(lines(), 2)))
    return Table(sum(1 for _ in lines()), names, rows)


def _check_lines(lines: list[tuple[int, bytes]]) -> None:
    """Raise ValueError where neither of the first two lines is a row: a broken row alone fails alone."""
    if not lines:
        return
    number, line = lines[0]
    text = line.decode("utf-8", errors="replace").removeprefix("\ufeff").strip()
    if text in ("[", "{"):
        raise ValueError(f"line {number} is {text!r}, JSON over several lines; write one JSON object a line")
    if not (text.startswith(("{", "[")) or _is_json_text(text) or lines[-1][1].lstrip().startswith(b"{")):
        looks = "looks like the header of CSV" if "," in text or text.isidentifier() else "is no JSON"
        raise ValueError(
            f"line {number} {looks}: {text!r:.80}, where a JSON object was expected; if the file is CSV, pass "
            "--format csv (or --input-format csv)"
        )


def csv_table(file: Path) -> Table:
    """The rows of CSV in UTF-8 with a header, as RFC 4180 has it; every value is a text, and blank lines are no rows.

    Raises:
        ValueError: it is JSON, or has no header.
        csv.Error: it is no CSV.
    """
    csv.field_size_limit(_LONGEST_FIELD)

    def records() -> Iterator[list[str]]:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            yield from filter(None, csv.reader(stream))

    def rows(columns: Sequence[str]) -> Iterator[Row]:
        for values in islice(records(), 1, None):
            if len(values) == len(header):
                yield dict(zip(header, values, strict=True))
            else:
                yield BadRow(f"expected {len(header)} values, as the header has, got {len(values)}")

    with file.open(encoding="utf-8-sig", errors="replace") as stream:
        text = stream.readline().strip()
    if text.startswith(("{", "[")) and (text in ("{", "[") or _is_json_text(text)):
        raise ValueError(
            f"line 1 is JSON: {text!r:.80}, where the names of the columns were expected; if the file has a JSON "
            "object a line, pass --format jsonl (or --input-format jsonl)"
        )
    header = next(records(), [])
    if not header:
        raise ValueError("expected a header in the first line")
    if len(set(header)) != len(header):
        raise ValueError(f"the header has a name twice: {', '.join(header)}")
    return Table(sum(1 for _ in records()) - 1, lambda: header, rows)


def _is_json_text(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def write_lines(
    path: Path, table: Table, columns: Sequence[str], answers: Iterator[Answer], own: Sequence[str], *, as_csv: bool
) -> None:
    """Write answers with these columns as JSONL or CSV; see ``formats.write``."""
    header = ("row", *columns, *own)
    rows = enumerate(table.rows(columns))
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(_Lines(file))
        if as_csv:
            writer.writerow(header)
        for answer in answers:
            fields = next(fields for row, fields in rows if row == answer.row)
            line = {"row": answer.row} | copied(fields, columns) | answer.line
            if as_csv:
                cells = as_cells(line)
                writer.writerow([cells.get(name, "") for name in header])
            else:
                file.write(as_line(line).decode())
    sync(path)


class _Lines:
    """Ends lines with a line feed alone, where csv does not: older ones quote only the characters that end a line."""

    def __init__(self, file: TextIO):
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(line.removesuffix("\r\n") + "\n")


def copied(fields: Row, columns: Sequence[str]) -> dict[str, Any]:
    """The values of these columns, without those that a row does not have or JSON cannot hold."""
    if isinstance(fields, BadRow):  # the row's answer says why
        return {}
    return {name: fields[name] for name in columns if name in fields and is_json(fields[name])}


def as_cells(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a table: a value is JSON as text, and other types are written as in JSON."""
    return {
        name: value if isinstance(value, str) and name != "value" else json.dumps(value, ensure_ascii=False)
        for name, value in line.items()
        if value is not None or name == "value"
    }
