"""How many tokens a second? The decode loops side by side, each against free generation.

    python -m benchmarks.bench_decode
    python -m benchmarks.bench_decode --overlap --batch 1 16 64            # what another thread for masks is worth
    python -m benchmarks.bench_decode --sample --threads 2 --rounds 3      # what a step of hg.sample costs

The demo model on a CPU; bench_device.py measures on a GPU. The same prompts and schemas for all sides, compact, greedy;
everything is compiled beforehand. A round is one pass over the prompts; sides take turns round by round in changing
order, so that a busy machine disturbs all alike. Tokens are counted up to each row's stop token. Free generation writes
what it likes, up to as many tokens as the guided answers may have. With ``--overlap`` the sides are the processor and
the fast loop with the thread for masks on, off, and as the library decides; with masks that earlier calls have made
(warm), and with a guide that has only compiled (cold).

With ``--sample``, a step of ``hg.sample`` and of masked sampling in transformers' loop with as many rows: a random
model of the shape of Qwen2.5-0.5B, or of ``--shape``, with 131,072 tokens, where masks allow nearly all tokens (text)
and few (digits). A step is the time from one forward pass to the next. The smaller the model, the more the step counts.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import finish, parser, percentile_columns, table_of, turns
from benchmarks.decode_cases import SHAPES, Case, Task, demo_examples, demo_record, is_right, is_valid, random_model
from benchmarks.libraries import Constraint, Library, NotSupported, Outlines, XGrammar
from hf_guided.session.session import SessionStats

FREE = "free"
LOOPS: dict[str, dict[str, Any]] = {
    "decoder, no jump-forward": {"jump_forward": False},
    "decoder": {},
    "decoder, prompt lookup": {"draft": "prompt_lookup"},
}
Arguments = Callable[[Sequence[Task]], dict[str, Any]]  # for generate(), new for every call


@dataclass
class Taken:
    """Figures of one side; one entry a round in each list."""

    wall_rates: list[float] = field(default_factory=list)
    cpu_rates: list[float] = field(default_factory=list)
    stats: list[SessionStats] = field(default_factory=list)
    answers: list[tuple[Task, bytes | None]] = field(default_factory=list)  # of the last round


def sides(case: Case) -> dict[str, Arguments]:
    """Arguments for generate() of each side."""

    def ours(tasks: Sequence[Task]) -> list[hg.JsonSchema]:
        return [hg.JsonSchema(task.schema, whitespace="compact") for task in tasks]

    def loop(options: dict[str, Any]) -> Arguments:
        return lambda tasks: {"custom_generate": case.guide.decoder(ours(tasks), **options)}

    return {
        FREE: lambda tasks: {},
        "logits processor": lambda tasks: {"logits_processor": [case.guide.logits_processor(ours(tasks))]},
        **{name: loop(options) for name, options in LOOPS.items()},
        **{one.name: _peer(one(case.model, case.tokenizer)) for one in (XGrammar, Outlines)},
    }


def overlap_sides(case: Case) -> dict[str, Arguments]:
    """The processor and the fast loop, each with the thread for masks on and off, masks warm and cold."""

    def side(seam: str, masks: str, overlap: Any) -> Arguments:
        def arguments(tasks: Sequence[Task]) -> dict[str, Any]:
            constraints = [hg.JsonSchema(task.schema, whitespace="compact") for task in tasks]
            guide = case.guide if masks == "warm" else hg.Guide(case.model, case.tokenizer)
            for constraint in set(constraints):
                guide.compile(constraint)
            if seam == "decoder":
                return {"custom_generate": guide.decoder(constraints, overlap=overlap)}
            processor = guide.logits_processor(constraints, overlap=overlap)
            return {"logits_processor": [processor], "stopping_criteria": [processor.companion]}

        return arguments

    return {FREE: lambda tasks: {}} | {
        f"{seam}, {masks}, overlap {value}": side(seam, masks, {"on": True, "off": False}.get(value, value))
        for seam, masks, value in product(["processor", "decoder"], ["warm", "cold"], ["off", "on", "auto"])
    }


def _peer(library: Library) -> Arguments:
    kept: dict[str, dict[str, Any]] = {}

    def arguments(tasks: Sequence[Task]) -> dict[str, Any]:
        constraints = [Constraint("json", json.dumps(task.schema)) for task in tasks]
        if len(set(constraints)) > 1:
            return library.constrain(constraints)
        if constraints[0].text not in kept:
            kept[constraints[0].text] = library.constrain(constraints[0])
        # Compiled once, as all sides are.
        return library.between_calls(kept[constraints[0].text], constraints[0])

    return arguments


def one_round(case: Case, batch: int, make: Arguments, taken: Taken) -> None:
    """Run all of a case's prompts once, and note what it took; preparing constraints is not in the time."""
    answers: list[tuple[Task, list[int]]] = []
    wall = cpu = 0.0
    for tasks, inputs in case.batches(batch):
        arguments = make(tasks)
        start = time.perf_counter(), time.process_time()
        rows = case.generate(inputs, **arguments)
        wall, cpu = wall + time.perf_counter() - start[0], cpu + time.process_time() - start[1]
        answers += zip(tasks, rows, strict=True)
        guided = arguments.get("custom_generate") or (arguments.get("logits_processor") or [None])[0]
        if hasattr(guided, "stats"):
            taken.stats.append(guided.stats)
    tokens = sum(len(row) for _, row in answers)
    taken.wall_rates.append(tokens / wall)
    taken.cpu_rates.append(tokens / cpu)
    taken.answers = [(task, case.text(row)) for task, row in answers]


