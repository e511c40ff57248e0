"""How long does a request wait before its first token, with a token budget and without?

    python -m benchmarks.bench_first_token

CPU time from a constraint that was never seen to its first mask, by ``Guide.compile`` with default options: with a
limit, as ``hg.generate`` compiles it, and without, as a processor does. The types and schemas of
``tests/budget_types.py``, over Tekken's 131,072 tokens. A guide that is new has compiled something else before every
run, and the pieces of automata that constraints share are thrown away. The least of several runs; a full garbage
collection goes before each, for one that falls into a run takes longer than it. "work" is what the limits of the native
engine count, all its compiles together: the same on every machine.
"""

from __future__ import annotations

import gc
import time
from itertools import product
from typing import Any

import hf_guided as hg
from benchmarks.common import finish, parser, table_of
from benchmarks.processes import quiet
from hf_guided.automaton import frame_exits, limits, nfa, rtn
from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.budget_types import LARGE, SCHEMAS
from tests.vocabularies import fast_tekken

TOKENS = 4096  # the limit: more than any of them needs


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


def measure(tokenizer: Any, schema: dict[str, Any], limit: int | None, runs: int, work: Work) -> dict[str, Any]:
    """A row of results, but for its name."""
    least = float("inf")
    for _ in range(runs):
        guide, constraint, budget = hg.Guide(tokenizer, len(tokenizer)), hg.JsonSchema(schema), limit is not None
        guide.compile(hg.JsonSchema({"type": "integer"}))
        bitmask = allocate_bitmask(1, guide.vocabulary.padded_size)
        for module, kept in ((nfa, "_kept_languages"), (rtn, "_kept_automata"), (frame_exits, "_known_ways")):
            setattr(module, kept, ByteCache(getattr(module, kept).max_bytes))
        work.meters.clear()
        gc.collect()
        began = time.process_time()
        compiled = guide.compile(constraint)
        matcher = compiled.matcher()
        needed = matcher.min_tokens_to_finish() if budget else None
        matcher.fill_next_token_bitmask(bitmask, tokens_left=limit)
        least = min(least, time.process_time() - began)
    assert needed is not None or not budget, "no way to the end was found, so no budget would be kept"
    assert bitmask.any()
    return {
        "limit": "none" if limit is None else limit,
        "engine": compiled.backend,
        "tokens_to_finish": "" if needed is None else needed,
        "work": work.steps,
        "cpu_ms": f"{1000 * least:.1f}",
    }


def main() -> None:
    made = parser(__doc__, "first_token.csv")
    made.add_argument("--runs", type=int, default=3)
    made.add_argument("--types", nargs="+", choices=[*SCHEMAS, *LARGE], help="only these")
    arguments = made.parse_args()
    quiet()
    tokenizer, work, rows = fast_tekken(), Work(), []
    for (name, schema), limit in product({**SCHEMAS, **LARGE}.items(), (TOKENS, None)):
        if arguments.types is None or name in arguments.types:
            rows.append({"type": name, **measure(tokenizer, schema, limit, arguments.runs, work)})
            print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    finish(arguments, rows, table_of(rows), whole=arguments.types is None)


if __name__ == "__main__":
    main()
