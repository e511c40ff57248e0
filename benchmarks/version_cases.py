"""The generations that bench_versions times, in a process of its own.

They use only public names, so that they run in old checkouts too.

Reads the name of a case per line, runs it once, and prints the CPU seconds it took.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import hf_guided as hg
from hf_guided import demo

TOKENS = 60
BATCHES = (1, 8)
CASES = ("free", "processor", "companion", "loop", "generate")


def cases() -> dict[str, Callable[[], Any]]:
    """Each case at each batch size, by name."""
    model, tokenizer = demo.load()
    guide = hg.Guide(tokenizer, model)
    text = hg.Regex("[a-z ,.]{400}")
    examples = demo.examples(max(BATCHES), seed=1)
    found: dict[str, Callable[[], Any]] = {}
    for batch in BATCHES:
        inputs = tokenizer(["Write: "] * batch, return_tensors="pt")
        alone = guide.logits_processor(text, overlap=False)
        helped = guide.logits_processor(text)
        prompts = [example.prompt for example in examples[:batch]]
        schemas = [example.schema for example in examples[:batch]]

        def run(inputs: Any = inputs, **arguments: Any) -> Any:
            return model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS, **arguments)

        def free(run: Any = run) -> Any:
            return run(min_new_tokens=TOKENS)

        def processor(run: Any = run, seam: Any = alone) -> Any:
            seam.reset()
            return run(logits_processor=[seam])

        def companion(run: Any = run, seam: Any = helped) -> Any:
            seam.reset()
            return run(logits_processor=[seam], stopping_criteria=[seam.companion])

        def loop(run: Any = run) -> Any:
            return run(custom_generate=guide.decoder(text))

        def generate(prompts: Any = prompts, schemas: Any = schemas, batch: int = batch) -> Any:
            return hg.generate(model, tokenizer, prompts, schemas, do_sample=False, batch_size=batch, progress=False)

        each = (free, processor, companion, loop, generate)
        found |= {f"{name} {batch}": case for name, case in zip(CASES, each, strict=True)}
    return found


def main() -> None:
    """Serve until the input ends."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = cases()
    for case in known.values():
        for _ in range(3):
            case()
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.process_time()
        known[line.strip()]()
        print(time.process_time() - start, flush=True)


if __name__ == "__main__":
    main()
