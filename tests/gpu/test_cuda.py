"""The plain seam with scores on a GPU gives what it gives on the CPU."""

from __future__ import annotations

import pytest
import torch

import hf_guided as hg
from hf_guided.hf.decode.cache_slots import CacheSlots
from hf_guided.session.apply import apply_bitmask
from hf_guided.vocabulary.bitmask import pack

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999, 1.0])
def test_apply_equals_the_cpu(dtype: torch.dtype, share: float) -> None:
    torch.manual_seed(0)
    scores = torch.randn(5, 32003).to(dtype)
    bitmask = pack(torch.rand(5, 32003) < share)
    expected, expected_alive = apply_bitmask(scores, bitmask, [0, 2, 3])
    masked, alive = apply_bitmask(scores.cuda(), bitmask, [0, 2, 3])
    assert torch.equal(masked.cpu(), expected)
    assert alive == expected_alive


@pytest.mark.parametrize("rows", [1, 4])
def test_fast_loop_queues_its_passes_without_a_wait(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_guided import demo

    model, tokenizer = demo.load()
    examples = demo.examples(rows, seed=1)
    run, passes = CacheSlots.run, []

    def strict(*given: object) -> torch.Tensor:
        torch.cuda.set_sync_debug_mode("error")
        try:
            passes.append(run(*given))  # type: ignore[arg-type]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return passes[-1]

    monkeypatch.setattr(CacheSlots, "run", strict)
    guide = hg.Guide(model.cuda(), tokenizer)
    inputs = tokenizer([example.prompt for example in examples], return_tensors="pt", padding=True, padding_side="left")
    decoder = guide.decoder([example.schema for example in examples])
    model.generate(**inputs.to("cuda"), custom_generate=decoder, max_new_tokens=200)
    assert len(passes) > 1 and not decoder.plain_reason


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 4}])
def test_demo_model_on_the_gpu(mode: dict[str, int]) -> None:
    from hf_guided import demo

    model, tokenizer = demo.load()
    examples = demo.examples(4, seed=1)
    prompts, schemas = [example.prompt for example in examples], [example.schema for example in examples]
    on_cpu = hg.generate(model, tokenizer, prompts, schemas, **mode)
    on_gpu = hg.generate(model.cuda(), tokenizer, prompts, schemas, **mode)
    assert all(result.finish_reason == "stop" for result in on_gpu)
    assert [result.value for result in on_gpu] == [result.value for result in on_cpu]
