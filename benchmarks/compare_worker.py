"""Runs one library's part of compare.py in a process of its own: with other packages than its peers', where it must.

    python -m benchmarks.compare_worker LIBRARY     # jobs in, answers out

A job names a measure and its arguments. Whatever a library raises is its answer: ``{"error": name}``.

What a decoding step costs beside the forward pass is measured with the processors of bench_processor.py, and with
guidance's loop. hf-guided is here as a user gets it, with its automatic choice of an engine. guidance has no processor:
its whole loop is replayed over a model that knows the document, and what lies between two of its forward passes is
timed. That includes choosing the token, which the others leave to generate(), and a step of it may write several
tokens.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks import bench_budget
from benchmarks.bench_processor import (
    OURS,
    PEER,
    Processor,
    Setup,
    Taken,
    check_accepts,
    compact_documents,
    random_scores,
    run,
)
from benchmarks.common import record12
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
from benchmarks.modes import finished_text, tiny_llama
from benchmarks.processes import quiet, serve
from benchmarks.schema_libraries import model_without_use
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


def forwards(name: str, case: str, lookup: bool) -> dict[str, Any]:
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


def budget(name: str, constraint: str, times: float, minimum: int, rows: int) -> dict[str, Any]:
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
    setup.sides = {name: make for name, make in setup.sides.items() if name in (*own.values(), OURS)}
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


def guidance_steps(repetitions: int) -> list[Taken]:
    """Steps of guidance's loop over the document that a batch of one has."""
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
    return taken


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


def steps(name: str, batch: int, repetitions: int) -> dict[str, Any]:
    """Times of the steps of guidance's loop, without the forward pass."""
    assert name == "guidance", "its processor is timed beside the others"
    if batch > 1:
        raise NotSupported("one prompt at a time")
    return {"taken": guidance_steps(repetitions)}


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"forwards": forwards, "budget": budget, "steps": steps}


def answer(library: str, job: dict[str, Any]) -> dict[str, Any]:
    measure = MEASURES[job.pop("measure")]
    try:
        return measure(library, **job)
    except Exception as error:
        return {"error": type(error).__name__, "detail": " ".join(str(error).split())[:200]}


if __name__ == "__main__":
    quiet()
    serve(lambda job: answer(sys.argv[1], job))