def run(case: Case, running: dict[str, Arguments], batch: int, rounds: int) -> dict[str, Taken]:
    """Run every side in turn; the first round warms up and finds out which sides are not supported."""
    taken = {name: Taken() for name in running}
    for number in range(rounds + 1):
        for name in turns(running, number):
            try:
                one_round(case, batch, running[name], taken[name])
            except NotSupported:
                del running[name], taken[name]
                continue
            if number == 0:
                taken[name] = Taken()
    return taken


def result_rows(taken: dict[str, Taken], **common: Any) -> list[dict[str, Any]]:
    """A row for each side: tokens a second, and the ratio of its median to free generation's."""
    free, free_cpu = (statistics.median(rates) for rates in (taken[FREE].wall_rates, taken[FREE].cpu_rates))
    rows = []
    for name, one in taken.items():
        rows.append(
            {
                **common,
                "side": name,
                "rounds": len(one.wall_rates),
                **percentile_columns(one.wall_rates, "p{}"),
                "ratio": f"{statistics.median(one.wall_rates) / free:.3f}",
                "cpu_ratio": f"{statistics.median(one.cpu_rates) / free_cpu:.3f}",
                "answers": len(one.answers),
                "valid": sum(is_valid(task, text) for task, text in one.answers),
                "right": sum(is_right(task, text) for task, text in one.answers) if one.answers[0][0].record else "",
                **per_step(one.stats),
            }
        )
    return rows


def per_step(stats: Sequence[SessionStats]) -> dict[str, str]:
    """Milliseconds a forward pass, and row-forwards a token; empty where the loop is not ours."""
    names = ("forward_ms", "fill_ms", "apply_ms", "row_forwards_per_token")
    forwards, calls = sum(one.forwards for one in stats), sum(one.calls for one in stats)
    steps = forwards or calls
    if not steps:
        return dict.fromkeys(names, "")
    values = [sum(getattr(one, name) for one in stats) / steps / 1e6 for name in ("forward_ns", "fill_ns", "apply_ns")]
    passes = sum(one.row_forwards for one in stats) / sum(one.tokens for one in stats) if forwards else None
    shown = [f"{value:.4f}" if value else "" for value in values]
    return dict(zip(names, [*shown, "" if passes is None else f"{passes:.3f}"], strict=True))


