"""What is written down on a GPU is what is written down on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hf_guided as hg
from hf_guided import demo

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


@pytest.mark.parametrize("asked", [{}, {"jump_forward": False}, {"num_beams": 2}], ids=str)
def test_a_trace_from_the_gpu(asked: dict[str, Any]) -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(model, tokenizer)
    examples = demo.EXAMPLES[:3]
    found = []
    for device in ("cpu", "cuda"):
        results = hg.generate(
            model.to(device).double(),
            tokenizer,
            [one.prompt for one in examples],
            [examples[0].schema, None, examples[2].schema],
            guide=guide,
            trace=True,
            do_sample=False,
            max_new_tokens=100,
            **asked,
        )
        found.append([one.trace for one in results])
    for ours, theirs in zip(*found, strict=True):
        assert ours is not None and theirs is not None
        assert [(one.token_id, one.kind) for one in ours.tokens] == [(one.token_id, one.kind) for one in theirs.tokens]
        for one, other in zip(ours.tokens, theirs.tokens, strict=True):
            assert (one.look is None) == (other.look is None)
            if one.look is not None and other.look is not None:
                assert one.look.allowed == other.look.allowed
                assert one.look.removed == pytest.approx(other.look.removed, abs=1e-5)
                assert one.after == pytest.approx(other.after, abs=1e-5)
