"""The finished answers of a job, on disk: they survive a kill at any moment.

Each process of each run appends to a file of its own, whole batches at a time, and never to one of an earlier run: that
may end in half a line. A row that is there twice is there with the same answer. Only when all rows are there are the
outputs made, next to their final paths and then moved there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import InternalError, UsageError
from .lines import Answer, answer_in, as_line

if os.name == "posix":
    import fcntl
_OF_DATASETS = re.compile(r"state\.json|dataset_info\.json|(?:data|cache)-.*\.arrow")


class AnswerLocation(NamedTuple):
    """The location of an answer."""

    file: Path
    offset: int
    done: bool


class Parts:
    """The folder next to the output.

    Args:
        output: where the answers will be.

    Raises:
        UsageError: that is no name of a file.
    """

    def __init__(self, output: Path):
        if not output.name:
            raise UsageError(f"--output: expected a name for the answers, got the folder {output}")
        self.output = output
        self.failures = output.with_name(f"{output.stem}.failures{output.suffix}")
        for target in self.output, self.failures:  # both are replaced as a whole
            if target.is_dir() and not is_dataset(target):
                raise UsageError(
                    f"--output: expected a name for the answers, got the folder {target}; give another name"
                )
        self.folder = output.with_name(f"{output.name}.parts")
        self._lock: Any = None

    def check_apart(self, rows: Path) -> None:
        """Raise UsageError if the answers would be written over the rows."""
        for file in self.output, self.failures:
            if file.exists() and file.samefile(rows):
                raise UsageError(
                    f"--output: {file} is the input, which the answers would be written over; give another"
                )

    def begin(self, overwrite: bool) -> None:
        """Make the folder, and keep other runs out of it; for one process only.

        Raises:
            UsageError: the output is there already, or another run is at work.
        """
        for file in self.output, self.failures:
            if file.exists() and not (overwrite or self.folder.exists()):
                raise UsageError(f"{file} is there already; move it, give another --output, or --overwrite it")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise UsageError(f"cannot write {self.folder}: {error.strerror or error}") from error
        if os.name == "posix":
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(f"another run is at work in {self.folder} ({error.strerror}); wait for it") from error
        gone = [self.output, self.failures] if overwrite else []
        if overwrite or not self.lines():  # an error reported before the first answer may be corrected
            gone += [*self.folder.glob("*.jsonl"), *self.folder.glob("*.json")]
        for file in gone:
            _remove(file)

    def locations(self, rows: int) -> list[AnswerLocation | None]:
        """The location of each row's answer; None where there is none."""
        locations: list[AnswerLocation | None] = [None] * rows
        for file in sorted(self.folder.glob("*.jsonl")):
            offset = 0
            with file.open("rb") as stream:
                for line in stream:
                    if not line.endswith(b"\n"):
                        break  # the process was killed here
                    answer = answer_in(line)
                    # A damaged line is one that was never written: its row is answered again, in the same way.
                    if answer is not None and answer.row < rows and locations[answer.row] is None:
                        locations[answer.row] = AnswerLocation(file, offset, answer.done)
                    offset += len(line)
        return locations

    def writer(self, process: int) -> Writer:
        """A new file for the answers of one process."""
        for run in range(1_000_000):
            try:
                return Writer((self.folder / f"{run:06d}-{process:04d}.jsonl").open("xb", buffering=0))
            except FileExistsError:
                continue
        raise InternalError(f"{self.folder} holds the parts of a million runs")

    def lines(self) -> int:
        """The approximate number of answers: rows that are there twice count twice."""
        return sum(_newlines(file) for file in self.folder.glob("*.jsonl"))

    def finish(self, rows: int, write: Callable[..., int]) -> tuple[int, int]:
        """Make the outputs in the rows' order, and delete the parts.

        Args:
            rows: how many there are.
            write: ``Output.write``.

        Returns:
            How many rows are in the output, and how many among the failures.
        """
        locations = self.locations(rows)
        missing = [row for row, location in enumerate(locations) if location is None]
        if missing:
            raise InternalError(f"{len(missing)} of {rows} rows have no answer, the first is {missing[0]}")
        counts = []
        # The output last: while it is not there, the job is not over.
        for target, wanted in (self.failures, False), (self.output, True):
            beside = self.folder / f"{target.name}.new"
            _remove(beside)  # of a run that was killed here
            with closing(
                _answers(location for location in locations if location is not None and location.done is wanted)
            ) as answers:
                count = write(beside, answers, failed=not wanted)
            if count or wanted:
                if target.is_dir():
                    _remove(target)
                beside.replace(target)
            counts.append(count)
        shutil.rmtree(self.folder)
        self.end()
        return counts[1], counts[0]

    def end(self) -> None:
        """Let other runs in."""
        if self._lock is not None:
            self._lock.close()


class Writer:
    """Appends the answers of whole batches.

    Args:
        stream: a new file, unbuffered.
    """

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, answers: Sequence[Answer]) -> None:
        """Add a batch; it is on disk when this returns."""
        data = memoryview(b"".join(map(as_line, answers)))
        while data:
            data = data[self._stream.write(data) :]
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """No more answers."""
        self._stream.close()


def _newlines(file: Path) -> int:
    data = np.fromfile(file, dtype=np.uint8)
    return int((data == ord("\n")).sum())


def _answers(locations: Iterable[AnswerLocation]) -> Generator[Answer, None, None]:
    streams: dict[Path, Any] = {}
    try:
        for location in locations:
            stream = streams.get(location.file) or streams.setdefault(location.file, location.file.open("rb"))
            stream.seek(location.offset)
            yield Answer(*json.loads(stream.readline()))
    finally:
        for stream in streams.values():
            stream.close()


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds a saved data set of the package datasets, and nothing else."""
    names = [file.name for file in folder.iterdir()]
    ours = all(_OF_DATASETS.fullmatch(name) for name in names)
    return ours and {"state.json", "dataset_info.json"} <= set(names)


def _remove(path: Path) -> None:
    """A file, or a folder that was made here; if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
