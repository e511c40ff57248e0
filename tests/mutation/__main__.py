"""Changes the code in small ways, and looks whether a test fails: ``python -m tests.mutation ROOM...``.

A *mutant* is a copy of the package with one small change. It is *killed* if a test of the default run fails. Otherwise
it *survives*: a test is missing, or the change makes no difference. The mutants are a sample, drawn with a seed, of all
changes of a room, which is a folder of the package. For each mutant those tests run that run the changed line, the most
direct ones first, within a budget of seconds; ``make coverage`` records which ones they are. A run that does not end is
reported apart, as ``timeout``, with the stacks of its threads.

``results.csv`` has the outcomes of all rooms. The exit status is 1 if of a room less than ``ENOUGH`` are killed.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from .covering import Covering
from .isolated import IsolatedTree
from .mutants import Mutant, changes

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).with_name("results.csv")
ENOUGH = 0.85
KILLED = ("failed", "crashed")
Results = dict[tuple[str, str, str], dict[str, str]]  # of each mutant's name


def room_of(file: str) -> str:
    return file.split("/")[1]


def sample(room: str, number: int, seed: int) -> list[Mutant]:
    """So many mutants of a room, in the order of files and lines."""
    files = sorted((ROOT / "hf_guided" / room).rglob("*.py"))
    proposed = [change for file in files for change in changes(str(file.relative_to(ROOT)), ROOT)]
    random.Random(seed).shuffle(proposed)
    drawn: dict[str, Mutant] = {}
    while proposed and len(drawn) < number:
        mutant = proposed.pop().mutant()
        if mutant is not None:
            drawn[mutant.source] = mutant
    return sorted(drawn.values())


def judge(mutants: list[Mutant], first: list[str], budget: float, folder: Path, results: Results) -> None:
    """Run the tests of every mutant, and write the outcome after each."""
    covering = Covering(ROOT)
    tests = {mutant: covering.tests_of(mutant.file, mutant.line, budget) for mutant in mutants}
    tree = IsolatedTree(ROOT, folder)
    chosen = [*first, *dict.fromkeys(test for each in tests.values() for test in each)]
    print(f"{len(mutants)} mutants, {len(chosen)} tests", flush=True)
    tree.preload(chosen)
    seconds = tree.passing(chosen)
    print(f"{len(seconds)} tests pass without a mutant, in {sum(seconds.values()):.0f} s", flush=True)
    added = [test for test in seconds if any(test.startswith(name) for name in first)]
    for number, mutant in enumerate(mutants, 1):
        these = list(dict.fromkeys([*added, *(test for test in tests[mutant] if test in seconds)]))
        outcome, by = "no test", ""
        if these:
            with tree.changed(mutant.file, mutant.source):
                run = tree.run(these, limit=60 + 5 * sum(seconds[test] for test in these))
            outcome, by = run.outcome, run.test
            if outcome == "timeout":
                print(run.output[-5000:])
        print(f"{number:3} {outcome:8} {mutant.file}:{mutant.line}  {mutant.old}  ->  {mutant.new}  {by}", flush=True)
        results[mutant.name] = {
            "file": mutant.file,
            "line": str(mutant.line),
            "old": mutant.old,
            "new": mutant.new,
            "outcome": outcome,
            "test": by,
        }
        write(results)


def read() -> Results:
    """The results of earlier runs."""
    if not RESULTS.exists():
        return {}
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return {(row["file"], row["old"], row["new"]): row for row in csv.DictReader(file)}


def write(results: Results) -> None:
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("file", "line", "old", "new", "outcome", "test"), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(results.values(), key=lambda row: (row["file"], int(row["line"]))))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="+", metavar="ROOM", help="folders of the package, as automaton")
    parser.add_argument("--sample", type=int, default=100, help="how many mutants of each room (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: %(default)s)")
    parser.add_argument(
        "--budget", type=float, default=60, help="seconds of tests for each mutant (default: %(default)s)"
    )
    parser.add_argument("--again", action="store_true", help="only those that were not killed in the last run")
    parser.add_argument("--first", nargs="*", default=[], metavar="TEST", help="tests that all mutants run first")
    arguments = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        parser.error("set OMP_NUM_THREADS=1: with more threads no child can be forked")
    mutants = [mutant for room in arguments.rooms for mutant in sample(room, arguments.sample, arguments.seed)]
    before = read()
    results = {name: row for name, row in before.items() if room_of(row["file"]) not in arguments.rooms}
    if arguments.again:
        results |= {mutant.name: before[mutant.name] for mutant in mutants if mutant.name in before}
    left = [mutant for mutant in mutants if results.get(mutant.name, {}).get("outcome") not in KILLED]
    with tempfile.TemporaryDirectory() as folder:
        judge(left, arguments.first, arguments.budget, Path(folder), results)
    outcomes: dict[str, list[str]] = defaultdict(list)
    for row in results.values():
        outcomes[room_of(row["file"])].append(row["outcome"])
    shares = {room: sum(map(found.count, KILLED)) / len(found) for room, found in outcomes.items()}
    for room, share in shares.items():
        print(f"{room}: {share:.0%} of {len(outcomes[room])} killed")
    return 1 if any(shares[room] < ENOUGH for room in arguments.rooms) else 0


if __name__ == "__main__":
    sys.exit(main())
