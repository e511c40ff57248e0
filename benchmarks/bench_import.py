"""How long does ``import hf_guided`` take beyond torch and transformers?

Each sample is a fresh process that first imports what every user of transformers imports (torch, and from transformers
the auto classes and LogitsProcessor; transformers itself is lazy), then times ``import hf_guided``. Bytecode is
cached, as it is after any installation or first run, whatever PYTHONDONTWRITEBYTECODE says here.

    python benchmarks/bench_import.py [--samples 15]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

SAMPLE = """
import time
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor
start = time.perf_counter()
import hf_guided
print(1000 * (time.perf_counter() - start))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=15)
    samples = parser.parse_args().samples
    with tempfile.TemporaryDirectory() as cache:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        sample(environment)  # writes the bytecode that later samples read
        times = sorted(sample(environment) for _ in range(samples))
    print(
        f"import hf_guided: median {statistics.median(times):.1f} ms, fastest {times[0]:.1f} ms, "
        f"slowest {times[-1]:.1f} ms of {samples} processes"
    )


def sample(environment: dict[str, str]) -> float:
    done = subprocess.run([sys.executable, "-c", SAMPLE], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


if __name__ == "__main__":
    main()
