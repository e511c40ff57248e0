"""The rows of a data set, by number, without holding them all: JSONL and CSV."""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...constraints.json_text import is_json

_LONGEST_FIELD = 2**31 - 1  # of CSV, in characters; 131,072 is Python's own limit, which long documents exceed


class BadRow(Exception):
    """A row that cannot be answered; its text says why."""


class WrongFormat(ValueError):
    """A file of another format than its name says; its text says which line shows it."""


class Table(ABC):
    """The rows of a data set."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file."""

    @abstractmethod
    def fields(self, row: int) -> dict[str, Any]:
        """A row's values, as JSON has them.

        Raises:
            BadRow: it cannot be read.
        """

    @abstractmethod
    def missing(self, columns: Sequence[str]) -> list[str]:
        """Those of the columns that no row has; none where there are no rows."""

    @abstractmethod
    def names(self) -> list[str]:
        """The columns, for messages."""

    def check_prompts(self, prompt_column: str, constraint_column: str) -> None:  # noqa: B027 - text has no types
        """Check that these columns have valid types, as far as the format knows them.

        Raises:
            UsageError: they are of another type.
        """

    def check_json(self, columns: Sequence[str]) -> None:  # noqa: B027 - text has no types
        """See that JSON can hold the values of these columns.

        Raises:
            UsageError: a column is of a type that it cannot hold.
        """

    def carried(self, rows: Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """The values of these columns in these rows, as JSON has them; without those that a row does not have."""
        carried: list[dict[str, Any]] = []
        for row in rows if columns else ():
            try:
                fields = self.fields(row)
            except BadRow:  # its answer says why
                fields = {}
            carried.append({name: fields[name] for name in columns if name in fields and is_json(fields[name])})
        return carried or [{} for _ in rows]


class _Lines(Table):
    """A file whose rows begin at known bytes.

    Args:
        file: to be read.
    """

    def __init__(self, file: Path):
        self._stream = file.open("rb")
        try:
            self._starts = np.fromiter(self._find_rows(), dtype=np.int64)
        except BaseException:
            self._stream.close()
            raise

    def __len__(self) -> int:
        return len(self._starts)

    def close(self) -> None:
        """See ``Table``."""
        self._stream.close()

    @abstractmethod
    def _find_rows(self) -> Iterator[int]:
        """Where each row begins, from the top of the file."""


class JsonLinesTable(_Lines):
    """A JSON object a line; blank lines are no rows.

    Raises:
        WrongFormat: the first lines are no JSON.
    """

    def _find_rows(self) -> Iterator[int]:
        start, begun = 0, False
        for number, line in enumerate(self._stream, 1):
            if line.strip():
                if not begun:
                    begun = True
                    self._check_first(number, line)
                    self._stream.seek(start + len(line))
                yield start
            start += len(line)

    def _check_first(self, number: int, line: bytes) -> None:
        """Raise WrongFormat where this is no row, nor the one after it: a broken row alone fails alone."""
        text = line.decode("utf-8", errors="replace").removeprefix("\ufeff").strip()
        if text in ("[", "{"):
            raise WrongFormat(f"line {number} is {text!r}, JSON over several lines; write one JSON object a line")
        following = next((each for each in self._stream if each.strip()), b"")
        if text.startswith(("{", "[")) or _is_json_text(text) or following.lstrip().startswith(b"{"):
            return
        looks = "looks like the header of CSV" if "," in text or text.isidentifier() else "is no JSON"
        raise WrongFormat(
            f"line {number} {looks}: {text!r:.80}, where a JSON object was expected; if the file is CSV, pass --format "
            "csv (or --input-format csv)"
        )

    def fields(self, row: int) -> dict[str, Any]:
        """See ``Table``."""
        self._stream.seek(int(self._starts[row]))
        try:
            fields = json.loads(self._stream.readline())
        except (ValueError, RecursionError) as error:  # of JSON, and of UTF-8
            raise BadRow(f"expected a line of JSON: {error}") from error
        if not isinstance(fields, dict):
            raise BadRow(f"expected a JSON object, got {type(fields).__name__}")
        return fields

    def missing(self, columns: Sequence[str]) -> list[str]:
        """See ``Table``."""
        unseen = dict.fromkeys(columns)
        for row in range(len(self)):
            if not unseen:
                break
            for name in self._names_in(row):
                unseen.pop(name, None)
        return list(unseen) if len(self) else []

    def names(self) -> list[str]:
        """See ``Table``."""
        return list(dict.fromkeys(name for row in range(min(len(self), 100)) for name in self._names_in(row)))

    def _names_in(self, row: int) -> Sequence[str]:
        try:
            return list(self.fields(row))
        except BadRow:
            return []


class CsvTable(_Lines):
    """Comma-separated values in UTF-8 with a header, as RFC 4180 has them; every value is a text.

    Raises:
        WrongFormat: the first line is JSON.
    """

    def __init__(self, file: Path):
        csv.field_size_limit(_LONGEST_FIELD)
        self._header: list[str] = []
        try:
            super().__init__(file)
        except csv.Error as error:
            raise ValueError(str(error)) from error

    def _find_rows(self) -> Iterator[int]:
        self._stream.seek(0)
        text = next(self._texts(), "").strip()
        if text.startswith(("{", "[")) and (text in ("{", "[") or _is_json_text(text)):
            raise WrongFormat(
                f"line 1 is JSON: {text!r:.80}, where the names of the columns were expected; if the file has a JSON "
                "object a line, pass --format jsonl (or --input-format jsonl)"
            )
        self._stream.seek(0)
        reader = csv.reader(self._texts())
        header = next(reader, None)
        if not header:
            raise ValueError("expected a header in the first line")
        if len(set(header)) != len(header):
            raise ValueError(f"the header has a name twice: {', '.join(header)}")
        self._header = header
        while True:
            start = self._stream.tell()
            values = next(reader, None)
            if values is None:
                return
            if values:  # a blank line is no row
                yield start

    def _texts(self) -> Iterator[str]:
        """The lines from here on; ``readline`` reads no further, so that ``tell`` is where the next begins."""
        while line := self._stream.readline():
            yield line.decode("utf-8-sig" if self._stream.tell() == len(line) else "utf-8")

    def fields(self, row: int) -> dict[str, Any]:
        """See ``Table``."""
        self._stream.seek(int(self._starts[row]))
        values = next(csv.reader(self._texts()))
        if len(values) != len(self._header):
            raise BadRow(f"expected {len(self._header)} values, as the header has, got {len(values)}")
        return dict(zip(self._header, values, strict=True))

    def missing(self, columns: Sequence[str]) -> list[str]:
        """See ``Table``."""
        return [name for name in dict.fromkeys(columns) if name not in self._header]

    def names(self) -> list[str]:
        """See ``Table``."""
        return self._header


def _is_json_text(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
