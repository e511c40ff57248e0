"""Does everything that touches a GPU work at all? Each part once; a part that fails does not stop the others.

python -m benchmarks.gpu_smoke [--device cpu]
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import parser
from hf_guided import demo
from hf_guided.session.mask_kernel import apply_with_torch, kernel_in_use, mask_kernel
from hf_guided.vocabulary.bitmask import pack

VOCAB = 262_144
DTYPES = torch.bfloat16, torch.float16, torch.float32
STRIDES = {"aligned": (VOCAB + 8, 8), "not aligned": (VOCAB + 3, 1)}  # of a row, and where the first begins
COMPACT = {"whitespace": "compact"}


class Smoke:
    """Runs the parts, and remembers which have failed."""

    def __init__(self, device: str):
        self.device = torch.device(device, 0) if device == "cuda" else torch.device(device)
        self.failed: list[str] = []

    def part(self, name: str, run: Callable[[], object]) -> None:
        start = time.perf_counter()
        try:
            found = run()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
        except Exception:
            self.failed.append(name)
            print(f"FAILED {name}\n{traceback.format_exc(limit=-6)}", flush=True)
        else:
            print(f"ok     {name}: {time.perf_counter() - start:.2f} s {'' if found is None else found}", flush=True)

    def find(self) -> str:
        name, reason = kernel_in_use(self.device)
        if self.device.type == "cuda" and name == "torch":
            raise RuntimeError(f"no kernel: {reason}")
        return f"{name} {reason}"

    def mask(self, dtype: torch.dtype, stride: int, offset: int) -> None:
        """Rows of all kinds: masked from the table, from the masks of their own, not at all, and without a choice."""
        scores = torch.randn(16, stride).to(dtype)[:, offset:][:, :VOCAB]
        masks, own = (pack(torch.rand(count, VOCAB) < 0.5) for count in (16, 2))
        masks[7] = 0
        slots = torch.arange(16, dtype=torch.int32)
        slots[4], slots[5], slots[6] = -1, -2, -3
        stops = torch.tensor([2, 9])
        given = scores, masks, slots, own, stops
        whole = scores._base.to(self.device) if scores._base is not None else scores.to(self.device)
        there = whole.as_strided(scores.shape, scores.stride(), scores.storage_offset())
        found = mask_kernel(self.device)(there, *(one.to(self.device) for one in given[1:]))
        for ours, theirs in zip(found, apply_with_torch(*given), strict=True):
            assert torch.equal(ours.cpu(), theirs)
        if self.device.type == "cuda":
            self.find()  # the kernel may have failed just now, and torch's operations taken over

    def replayed(self) -> None:
        """Run the kernel in a CUDA graph, with other scores and masks at the replay."""
        kernel = mask_kernel(self.device)
        scores = torch.zeros(3, 50_000, device=self.device)
        masks = pack(torch.rand(3, 50_000) < 0.5).to(self.device)
        slots = torch.arange(3, dtype=torch.int32, device=self.device)
        kernel(scores, masks, slots)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            masked, alive = kernel(scores, masks, slots)
        scores.normal_()
        masks.bitwise_not_()
        graph.replay()
        expected, expected_alive = apply_with_torch(scores.cpu(), masks.cpu(), slots.cpu())
        assert torch.equal(masked.cpu(), expected) and torch.equal(alive.cpu(), expected_alive)

    def processor(self, companion: bool) -> str:
        model, tokenizer = demo.load()
        guide = hg.Guide(model.to(self.device), tokenizer)
        inputs = tokenizer("Say it: ", return_tensors="pt").to(self.device)
        processor = guide.logits_processor(hg.Regex("[a-f]{5}"))
        criteria = [processor.companion] if companion else []
        output = model.generate(**inputs, max_new_tokens=20, logits_processor=[processor], stopping_criteria=criteria)
        text = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        assert re.fullmatch("[a-f]{5}", text), text
        return repr(text)

    def generate(self, **options: Any) -> str:
        """The demo model on its own tasks, and how many values are those of the CPU."""
        model, tokenizer = demo.load()
        examples = demo.examples(4, seed=1)
        prompts = [one.prompt for one in examples]
        schemas = [hg.JsonSchema(one.schema, **COMPACT) for one in examples]
        plain = hg.generate(model.cpu(), tokenizer, prompts, schemas)
        found = hg.generate(model.to(self.device), tokenizer, prompts, schemas, **options)
        assert [one.finish_reason for one in found] == ["stop"] * 4, [one.finish_reason for one in found]
        same = sum(one.value == other.value for one, other in zip(found, plain, strict=True))
        return f"{same} of 4 as on the CPU"


GENERATE: dict[str, dict[str, Any]] = {
    "hg.generate": {},
    "one token a pass": {"jump_forward": False},
    "sampling": {"do_sample": True, "top_k": 20, "top_p": 0.9},
    "static cache": {"cache_implementation": "static", "disable_compile": True},
    "drafts": {"draft": "prompt_lookup"},
    "beams": {"num_beams": 2},
    "continuous batching": {"continuous_batching": True},
}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    smoke = Smoke(made.parse_args().device)
    smoke.part("kernel", smoke.find)
    for dtype in DTYPES:
        for name, (stride, offset) in STRIDES.items():
            smoke.part(f"mask {dtype}, {name}", partial(smoke.mask, dtype, stride, offset))
    if smoke.device.type == "cuda":
        smoke.part("mask in a graph", smoke.replayed)
    for companion in (False, True):
        smoke.part(f"logits processor{', companion' * companion}", partial(smoke.processor, companion))
    for name, options in GENERATE.items():
        smoke.part(name, partial(smoke.generate, **options))
    print(f"{len(smoke.failed)} failed: {smoke.failed}")
    raise SystemExit(bool(smoke.failed))


if __name__ == "__main__":
    main()
