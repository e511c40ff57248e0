"""The finished answers of a job, on disk: they survive a kill at any moment.

They are in a folder next to the output, with what all runs of the job have to agree in. Each process of each run
appends to a file of its own, whole batches at a time, and never to one of an earlier run: that may end in half a line.
A row that is there twice is there with the same answer. Only when all rows are there are the outputs made, in the
folder, and then moved to their places.
"""

from __future__ import annotations

import heapq
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InternalError, UsageError, cause
from .arguments import Shard
from .places import Place, sync

if os.name == "posix":
    import fcntl

_OF_DATASETS = re.compile(r"state\.json|dataset_info\.json|(?:data|cache)-.*\.arrow")


class Answer(NamedTuple):
    """The outcome of a row."""

    row: int  # the row's number
    done: bool  # whether it belongs to the output, not to the failures
    line: dict[str, Any]  # the answer's line in the output


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
        name = Path(output.name)
        self.output, self.failures = output, output.with_name(f"{name.stem}.failures{name.suffix}")
        if output.local is None:
            self.folder = (work_folder or Path()) / f"{output.local_name}.parts"
        elif work_folder is not None:
            raise UsageError("--work-folder: only for an --output with a URL; other answers are kept beside the output")
        else:
            self.folder = Path(f"{output}.parts")
        for target in self.output, self.failures:  # both are replaced as a whole
            if (names := target.names()) is not None and not _is_dataset(names):
                raise UsageError(
                    f"--output: expected a name for the answers, got the folder {target}; give another name"
                )
        self._state = self.folder / "job.json"
        self._locks: dict[str, Any] = {}

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
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take("begin", wait=True)
            alone = self._take("lock")
            if not alone and (shard is None or not self._take("lock", shared=True)):
                raise UsageError(f"another run is at work in {self.folder}; wait for it")
            if shard is not None and not self._take(f"shard-{shard.number}-of-{shard.count}"):
                raise UsageError(f"another run answers the shard {shard} in {self.folder}; wait for it")
        except OSError as error:
            raise UsageError(f"cannot write {self.folder}: {error.strerror or error}") from error
        files = list(self.folder.glob("*.jsonl"))
        if alone and (overwrite or not any(map(_has_answer, files))):  # before the first one a mistake may be corrected
            for file in (*files, self._state):
                file.unlink(missing_ok=True)
        for place in (self.output, self.failures) if overwrite else ():
            place.remove()
        yield
        if shard is not None:
            self._take("lock", shared=True)
        self._let_go("begin")

    def _take(self, name: str, *, shared: bool = False, wait: bool = False) -> bool:
        """Take a lock between processes, also of machines that share the disk; return whether it was taken.

        It ends with its process at the latest. One that was held alone may be shared from now on. On Windows it has
        no effect.
        """
        if os.name != "posix":
            return True
        if name not in self._locks:
            self._locks[name] = (self.folder / name).open("w")
        try:
            fcntl.flock(
                self._locks[name], (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
            )
        except BlockingIOError:
            return False
        return True

    def _let_go(self, name: str) -> None:
        if name in self._locks:
            self._locks.pop(name).close()

    def end(self) -> None:
        """Let other runs in."""
        for name in list(self._locks):
            self._let_go(name)

    def agree(self, settings: dict[str, Any], pinned: Callable[[], dict[str, str | None]]) -> None:
        """Write down what the job is, or check that what is written down is the same.

        Args:
            settings: what determines the answers; two runs of a job have to be equal in it.
            pinned: the commits of the Hub's repositories. They are those of the first run, because a branch may move
                while the job is stopped.

        Raises:
            UsageError: the job is another, or cannot be read.
        """
        if not self._state.exists():
            text = json.dumps({"settings": settings, "commits": pinned()}, indent=1)
            unfinished = self._state.with_suffix(".new")  # the file is there as a whole, or not at all
            unfinished.write_text(text, encoding="utf-8")
            sync(unfinished)
            unfinished.replace(self._state)
            return
        begun = self._read_state("settings")
        others = [
            "the content of --input has changed"
            if name == "input_digest"
            else f"{name} was {begun.get(name)!r}, is {settings[name]!r}"
            for name in settings
            if begun.get(name) != settings[name]
        ]
        if others:
            raise UsageError(
                f"the job begun in {self.folder} is another: {'; '.join(others)}; ask for the same, give another "
                "--output, or --overwrite it"
            )

    def commits(self) -> dict[str, Any]:
        """The commits which ``agree`` has written down; raises UsageError where they cannot be read."""
        if not self._state.exists():
            raise UsageError(f"a process does not see {self.folder}: --output has to be on a disk that all share")
        return self._read_state("commits")

    def _read_state(self, part: str) -> dict[str, Any]:
        try:
            return dict(json.loads(self._state.read_bytes())[part])
        except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
            raise UsageError(
                f"cannot read {self._state}: {cause(error)}; restore it, give another --output, or start again with "
                "--overwrite"
            ) from error

    def answers(self, rows: int) -> Iterator[Answer]:
        """Read the answers in a job of this many rows, in the rows' order, each once."""
        last = -1
        files = sorted(self.folder.glob("*.jsonl"))
        # A process answers its rows in their order, so each file is sorted.
        for answer in heapq.merge(*(_answers_in(file, rows) for file in files), key=lambda answer: answer.row):
            if answer.row > last:
                yield answer
                last = answer.row

    def answered(self, rows: int) -> set[int]:
        """Return the numbers of the rows that have an answer, in a job of this many rows."""
        return {answer.row for answer in self.answers(rows)}

    @contextmanager
    def writer(self, process: int) -> Generator[Callable[[Iterable[Answer]], None]]:
        """Make a file for the answers of one process, and yield a function that appends a batch, durably."""
        with closing(self._new_file(process)) as stream:

            def write(answers: Iterable[Answer]) -> None:
                data = memoryview(b"".join(map(as_line, answers)))
                while data:
                    data = data[stream.write(data) :]
                os.fsync(stream.fileno())

            yield write

    def _new_file(self, process: int) -> Any:
        for run in range(1_000_000):
            try:
                return (self.folder / f"{run:06d}-{process:04d}.jsonl").open("xb", buffering=0)
            except FileExistsError:
                continue
        raise InternalError(f"{self.folder} holds the parts of a million runs")

    def finish(self, rows: int, write: Callable[[Path, Iterator[Answer], bool], None]) -> int:
        """Make the outputs in the rows' order, and delete the parts.

        Args:
            rows: how many there are.
            write: makes a file or a folder of answers; its last argument is whether they are done.

        Returns:
            How many rows are among the failures.

        Raises:
            UsageError: a row has no answer.
        """
        answered = self.answered(rows)
        if len(answered) < rows:
            first = next(row for row in range(rows) if row not in answered)
            raise UsageError(
                f"{rows - len(answered)} of {rows} rows have no answer yet, the first is {first}; run the shards that "
                "have not ended, or the command without --shard and --merge"
            )
        failed = sum(not answer.done for answer in self.answers(rows))
        # The output last: while it is not there, the job is not over.
        for target, done in ((self.failures, False), (self.output, True))[0 if failed else 1 :]:
            beside = self.folder / f"{target.name}.new"
            if beside.is_dir():  # a run that was killed here has left it
                shutil.rmtree(beside)
            write(beside, (answer for answer in self.answers(rows) if answer.done is done), done)
            target.replace(beside)
        shutil.rmtree(self.folder)
        self.end()
        return failed


def as_line(value: Any) -> bytes:
    """JSON in UTF-8, and a line break."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON may hold and UTF-8 may not
        text = json.dumps(value, allow_nan=False).encode()
    return text + b"\n"


def _answers_in(file: Path, rows: int) -> Iterator[Answer]:
    """Read the answers that ``as_line`` has written into a file.

    A damaged line, and one that a kill has cut, is one that was never written: its row is answered again, in the same
    way.
    """
    for line in _lines_of(file):
        try:
            row, done, fields = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        is_answer = type(row) is int and type(done) is bool and isinstance(fields, dict)
        if is_answer and 0 <= row < rows and line.endswith(b"\n"):
            yield Answer(row, done, fields)


def _lines_of(file: Path) -> Iterator[bytes]:
    """Read the lines of a file which is not held open: a job may have more files than a process may open."""
    offset = 0
    lines = [b""]
    while lines:
        with file.open("rb") as stream:
            stream.seek(offset)
            lines = stream.readlines(1 << 16)
        offset += sum(map(len, lines))
        yield from lines


def _has_answer(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.readline().endswith(b"\n")


def _is_dataset(names: Sequence[str]) -> bool:
    """Return whether the files of a folder are a data set that the package datasets has saved, and nothing else."""
    ours = all(_OF_DATASETS.fullmatch(name) for name in names)
    return ours and {"state.json", "dataset_info.json"} <= set(names)
