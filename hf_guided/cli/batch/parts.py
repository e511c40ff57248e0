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
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import InternalError, UsageError
from .arguments import Shard
from .folder_lock import FolderLock
from .lines import Answer, answer_in, as_line
from .places import Place, RemotePlace, remove

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
        work_folder: where to make the folder, for an output on another machine; None is the current folder.

    Raises:
        UsageError: that is no name of a file.
    """

    def __init__(self, output: Place, work_folder: Path | None = None):
        if not output.name:
            raise UsageError(f"--output: expected a name for the answers, got the folder {output}")
        stem, suffix = Path(output.name).stem, Path(output.name).suffix
        self.output, self.failures = output, output.with_name(f"{stem}.failures{suffix}")
        if isinstance(output, RemotePlace):
            self.folder = (work_folder or Path()) / f"{output.local_name}.parts"
        elif work_folder is not None:
            raise UsageError("--work-folder: only for an --output with a URL; other answers are kept beside the output")
        else:
            self.folder = Path(f"{output}.parts")
        for target in self.output, self.failures:  # both are replaced as a whole
            if (names := target.names()) is not None and not is_dataset(names):
                raise UsageError(
                    f"--output: expected a name for the answers, got the folder {target}; give another name"
                )
        self._locks: list[Any] = []

    def check_apart(self, rows: Place) -> None:
        """Raise UsageError if the answers would be written over the rows."""
        for place in self.output, self.failures:
            if place.is_same(rows):
                raise UsageError(
                    f"--output: {place} is the input, which the answers would be written over; give another"
                )

    @contextmanager
    def beginning(self, overwrite: bool, shard: Shard | None = None) -> Generator[None]:
        """Make the folder, and keep runs out of it that would disturb this one; for one process only.

        While the caller writes what all runs have to agree in, no other run begins.

        Args:
            overwrite: whether existing answers are deleted.
            shard: of the rows, which runs beside others; None for a run that has all rows to itself.

        Raises:
            UsageError: the output is there already, or another run is at work.
        """
        for place in self.output, self.failures:
            if place.exists() and not (overwrite or self.folder.exists()):
                raise UsageError(f"{place} is there already; move it, give another --output, or --overwrite it")
        with ExitStack() as begun:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                beginning = begun.enter_context(closing(FolderLock(self.folder, "begin")))
                beginning.take(wait=True)
                alone = self._lock(shard)
            except OSError as error:
                raise UsageError(f"cannot write {self.folder}: {error.strerror or error}") from error
            if alone and (overwrite or not self.lines()):  # before the first answer a mistake may be corrected
                for file in (*self.folder.glob("*.jsonl"), *self.folder.glob("*.json")):
                    remove(file)
            for place in (self.output, self.failures) if overwrite else ():
                place.remove()
            yield
            if shard is not None:
                self._locks[0].take(shared=True)

    def _lock(self, shard: Shard | None) -> bool:
        """Keep other runs out; return whether there is none."""
        lock = FolderLock(self.folder, "lock")
        self._locks.append(lock)
        alone = lock.take()
        if not alone and (shard is None or not lock.take(shared=True)):
            raise UsageError(f"another run is at work in {self.folder}; wait for it")
        if shard is not None:
            own = FolderLock(self.folder, f"shard-{shard.number}-of-{shard.count}")
            self._locks.append(own)
            if not own.take():
                raise UsageError(f"another run answers the shard {shard} in {self.folder}; wait for it")
        return alone

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

        Raises:
            UsageError: a row has no answer.
        """
        locations = self.locations(rows)
        missing = [row for row, location in enumerate(locations) if location is None]
        if missing:
            raise UsageError(
                f"{len(missing)} of {rows} rows have no answer yet, the first is {missing[0]}; run the shards that "
                "have not ended, or the command without --shard and --merge"
            )
        counts = []
        # The output last: while it is not there, the job is not over.
        for target, wanted in (self.failures, False), (self.output, True):
            beside = self.folder / f"{target.name}.new"
            remove(beside)  # of a run that was killed here
            with closing(
                _answers(location for location in locations if location is not None and location.done is wanted)
            ) as answers:
                count = write(beside, answers, failed=not wanted)
            if count or wanted:
                target.replace(beside)
            counts.append(count)
        shutil.rmtree(self.folder)
        self.end()
        return counts[1], counts[0]

    def end(self) -> None:
        """Let other runs in."""
        while self._locks:
            self._locks.pop().close()


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


def is_dataset(names: Sequence[str]) -> bool:
    """Whether a folder with these files holds a saved data set of the package datasets, and nothing else."""
    ours = all(_OF_DATASETS.fullmatch(name) for name in names)
    return ours and {"state.json", "dataset_info.json"} <= set(names)
