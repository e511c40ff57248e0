"""How long does a request with tools wait for its first mask?

    python -m benchmarks.bench_tags [--sets N]

Sets of tools whose arguments are real schemas: objects of the sample of JSONSchemaBench (benchmarks/README.md), chosen
at random. For one number of tools no schema is used twice, and compilers are new. Milliseconds from the tools to the
first mask, over Tekken's 131,072 tokens. The answer is text, or calls as Qwen 3 writes them, each library through its
own front end. hf-guided compiles by ``Guide.compile`` with its default options: as a processor does, with a limit of
tokens as ``hg.generate`` does, and calls as Qwen 3 Coder writes them, with arguments as elements. The processes and
their turns are those of bench_schemas.py. "Refused" is what a library says that it cannot enforce.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.bench_schemas import Judged, Sample, in_turns
from benchmarks.common import finish, parser, schema_rows, table_of
from benchmarks.schema_libraries import OF_TOOLS, TOOL_LIBRARIES, HFGuidedTools

TOOL_COUNTS = (1, 4, 12)


def row(name: str, number: int, judged: Sequence[Judged], ours: Sequence[Judged]) -> dict[str, Any]:
    """A row of results; the ratio is hf-guided's median divided by this library's, over the sets that both take."""
    ready = sorted(one.verdict.ready_ms for one in judged if one.compiled)
    both = [(mine, one) for mine, one in zip(ours, judged, strict=True) if mine.compiled and one.compiled]
    mine, other = (statistics.median(one.verdict.ready_ms for one in column) for column in zip(*both, strict=True))
    return {
        "library": name.removesuffix(OF_TOOLS),
        "tools": number,
        "sets": len(judged),
        "refused": len(judged) - len(ready),
        "ready_p50_ms": f"{statistics.median(ready):.1f}",
        "ready_p90_ms": f"{ready[int(0.9 * len(ready))]:.1f}",
        "slowest_ms": f"{ready[-1]:.0f}",
        "ratio": f"{mine / other:.2f}",
    }


table = partial(table_of, columns=("tools", "library", "ready_p50_ms", "ready_p90_ms", "slowest_ms", "refused", "sets"))


def main() -> None:
    made = parser(__doc__, "tags.csv")
    made.add_argument("--sets", type=int, default=40)
    arguments = made.parse_args()
    schemas = [row["schema"] for row in schema_rows() if isinstance(row["schema"], dict)]
    objects = [schema for schema in schemas if schema.get("type") == "object"]
    rows = []
    for number in TOOL_COUNTS:
        chosen = random.Random(number).sample(objects, number * min(arguments.sets, len(objects) // number))
        names = [f"tool_{i}" for i in range(number)]
        sets = [dict(zip(names, chosen[i:], strict=False)) for i in range(0, len(chosen), number)]
        judged = in_turns([Sample("", tools, ()) for tools in sets], list(TOOL_LIBRARIES))
        rows += [row(name, number, judged[name], judged[HFGuidedTools.name]) for name in judged]
    finish(arguments, rows, table(rows))


if __name__ == "__main__":
    main()
