"""``hf-guided demo``: the same prompts free and guided, side by side: what comes out, and how fast."""

from __future__ import annotations

import json
import statistics
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pprint import pformat
from typing import Any, NamedTuple

import jsonschema
import torch
from pydantic import BaseModel

from ..demo import Example, examples, load
from ..generation.api import generate
from ..guide import Guide
from ..session.result import GuidedResult

MAX_NEW_TOKENS = 160  # the longest record takes about half
BATCH_SIZE = 16
ROUNDS = 3  # free and guided take turns, so that a busy moment of the machine does not hit one side alone
COLUMN = 56
_CONTACT = {"email": "email", "full_name": "name", "age": "age"}  # fields of Contact, and of a person's record


class Contact(BaseModel):
    """A class that the model was not trained on: its keys, their choice and their order are new."""

    email: str
    full_name: str
    age: int


class Case(NamedTuple):
    """A comparison of free and guided text."""

    name: str  # e.g. "greedy"
    meaning: str  # what it shows, in one paragraph
    tasks: Sequence[Example]  # prompts with the schema of their answers and the right answers
    constraints: Sequence[Any]  # one for each task; the free side has none
    sampling: dict[str, Any]  # how both sides choose tokens: arguments of ``generate``


@dataclass
class Run:
    """A side of a case."""

    name: str  # "free" or "guided"
    constraints: Sequence[Any]  # one for each task
    results: list[GuidedResult] = field(default_factory=list)  # results of the first round
    seconds: list[float] = field(default_factory=list)  # one number for each round
    verdicts: list[str] = field(default_factory=list)  # verdicts on the results, see ``judge``


def show(n: int = 16, *, seed: int = 0, temperature: float = 1.0) -> None:
    """Print the comparison of ``n`` held-out prompts a case; ``seed`` is of the prompts, and of the samples."""
    model, tokenizer = load()
    guide = Guide(model, tokenizer)
    cases = _cases(n, seed, temperature)
    start = time.perf_counter()
    for case in cases:
        for constraint in case.constraints:
            guide.compile(constraint)
    preparing = time.perf_counter() - start
    size = f"{model.num_parameters() / 1e6:.1f} M parameters"
    print(f"{n} prompts a case in batches of {BATCH_SIZE}, a model of {size} on {model.device}")
    print(f"vocabulary read and all formats compiled in {1000 * preparing:.0f} ms\n")
    table = [f"{'':28}{'parses':>8}{'validates':>11}{'is right':>10}{'tokens/s':>10}{'passes/token':>14}"]
    last_answers: list[GuidedResult] = []
    for case in cases:
        free, guided = _compare(case, model, tokenizer, guide, seed)
        print(textwrap.fill(f"{case.name}: {case.meaning}", 2 * COLUMN + 3), end="\n\n")
        _print_pair(case, free, guided)
        table += [_line(case, free), _line(case, guided)]
        last_answers = guided.results
    print("\n".join(table))
    print(
        f"""
parses        the text is JSON
validates     the JSON has the keys and the types that were asked for
is right      all values are those of the prompt, which no format can make sure of
tokens/s      generated tokens per second, all rows of a batch together: the median of {ROUNDS} rounds, after a warm-up
passes/token  forward passes of the model for each token of a row;
              a token that the format forces, or a confirmed guess, needs none"""
    )
    finished = next((result for result in last_answers if result.finish_reason == "stop"), None)
    if finished is not None:
        print(f"\nand as a value, from the last case:\n{pformat(finished.value, sort_dicts=False)}")


def judge(text: str, schema: dict[str, Any]) -> str:
    """An independent verdict on an answer: "valid", "parses" (as JSON, but breaks the schema) or "broken"."""
    try:
        value = json.loads(text)
    except ValueError:
        return "broken"
    checker = jsonschema.validators.validator_for(schema)(schema, format_checker=jsonschema.FormatChecker())
    return "valid" if checker.is_valid(value) else "parses"


def _cases(n: int, seed: int, temperature: float) -> list[Case]:
    known = examples(n, seed=seed)
    schemas = [task.schema for task in known]
    people = [task for task in examples(3 * n, seed=seed) if task.kind == "person"]
    contacts = [
        Example(
            "person", task.prompt, {to: task.record[of] for to, of in _CONTACT.items()}, Contact.model_json_schema()
        )
        for task in people
    ]
    greedy = {"do_sample": False}
    return [
        Case(
            "greedy",
            "records that the model was trained to write, so free text is mostly right too",
            known,
            schemas,
            greedy,
        ),
        Case(
            f"temperature {temperature:g}",
            "the same records, sampled: free text can break, guided text cannot",
            known,
            schemas,
            {"do_sample": True, "temperature": temperature, "top_k": 0},
        ),
        Case(
            "your class",
            "a Pydantic class, Contact(email: str, full_name: str, age: int), which neither the model nor the prompt "
            "knows: free text has other keys, guided text has these",
            contacts,
            [Contact] * n,
            greedy,
        ),
    ]


def _compare(case: Case, model: Any, tokenizer: Any, guide: Guide, seed: int) -> tuple[Run, Run]:
    free, guided = Run("free", [None] * len(case.tasks)), Run("guided", case.constraints)
    for round_ in range(ROUNDS + 1):  # the first one warms up
        for run in (free, guided):
            torch.manual_seed(seed)
            start = time.perf_counter()
            made = generate(
                model,
                tokenizer,
                [task.prompt for task in case.tasks],
                run.constraints,
                guide=guide,
                batch_size=BATCH_SIZE,
                progress=False,
                max_new_tokens=MAX_NEW_TOKENS,
                **case.sampling,
            )
            if round_:
                run.seconds.append(time.perf_counter() - start)
            else:
                run.results = made
                run.verdicts = [judge(result.text, task.schema) for task, result in zip(case.tasks, made, strict=True)]
    return free, guided


def _print_pair(case: Case, free: Run, guided: Run) -> None:
    """A prompt and both texts: the first prompt on which free text fails, if there is one."""
    i = next((i for i, verdict in enumerate(free.verdicts) if verdict != "valid"), 0)
    print(textwrap.fill(case.tasks[i].prompt.strip().replace("\n", " "), 2 * COLUMN + 3))
    columns = [
        [f"{run.name}: {run.verdicts[i]}", *textwrap.wrap(repr(run.results[i].text)[1:-1], COLUMN)]
        for run in (free, guided)
    ]
    for left, right in zip_longest(*columns, fillvalue=""):
        print(f"  {left:{COLUMN}} | {right}".rstrip())
    print()


def _line(case: Case, run: Run) -> str:
    right = sum(_is_right(task, result.text) for task, result in zip(case.tasks, run.results, strict=True))
    counts = (sum(verdict != "broken" for verdict in run.verdicts), run.verdicts.count("valid"), right)
    parses, validates, exact = (f"{100 * count / len(case.tasks):.0f} %" for count in counts)
    tokens_per_second = sum(len(result.token_ids) for result in run.results) / statistics.median(run.seconds)
    calls = {id(result.stats): result.stats for result in run.results if result.stats}.values()
    passes_per_token = sum(stats.row_forwards for stats in calls) / sum(stats.tokens for stats in calls)
    return (
        f"{f'{case.name}, {run.name}':28}{parses:>8}{validates:>11}{exact:>10}"
        f"{tokens_per_second:>10.0f}{passes_per_token:>14.2f}"
    )


def _is_right(task: Example, text: str) -> bool:
    try:
        return bool(json.loads(text) == task.record)
    except ValueError:
        return False
