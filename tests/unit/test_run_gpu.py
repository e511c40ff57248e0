"""The script of all GPU rows, with stand-ins for the interpreter, for ``timeout`` and for the sanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel_harness import ROOT

SCRIPT = ROOT / "benchmarks" / "run_gpu.sh"
PARTS = 6
BESIDE = 85, 85  # seconds: xgrammar's kernel and the kernel project are compiled and tested beside the tests
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


def run(folder: Path, fails: str = "nothing", no_gpu: str = "0") -> tuple[int, str, list[int]]:
    """Exit status, report, and the parts' time limits."""
    limits, out = folder / "limits", folder / "out"
    for name, text in {"python": PYTHON, "timeout": TIMEOUT, "compute-sanitizer": SANITIZER}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    asked = {"OUT": str(out), "PATH": path, "LIMITS": str(limits), "FAILS": fails, "NO_GPU": no_gpu}
    done = subprocess.run([SCRIPT], env={**os.environ, **asked, "PYTHON": "python"}, capture_output=True, check=False)
    found = [int(line) for line in limits.read_text().split()] if limits.exists() else []
    return done.returncode, (out / "gpu_report.md").read_text(), found


def test_all_parts_fit_into_eight_minutes(tmp_path: Path) -> None:
    status, report, limits = run(tmp_path)
    assert status == 0
    assert len(limits) == PARTS + len(BESIDE)
    assert limits.count(BESIDE[0]) == 1 + len(BESIDE)  # beside the tests, and no longer than those
    assert sum(limits) - sum(BESIDE) <= 475
    for part in ("hf_guided doctor", "pytest -q -m gpu", "benchmarks.bench_apply", "benchmarks.bench_device"):
        assert f"ran -m {part}" in report
    assert report.count("sanitized --tool") == 2
    assert report.count("exit status 0") == PARTS + 1


@pytest.mark.parametrize("fails", ["bench_apply", "--junit-xml", "-p no:cacheprovider tests/gpu/test_kernel_project"])
def test_a_part_that_fails_stops_no_other_and_shows(tmp_path: Path, fails: str) -> None:
    status, report, limits = run(tmp_path, fails)
    assert status == 7
    assert len(limits) == PARTS + len(BESIDE)
    assert report.count("exit status 7") == 1
    assert report.count("exit status 0") == PARTS


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    status, report, limits = run(tmp_path, no_gpu="1")
    assert (status, limits) == (2, [])
    assert "no NVIDIA GPU" in report
