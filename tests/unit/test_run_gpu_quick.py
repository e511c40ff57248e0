"""The script that measures on a GPU: run on a CPU, and with a stand-in for the interpreter and its time limits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import data_folder
from tests.kernel_harness import ROOT

SCRIPT = ROOT / "benchmarks" / "run_gpu_quick.sh"
PARTS = {
    "first": ["setup", "doctor", "smoke", "tests", "apply"],
    "second": ["setup", "device", "record", "compiled", "profile", "continuous", "batching", "memcheck"],
}
FILES = {
    "first": {"report.md", "tests.txt", "apply.csv"},
    "second": {
        *(f"{name}.csv" for name in ("device", "record", "compiled", "continuous")),
        *("report.md", "trace.json.gz", "batching.txt", "memcheck.txt"),
    },
}
STAND_INS = {
    "python": """#!/bin/bash
case "$*" in *"$FAILS"*) exit 7 ;; esac
""",
    "timeout": """#!/bin/bash
echo "$2" >>"$LIMITS"
shift 2
exec "$@"
""",
    "compute-sanitizer": "#!/bin/bash\n",
    "cc": """#!/bin/bash
mkdir -p hf_guided/automaton && touch hf_guided/automaton/libcore.so.new
""",
}


def run(command: str, script: Path = SCRIPT, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    return subprocess.run([script, command], env=environment, capture_output=True, text=True, check=False)


def run_stand_ins(folder: Path, command: str, **variables: str) -> tuple[int, list[str], list[int]]:
    """A copy of the script, with stand-ins for programs: the exit status, the report, and the limits of the parts."""
    script, limits = folder / "benchmarks" / SCRIPT.name, folder / "limits"
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    for name, text in STAND_INS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    limits.write_text("")
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHON": "python", "CC": "cc", "DRY": "", "FAILS": "nothing"}
    given |= {"LIMITS": str(limits), "OUT": str(folder / "out"), "SITE": str(folder / "site")}
    done = run(command, script, **{**given, **variables})
    report = folder / "out" / "report.md"
    lines = report.read_text().splitlines() if report.exists() else []
    return done.returncode, lines, [int(line) for line in limits.read_text().split()]


@pytest.mark.parametrize("command", PARTS)
def test_a_command_runs_all_its_parts(tmp_path: Path, command: str) -> None:
    status, report, limits = run_stand_ins(tmp_path, command)
    assert status == 0
    assert [line.removeprefix("## ") for line in report if line.startswith("## ")] == PARTS[command]
    assert len(limits) == len(PARTS[command])


@pytest.mark.parametrize(("command", "fails"), [("first", "gpu_smoke"), ("second", "--constraint lines")])
def test_a_failing_part_stops_no_other(tmp_path: Path, command: str, fails: str) -> None:
    status, report, limits = run_stand_ins(tmp_path, command, FAILS=fails)
    assert status == 1
    assert len(limits) == len(PARTS[command])
    failed = [line.partition(":")[0] for line in report if "exit status 7" in line]
    assert failed == (["smoke"] if command == "first" else ["device", "compiled"])


@pytest.mark.parametrize(("seconds", "most"), [("60", 55), ("15", 0)])
def test_no_part_gets_more_than_what_is_left(tmp_path: Path, seconds: str, most: int) -> None:
    status, report, limits = run_stand_ins(tmp_path, "second", LIMIT=seconds)
    assert status == 0
    assert all(15 <= limit <= most for limit in limits)
    assert bool(limits) == bool(most) != any("skipped" in line for line in report)


def test_an_unknown_command_is_refused(tmp_path: Path) -> None:
    assert run_stand_ins(tmp_path, "everything") == (2, [], [])


@pytest.mark.slow
@pytest.mark.parametrize("command", PARTS)
def test_a_dry_run_leaves_its_files(tmp_path: Path, command: str) -> None:
    if not (data_folder() / "record12.json").exists():
        pytest.skip("needs record12.json")
    done = run(command, DRY="1", OUT=str(tmp_path), SITE=str(tmp_path / "site"))
    assert done.returncode == 0, done.stdout + done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert FILES[command] - {"memcheck.txt"} <= names <= FILES[command]
    assert all(path.stat().st_size for path in tmp_path.iterdir())


def test_no_command_leaves_more_than_eight_files() -> None:
    assert max(map(len, FILES.values())) <= 8


@pytest.mark.slow
def test_what_travels_is_small_enough(tmp_path: Path) -> None:
    """In a clone, because the folder of wheels is made anew."""
    if not (data_folder() / "record12.json").exists():
        pytest.skip("needs record12.json")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "clone")], check=True)
    script = tmp_path / "clone" / "benchmarks" / SCRIPT.name
    done = run("carry", script, HF_GUIDED_DATA=str(data_folder().resolve()))
    if "No matching distribution" in done.stderr or "ConnectionError" in done.stderr:
        pytest.skip("needs a package index that has the wheels")
    assert done.returncode == 0, done.stdout + done.stderr
    folder = script.parents[1] / ".whl"
    assert (folder / "record12.json").exists() and list(folder.glob("transformers-*.whl"))
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < int(done.stdout.split()[-4]) < 64 * 2**20
