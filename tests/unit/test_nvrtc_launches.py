"""Launches by cuda-core itself, with a driver that launches nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel_harness import ROOT
from tests.stand_in_driver import build


def test_launches_reach_the_driver_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("cuda.core", reason="needs cuda-core, of the extra cuda")
    build(tmp_path)
    command = [sys.executable, "-W", "error", "-m", "tests.stand_in_driver"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "61 launches\n"