TEXTS = {"text": hg.Regex(".{200,}"), "digits": hg.Regex("(0|1)( (2|3|4)){40,}")}
STEPS = 12
PARTICLES = 32


class _Enough(Exception):
    pass


def steps_of(model: Any, call: Callable[[], Any]) -> list[float]:
    """Milliseconds from each forward pass with all rows to the next one; the call is ended after some passes."""
    starts: list[float] = []

    def note(_: Any, arguments: Any, named: dict[str, Any]) -> None:
        if len(named["input_ids"]) == PARTICLES:
            starts.append(time.perf_counter())
        if len(starts) > STEPS:
            raise _Enough

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        call()
    except _Enough:
        pass
    finally:
        handle.remove()
    return [1e3 * (after - before) for before, after in pairwise(starts)][2:]  # the first ones warm up


def sampling_calls(model: Any, guide: hg.Guide, constraint: hg.Regex) -> dict[str, Callable[[], Any]]:
    prompt = "Write this down: "
    ids = torch.tensor([guide.tokenizer.encode(prompt)] * PARTICLES)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pad_token_id": guide.tokenizer.eos_token_id}
    sampled = partial(hg.sample, model, guide.tokenizer, prompt, constraint, particles=PARTICLES, guide=guide)

    def masked() -> None:
        processor = guide.logits_processor(constraint)
        model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=2 * STEPS, logits_processor=[processor])

    return {
        "masked sampling": masked,
        "hg.sample": sampled,
        "hg.sample, importance": partial(sampled, method="importance"),
    }


def sample_rows(shape: str, rounds: int, **common: Any) -> list[dict[str, Any]]:
    model, tokenizer = random_model(shape)
    guide = hg.Guide(model, tokenizer)
    rows = []
    for name, constraint in TEXTS.items():
        calls = sampling_calls(model, guide, constraint)
        taken: dict[str, list[float]] = {side: [] for side in calls}
        for number in range(rounds):
            for side in turns(calls, number):
                taken[side] += steps_of(model, calls[side])
        plain = statistics.median(taken["masked sampling"])
        for side, values in taken.items():
            row = {"model": f"{shape}, random", "format": name, **common, "side": side}
            ratio = f"{statistics.median(values) / plain:.3f}"
            rows.append({**row, **percentile_columns(values, "p{}_ms"), "ratio": ratio})
    return rows


COLUMNS = "model batch side p20 p50 p80 ratio cpu_ratio answers valid right forward_ms fill_ms apply_ms"
table = partial(table_of, columns=[*COLUMNS.split(), "row_forwards_per_token"])


def main() -> None:
    made = parser(__doc__, "decode.csv")
    made.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--threads", type=int, default=1, help="torch threads")
    made.add_argument("--overlap", action="store_true", help="compare the thread for masks with none")
    made.add_argument("--sample", action="store_true", help="compare hg.sample with masked sampling")
    made.add_argument("--shape", choices=SHAPES, default="0.5b", help="of the model for --sample")
    arguments = made.parse_args()
    if arguments.sample:
        arguments.results = arguments.results.with_name("decode_sample.csv")
        torch.set_num_threads(arguments.threads)
        rows = sample_rows(arguments.shape, arguments.rounds, rows=PARTICLES, threads=arguments.threads)
        finish(arguments, rows, table_of(rows))
        return
    if arguments.overlap:
        arguments.results = arguments.results.with_name("decode_overlap.csv")
    torch.set_num_threads(arguments.threads)
    rows = []
    for case in (demo_record(160), demo_examples()):
        for batch in arguments.batch:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module="xgrammar")  # it enforces no bounds of numbers
                taken = run(case, (overlap_sides if arguments.overlap else sides)(case), batch, arguments.rounds)
            rows += result_rows(taken, model=case.name, batch=batch, threads=arguments.threads)
    finish(arguments, rows, table(rows))


if __name__ == "__main__":
    main()
