"""With the kernels, without them, without the packages that bring them: the same tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

import hf_guided as hg
from hf_guided import demo
from hf_guided.hf.device import store
from hf_guided.hf.device.kernel_loader import Found
from hf_guided.hf.device.kernels import TorchKernels
from tests.kernel_harness import ROOT, Harness, HarnessKernels


@pytest.fixture(scope="module")
def kernels(harness: Harness) -> HarnessKernels:
    return HarnessKernels(harness)


CONSTRAINTS = [hg.Regex("[a-z]{2,9}( [0-9]{1,4})?[.]"), None, hg.Choice(["seven", "seventy", "sixty"])]


def written(budget: int | None, **arguments: Any) -> list[list[int]]:
    """What three rows write on the device lane; free of what other calls left there."""
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    decoder = guide.decoder(
        CONSTRAINTS, backend="automaton", jump_forward=False, device_lane=True, max_new_tokens=budget
    )
    inputs = tokenizer(["one two"] * 3, return_tensors="pt", return_token_type_ids=False)
    torch.manual_seed(5)
    output = model.generate(**inputs, custom_generate=decoder, max_new_tokens=budget or 24, **arguments)
    assert decoder.host_reason == ""
    return output.tolist()


@pytest.mark.parametrize(
    ("budget", "asked"),
    [
        (None, {"do_sample": False}),
        (8, {"do_sample": False}),
        (None, {"do_sample": True}),  # top_k=50
        (None, {"do_sample": True, "top_k": 0, "temperature": 1.3}),
        (8, {"do_sample": True, "top_k": 20, "top_p": 0.9, "min_p": 0.02}),
    ],
    ids=str,
)
def test_the_kernels_write_what_torch_writes(
    kernels: HarnessKernels, monkeypatch: pytest.MonkeyPatch, budget: int | None, asked: dict[str, Any]
) -> None:
    expected = written(budget, **asked)
    before = kernels.steps, kernels.draws
    monkeypatch.setattr(store, "find", lambda device: Found(kernels, {}))
    assert written(budget, **asked) == expected
    steps = len(expected[0]) - len(demo.load()[1]("one two").input_ids)
    assert (kernels.steps - before[0], kernels.draws - before[1]) >= (steps, steps)


BARE = """
import json, sys
for name in "cuda", "kernels", "triton", "cupy":
    sys.modules[name] = None
import hf_guided as hg
from hf_guided import demo
from hf_guided.hf.device import kernel_loader
model, tokenizer = demo.load()
examples = demo.examples(2, seed=3)
found = hg.generate(model, tokenizer, [one.prompt for one in examples], [one.schema for one in examples])
print(json.dumps([kernel_loader.find().kernels.name, [one.text for one in found]]))
"""


# Where there is a GPU, it is taken away too.
ENVIRONMENTS = [{}, {"CUDA_VISIBLE_DEVICES": ""}] if torch.cuda.is_available() else [{}]


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
@pytest.mark.slow
def test_without_the_packages_and_without_a_gpu(environment: dict[str, str]) -> None:
    model, tokenizer = demo.load()
    examples = demo.examples(2, seed=3)
    here = hg.generate(model, tokenizer, [one.prompt for one in examples], [one.schema for one in examples])
    done = subprocess.run(
        [sys.executable, "-c", BARE],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [TorchKernels.name, [one.text for one in here]]
