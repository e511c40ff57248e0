"""hf-guided and its peers side by side: one run, one machine, one table.

    HF_GUIDED_BENCH_GUIDANCE=ITS_PYTHON python -m benchmarks.compare [--schemas 12] [--rows 4] [--measure NAME ...]

A short run of what the other scripts here measure at length, with their own code, on one shared set:

- modes: bench_modes.py, two seeds;
- schemas: bench_schemas.py, every so many of the sample's schemas; "judged exactly" with keys in declared order.
  Figures are over all that a library compiled. Ratios are in the rows, not in the table: over the schemas that both
  compiled, for masks those that both judge alike;
- steps: bench_processor.py, the compact 12-field record; ratios are of wall time;
- forwards: the demo model's greedy answers, one prompt at a time; calls of the model are counted;
- budget: bench_budget.py, the hot model at one, two and four times what hf-guided states as the minimum.

Correctness is judged by ``json`` + ``jsonschema`` and ``re``. A library that is not there has a column that says so;
one that cannot live beside the others runs in another Python, which HF_GUIDED_BENCH_<PACKAGE> names.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks import bench_budget, bench_modes, bench_processor, bench_schemas
from benchmarks.bench_processor import (
    PEER,
    Processor,
    Setup,
    Taken,
    check_accepts,
    compact_documents,
    medians,
    random_scores,
    run,
)
from benchmarks.bench_schemas import Judged
from benchmarks.common import (
    NOT_INSTALLED,
    Row,
    finish,
    installed,
    markdown_table,
    parser,
    percentiles,
    python_for,
    record12,
    spread,
)
from benchmarks.decode_cases import Case, demo_examples, demo_record, is_valid
from benchmarks.libraries import (
    LIBRARIES,
    Constraint,
    HFGuided,
    Library,
    LMFormatEnforcer,
    NotSupported,
    crop_by_length,
)
from benchmarks.modes import MODES, finished_text, tiny_llama
from benchmarks.processes import JobProcess, Killed, quiet, serve
from benchmarks.schema_libraries import XGrammar, model_without_use
from tests.vocabularies import demo, fast_tekken

CASES: dict[str, Callable[[], Case]] = {"its own tasks": demo_examples, "record12": lambda: demo_record(300)}
LOOKUP = {"prompt_lookup_num_tokens": 10}


class FastLoop(HFGuided):
    """hf-guided's own loop; prompt lookup is an argument of it."""

    def prepare(self, constraints: Any) -> dict[str, Any]:
        ours = self._ours(constraints)
        self._guide.compile(ours)  # so that what is forced at once is read with the prompt
        return {"constraint": ours}

    def generate(
        self, model: PreTrainedModel, inputs: Mapping[str, Tensor], prepared: dict[str, Any], **settings: Any
    ) -> list[list[int]] | list[str]:
        draft = "prompt_lookup" if settings.pop("prompt_lookup_num_tokens", None) else None
        decoder = self._guide.decoder(prepared["constraint"], draft=draft)
        return super().generate(model, inputs, {"custom_generate": decoder}, **settings)


