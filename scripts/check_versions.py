"""Runs the integration tests with other versions of Python and transformers, each in an environment of its own.

    python scripts/check_versions.py --python python3.10 --python python3.13 --transformers oldest --transformers newest

Every Python runs with every transformers. Environments stay in --directory, so that a second run installs little. What
each run printed is kept beside its environment; the exit status is 1 if a test failed anywhere.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import requires, version
from itertools import product
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/integration",)


def pinned(package: str, wanted: str) -> str:
    """A requirement of one version; "oldest" and "newest" are the bounds of the project's own requirement."""
    own = next(one for one in map(Requirement, requires("hf-guided") or ()) if one.name == package)
    if wanted == "newest":
        return str(own)
    if wanted == "oldest":
        wanted = next(bound.version for bound in own.specifier if bound.operator == ">=") + ".*"
    return f"{package}=={wanted}"


def environment(directory: Path, python: str, transformers: str, torch: str) -> Path:
    """The interpreter of an environment with these versions."""
    named = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout
    home = directory / f"{'-'.join(named.lower().split())}-transformers-{transformers}-torch-{torch}"
    interpreter = home / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", home], check=True)
    install = [interpreter, "-m", "pip", "install", "-q", "-U", pinned("torch", torch)]
    subprocess.run(install, check=True)  # before the rest, which would take any torch
    # The server needs a newer transformers than the rest, and that one a newer Python.
    server = transformers == "newest" and tuple(map(int, re.findall(r"\d+", named)[:2])) >= (3, 11)
    extras = "serve,test" if server else "test"
    subprocess.run([*install, pinned("transformers", transformers), "-e", f"{ROOT}[{extras}]"], check=True)
    return interpreter


def versions_in(interpreter: Path) -> str:
    """What an environment really has."""
    code = (
        "import platform, torch, transformers as t; "
        "print(f'Python {platform.python_version()}, transformers {t.__version__}, torch {torch.__version__}')"
    )
    return subprocess.run([interpreter, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Run the tests everywhere; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="name or path of an interpreter (default: this one)")
    parser.add_argument("--transformers", action="append", help="a version, oldest or newest (default: both)")
    parser.add_argument("--torch", default=version("torch").partition("+")[0], help="a version, oldest or newest")
    parser.add_argument("--directory", type=Path, default=ROOT / ".versions")
    parser.add_argument("tests", nargs="*", default=TESTS, help="files, folders, options of pytest")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    failed = False
    for python, transformers in product(
        arguments.python or [sys.executable], arguments.transformers or ["oldest", "newest"]
    ):
        interpreter = environment(directory, python, transformers, arguments.torch)
        log = interpreter.parents[1] / "tests.log"
        command = [interpreter, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-rfE", *arguments.tests]
        with log.open("w", encoding="utf-8") as file:
            done = subprocess.run(
                command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )
        failed |= done.returncode != 0
        closing = [
            line for line in log.read_text("utf-8").splitlines() if re.match(r"FAILED|ERROR|\d+ \w+.* in ", line)
        ]
        print(
            f"{versions_in(interpreter)}: {'failed' if done.returncode else 'passed'}; {log}",
            *closing,
            sep="\n  ",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
