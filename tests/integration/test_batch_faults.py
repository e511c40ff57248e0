"""The batch tool on a disk that is full, read-only or damaged, and stopped by Ctrl-C.

It says why in one line on stderr. Nothing is lost: the same command continues, and writes what it writes without fault.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hf_guided.cli.commands import main as command
from hf_guided.generation.row_answers import RowAnswers
from tests.integration.test_batch import job, lines

ROWS = 7
SHORT: dict[str, Any] = {"schema": None, "regex": "[a-z]{3,6}", "max-new-tokens": 12}


def main(folder: Path, *more: str) -> int:
    return command(["batch", *job(folder, ROWS, **SHORT), *more])


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("without_faults")
    assert main(folder) == 0
    return (folder / "out.jsonl").read_bytes()


def message(capsys: pytest.CaptureFixture[str]) -> str:
    """The one message, without progress bars."""
    said = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert len(said) == 1, said
    return said[0]


class FullStream:
    """A file on a disk that has room for a few bytes only."""

    def __init__(self, stream: Any, room: int):
        self._stream, self._room = stream, room

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: memoryview) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._stream.write(data[: self._room])
        self._room -= written
        return int(written)


@pytest.mark.parametrize("room", [0, 1, 100, 300])
def test_disk_that_is_full_while_rows_are_answered(room, tmp_path, monkeypatch, capsys, wanted):
    opened = Path.open

    def limited(self: Path, mode: str = "r", *rest: Any, **kwargs: Any) -> Any:
        stream = opened(self, mode, *rest, **kwargs)
        return FullStream(stream, room) if mode == "xb" else stream

    with monkeypatch.context() as full:
        full.setattr(Path, "open", limited)
        assert main(tmp_path) == 1
    said = message(capsys)
    assert "No space left on device" in said and "the same command continues the job" in said
    kept = sum(file.read_bytes().count(b"\n") for file in (tmp_path / "out.jsonl.parts").glob("*.jsonl"))
    assert kept > 0 or room < 300
    assert main(tmp_path) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == wanted


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_disk_that_fails_while_the_output_is_written(number, tmp_path, monkeypatch, capsys, wanted):
    def fails(_: int) -> None:
        if list((tmp_path / "out.jsonl.parts").glob("*.new")):
            raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fails)
        assert main(tmp_path) == 1
    assert os.strerror(number) in message(capsys)
    assert not (tmp_path / "out.jsonl").exists()
    assert main(tmp_path) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == wanted


def test_folder_that_cannot_be_written(tmp_path, monkeypatch, capsys, wanted):
    opened = Path.open

    def read_only(self: Path, mode: str = "r", *rest: Any, **kwargs: Any) -> Any:
        if self.name == "job.new" and "w" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))
        return opened(self, mode, *rest, **kwargs)

    with monkeypatch.context() as disk:
        disk.setattr(Path, "open", read_only)
        assert main(tmp_path) == 1
    assert "Read-only file system" in message(capsys)
    assert main(tmp_path) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == wanted


def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job with one finished batch; its folder."""
    answer = RowAnswers.answer

    def once(self: RowAnswers, requests: Any, rows: Any) -> Any:
        if rows[0] > 0:
            raise KeyboardInterrupt
        return answer(self, requests, rows)

    with monkeypatch.context() as stopped:
        stopped.setattr(RowAnswers, "answer", once)
        assert main(folder) == 130
    return folder / "out.jsonl.parts"


STATES = {
    "empty": b"",
    "cut": b"{",
    "binary": b"\xff\xfe\x00",
    "a list": b"[1]",
    "null": b"null",
    "a text": b'"job"',
    "deep": b"[" * 100_000,
    "nothing": b"{}",
}


@pytest.mark.parametrize("damage", STATES)
def test_damaged_state(damage, tmp_path, monkeypatch, capsys, wanted):
    folder = interrupted(tmp_path, monkeypatch)
    [part] = folder.glob("*.jsonl")
    good, answers = (folder / "job.json").read_bytes(), part.read_bytes()
    (folder / "job.json").write_bytes(STATES[damage])
    capsys.readouterr()
    assert main(tmp_path) == 2
    said = message(capsys)
    assert "cannot read" in said and "job.json" in said
    assert part.read_bytes() == answers, "finished rows are kept"
    (folder / "job.json").write_bytes(good)
    assert main(tmp_path) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == wanted


