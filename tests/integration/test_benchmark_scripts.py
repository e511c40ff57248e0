"""Every benchmark that no other test calls still runs: a part of each, as short as it can be, writes rows."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import data_folder

ROOT = Path(__file__).parents[2]
SHORT = {
    "bench_describe": ["--limit", "2", "--vocabulary", "demo"],
    "bench_differential": ["--limit", "2", "--rounds", "1"],
    "bench_first_use": ["--only", "enum", "--samples", "1"],
    "bench_frames": [],
    "bench_import": ["--samples", "1"],
    "bench_log_mass": ["--shape", "tiny", "--batch", "1", "--runs", "1"],
    "bench_regexes": ["--only", "iso date"],
    "bench_schemas": ["--limit", "2", "--library", "hf-guided"],
    "bench_serve": ["--clients", "2", "--requests", "4", "--runs", "1"],
    "bench_serve_engines": ["--clients", "2", "--requests", "4", "--runs", "1"],
    "bench_soundness": ["--limit", "2", "--rounds", "1", "--vocabulary", "demo"],
    "bench_step": [".", ".", "--batch", "1", "--seam", "rows", "--replays", "1", "--rounds", "1"],
    "bench_tags": ["--sets", "2"],
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not data_folder().exists(), reason="the folder of public data is not there; set HF_GUIDED_DATA"),
]


@pytest.mark.parametrize("name", SHORT)
def test_a_short_run_writes_rows(name: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    command = [sys.executable, "-m", f"benchmarks.{name}", *SHORT[name], "--csv", rows]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| --- |" in done.stdout
    with rows.open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file))