def count_forwards(name: str, case: str, lookup: bool) -> dict[str, Any]:
    """The demo model's greedy answers, one prompt at a time: calls of its forward, and tokens of the texts.

    Tokens are those that were written, the stop token among them; where a library gives a text, those that the
    tokenizer writes for it, and a stop token.
    """
    loaded = CASES[case]()
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    loaded.model.register_forward_pre_hook(count)
    library = (FastLoop if name == HFGuided.name else LIBRARIES[name])(loaded.model, loaded.tokenizer)
    settings = {"max_new_tokens": loaded.max_new_tokens, "do_sample": False, "pad_token_id": bench_budget.EOS}
    tokens = valid = 0
    for [task], inputs in loaded.batches(1):
        prepared = library.prepare(Constraint("json", json.dumps(task.schema)))
        [output] = library.generate(loaded.model, inputs, prepared, **settings, **(LOOKUP if lookup else {}))
        if isinstance(output, list) and loaded.tokenizer.eos_token_id in output:
            output = output[: output.index(loaded.tokenizer.eos_token_id) + 1]
        text = finished_text(output, lambda ids: loaded.tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        valid += text is not None and is_valid(task, text.encode())
        tokens += (
            len(output)
            if isinstance(output, list)
            else len(loaded.tokenizer.encode(output, add_special_tokens=False)) + 1
        )
    return {"passes": passes, "tokens": tokens, "valid": valid, "answers": len(loaded.tasks)}


def run_budget(name: str, constraint: str, times: float, minimum: int, rows: int) -> dict[str, Any]:
    """Outputs of the hot model that are complete and valid; see bench_budget.py."""
    tokenizer = demo()
    library_type: type[Library] = bench_budget.Budgeted if name == HFGuided.name else LIBRARIES[name]
    library = library_type(tiny_llama(len(tokenizer), seed=0), tokenizer)
    chosen = bench_budget.constraints()[constraint]
    return bench_budget.run_cell(library, constraint, chosen, "hot", times, minimum, rows)


# -- steps of processors -----------------------------------------------------------------------------------------------

SIDES = {"xgrammar.contrib.hf": PEER, "outlines": "outlines (outlines-core)"}
"""Names of libraries there, where they are not the library's."""


def processor_steps(batch: int, repetitions: int) -> tuple[dict[str, list[Taken]], dict[str, str]]:
    """Times of each call by library, and the problems of libraries without times."""
    setup = Setup("compact", with_outlines=True)
    own = {name: SIDES.get(name, name) for name in ("hf-guided", *SIDES, "lm-format-enforcer")}
    setup.sides["lm-format-enforcer"] = lm_format_enforcer(setup)
    # The side of ours that is compared with xgrammar's, mask by mask, is run as well.
    setup.sides = {name: make for name, make in setup.sides.items() if name in (*own.values(), bench_processor.OURS)}
    replay = setup.replay(batch)
    problems = {}
    for name, side in own.items():
        try:
            check_accepts(name, setup.sides[side](), replay, random_scores(batch, setup.vocab)[0])
        except AssertionError as error:
            problems[name] = str(error)
            del setup.sides[side]
    times = run(setup, batch, repetitions)
    return {name: times[side] for name, side in own.items() if side in times}, problems


def lm_format_enforcer(setup: Setup) -> Callable[[], Processor]:
    """Processors as generate() makes them; each has an enforcer of its own, which keeps what it has computed."""
    from transformers import PrefixConstrainedLogitsProcessor

    library = LMFormatEnforcer(model_without_use(setup.tokenizer), setup.tokenizer)
    constraint = Constraint("json", json.dumps(record12()["schema"]))
    return lambda: PrefixConstrainedLogitsProcessor(library.constrain(constraint)["prefix_allowed_tokens_fn"], 1)


# -- guidance's loop ---------------------------------------------------------------------------------------------------


def time_steps(name: str, batch: int, repetitions: int) -> dict[str, Any]:
    """Times of the steps of guidance's loop over a document, without the forward pass."""
    assert name == "guidance", "processors are timed side by side"
    if batch > 1:
        raise NotSupported("one prompt at a time")
    import guidance

    crop_by_length()
    tokenizer = fast_tekken()
    loop = guidance.models.Transformers(model_without_use(tokenizer), tokenizer, echo=False, enable_monitoring=False)
    engine = loop._interpreter.engine
    [document], prompt = compact_documents(1), record12()["prompts"][0]
    taken: list[Taken] = []
    for repetition in range(repetitions + 1):
        engine.get_logits = known = KnownText(engine.tokenizer, len(tokenizer), prompt + document)
        text = (loop + prompt + guidance.json("answer", schema=record12()["schema"]))["answer"]
        assert text == document, f"guidance does not write the document: {text!r}"
        if repetition:  # the first warms up
            taken += known.taken
    return {"taken": taken}


class KnownText:
    """Stands for a model that wants one text, prompt and answer; notes what passes between two forward passes."""

    def __init__(self, tokenizer: Any, vocab: int, text: str):
        self._tokenizer, self._text = tokenizer, text.encode()
        self._scores = np.random.default_rng(0).standard_normal((1, vocab)).astype(np.float32)
        self._left: Taken | None = None
        self.taken: list[Taken] = []

    def __call__(self, token_ids: Sequence[int], include_all_uncached_tokens: bool = False) -> dict[str, Any]:
        del include_all_uncached_tokens  # for probabilities, which are not used here
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        if self._left is not None:
            self.taken.append((wall - self._left[0], cpu - self._left[1]))
        wanted, *_ = self._tokenizer.encode(self._text[len(self._tokenizer.decode(token_ids)) :])
        scores = self._scores.copy()
        scores[0, wanted] = 100.0
        self._left = time.perf_counter_ns(), time.process_time_ns()
        return {"logits": scores, "n_tokens": len(token_ids), "n_cached": len(token_ids) - 1}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "forwards": count_forwards,
    "budget": run_budget,
    "steps": time_steps,
}


