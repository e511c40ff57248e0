"""How long does a request with tools wait for its first mask?

    python -m benchmarks.bench_tags [--sets N]

Sets of tools whose arguments are real schemas: objects of the sample of JSONSchemaBench (benchmarks/README.md), chosen
at random. For one number of tools no schema is used twice, and compilers are new. Milliseconds from the tools to the
first mask, over Tekken's 131,072 tokens. The answer is text, or calls as Qwen 3 writes them, each library through its
own front end. hf-guided compiles by ``Guide.compile`` with its default options: as a processor does, with a limit of
tokens as ``hg.generate`` does, and calls as Qwen 3 Coder writes them, with arguments as elements. The libraries take
turns in one process, which has compiled something before. "Refused" is what a library says that it cannot enforce.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import hf_guided as hg
from benchmarks.common import finish, parser, schema_rows, table_of
from benchmarks.processes import quiet
from benchmarks.schema_libraries import llguidance_tokenizer, xgrammar_compilers
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import fast_tekken

TOOL_COUNTS = (1, 4, 12)
LIMIT = 100_000
_BEGIN, _END = '<tool_call>\n{{"name": "{}", "arguments": ', "}\n</tool_call>"
Tools = Mapping[str, Any]  # the schema of each
FirstMask = Callable[[Tools], None]  # raises ValueError for what is refused


def hf_guided(tokenizer: Any, family: str, limit: int | None = None) -> FirstMask:
    guide = hg.Guide(len(tokenizer), tokenizer)
    bitmask = allocate_bitmask(1, guide.vocabulary.padded_size)

    def first_mask(tools: Tools) -> None:
        described = [{"type": "function", "function": {"name": name, "parameters": tools[name]}} for name in tools]
        compiled = guide.compile(hg.ToolCalls(described, family))
        compiled.matcher().fill_next_token_bitmask(bitmask, tokens_left=limit)

    return first_mask


def llguidance(vocabulary: Vocabulary) -> FirstMask:
    import llguidance

    tokenizer, bitmask = llguidance_tokenizer(llguidance, vocabulary), allocate_bitmask(1, vocabulary.padded_size)

    def first_mask(tools: Tools) -> None:
        tags = [
            llguidance.StructTag(trigger="<tool_call>", begin=_BEGIN.format(name), grammar=schema, end=_END)
            for name, schema in tools.items()
        ]
        grammar = llguidance.StructTag.to_grammar(tags, assume_special=False)
        matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        matcher.unsafe_compute_mask_ptr(bitmask.data_ptr(), bitmask.numel() * bitmask.element_size())

    return first_mask


def xgrammar(vocabulary: Vocabulary) -> FirstMask:
    import xgrammar

    compiler, bitmask = xgrammar_compilers(vocabulary)[0], allocate_bitmask(1, vocabulary.padded_size)

    def first_mask(tools: Tools) -> None:
        items = [
            xgrammar.StructuralTagItem(begin=_BEGIN.format(name), schema=json.dumps(schema), end=_END)
            for name, schema in tools.items()
        ]
        try:
            compiled = compiler.compile_structural_tag(items, ["<tool_call>"])
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        xgrammar.GrammarMatcher(compiled).fill_next_token_bitmask(bitmask)

    return first_mask


def measure(libraries: Mapping[str, FirstMask], sets: Sequence[Tools]) -> dict[str, list[float | None]]:
    """Milliseconds of each set; None where it is refused."""
    taken: dict[str, list[float | None]] = {name: [] for name in libraries}
    for turn, tools in enumerate(sets):
        for name in [*libraries][:: 1 if turn % 2 else -1]:  # so that none always comes first
            began = time.perf_counter()
            try:
                libraries[name](tools)
            except ValueError:
                taken[name].append(None)
            else:
                taken[name].append(1e3 * (time.perf_counter() - began))
    return taken


def row(name: str, number: int, taken: Sequence[float | None], ours: Sequence[float | None]) -> dict[str, Any]:
    """A row of results; the ratio is hf-guided's median divided by this library's, over the sets that both take."""
    ready = sorted(ms for ms in taken if ms is not None)
    both = [(mine, other) for mine, other in zip(ours, taken, strict=True) if mine is not None and other is not None]
    mine, other = (statistics.median(column) for column in zip(*both, strict=True))
    return {
        "library": name,
        "tools": number,
        "sets": len(taken),
        "refused": len(taken) - len(ready),
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
    quiet()
    tokenizer = fast_tekken()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    schemas = [row["schema"] for row in schema_rows() if isinstance(row["schema"], dict)]
    objects = [schema for schema in schemas if schema.get("type") == "object"]
    rows = []
    for number in TOOL_COUNTS:
        libraries = {
            "hf-guided": hf_guided(tokenizer, "qwen_3"),
            "hf-guided, with a limit": hf_guided(tokenizer, "qwen_3", LIMIT),
            "hf-guided, elements": hf_guided(tokenizer, "qwen_3_coder"),
            "llguidance": llguidance(vocabulary),
            "xgrammar": xgrammar(vocabulary),
        }
        measure(libraries, [{"warm": {"type": "object", "properties": {"up": {"type": "string"}}}}])
        chosen = random.Random(number).sample(objects, number * min(arguments.sets, len(objects) // number))
        names = [f"tool_{i}" for i in range(number)]
        sets = [dict(zip(names, chosen[i:], strict=False)) for i in range(0, len(chosen), number)]
        taken = measure(libraries, sets)
        rows += [row(name, number, taken[name], taken["hf-guided"]) for name in libraries]
    finish(arguments, rows, table(rows))


if __name__ == "__main__":
    main()
