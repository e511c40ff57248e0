"""The compiled loops, built for a test under gcc's sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hf_guided.automaton.core import LIBRARY

ROOT = Path(__file__).parents[1]
SOURCES = LIBRARY.with_name("c")
_STRICT = ["-g", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
_INSTEAD = """
import sys
from pathlib import Path
from hf_guided.automaton.core import CORE
CORE.__init__(Path(sys.argv[1]))
"""


def run_under_sanitizers(folder: Path, code: str, *arguments: str) -> str:
    """What Python code prints, in a process in which gcc's sanitizers watch the library, its first argument."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc")
    library = folder / "sanitized.so"
    files = sorted(SOURCES.glob("*.c"))
    built = subprocess.run([compiler, *_STRICT, "-shared", "-fPIC", "-o", library, *files], capture_output=True)
    if b"cannot find" in built.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert not built.returncode, built.stderr
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    environment = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _INSTEAD + code, library, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not ran.returncode, ran.stderr[-3000:]
    return ran.stdout
