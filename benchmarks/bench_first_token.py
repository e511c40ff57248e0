"""How long does a request with a token budget wait before its first token?

    python -m benchmarks.bench_first_token

CPU time from a constraint that was never seen to its first mask, with ``budget=True`` as ``hg.generate`` compiles it:
the types and schemas of ``tests/budget_types.py``, over Tekken's 131,072 tokens. Engines are imported and hold the
vocabulary already; compiled constraints and the pieces of automata that constraints share are thrown away before every
run. The least of several runs; a full garbage collection goes before each, for one that falls into a run takes longer
than it. "work" is what the limits of the native engine count, all its compiles together: the same on every machine.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import RESULTS, load_average, markdown_table, write_csv
from hf_guided.automaton import limits, nfa
from hf_guided.automaton.piece_cache import PieceCache
from hf_guided.backends import registry
from hf_guided.backends.base import Backend
from hf_guided.backends.compiler import Compiler
from hf_guided.constraints.values import JsonSchema
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary
from tests.budget_types import LARGE, SCHEMAS
from tests.vocabularies import tekken

TOKENS = 4096  # of the budget: more than any of them needs


class Work:
    """Collects the meters of all compiles."""

    def __init__(self) -> None:
        self.meters: list[limits.WorkMeter] = []
        begin = limits.WorkMeter.__init__

        def begun(meter: limits.WorkMeter, bounds: limits.CompileLimits | None = None) -> None:
            begin(meter, bounds)
            self.meters.append(meter)

        limits.WorkMeter.__init__ = begun  # type: ignore[method-assign]

    @property
    def steps(self) -> int:
        return sum(meter.work for meter in self.meters if not meter.is_part)


def measure(
    vocabulary: Vocabulary, backends: dict[str, Backend], schema: dict[str, Any], runs: int, work: Work
) -> dict[str, Any]:
    """A row of results, but for its name."""
    bitmask = allocate_bitmask(1, vocabulary.padded_size)
    least = float("inf")
    for _ in range(runs):
        compiler, constraint = Compiler(vocabulary, backends=backends), JsonSchema(schema)
        nfa._kept = PieceCache()
        work.meters.clear()
        gc.collect()
        began = time.process_time()
        compiled = compiler.compile(constraint, budget=True)
        matcher = compiled.matcher()
        needed = matcher.min_tokens_to_finish()
        matcher.fill_next_token_bitmask(bitmask, tokens_left=TOKENS)
        least = min(least, time.process_time() - began)
    assert needed is not None, "no way to the end was found, so no budget would be kept"
    assert bitmask.any()
    return {
        "engine": compiled.backend,
        "tokens_to_finish": needed,
        "work": work.steps,
        "cpu_ms": f"{1000 * least:.0f}",
        "load": load_average(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=RESULTS / "first_token.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    vocabulary = Vocabulary.from_tokenizer(tekken())
    backends = {name: registry.create(name, vocabulary) for name in ("automaton", "llguidance", "xgrammar")}
    work = Work()
    measure(vocabulary, backends, {"type": "integer"}, 1, work)  # what is imported late is not a type's cost
    rows = []
    for name, schema in {**SCHEMAS, **LARGE}.items():
        rows.append({"type": name, **measure(vocabulary, backends, schema, arguments.runs, work)})
        print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    write_csv(arguments.csv, rows)
    print(markdown_table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))


if __name__ == "__main__":
    main()
