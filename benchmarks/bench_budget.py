"""How often is an output complete and valid when its tokens are counted?

    python -m benchmarks.bench_budget [--rows 8] [--library NAME ...] [--schemas 60]

First: outputs of tiny random models at budgets from the stated minimum to four times as much. One model is hot, the
other never wants to stop: its logits are biased against stop tokens and everything that closes a string, an object, an
array. hf-guided gets the budget, with members in the declared order and in any; the other libraries are used as in the
other benchmarks, and cannot take one. ``json`` + ``jsonschema`` and ``re`` judge.

Then: the stated minimum against the least number of tokens there is, for schemas of the sample in which a search finds
it: all tokens that masks without a budget allow are taken, from place to place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, set_seed

import hf_guided as hg
from benchmarks.common import (
    Row,
    finish,
    markdown_table,
    parser,
    record12,
    runs_here,
    schema_rows,
    spread,
    write_csv,
)
from benchmarks.libraries import LIBRARIES, Constraint, Constraints, HFGuided, Library
from benchmarks.modes import EOS, finished_text, problem, tiny_llama
from benchmarks.processes import quiet
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.errors import HFGuidedError
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import demo, tekken

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
REGEX = r"[A-Z][a-z]+( [A-Z][a-z]+)+ <[a-z0-9.]+@[a-z0-9]+(\.[a-z]+)+>"
CHOICE = "yes|no|it depends on the weather|it depends on who is asking and why they want to know"
BUDGETS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)  # times the stated minimum
MODELS = ("hot", "never stops")
TEMPERATURE = 1.5
BIAS = 15.0  # of the model that never wants to stop; a tiny model's logits differ by less
CLOSING = frozenset(b'"}]>')
MOST_LOOKED_AT = 1_000_000  # tokens, in the search for one minimum


def constraints() -> dict[str, Constraint]:
    return {
        "record of 12 fields": Constraint("json", json.dumps(record12()["schema"])),
        "recursive tree": Constraint("json", json.dumps(TREE)),
        "any JSON object": Constraint("json", '{"type": "object"}'),
        "regex": Constraint("regex", REGEX),
        "choice": Constraint("regex", CHOICE),
    }


class Budgeted(HFGuided):
    """hf-guided with a token budget."""

    max_new_tokens = 0

    def constrain(self, constraints: Constraints) -> dict[str, Any]:
        assert isinstance(constraints, Constraint)
        processor = self._guide.logits_processor(self._ours(constraints), max_new_tokens=self.max_new_tokens)
        return {"logits_processor": [processor]}

    def minimum(self, constraint: Constraint) -> int:
        minimum = self._guide.compile(self._ours(constraint)).matcher().min_tokens_to_finish()
        assert minimum is not None
        return int(minimum)


class BudgetedAnyOrder(Budgeted):
    name = "hf-guided, any order"
    key_order = "any"


OURS = (Budgeted, BudgetedAnyOrder)
PEERS = tuple(
    library
    for name, library in LIBRARIES.items()
    if name != "hf-guided" and runs_here(library.package)  # the others are in compare.py
)
ALL: dict[str, type[Library]] = {library.name: library for library in (*OURS, *PEERS)}


def stated_minima() -> dict[str, dict[str, int]]:
    tokenizer = demo()
    budgeted = [library(tiny_llama(len(tokenizer), seed=0), tokenizer) for library in OURS]
    return {name: {one.name: one.minimum(constraint) for one in budgeted} for name, constraint in constraints().items()}


class NeverStops(LogitsProcessor):
    """Makes a model prefer what keeps a text open."""

    def __init__(self, vocabulary: Vocabulary):
        closes = [token_id for token_id, data in enumerate(vocabulary.token_bytes) if CLOSING & set(data or b"")]
        self._bias = torch.zeros(vocabulary.padded_size)
        self._bias[[*closes, *vocabulary.stop_token_ids]] = -BIAS

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores + self._bias


def run_cell(
    library: Library, name: str, constraint: Constraint, model: str, times: float, minimum: int, rows: int
) -> dict[str, Any]:
    """Generate under one constraint, model and budget, and count the outputs that are complete and valid."""
    tokenizer = demo()
    llama = tiny_llama(len(tokenizer), seed=0)
    budget = int(times * minimum)
    cell = {
        "library": library.name,
        "constraint": name,
        "model": model,
        "times_minimum": times,
        "max_new_tokens": budget,
    }
    set_seed(int(100 * times))
    if isinstance(library, Budgeted):
        library.max_new_tokens = budget
    outputs: list[list[int] | str] = []
    try:
        for prompts in [rows] if library.takes_batches else [1] * rows:
            prepared = library.prepare(constraint)
            if model == "never stops":
                before = NeverStops(Vocabulary.from_tokenizer(tokenizer, padded_size=len(tokenizer)))
                prepared["logits_processor"] = [before, *prepared.get("logits_processor", [])]
            encoded = tokenizer(["An answer:"] * prompts, return_tensors="pt")
            inputs = {name: encoded[name] for name in ("input_ids", "attention_mask")}
            settings = {"max_new_tokens": budget, "do_sample": True, "temperature": TEMPERATURE}
            outputs += library.generate(llama, inputs, prepared, **settings)
    except Exception as error:  # whatever it is, is the result of this cell
        return {**cell, "outputs": 0, "complete": 0, "valid": 0, "error": type(error).__name__}
    texts = [
        finished_text(output, lambda ids: tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        for output in outputs
    ]
    complete = [text for text in texts if text is not None]
    valid = sum(not problem(constraint, text) for text in complete)
    return {**cell, "outputs": len(texts), "complete": len(complete), "valid": valid, "error": ""}


def run_all(names: Sequence[str], rows: int) -> Iterator[dict[str, Any]]:
    tokenizer = demo()
    llama = tiny_llama(len(tokenizer), seed=0)
    stated = stated_minima()
    for name, constraint in constraints().items():
        for library_name in names:
            minimum = stated[name].get(library_name, max(stated[name].values()))
            library = ALL[library_name](llama, tokenizer)
            for model in MODELS:
                for times in BUDGETS:
                    yield run_cell(library, name, constraint, model, times, minimum, rows)


def table(rows: Sequence[Row]) -> str:
    """Share of complete and valid outputs: a line for each library and constraint, a column for each budget."""
    header = ["library", "constraint", *(f"{model}, {times:g}x" for model in MODELS for times in BUDGETS)]
    lines: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        share = f"raises {row['error']}" if row["error"] else f"{100 * int(row['valid']) / int(row['outputs']):.0f} %"
        lines.setdefault((row["library"], row["constraint"]), []).append(share)
    return markdown_table(header, [[*key, *shares] for key, shares in lines.items()])


# -- the stated minimum ----------------------------------------------------------------------------------------------


def shortest(compiled: Any, most: int) -> int | None:
    """The least number of tokens to the end, with the stop token; None where the search would be long.

    ``most`` tokens are enough. The engine is a ``FrameEngine``, which knows equal places by a number.
    """
    start, mask = compiled.new_engine(), np.empty(len(compiled.vocabulary.text_words), np.int32)
    here, seen, looked_at = {start.here(): start}, {start.here()}, 0
    for count in range(1, most):
        if any(engine.is_completed() for engine in here.values()):
            return count
        ahead: dict[int, Any] = {}
        for engine in here.values():
            engine.write_mask(mask)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            looked_at += len(allowed)
            if looked_at > MOST_LOOKED_AT:
                return None
            for token_id in allowed.tolist():
                after = engine.fork()
                after.accept(token_id)
                if after.here() not in seen:
                    seen.add(after.here())
                    ahead[after.here()] = after
        here = ahead
    return most


def minima(most: int) -> Iterator[dict[str, Any]]:
    """The stated minima of schemas spread over the sample, and the true one in the declared order."""
    tokenizer = tekken()
    guide = hg.Guide(len(tokenizer), tokenizer)
    found = 0
    for one in spread(schema_rows(), 3 * most):
        stated = []
        try:
            for order in ("declared", "any"):
                compiled = guide.compile(hg.JsonSchema(one["schema"], key_order=order))
                stated.append(compiled.matcher().min_tokens_to_finish())
            compiled = guide.compile(hg.JsonSchema(one["schema"]))
        except HFGuidedError:
            continue
        if not isinstance(compiled.new_engine(), FrameEngine) or (true := shortest(compiled, stated[0])) is None:
            continue
        declared, any_order = stated
        yield {"schema": one["name"], "shortest": true, "declared": declared, "any_order": any_order}
        found += 1
        if found == most:
            return


def minima_table(rows: Sequence[Row]) -> str:
    def line(order: str) -> list[str]:
        ratios = sorted(int(row[order]) / int(row["shortest"]) for row in rows)
        exact = sum(ratio <= 1 for ratio in ratios)
        return [order, str(len(rows)), f"{exact}", f"{ratios[len(ratios) // 2]:.2f}", f"{ratios[-1]:.2f}"]

    header = ["order of members", "schemas", "least there is", "ratio p50", "ratio max"]
    return markdown_table(header, [line("declared"), line("any_order")])


def main() -> None:
    made = parser(__doc__, "budget.csv")
    made.add_argument("--rows", type=int, default=8)
    made.add_argument("--library", nargs="+", choices=list(ALL), default=list(ALL))
    made.add_argument("--schemas", type=int, default=60)
    arguments = made.parse_args()
    quiet()
    assert demo().eos_token_id == EOS
    rows = list(run_all(arguments.library, arguments.rows))
    found = list(minima(arguments.schemas))
    path = finish(arguments, rows, f"{table(rows)}\n\n{minima_table(found)}", whole=arguments.library == list(ALL))
    if path:
        write_csv(path.with_name("budget_minimum.csv"), found)


if __name__ == "__main__":
    main()