def answer(library: str, job: dict[str, Any]) -> dict[str, Any]:
    measure = JOBS[job.pop("measure")]
    try:
        return measure(library, **job)
    except Exception as error:
        return {"error": type(error).__name__, "detail": " ".join(str(error).split())[:200]}


OURS = "hf-guided"
COLUMNS = (OURS, *(name for name in LIBRARIES if name != OURS))
SCHEMA_NAMES = {"xgrammar.contrib.hf": XGrammar.name}
"""Names in schema_libraries.py, where they differ."""
BUDGETS = (1.0, 2.0, 4.0)
JOB_SECONDS = 600.0


@dataclass(frozen=True)
class Measure:
    """One line of the table."""

    name: str  # the question, in the table's first column
    unit: str  # unit of the figures
    more_is_better: bool = False


WORKING = Measure("generation modes in which the output is right", "modes", True)
COMPILED = Measure("real JSON Schemas that compile", "schemas", True)
EXACT = Measure("JSON Schemas judged exactly, all instances", "schemas", True)
LOOSE = Measure("JSON Schemas that let an invalid instance pass", "schemas")
READY = Measure("a JSON Schema's first mask, median", "ms")
MASK = Measure("a mask of a JSON Schema, median", "µs")
SLOW_MASK = Measure("a mask of a JSON Schema, slowest in a hundred", "µs")
STEP = Measure("a step beside the forward pass, one row", "ms")
STEP_16 = Measure("a step beside the forward pass, 16 rows", "ms")
PASSES = {  # by the case, and whether with prompt lookup
    ("its own tasks", False): Measure("forward passes, the demo model's own tasks", "a token"),
    ("record12", False): Measure("forward passes, a record of 12 fields", "a token"),
    ("its own tasks", True): Measure("the same with prompt lookup, own tasks", "a token"),
    ("record12", True): Measure("the same with prompt lookup, the record", "a token"),
}
VALID = Measure("greedy answers that are valid", "answers", True)
BUDGET = Measure("outputs complete and valid within a token budget", "outputs", True)
MEASURES = (
    *(WORKING, COMPILED, EXACT, LOOSE, READY, MASK, SLOW_MASK, STEP, STEP_16),
    *(*PASSES.values(), VALID, BUDGET),
)


@dataclass(frozen=True)
class Figure:
    """Result of one measure for one library."""

    measure: Measure
    library: str
    value: float | None  # None if there is none; ``detail`` says why
    of: int | None = None  # total of a count
    ratio: float | None = None  # ratio of a time to hf-guided's
    detail: str = ""

    def row(self, version: str) -> dict[str, Any]:
        return {
            "measure": self.measure.name,
            "unit": self.measure.unit,
            "better": "more" if self.measure.more_is_better else "less",
            "library": self.library,
            "version": version,
            "value": "" if self.value is None else f"{self.value:.5g}",
            "of": "" if self.of is None else self.of,
            "ratio": "" if self.ratio is None else f"{self.ratio:.3f}",
            "detail": self.detail,
        }


