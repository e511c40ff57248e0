"""Continuous batching on a GPU, eagerly and from CUDA graphs: every answer is what was asked for."""

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

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


@pytest.mark.parametrize("sampling", [{"do_sample": False}, {"do_sample": True, "temperature": 2.0}])
@pytest.mark.parametrize("use_cuda_graph", [False, True])
@pytest.mark.parametrize("on_device", [{}, {"device_lane": True, "backend": "automaton"}])
def test_every_answer_is_what_was_asked_for(
    sampling: dict[str, Any], use_cuda_graph: bool, on_device: dict[str, Any]
) -> None:
    model, tokenizer = demo.load()
    examples = demo.examples(6, seed=1)
    prompts = [example.prompt for example in examples] * 2
    asked: list[Any] = [
        *(example.schema for example in examples),
        *(re.compile(f"[a-f]{{{n}}}") for n in range(1, 6)),
        None,
    ]
    config = ContinuousBatchingConfig(
        num_blocks=64, max_batch_tokens=256, use_cuda_graph=use_cuda_graph, use_async_batching=True
    )
    stats: list[hg.SessionStats] = []
    given = {"continuous_batching": config, "stats": stats.append, **sampling, **on_device}
    results = hg.generate(model.cuda(), tokenizer, prompts, asked, **given)
    assert (stats[0].device_steps > 0) == bool(on_device)
    assert [result.finish_reason for result in results[:-1]] == ["stop"] * 11
    for result, schema in zip(results[:6], asked, strict=False):
        jsonschema.validate(result.value, schema)
    assert all(
        re.fullmatch("[a-f]+", result.text) and len(result.text) == n for n, result in enumerate(results[6:-1], 1)
    )


def test_graphs_read_the_masks_where_they_were_captured() -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    config = ContinuousBatchingConfig(num_blocks=64, max_batch_tokens=64, use_cuda_graph=True)
    manager = guide.attach(model.cuda().init_continuous_batching(continuous_batching_config=config))
    masks = first_processor(manager)
    manager.warmup()
    address = masks._masks.data_ptr()
    manager.start()
    try:
        for n in range(1, 9):
            pattern = hg.Regex(f"[a-f]{{{n}}}")
            manager.add_request(tokenizer("Say it: ")["input_ids"], response_format=pattern, max_new_tokens=20)
            output = manager.get_result(timeout=600)
            assert len(guide.read(pattern, output.generated_tokens).text) == n
        assert masks._masks.data_ptr() == address
    finally:
        manager.stop(block=True)
