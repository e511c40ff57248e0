"""How long do ordinary compiles take beside hostile ones?

    python -m benchmarks.bench_hostile [--seconds 20] [--hostile 4]

One guide compiles ordinary schemas, each with a name of its own so that nothing comes out of the cache: alone, and then
while other threads ask for hostile constraints without a pause. Prints the times from the request to the result.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from itertools import count

import hf_guided as hg
from benchmarks.common import hardware, load_average, markdown_table
from tests import vocabularies
from tests.integration.hostile_constraints import periods

FIELDS = {
    "name": {"type": "string"},
    "age": {"type": "integer"},
    "tags": {"type": "array", "items": {"type": "string"}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--hostile", type=int, default=4, help="threads that ask for hostile constraints")
    arguments = parser.parse_args()
    tokenizer = vocabularies.demo()
    guide = hg.Guide(tokenizer, len(tokenizer))
    numbers = count()
    for _ in range(20):
        compile_ms(guide, next(numbers))  # warm up
    rows = [measured("alone", guide, numbers, arguments.seconds)]
    stop = threading.Event()
    begun = threading.Barrier(arguments.hostile + 1)
    attackers = [threading.Thread(target=attack, args=(guide, i, begun, stop)) for i in range(arguments.hostile)]
    for attacker in attackers:
        attacker.start()
    begun.wait()
    rows.append(measured(f"beside {arguments.hostile} hostile requests", guide, numbers, arguments.seconds))
    stop.set()
    print(f"{hardware()}, load {load_average()}")
    print(markdown_table(["compiles", "number", "p50 ms", "p90 ms", "p99 ms", "max ms"], rows))
    for attacker in attackers:
        attacker.join()


def compile_ms(guide: hg.Guide, number: int) -> float:
    schema = {"type": "object", "properties": {f"n{number}": {"type": "null"}, **FIELDS}}
    began = time.perf_counter()
    guide.compile(schema)
    return (time.perf_counter() - began) * 1e3


def measured(name: str, guide: hg.Guide, numbers: count[int], seconds: float) -> list[str]:
    end, times = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        times.append(compile_ms(guide, next(numbers)))
    cuts = statistics.quantiles(times, n=100)
    return [name, str(len(times)), *(f"{value:.1f}" for value in (cuts[49], cuts[89], cuts[98], max(times)))]


def attack(guide: hg.Guide, first: int, begun: threading.Barrier, stop: threading.Event) -> None:
    """Ask for one hostile constraint after the other."""
    begun.wait()
    for i in count(first * 1000):
        if stop.is_set():
            return
        hostile = [
            hg.Regex(f"{periods(7, 11, 13, 17, 19)}x{i}"),
            hg.JsonSchema({"enum": [f"{i} {j}" for j in range(100_000)]}),
            hg.Grammar(
                "root ::= r0\n" + "".join(f'r{j} ::= "{i}" | r{j + 1}\n' for j in range(20_000)) + 'r20000 ::= "y"'
            ),
        ]
        try:
            guide.compile(hostile[i % len(hostile)])
        except hg.HFGuidedError:
            pass


if __name__ == "__main__":
    main()
