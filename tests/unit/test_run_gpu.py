"""The script that measures on a GPU, with stand-ins for the interpreter, for ``timeout`` and for the sanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kernel_harness import ROOT

SCRIPT = ROOT / "benchmarks" / "run_gpu.sh"
PARTS = 6
PARALLEL_LIMITS = (
    85,
    85,
)  # seconds: xgrammar's kernel and the kernel project are compiled and tested in parallel with the tests
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


def run_script(folder: Path, fails: str = "nothing", no_gpu: str = "0") -> tuple[int, str, list[int]]:
    """Return the exit status, the report, and the time limits of the parts."""
    limits, out = folder / "limits", folder / "out"
    for name, text in {"python": PYTHON, "timeout": TIMEOUT, "compute-sanitizer": SANITIZER}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    variables = {"OUT": str(out), "PATH": path, "LIMITS": str(limits), "FAILS": fails, "NO_GPU": no_gpu}
    done = subprocess.run(
        [SCRIPT], env={**os.environ, **variables, "PYTHON": "python"}, capture_output=True, check=False
    )
    limits_of_parts = [int(line) for line in limits.read_text().split()] if limits.exists() else []
    return done.returncode, (out / "gpu_report.md").read_text(), limits_of_parts


def test_all_parts_fit_into_eight_minutes(tmp_path: Path) -> None:
    status, report, limits = run_script(tmp_path)
    assert status == 0
    assert len(limits) == PARTS + len(PARALLEL_LIMITS)
    assert limits.count(PARALLEL_LIMITS[0]) == 1 + len(PARALLEL_LIMITS)  # parallel to the tests, with the same limit
    assert sum(limits) - sum(PARALLEL_LIMITS) <= 475
    for part in ("hf_guided doctor", "pytest -q -m gpu", "benchmarks.bench_apply", "benchmarks.bench_device"):
        assert f"ran -m {part}" in report
    assert report.count("sanitized --tool") == 2
    assert report.count("exit status 0") == PARTS + 1


@pytest.mark.parametrize("fails", ["bench_apply", "--junit-xml", "-p no:cacheprovider tests/gpu/test_kernel_project"])
def test_failing_part_is_reported_and_the_others_run(tmp_path: Path, fails: str) -> None:
    status, report, limits = run_script(tmp_path, fails)
    assert status == 7
    assert len(limits) == PARTS + len(PARALLEL_LIMITS)
    assert report.count("exit status 7") == 1
    assert report.count("exit status 0") == PARTS


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    status, report, limits = run_script(tmp_path, no_gpu="1")
    assert (status, limits) == (2, [])
    assert "no NVIDIA GPU" in report