@pytest.mark.parametrize(
    "line",
    [b"\x00\xff\n", b"null\n", b"[0]\n", b"[1000, true, {}]\n", b"[-1, true, {}]\n", b'["0", 1, []]\n', b"[" * 10**5],
    ids=lambda line: repr(line[:8]),
)
def test_damaged_answers_are_answered_again(line, tmp_path, monkeypatch, wanted):
    folder = interrupted(tmp_path, monkeypatch)
    [part] = folder.glob("*.jsonl")
    first, *rest = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(line + b"".join(rest) + first[:20])
    assert main(tmp_path) == 0
    assert (tmp_path / "out.jsonl").read_bytes() == wanted
    assert len(lines(tmp_path / "out.jsonl")) == ROWS


@pytest.mark.parametrize("change", [lambda data: data.replace(b"row 1", b"row 9"), lambda data: data[:100]])
def test_an_input_that_changes_while_the_job_runs(change, tmp_path, monkeypatch, capsys):
    """Its columns would be copied beside answers to other rows."""
    answer = RowAnswers.answer

    def changing(self: RowAnswers, requests: Any, rows: Any) -> Any:
        (tmp_path / "rows.jsonl").write_bytes(change((tmp_path / "rows.jsonl").read_bytes()))
        return answer(self, requests, rows)

    monkeypatch.setattr(RowAnswers, "answer", changing)
    assert main(tmp_path) == 2
    assert "the content of --input has changed while the job ran" in message(capsys)
    assert not (tmp_path / "out.jsonl").exists()


def test_state_is_written_as_a_whole(tmp_path, monkeypatch):
    def fails(_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fails)
        assert main(tmp_path) == 1
    assert not (tmp_path / "out.jsonl.parts" / "job.json").exists()


GENERATE = [sys.executable, "-m", "hf_guided", "generate", "--model", "demo", "--device", "cpu", "--prompt", "x"]
GENERATE += ["--choice", "yes"]


@pytest.mark.slow
def test_stdout_on_a_full_disk():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(GENERATE, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "hf-guided: error: [Errno 28] No space left on device" in done.stderr


def test_stdout_that_nothing_reads(monkeypatch, capsys):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe, monkeypatch.context() as unread:
        unread.setattr(sys, "stdout", pipe)
        assert command(GENERATE[3:]) == 1
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_stdout_of_a_process_that_nothing_reads():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run(GENERATE, stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


# The batch answers nothing before the signal: it waits for the end of its stdin, which comes after it.
SAYS_BEGUN = {
    "batch": """
import sys
from hf_guided.generation.row_answers import RowAnswers as r
answer = r.answer
r.answer = lambda *a: (print("begun", flush=True), sys.stdin.read(), answer(*a))[2]
""",
    "generate": """
from hf_guided.session import session as s
begin = s.Session.begin
s.Session.begin = lambda *a: (print("begun", flush=True), begin(*a))[1]
""",
}


@pytest.mark.usefixtures("control_c")
@pytest.mark.parametrize("name", ["batch", pytest.param("generate", marks=pytest.mark.slow)])
def test_ctrl_c(name, tmp_path, wanted):
    asked = job(tmp_path, ROWS, **SHORT)
    if name == "generate":
        asked = ["--model", "demo", "--device", "cpu", "--prompt", "x", "--regex", "[a-z ]{200000}"]
        asked += ["--max-new-tokens", "1000000"]
    code = f"{SAYS_BEGUN[name]}import sys; from hf_guided.cli.commands import main; sys.exit(main(sys.argv[1:]))"
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code, name, *asked]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "Traceback" not in said and time.monotonic() - began < 20
    if name == "batch":
        assert "the same command continues the job" in said
        assert main(tmp_path) == 0
        assert (tmp_path / "out.jsonl").read_bytes() == wanted
