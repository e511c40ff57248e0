"""The script that measures on a GPU, with stand-ins for the interpreter, for ``timeout`` and for the sanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel_harness import ROOT

SCRIPT = ROOT / "benchmarks" / "run_gpu.sh"
PARTS = {
    "tests": ["environment", "tests", "project", "memcheck", "initcheck"],
    "rows": ["apply", "eager", "captured"],
    "compiled": ["compiled"],
    "continuous": ["continuous"],
}
PYTHON = """#!/bin/bash
case "$*" in *torch.cuda.is_available*) exit ${NO_GPU:-0} ;; esac
echo "ran $*"
case "$*" in *"$FAILS"*) exit 7 ;; esac
"""
TIMEOUT = """#!/bin/bash
echo "$2" >> "$LIMITS"
shift 2
exec "$@"
"""
SANITIZER = """#!/bin/bash
echo "sanitized $*"
"""


def run_script(
    folder: Path, *command: str, fails: str = "nothing", no_gpu: str = "0"
) -> tuple[int, list[str], list[int]]:
    """Return the exit status, the lines of the report so far, and the time limits of the parts that ran."""
    limits, out = folder / "limits", folder / "out"
    limits.write_text("")
    for name, text in {"python": PYTHON, "timeout": TIMEOUT, "compute-sanitizer": SANITIZER}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    variables = {"OUT": str(out), "PATH": path, "LIMITS": str(limits), "FAILS": fails, "NO_GPU": no_gpu}
    environment = {**os.environ, **variables, "PYTHON": "python"}
    done = subprocess.run([SCRIPT, *command], env=environment, capture_output=True, check=False)
    report = out / "gpu_report.md"
    lines = report.read_text().splitlines() if report.exists() else []
    return done.returncode, lines, [int(line) for line in limits.read_text().split()]


@pytest.mark.parametrize("command", PARTS)
def test_parts_of_a_command_fit_into_ten_minutes(tmp_path: Path, command: str) -> None:
    status, report, limits = run_script(tmp_path, command)
    assert status == 0
    assert [line.removeprefix("## ") for line in report if line.startswith("## ")] == PARTS[command]
    assert len(limits) == len(PARTS[command])
    assert sum(limits) <= 595


def test_commands_together_run_everything(tmp_path: Path) -> None:
    for command in PARTS:
        assert run_script(tmp_path, command)[0] == 0
    report = "\n".join(run_script(tmp_path, "compiled")[1])
    for part in ("hf_guided doctor", "pytest -q -m gpu", "benchmarks.bench_apply", "benchmarks.bench_device"):
        assert f"ran -m {part}" in report
    assert all(f"--form {form}" in report for form in ("eager", "captured", "compiled"))
    assert report.count("sanitized --tool") == 2


@pytest.mark.parametrize(
    ("command", "fails"),
    [("rows", "bench_apply"), ("tests", "--junit-xml"), ("tests", "-p no:cacheprovider tests/gpu/test_kernel_project")],
)
def test_failing_part_does_not_stop_the_others_and_is_run_again(tmp_path: Path, command: str, fails: str) -> None:
    status, report, limits = run_script(tmp_path, command, fails=fails)
    assert status == 7
    assert len(limits) == len(PARTS[command])
    assert sum("exit status 7" in line for line in report) == 1
    status, report, limits = run_script(tmp_path, command)
    assert (status, len(limits)) == (0, 1)
    assert run_script(tmp_path, command)[2] == []


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    status, report, limits = run_script(tmp_path, "rows", no_gpu="1")
    assert (status, limits) == (2, [])
    assert "no NVIDIA GPU" in report[-1]


@pytest.mark.parametrize("command", [(), ("everything",)])
def test_unknown_command_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    assert run_script(tmp_path, *command) == (2, [], [])
