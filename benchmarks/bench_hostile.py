"""How long do ordinary compiles, and steps of decoding, take beside hostile compiles?

    python -m benchmarks.bench_hostile [--seconds 20] [--hostile 4]

One guide compiles ordinary schemas, each with a name of its own so that nothing comes out of the cache: alone, and then
while other threads ask for hostile constraints without a pause. Likewise a matcher reads a text, a mask before each
token. Prints the times from the request to the result, those of a step for decoding.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import machine, markdown_table, origin, parser, percentiles
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import vocabularies
from tests.integration.hostile_constraints import periods

FIELDS = {
    "name": {"type": "string"},
    "age": {"type": "integer"},
    "tags": {"type": "array", "items": {"type": "string"}},
}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    made.add_argument("--hostile", type=int, default=4, help="threads that ask for hostile constraints")
    arguments = made.parse_args()
    tokenizer = vocabularies.demo()
    guide = hg.Guide(len(tokenizer), tokenizer)
    numbers = count()
    for _ in range(20):
        compile_ms(guide, next(numbers))  # warm up
    text = guide.compile({"type": "object", "properties": FIELDS})
    gc.freeze()  # the server does the same: a full garbage collection of all imported modules takes 0.3 s
    kinds = {"compiles": lambda: compile_ms(guide, next(numbers)), "steps": lambda: step_ms(guide, text)}
    rows = [measured(f"{kind}, alone", once, arguments.seconds) for kind, once in kinds.items()]
    stop = threading.Event()
    begun = threading.Barrier(arguments.hostile + 1)
    attackers = [threading.Thread(target=attack, args=(guide, i, begun, stop)) for i in range(arguments.hostile)]
    for attacker in attackers:
        attacker.start()
    begun.wait()
    beside = f"beside {arguments.hostile} hostile requests"
    rows += [measured(f"{kind}, {beside}", once, arguments.seconds) for kind, once in kinds.items()]
    stop.set()
    print(markdown_table(["what", "number", "p50 ms", "p90 ms", "p99 ms", "max ms"], rows))
    print(f"\n{machine([origin()])}")
    for attacker in attackers:
        attacker.join()


def compile_ms(guide: hg.Guide, number: int) -> float:
    schema = {"type": "object", "properties": {f"n{number}": {"type": "null"}, **FIELDS}}
    began = time.perf_counter()
    guide.compile(schema)
    return (time.perf_counter() - began) * 1e3


def step_ms(guide: hg.Guide, compiled: Any) -> float:
    """A step: what stands for a forward pass, a mask, and the next token of a text."""
    matcher, bitmask = compiled.matcher(), allocate_bitmask(1, guide.vocabulary.padded_size)
    ids = guide.vocabulary.encode_bytes(b'{"name": "a name", "age": 30, "tags": ["a", "b"]}')
    scores = torch.zeros(guide.vocabulary.padded_size)
    began = time.perf_counter()
    for token_id in ids:
        for _ in range(20):  # a small model: each operation gives up the interpreter for a moment
            scores.add_(1)
        matcher.fill_next_token_bitmask(bitmask)
        assert matcher.accept_token(token_id)
    return (time.perf_counter() - began) / len(ids) * 1e3


def measured(name: str, once: Callable[[], float], seconds: float) -> list[str]:
    end, times = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        times.append(once())
    return [name, str(len(times)), *(f"{value:.3f}" for value in percentiles(times, 50, 90, 99, 100))]


def attack(guide: hg.Guide, first: int, begun: threading.Barrier, stop: threading.Event) -> None:
    """Ask for one hostile constraint after the other."""
    begun.wait()
    for i in count(first * 1000):
        if stop.is_set():
            return
        hostile = [
            hg.Regex(f"{periods(7, 11, 13, 17, 19)}x{i}"),
            hg.Regex("(?:(?:(?:a{1,100}b?){1,100}c?){1,100}d?){1,100}" + f"x{i}"),
            hg.Grammar("start: T\nT: " + " & ".join(f"/(.{{{p}}})*x{i}/" for p in (7, 11, 13, 17, 19))),
        ]
        try:
            guide.compile(hostile[i % len(hostile)])
        except hg.HFGuidedError:
            pass


if __name__ == "__main__":
    main()
