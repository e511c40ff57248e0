"""Continuous batching on a device, on a GPU eagerly and from CUDA graphs: every answer is what was asked for."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import torch
from transformers import ContinuousBatchingConfig

import hf_guided as hg
from hf_guided import demo
from hf_guided.hf.continuous_batching.compat import first_processor
from tests.gpu.conftest import on_gpu


def asked_of(examples: list[demo.Example]) -> list[Any]:
    """The tasks of the demo model, five regular expressions and a free request."""
    return [*(one.schema for one in examples), *(re.compile(f"[a-f]{{{n}}}") for n in range(1, 6)), None]


def check(model: Any, tokenizer: Any, **given: Any) -> None:
    examples = demo.examples(6, seed=1)
    asked = asked_of(examples)
    results = hg.generate(model, tokenizer, [one.prompt for one in examples] * 2, asked, **given)
    assert [result.finish_reason for result in results[:-1]] == ["stop"] * 11
    for result, schema in zip(results[:6], asked, strict=False):
        jsonschema.validate(result.value, schema)
    assert all(
        re.fullmatch("[a-f]+", result.text) and len(result.text) == n for n, result in enumerate(results[6:-1], 1)
    )


SAMPLING = [{"do_sample": False}, {"do_sample": True, "temperature": 2.0}]


def test_every_answer_is_what_was_asked_for(device: torch.device) -> None:
    model, tokenizer = demo.load()
    config = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=256)
    check(model.to(device), tokenizer, continuous_batching=config, do_sample=True, temperature=2.0)


@pytest.mark.parametrize("sampling", SAMPLING, ids=["greedy", "samples"])
@pytest.mark.parametrize("graphs", [False, True])
@on_gpu
def test_asynchronous_batches(sampling: dict[str, Any], graphs: bool) -> None:
    model, tokenizer = demo.load()
    config = ContinuousBatchingConfig(
        num_blocks=64, max_batch_tokens=256, use_cuda_graph=graphs, use_async_batching=True
    )
    check(model.cuda(), tokenizer, continuous_batching=config, **sampling)


@on_gpu
def test_graphs_read_the_masks_where_they_were_captured() -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(model, tokenizer)
    config = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64, use_cuda_graph=True)
    manager = guide.attach(model.cuda().init_continuous_batching(continuous_batching_config=config))
    masks = first_processor(manager)
    manager.warmup()
    addresses = masks._own.data_ptr(), masks._shared.data_ptr()
    manager.start()
    try:
        for n in range(1, 9):
            pattern = hg.Regex(f"[a-f]{{{n}}}")
            manager.add_request(tokenizer("Say it: ")["input_ids"], response_format=pattern, max_new_tokens=20)
            output = manager.get_result(timeout=600)
            assert len(guide.read(pattern, output.generated_tokens).text) == n
        assert (masks._own.data_ptr(), masks._shared.data_ptr()) == addresses
    finally:
        manager.stop(block=True)
