"""How many Python functions of this package run for each token and row, and in how many of its files.

    python -m benchmarks.bench_frames [--list]

A count, so it does not depend on the machine: it shows detours that a timing on a fast machine hides. ``--list`` prints
which functions they are. Only functions on the calling thread count; with the companion,
the masks are filled on another. Rows go to benchmarks/results/frames.csv.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hf_guided as hg
from benchmarks.common import RESULTS, write_csv
from hf_guided import demo
from hf_guided.hf.decode.call import DecodeOptions

PACKAGE = str(Path(hg.__file__).parent) + os.sep
FEW, MANY = 8, 40  # tokens: the difference is what each further token costs


def frames(run: Callable[[int], Any], tokens: int) -> Counter[tuple[str, str]]:
    """Calls of functions of this package while ``run`` generates this number of tokens."""
    counted: Counter[tuple[str, str]] = Counter()

    def profile(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            name = getattr(frame.f_code, "co_qualname", frame.f_code.co_name)
            counted[frame.f_code.co_filename.removeprefix(PACKAGE), name] += 1

    sys.setprofile(profile)
    try:
        run(tokens)
    finally:
        sys.setprofile(None)
    return counted


def main() -> None:
    """Print a line for each seam."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the functions, most often called first")
    arguments = parser.parse_args()
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    constraint = hg.Regex("[a-z ]{200}")
    inputs = tokenizer("Write: ", return_tensors="pt")

    def generate(tokens: int, **kwargs: Any) -> None:
        model.generate(**inputs, do_sample=False, min_new_tokens=None, max_new_tokens=tokens, **kwargs)

    def processor(tokens: int) -> None:
        seam = guide.logits_processor(constraint, overlap=False)
        generate(tokens, logits_processor=[seam])

    def companion(tokens: int) -> None:
        seam = guide.logits_processor(constraint, overlap=True)
        generate(tokens, logits_processor=[seam], stopping_criteria=[seam.companion])

    def loop(tokens: int) -> None:
        session = guide.session(constraint, overlap=False)  # the text need not close within so few tokens
        generate(tokens, custom_generate=guide.decoder_of(session, DecodeOptions(closes=False)))

    rows = []
    for name, run in {"processor": processor, "with the companion": companion, "fast loop": loop}.items():
        for _ in range(3):
            run(MANY)  # until everything is compiled and every mask made
        few, many = frames(run, FEW), frames(run, MANY)
        each = {key: (many[key] - few[key]) / (MANY - FEW) for key in many if many[key] > few[key]}
        files = {file for file, _ in each}
        print(f"{name}: {sum(each.values()):.1f} calls a token, in {len(files)} files")
        rows.append({"seam": name, "calls": f"{sum(each.values()):.1f}", "files": len(files)})
        if arguments.list:
            for (file, function), count in sorted(each.items(), key=lambda item: -item[1]):
                print(f"  {count:5.1f}  {file}  {function}")
    write_csv(RESULTS / "frames.csv", rows)


if __name__ == "__main__":
    main()
