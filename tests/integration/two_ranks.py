"""What two processes do that hold a model together; test_tensor_parallel.py runs them, forked from one interpreter.

Arguments: the directory of the model, where to write what came out, and "everything" or "some". The processes differ in
how long compiling takes, in their random numbers, and in what they can compile.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch.multiprocessing import start_processes
from transformers import AutoModelForCausalLM
from transformers.utils import logging

import hf_guided as hg
from hf_guided import demo
from hf_guided.backends.adapter import Adapter
from hf_guided.errors import CompileLimitExceeded
from hf_guided.hf.compat import CACHE_NAME

SCHEMA = {  # whose texts are short: none comes near the limit, where ways to the end depend on how long was searched
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["alpha", "alphabet", "beta"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
TOO_MUCH = hg.Regex("(?:too much for the second process)+")
MAX_NEW_TOKENS = 60
PROMPTS = ["Who is it? ", "A name, and where it lives: ", "x"]
CONSTRAINTS = [SCHEMA, hg.Regex("[a-z]{2,9}-[0-9]{3}"), None]
HOT = {"do_sample": True, "temperature": 1.3}


def differ(rank: int) -> None:
    """Let this process be another than the first one."""
    torch.manual_seed(100 + rank)
    if rank == 1:
        Adapter.compile = _slowly(Adapter.compile)  # type: ignore[method-assign]


def _slowly(compile: Callable[..., Any]) -> Callable[..., Any]:
    def slow(self: Any, constraint: Any) -> Any:
        time.sleep(0.3)  # what makes this process another one; nothing waits for it, and no result depends on it
        if constraint == TOO_MUCH:
            raise CompileLimitExceeded("this process is too small")
        return compile(self, constraint)

    return slow


def outcomes(model: Any, tokenizer: Any, rank: int, everything: bool) -> dict[str, Any]:
    """What is tried, by name: token ids, or errors."""
    found: dict[str, Any] = {}

    def results(name: str, constraint: Any = None, **asked: Any) -> None:
        some = hg.generate(model, tokenizer, PROMPTS, constraint or CONSTRAINTS, max_new_tokens=MAX_NEW_TOKENS, **asked)
        found[name] = [[result.token_ids, result.text, result.finish_reason] for result in some]

    results("greedy", do_sample=False)
    results("plain loop", do_sample=False, jump_forward=False)
    results("sampled", **HOT)
    found["random numbers behind the fast loop"] = torch.rand(3).tolist()
    results("sampled with seeds", seed=3, **HOT)
    torch.manual_seed(200 + rank)
    results("sampled by the plain loop", jump_forward=False, **HOT)
    if everything:
        results("greedy, nothing drafted", do_sample=False, draft=None)
        results("beams", do_sample=False, num_beams=3)
        results("thinking", do_sample=False, reasoning=hg.Reasoning("<think>", "</think>", max_tokens=5))
        results("assistant drafts", do_sample=False, draft=demo.load()[0].double())
        greedy = {"max_new_tokens": MAX_NEW_TOKENS, "do_sample": False}
        streamed = hg.generate(model, tokenizer, PROMPTS, CONSTRAINTS, stream=True, **greedy)
        ends = sorted((one for one in streamed if one.result is not None), key=lambda one: one.index)
        found["streamed"] = [[one.result.token_ids, one.result.text, one.result.finish_reason] for one in ends]
    found["random numbers"] = torch.rand(3).tolist()

    guide = hg.Guide(model, tokenizer)
    inputs = tokenizer(PROMPTS[:2], return_tensors="pt", padding=True, return_token_type_ids=False)
    for overlap in (False, True) if everything else (True,):
        processor = guide.logits_processor(CONSTRAINTS[:2], overlap=overlap)
        seam = {"logits_processor": [processor], "stopping_criteria": [processor.companion]}
        found[f"processor, overlap={overlap}"] = model.generate(
            **inputs, **HOT, max_new_tokens=MAX_NEW_TOKENS, **seam
        ).tolist()
    decoder = guide.decoder(CONSTRAINTS[:2], draft=["grammar", "prompt_lookup"])
    found["decoder"] = model.generate(**inputs, **HOT, max_new_tokens=MAX_NEW_TOKENS, custom_generate=decoder).tolist()

    greedy = {"do_sample": False, "max_new_tokens": MAX_NEW_TOKENS}
    decoder = guide.decoder(CONSTRAINTS[:2])
    first = model.generate(**inputs, **greedy, return_dict_in_generate=True, custom_generate=decoder)
    ended_before = torch.isin(first.sequences, torch.tensor(decoder.stop_token_ids)).cumsum(1).roll(1, 1) > 0
    ended_before[:, : inputs["input_ids"].shape[1]] = False
    mask = torch.nn.functional.pad(
        inputs["attention_mask"], (0, first.sequences.shape[1] - inputs["input_ids"].shape[1]), value=1
    )
    new = tokenizer(PROMPTS[:2], return_tensors="pt", padding=True, return_token_type_ids=False)
    second = {
        "input_ids": torch.cat([first.sequences, new["input_ids"]], dim=1),
        "attention_mask": torch.cat([mask * ~ended_before, new["attention_mask"]], dim=1),
    }
    for name, cache in (("continued", {CACHE_NAME: first[CACHE_NAME]}), ("without a cache", {})):
        decoder = guide.decoder(CONSTRAINTS[:2])
        found[f"next turn, {name}"] = model.generate(**second, **greedy, **cache, custom_generate=decoder).tolist()

    for name, constraint, asked in (
        ("one process cannot compile it", TOO_MUCH, {"backend": "llguidance", "max_new_tokens": 99}),
        ("no process can", {"properties": {"a": {"type": "int"}}}, {}),
        ("the budget is too small", SCHEMA, {}),
    ):
        try:
            hg.generate(model, tokenizer, PROMPTS[:1], constraint, **{"max_new_tokens": 3, **asked})
        except hg.HFGuidedError as error:
            found[name] = f"{type(error).__name__}: {error}"
    try:
        hg.generate(model, tokenizer, PROMPTS, CONSTRAINTS, do_sample=False, continuous_batching=True)
    except hg.HFGuidedError as error:
        found["continuous batching"] = type(error).__name__
    for name, asked in (("prompts", {"prompts": PROMPTS[: 2 + rank]}), ("texts", {"prompts": [f"{rank}"]})):
        try:
            hg.generate(model, tokenizer, constraint=["yes", "no"], **asked)
        except hg.HFGuidedError as error:
            found[f"other {name}"] = f"{type(error).__name__}: {error}"
    try:
        model.generate(**tokenizer(f"{rank}", return_tensors="pt"), custom_generate=guide.decoder(["yes", "no"]))
    except hg.HFGuidedError as error:
        found["other ids"] = f"{type(error).__name__}: {error}"
    try:
        hg.generate(model, tokenizer, PROMPTS, CONSTRAINTS, guide=hg.Guide(model.config.vocab_size, tokenizer))
    except ValueError as error:
        found["a guide without the model"] = str(error)
    for name, route in (("ours", {}), ("theirs", {"jump_forward": False})):
        with failing(model, at=3):
            try:
                hg.generate(model, tokenizer, PROMPTS, CONSTRAINTS, draft=None, **route)
            except IndexError as error:
                found[f"a forward pass of {name} fails"] = str(error)
        results(f"behind {name}", do_sample=False)
    try:
        guide.decoder(CONSTRAINTS[:2], draft=model)
    except hg.HFGuidedError as error:
        found["a spread assistant"] = f"{type(error).__name__}: {error}"
    strict = guide.decoder(hg.Regex("a+"), on_violation="raise")
    try:
        model.generate(**inputs, max_new_tokens=9, custom_generate=strict, suppress_tokens=range(len(tokenizer) - 9))
    except hg.HFGuidedError as error:
        found["an error in the middle"] = type(error).__name__
    results("afterwards", do_sample=False)
    return found


@contextmanager
def failing(model: Any, at: int) -> Iterator[None]:
    """One of its forward passes fails, in both processes."""
    passes = count(1)

    def fail(*_: Any) -> None:
        if next(passes) == at:
            raise IndexError("no such position")

    hook = model.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        hook.remove()


def run(rank: int, tokenizer: Any, directory: str, output: str, everything: bool) -> None:
    """Run one of the processes; the environment is as torchrun sets it."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    meeting_point = f"file://{Path(directory).absolute()}/meeting_point"
    dist.init_process_group("gloo", init_method=meeting_point, rank=rank, world_size=2)
    model = AutoModelForCausalLM.from_pretrained(directory, tp_plan="auto", dtype=torch.float64)
    assert model.tp_size == 2
    differ(rank)
    found = outcomes(model, tokenizer, rank, everything)
    Path(f"{output}-{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def main(directory: str, output: str, amount: str) -> None:
    """Import everything once, then run both processes; if one fails, the other is ended."""
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    _, tokenizer = demo.load()
    start_processes(run, args=(tokenizer, directory, output, amount == "everything"), nprocs=2, start_method="fork")


if __name__ == "__main__":
    main(*sys.argv[1:])
