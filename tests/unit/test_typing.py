"""The types that mypy and pyright infer for the public calls: types of results, and existing keyword arguments."""

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


def marked_lines() -> set[int]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.slow
def test_mypy_infers_the_types_of_results_and_arguments() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install -e '.[dev]'")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(FILE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    errors = re.findall(r"^tests.typed_calls\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert {int(line) for line, _ in errors} == marked_lines(), done.stdout + done.stderr
    assert any('"bach_size"' in text and 'did you mean "batch_size"' in text for _, text in errors)


@pytest.mark.slow
def test_pyright_infers_the_same_types() -> None:
    program = shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed: pip install 'pyright[nodejs]'")
    command = [program, "--outputjson", "--pythonpath", sys.executable, str(FILE)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    errors = {item["range"]["start"]["line"] + 1 for item in diagnostics if item["severity"] == "error"}
    assert errors == marked_lines(), done.stdout
