"""What mypy and pyright read of the public calls: the type of every result, and keyword arguments that are real."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "typed_calls.py"


def marked() -> set[int]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.slow
def test_mypy_reads_the_types_of_results_and_of_arguments() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install -e '.[dev]'")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(FILE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    found = re.findall(r"^tests.typed_calls\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert {int(line) for line, _ in found} == marked(), done.stdout + done.stderr
    assert any('"bach_size"' in text and 'did you mean "batch_size"' in text for _, text in found)


@pytest.mark.slow
def test_pyright_reads_the_same() -> None:
    program = shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed: pip install 'pyright[nodejs]'")
    command = [program, "--outputjson", "--pythonpath", sys.executable, str(FILE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert errors == marked(), done.stdout
