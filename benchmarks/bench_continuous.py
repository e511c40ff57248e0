"""What do constraints cost in continuous batching? The same requests, free and guided, in managers of one kind.

    python -m benchmarks.bench_continuous                                                  # on an NVIDIA GPU
    python -m benchmarks.bench_continuous --device cpu --shape tiny --requests 4 --tokens 12 --rounds 2

Every request has a prompt of its own; guided ones write lines until their tokens are used up, because the stop token's
score is made 0. On a GPU managers batch asynchronously, and then not: a free batch is prepared while the one before it
runs, and a guided one waits for its tokens. Rounds of both sides, in changing order; a round's ratio is the tokens a
second of a side to those of the free one. Managers are made, warmed up and stopped outside of the time, and the answers
of every guided request are read by ``re``.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

import hf_guided as hg
from benchmarks.bench_device import LINE, Model
from benchmarks.common import hardware, parser, table_of, turns, write_csv
from benchmarks.decode_cases import SHAPES

FREE = "free"
SIDES = {FREE: "auto", "guided natively": "native"}  # backends
_PATIENCE_S = 600


class Requests:
    """The requests of all sides; asynchronous: batches are prepared while others run."""

    def __init__(self, shape: str, device: str, count: int, tokens: int, asynchronous: bool):
        given = Model(shape, device)
        self.model, self.guide, self.device = given.model, given.guide, device
        self.constraint = hg.Regex(f"({LINE})+")
        self.tokens, self.asynchronous = tokens, asynchronous
        self.prompts = [given.tokenizer.encode(prompt) for prompt in given.prompts(count)]

    @contextmanager
    def manager(self) -> Iterator[Any]:
        """A running manager; on a CPU with a small cache."""
        small = {} if self.device == "cuda" else {"num_blocks": 64, "page_size": 32, "max_batch_tokens": 256}
        config = ContinuousBatchingConfig(
            max_requests_per_batch=len(self.prompts), use_async_batching=self.asynchronous, **small
        )
        settings = GenerationConfig(
            do_sample=False, max_new_tokens=self.tokens, eos_token_id=self.guide.tokenizer.eos_token_id
        )
        manager = self.guide.attach(self.model.init_continuous_batching(settings, config))
        manager.warmup()
        manager.start()
        try:
            yield manager
        finally:
            manager.stop(block=True, hard_stop=True)
            manager.destroy()

    def run(self, name: str) -> float:
        """Tokens a second of a side, from the first request to the last answer; answers are checked."""
        asked = {} if name == FREE else {"response_format": self.constraint, "backend": SIDES[name]}
        with self.manager() as manager:
            start = time.perf_counter()
            for prompt in self.prompts:
                manager.add_request(prompt, **asked)
            outputs = [manager.get_result(timeout=_PATIENCE_S) for _ in self.prompts]
            taken = time.perf_counter() - start
        for output in outputs:
            assert output is not None and output.error is None, output
            if asked:
                text = self.guide.vocabulary.decode_bytes(output.generated_tokens[:-1])  # without the stop token
                assert re.fullmatch(f"({LINE})+".encode(), text), text
        return sum(len(output.generated_tokens) for output in outputs) / taken


def rounds(requests: Requests, count: int) -> list[dict[str, float]]:
    """Tokens a second of each side in each round, after one that is not counted."""
    found = [{name: requests.run(name) for name in turns(SIDES, number)} for number in range(count + 1)]
    return found[1:]


def result_rows(taken: Sequence[dict[str, float]], requests: Requests, **common: Any) -> list[dict[str, Any]]:
    """A row for each side, with what it is to the free one."""
    return [
        {
            **common,
            "requests": len(requests.prompts),
            "tokens": requests.tokens,
            "batches": "asynchronous" if requests.asynchronous else "synchronous",
            "side": name,
            "rounds": len(taken),
            "tokens_per_s": f"{statistics.median(one[name] for one in taken):.1f}",
            "ratio_to_free": f"{statistics.median(one[name] / one[FREE] for one in taken):.4f}",
        }
        for name in SIDES
    ]


def main() -> None:
    made = parser(__doc__, "continuous.csv")
    made.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    made.add_argument("--shape", choices=list(SHAPES), default="1b")
    made.add_argument("--requests", nargs="+", type=int, default=[64, 256])
    made.add_argument("--tokens", type=int, default=64)
    made.add_argument("--rounds", type=int, default=5)
    arguments = made.parse_args()
    found: list[dict[str, Any]] = []
    device = torch.cuda.get_device_name() if arguments.device == "cuda" else hardware()
    for count, asynchronous in product(arguments.requests, [True, False] if arguments.device == "cuda" else [False]):
        requests = Requests(arguments.shape, arguments.device, count, arguments.tokens, asynchronous)
        taken = rounds(requests, arguments.rounds)
        model = f"random Llama ({arguments.shape})"
        found += result_rows(taken, requests, model=model, device=device)
        write_csv(arguments.csv or arguments.results, found)  # what is measured is kept, whatever comes
    names = ("requests", "batches", "side", "tokens_per_s", "ratio_to_free")
    print(table_of(found, {name: name for name in names}))


if __name__ == "__main__":
    main()
