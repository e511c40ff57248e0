"""``hf-guided demo``: the same prompts free and guided, side by side, with their outcomes."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pprint import pformat
from typing import Any

import jsonschema
import torch

from hf_guided.demo import SCHEMAS, Example, examples, load
from hf_guided.generation.api import generate
from hf_guided.guide import Guide
from hf_guided.session.result import GuidedResult

MAX_NEW_TOKENS = 160  # the longest record takes about half
BATCH_SIZE = 8
COLUMN = 56


@dataclass(frozen=True)
class Run:
    """One decoding method, over all prompts.

    Args:
        name: e.g. "greedy, free".
        results: one per prompt.
        seconds: for all of them.
    """

    name: str
    results: list[GuidedResult]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second, all rows together."""
        return sum(len(result.token_ids) for result in self.results) / self.seconds


def show(n: int = 24, *, seed: int = 0, temperature: float = 2.0) -> None:
    """Print the comparison.

    Args:
        n: how many held-out prompts, the kinds taking turns.
        seed: of the prompts and of the samples.
        temperature: of the samples; high enough for free text to break.
    """
    tasks = examples(n, seed=seed)
    model, tokenizer = load()
    start = time.perf_counter()
    guide = Guide(tokenizer, model)
    for schema in SCHEMAS.values():
        guide.compile(schema, budget=True)
    preparing = time.perf_counter() - start
    methods: dict[str, dict[str, Any]] = {
        "greedy": {"do_sample": False},
        f"temperature {temperature:g}": {"do_sample": True, "temperature": temperature, "top_k": 0},
    }
    for constraint in (None, tasks[0].schema):  # the first calls warm torch up
        generate(model, tokenizer, tasks[0].prompt, constraint, guide=guide)

    size = f"{model.num_parameters() / 1e6:.1f} M parameters"
    print(f"{n} held-out prompts in batches of {BATCH_SIZE}, a model of {size} on {model.device}")
    print(f"vocabulary read and {len(SCHEMAS)} schemas compiled in {1000 * preparing:.0f} ms\n")
    runs: list[Run] = []
    for method, sampling in methods.items():
        free, guided = (
            _run(f"{method}, {name}", model, tokenizer, tasks, constraints, guide, seed, sampling)
            for name, constraints in (("free", None), ("guided", [task.schema for task in tasks]))
        )
        runs += [free, guided]
        for i in _worth_showing(tasks, free):
            _print_pair(tasks[i], free, guided, i)
    print(_table(tasks, runs))
    print('"is right": all values are those of the prompt, which no format can make sure of')
    finished = next((result for result in runs[-1].results if result.finish_reason == "stop"), None)
    if finished is not None:
        print(f"\nand as a value, from the last run:\n{pformat(finished.value, sort_dicts=False)}")


def judge(text: str, schema: dict[str, Any]) -> str:
    """An independent verdict on a text: "valid", "parses" (as JSON, but breaks the schema) or "broken".

    Args:
        text: an answer.
        schema: the schema of the answers.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return "broken"
    checker = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
    return "valid" if checker.is_valid(value) else "parses"


def _run(
    name: str,
    model: Any,
    tokenizer: Any,
    tasks: Sequence[Example],
    constraints: list[dict[str, Any]] | None,
    guide: Guide,
    seed: int,
    sampling: dict[str, Any],
) -> Run:
    torch.manual_seed(seed)
    start = time.perf_counter()
    results = generate(
        model,
        tokenizer,
        [task.prompt for task in tasks],
        constraints,
        guide=guide,
        batch_size=BATCH_SIZE,
        progress=False,
        max_new_tokens=MAX_NEW_TOKENS,
        **sampling,
    )
    return Run(name, results, time.perf_counter() - start)


def _worth_showing(tasks: Sequence[Example], free: Run) -> list[int]:
    """One prompt of each kind, where there is one on which free text fails."""
    chosen: dict[str, int] = {}
    for i, (task, result) in enumerate(zip(tasks, free.results, strict=True)):
        if task.kind not in chosen or (
            judge(result.text, task.schema) != "valid"
            and judge(free.results[chosen[task.kind]].text, task.schema) == "valid"
        ):
            chosen[task.kind] = i
    return list(chosen.values())


def _print_pair(task: Example, free: Run, guided: Run, i: int) -> None:
    print(textwrap.fill(task.prompt.strip().replace("\n", " "), 2 * COLUMN + 3))
    columns = []
    for run in (free, guided):
        text = run.results[i].text
        lines = [f"{run.name}: {judge(text, task.schema)}", *textwrap.wrap(repr(text)[1:-1], COLUMN)]
        columns.append([line.ljust(COLUMN) for line in lines])
    height = max(map(len, columns))
    for column in columns:
        column += [" " * COLUMN] * (height - len(column))
    print("\n".join(f"  {left} | {right}".rstrip() for left, right in zip(*columns, strict=True)), end="\n\n")


def _table(tasks: Sequence[Example], runs: Sequence[Run]) -> str:
    lines = [f"{'':28}{'parses':>8}{'validates':>11}{'is right':>10}{'tokens/s':>10}"]
    for run in runs:
        verdicts = [judge(result.text, task.schema) for task, result in zip(tasks, run.results, strict=True)]
        right = [_is_right(task, result.text) for task, result in zip(tasks, run.results, strict=True)]
        counts = (sum(verdict != "broken" for verdict in verdicts), verdicts.count("valid"), sum(right))
        parses, validates, exact = (f"{100 * count / len(tasks):.0f} %" for count in counts)
        lines.append(f"{run.name:28}{parses:>8}{validates:>11}{exact:>10}{run.tokens_per_second:>10.0f}")
    return "\n".join(lines)


def _is_right(task: Example, text: str) -> bool:
    try:
        return bool(json.loads(text) == task.record)
    except ValueError:
        return False