def answers(library: str, measure: str, jobs: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The answers of a library to each job, in a process of its own: ``{"error": ...}`` where it failed."""
    python = python_for(LIBRARIES[library].package)
    process = JobProcess(["benchmarks.compare", "--worker", library], JOB_SECONDS, python=python)
    for job in jobs:
        try:
            yield dict(process.ask({"measure": measure, **job}))
        except Killed as killed:
            yield {"error": killed.outcome}
    process.stop()


def failure(answer: Mapping[str, Any]) -> str:
    """Text of a cell without a figure."""
    return "not supported" if answer["error"] == "NotSupported" else f"raises {answer['error']}"


# -- the measures ------------------------------------------------------------------------------------------------------


def modes(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    for name in libraries:
        cells = list(bench_modes.run_library(name, list(MODES), 2, 60.0))
        others = [f"{cell.mode}: {cell.verdict}" for cell in cells if cell.verdict != "works"]
        yield Figure(WORKING, name, len(cells) - len(others), len(cells), detail="; ".join(others))


def schemas(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    own = {name: SCHEMA_NAMES.get(name, name) for name in libraries}
    judged = bench_schemas.in_turns(spread(bench_schemas.load_samples(), arguments.schemas), list(own.values()))
    for name in libraries:
        yield from schema_figures(name, judged[own[name]], judged[OURS])


def schema_figures(library: str, judged: Sequence[Judged], ours: Sequence[Judged]) -> Iterator[Figure]:
    """Figures of one library over the schemas; ratios are to hf-guided's verdicts on the same schemas."""
    found = bench_schemas.summary(library, judged, ours)
    outcomes = {one: found[one] for one in ("refused", "crashed", "beyond_limits", "valid_refused_in_order")}
    detail = ", ".join(f"{one.replace('_', ' ')} {count}" for one, count in outcomes.items())
    with_instances = int(found["with_instances"])
    yield Figure(COMPILED, library, found["compiled"], len(judged), detail=detail)
    yield Figure(EXACT, library, found["passing_in_order"], with_instances, detail=detail)
    yield Figure(LOOSE, library, found["invalid_accepted"], with_instances)
    times = [one.verdict.ready_ms for one in judged if one.compiled]
    ready = statistics.median(times) if times else None
    ratio = float(found["ready_ratio"]) if found["ready_ratio"] else None
    more = f"p90 {found['ready_p90_ms']}, p99 {found['ready_p99_ms']}; ratio over the schemas that both compiled"
    yield Figure(READY, library, ready, ratio=ratio, detail=more)
    masks = [us for one in judged for us in one.verdict.mask_us]
    # A text that one of them refused was not walked to its end.
    alike = [
        (one.verdict.mask_us, other.verdict.mask_us)
        for one, other in zip(judged, ours, strict=True)
        if one.compiled and one.verdict.accepted == other.verdict.accepted
    ]
    mine, base = ([us for pair in alike for us in pair[side]] for side in (0, 1))
    for measure, q in ((MASK, 50), (SLOW_MASK, 99)):
        value = percentiles(masks, q)[0] if masks else None
        over = percentiles(mine, q)[0] / percentiles(base, q)[0] if mine and base else None
        more = f"{len(masks)} masks; ratio over {len(mine)} of schemas that both judge alike"
        yield Figure(measure, library, value, ratio=over, detail=more)


def steps(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    for batch, measure in ((1, STEP), (16, STEP_16)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            taken, problems = processor_steps(batch, arguments.repetitions)
        if "guidance" in libraries:  # it has no processor
            [answer] = answers("guidance", "steps", [{"batch": batch, "repetitions": arguments.repetitions}])
            if "taken" in answer:
                taken["guidance"] = [(wall, cpu) for wall, cpu in answer["taken"]]
            else:
                problems["guidance"] = failure(answer)
        for name in libraries:
            yield step_figure(measure, name, taken, problems)


def step_figure(
    measure: Measure, library: str, taken: Mapping[str, Sequence[Taken]], problems: Mapping[str, str]
) -> Figure:
    if library not in taken:
        return Figure(measure, library, None, detail=problems.get(library, "not measured"))
    (wall, cpu), (ours, ours_cpu) = medians(taken[library]), medians(taken[OURS])
    spread = percentiles([wall / 1e6 for wall, _ in taken[library]], 20, 80)
    detail = "p20 {:.4f}, p80 {:.4f}; ".format(*spread)
    detail += f"CPU {cpu:.4f}, its ratio {cpu / ours_cpu:.2f}; {len(taken[library])} steps"
    return Figure(measure, library, wall, ratio=wall / ours, detail=detail)


def forwards(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    jobs = [{"case": case, "lookup": lookup} for case, lookup in PASSES]
    for name in libraries:
        valid = total = 0
        for measure, job, answer in zip(PASSES.values(), jobs, answers(name, "forwards", jobs), strict=True):
            if "error" in answer:
                yield Figure(measure, name, None, detail=failure(answer))
                continue
            detail = f"{answer['passes']} passes, {answer['tokens']} tokens, {answer['valid']} valid"
            yield Figure(measure, name, answer["passes"] / answer["tokens"], detail=detail)
            if not job["lookup"]:
                valid, total = valid + answer["valid"], total + answer["answers"]
        yield Figure(VALID, name, valid, total)


def budget(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    jobs = [
        {"constraint": constraint, "times": times, "minimum": max(minima.values()), "rows": arguments.rows}
        for constraint, minima in bench_budget.stated_minima().items()
        for times in BUDGETS
    ]
    for name in libraries:
        cells = list(answers(name, "budget", jobs))
        valid = sum(cell.get("valid", 0) for cell in cells)
        parts = [
            f"{job['constraint']} {job['times']:g}x: {cell['error'] or cell['valid']}"
            for job, cell in zip(jobs, cells, strict=True)
        ]
        yield Figure(BUDGET, name, valid, len(jobs) * arguments.rows, detail="; ".join(parts))


PARTS: dict[str, Callable[[Sequence[str], argparse.Namespace], Iterator[Figure]]] = {
    "modes": modes,
    "schemas": schemas,
    "steps": steps,
    "forwards": forwards,
    "budget": budget,
}


# -- the table ---------------------------------------------------------------------------------------------------------


def result_rows(figures: Sequence[Figure], versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of compare.csv, measure by measure, and in each of them library by library; a library that is not there gets
    rows that say so.
    """
    measured = {figure.measure for figure in figures}
    missing = [
        Figure(measure, name, None, detail=NOT_INSTALLED)
        for name, version in versions.items()
        if version == NOT_INSTALLED
        for measure in measured
    ]
    columns = list(versions)
    everything = sorted([*figures, *missing], key=lambda one: (MEASURES.index(one.measure), columns.index(one.library)))
    return [figure.row(versions[figure.library]) for figure in everything]


def cell(row: Row) -> str:
    """What the table shows of a row: a count, or three digits; the reason where there is no value."""
    if row["value"] == "":
        return str(row["detail"])
    value = float(row["value"])
    if row["of"] != "":
        return f"{value:g} of {row['of']}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each measure, a column for each library, the best value of a line in bold.

    Ratios to hf-guided's times stay in the rows. They are over what both libraries did, so they are no quotients of the
    values that the table shows.
    """
    versions = {row["library"]: row["version"] for row in rows}
    titles = [f"{name} {version}" if version != NOT_INSTALLED else name for name, version in versions.items()]
    lines = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        line = {row["library"]: row for row in rows if row["measure"] == name}
        one = next(iter(line.values()))
        values = {library: float(row["value"]) for library, row in line.items() if row["value"] != ""}
        best = (max if one["better"] == "more" else min)(values.values(), default=None)
        shown = {library: cell(line[library]) if library in line else "" for library in versions}
        cells = [
            f"**{text}**" if library in values and values[library] == best else text for library, text in shown.items()
        ]
        lines.append([f"{name} ({one['unit']})", *cells])
    return markdown_table(["measure (unit)", *titles], lines)


def main() -> None:
    made = parser(__doc__, "compare.csv")
    made.add_argument("--measure", nargs="+", choices=PARTS, default=list(PARTS))
    made.add_argument("--schemas", type=int, default=12, help="how many schemas of the sample, about")
    made.add_argument("--rows", type=int, default=4, help="outputs for each constraint and budget")
    made.add_argument("--repetitions", type=int, default=2, help="of the steps")
    made.add_argument("--worker", help="the process of a library")
    arguments = made.parse_args()
    if arguments.worker:
        quiet()
        serve(lambda job: answer(arguments.worker, job))
        return
    torch.set_num_threads(1)
    versions = {name: installed(LIBRARIES[name].package) for name in COLUMNS}
    there = [name for name, version in versions.items() if version != NOT_INSTALLED]
    figures: list[Figure] = []
    for part in arguments.measure:
        for figure in PARTS[part](there, arguments):
            figures.append(figure)
            print(
                f"{figure.measure.name}, {figure.library}: {cell(figure.row(''))}  [{figure.detail[:200]}]", flush=True
            )
    rows = result_rows(figures, versions)
    finish(arguments, rows, table(rows), whole=arguments.measure == list(PARTS))


if __name__ == "__main__":
    main()
