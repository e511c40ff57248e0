"""What does it cost, in CPU time, to import hf_guided and to call its command line for help?

Each sample is a fresh process, and the figure is the CPU time of all of it, the interpreter's own start included, which
stands in the first row. Bytecode is cached, as it is after any installation or first run, whatever
PYTHONDONTWRITEBYTECODE says here.

    python -m benchmarks.bench_import [--samples 9]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile

from benchmarks.common import finish, parser, table_of

CASES = {
    "python alone": ["-c", "pass"],
    "import hf_guided": ["-c", "import hf_guided"],
    "hf-guided --version": ["-m", "hf_guided", "--version"],
    "hf-guided --help": ["-m", "hf_guided", "--help"],
    "hf-guided batch --help": ["-m", "hf_guided", "batch", "--help"],
    "hf-guided serve --help": ["-m", "hf_guided", "serve", "--help"],
    "import torch, transformers": [
        "-c",
        "import torch; from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor",
    ],
    "import hf_guided; hf_guided.generate": ["-c", "import hf_guided; hf_guided.generate"],
}


def main() -> None:
    made = parser(__doc__, "import.csv")
    made.add_argument("--samples", type=int, default=9)
    arguments = made.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        for case, command in CASES.items():
            cpu_seconds(command, environment)  # writes the bytecode that the samples read
            seconds = sorted(cpu_seconds(command, environment) for _ in range(arguments.samples))
            figures = {"median_s": statistics.median(seconds), "fastest_s": seconds[0], "slowest_s": seconds[-1]}
            rows.append({"case": case} | {name: f"{value:.3f}" for name, value in figures.items()})
    finish(arguments, rows, table_of(rows))


def cpu_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    main()
