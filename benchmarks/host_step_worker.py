"""Host time of a step on the device lane, for one tree of the sources; see bench_host_step.py.

The package is the one in PYTHONPATH. The model is not run, and no kernel: the last of a step's launches writes the same
token in every row.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

import hf_guided as hg
from hf_guided import demo
from hf_guided.hf.decode.cache_slots import CacheSlots
from hf_guided.hf.device import kernels, store
from hf_guided.hf.device.kernel_loader import Found
from hf_guided.hf.device.loop import DeviceLoop


class Stub:
    """Takes launches and does nothing, except that every row's token is this one."""

    def __init__(self, token: int):
        self._token = token

    def __call__(self, launch: Any) -> None:
        """As launchers were called before launches were prepared."""
        if launch.kernel == "gb_pick":
            launch.arguments[2].fill_(self._token)

    def prepare(self, launch: Any) -> Any:
        if launch.kernel == "gb_pick":
            return lambda replaced: replaced.fill_(self._token)
        return lambda replaced=None: None


def stubbed_kernels(stub: Stub) -> Any:
    if hasattr(kernels, "LaunchedKernels"):
        return kernels.LaunchedKernels("stub", stub)
    from hf_guided.hf.device.ops import register  # the tree before launches were prepared

    stubbed_kernels.library = register("stub", "CPU", stub, lambda device: 1)  # type: ignore[attr-defined]
    return kernels.OpKernels("stub", torch.ops.stub)


def main(rows: int, tokens: int, calls: int) -> None:
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    found = Found(stubbed_kernels(Stub(tokenizer.encode("a", add_special_tokens=False)[0])), {})
    store.find = lambda *given, **named: found
    logits = torch.zeros(rows, guide.vocabulary.padded_size)
    CacheSlots.run_on_device = lambda *given: logits  # type: ignore[method-assign,assignment]
    run, taken = DeviceLoop.run, []

    def timed(*given: Any) -> None:
        start = time.thread_time_ns()
        run(*given)
        taken.append((time.thread_time_ns() - start) / tokens / 1e3)

    DeviceLoop.run = timed  # type: ignore[method-assign,assignment]
    inputs = tokenizer(["one"] * rows, return_tensors="pt", return_token_type_ids=False)
    for _ in range(calls):
        decoder = guide.decoder(hg.Regex("[a-z]+"), backend="automaton", jump_forward=False, device_lane=True)
        model.generate(**inputs, custom_generate=decoder, max_new_tokens=tokens, do_sample=False)
        assert not decoder.host_reason, decoder.host_reason
    print(json.dumps(taken))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
