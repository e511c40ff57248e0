"""Runs one library's part of compare.py in a process of its own: with other packages than its peers', where it must.

    python -m benchmarks.compare_worker LIBRARY     # jobs as JSON lines in, answers as JSON lines out

A job names a measure and its arguments. Whatever a library raises is its answer: ``{"error": name}``.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks import bench_budget
from benchmarks.compare_steps import guidance_steps
from benchmarks.decode_cases import Case, demo_examples, demo_record, is_right, is_valid
from benchmarks.libraries import LIBRARIES, Constraint, HFGuided, Library, NotSupported
from benchmarks.modes import finished_text, tiny_llama
from tests.vocabularies import demo

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
    tokens = valid = right = 0
    for [task], inputs in loaded.batches(1):
        prepared = library.prepare(Constraint("json", json.dumps(task.schema)))
        [output] = library.generate(loaded.model, inputs, prepared, **settings, **(LOOKUP if lookup else {}))
        if isinstance(output, list) and loaded.tokenizer.eos_token_id in output:
            output = output[: output.index(loaded.tokenizer.eos_token_id) + 1]
        text = finished_text(output, lambda ids: loaded.tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        data = None if text is None else text.encode()
        valid, right = valid + is_valid(task, data), right + is_right(task, data)
        tokens += (
            len(output)
            if isinstance(output, list)
            else len(loaded.tokenizer.encode(output, add_special_tokens=False)) + 1
        )
    return {"passes": passes, "tokens": tokens, "valid": valid, "right": right, "answers": len(loaded.tasks)}


def budget(name: str, constraint: str, times: float, minimum: int, rows: int) -> dict[str, Any]:
    """Outputs of the hot model that are complete and valid; see bench_budget.py."""
    tokenizer = demo()
    library_type: type[Library] = bench_budget.Budgeted if name == HFGuided.name else LIBRARIES[name]
    library = library_type(tiny_llama(len(tokenizer), seed=0), tokenizer)
    chosen = bench_budget.constraints()[constraint]
    return asdict(bench_budget.run_cell(library, constraint, chosen, "hot", times, minimum, rows))


def steps(name: str, repetitions: int) -> dict[str, Any]:
    """Of a library without a processor: what a step of its loop costs beside the forward pass."""
    if name != "guidance":
        raise NotSupported("its processor is timed beside the others")
    return {"taken": guidance_steps(repetitions)}


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"forwards": forwards, "budget": budget, "steps": steps}


def answer(library: str, job: dict[str, Any]) -> dict[str, Any]:
    measure = MEASURES[job.pop("measure")]
    try:
        return measure(library, **job)
    except Exception as error:
        return {"error": type(error).__name__, "detail": " ".join(str(error).split())[:200]}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    [_, library] = sys.argv
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(library, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
