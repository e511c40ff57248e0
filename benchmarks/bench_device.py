"""What does guided decoding on the device cost, against free generation? Pairs of calls, one after the other.

    python -m benchmarks.bench_device                                          # on an NVIDIA GPU, about three minutes
    python -m benchmarks.bench_device --device cpu --shape tiny --pairs 2 --tokens 12 --batch 1 3

A random Llama of 1B shape in bf16 with Tekken's vocabulary writes so many tokens in every row, greedily: free in
``model.generate``, free in hf-guided's loop, and guided in that loop, where the device masks and chooses. No row ends
before: the grammar does not allow it, and of the free ones the stop token's score is made 0. The grammar has two sizes:
in the large one the states do not fit the pool, and each of its calls begins with an empty pool, so that every step has
to make its masks. Rounds of all sides, in
changing order; a round's ratio is the time of one to that of the guided one, so above 1 guided is faster. The bound
below the median holds with 95 %, whatever the times are like: it is the order statistic that the sign test gives.

- eager: a growing cache;
- captured: a static cache, each step of hf-guided's loop one CUDA graph; generate() itself runs op by op;
- compiled: a static cache, for which generate() has the forward pass compiled into CUDA graphs; the loop uses the same.

Before anything is timed, guided lines are read by ``re``, and it is made sure that the device chose them.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import RESULTS, hardware, load_average, markdown_table, write_csv
from benchmarks.decode_cases import SHAPES, random_model
from hf_guided.hf.decode.options import DecodeOptions
from hf_guided.hf.device import kernel_loader
from hf_guided.options import DeviceLane

LINE = r'\{"id": [0-9]{1,6}, "name": "[a-z ]{1,24}"\}\n'
LINES = 60  # more than are ever written
COLD_LINES = 500  # 25,000 states, whose masks do not fit the pool: 16,384 of Tekken's vocabulary do
GENERATE, LOOP, GUIDED = "free, model.generate", "free, hf-guided's loop", "guided, on the device"
COLD = "guided, no mask in the pool"
SIDES = GENERATE, LOOP, GUIDED, COLD
FORMS: dict[str, dict[str, Any]] = {  # arguments of generate()
    "eager": {},
    "captured": {"cache_implementation": "static", "disable_compile": True},
    "compiled": {"cache_implementation": "static"},
}
AIMED_AT = {  # median ratio, and the bound below it
    ("eager", GENERATE): (0.995, 0.98),
    ("eager", LOOP): (0.995, 0.98),
    ("captured", LOOP): (0.98, None),
    ("compiled", GENERATE): (0.98, None),
    ("compiled", LOOP): (0.98, None),
}
Side = Callable[[], list[list[int]]]


class Model:
    """A model and the call of each side.

    Args:
        shape: of ``SHAPES``.
        device: "cpu" or "cuda".
    """

    def __init__(self, shape: str, device: str):
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        self.model, self.tokenizer = random_model(shape, device=device, dtype=dtype)
        with torch.no_grad():
            self.model.get_output_embeddings().weight[self.tokenizer.eos_token_id] = 0  # never the greatest of so many
        self.guide = hg.Guide(self.tokenizer, self.model)
        self.constraints = {
            GUIDED: hg.Regex(f"({LINE}){{{LINES}}}"),
            COLD: hg.Regex(f"({LINE}){{{COLD_LINES}}}"),
        }
        for constraint in self.constraints.values():
            self.guide.compile(constraint, "automaton")

    def sides(self, rows: int, tokens: int, form: str) -> dict[str, Side]:
        """What writes so many tokens in so many rows.

        Args:
            rows: of the batch.
            tokens: that every row writes.
            form: of ``FORMS``.
        """
        prompt = self.tokenizer.encode("Customers, a line each:\n")
        ids = torch.tensor([prompt] * rows, device=self.model.device)
        captured = form == "captured"
        settings: dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "max_new_tokens": tokens,
            "do_sample": False,
            "pad_token_id": self.tokenizer.eos_token_id,
            **FORMS[form],
        }

        def generate(**more: Any) -> list[list[int]]:
            output = self.model.generate(**settings, **more)
            return output[:, ids.shape[1] :].tolist()

        def loop(constraint: Any, backend: str) -> Side:
            def run() -> list[list[int]]:
                lane: DeviceLane = "captured" if captured else True
                session = self.guide.session(constraint, backend=backend)  # of texts that are cut
                decoder = self.guide.decoder_of(
                    session, DecodeOptions(jump_forward=False, device_lane=lane, closes=False), backend
                )
                found = generate(custom_generate=decoder)
                assert not decoder.host_reason, f"the device lane was not taken: {decoder.host_reason}"
                assert not captured or not decoder.eager_reason, f"steps were not captured: {decoder.eager_reason}"
                return found

            return run

        guided = {name: loop(constraint, "automaton") for name, constraint in self.constraints.items()}
        return {GENERATE: generate, LOOP: loop(None, "auto"), **guided}

    def prepare(self, name: str) -> None:
        """What comes before the time of a side: without the pools that are kept, the cold one finds no mask."""
        if name == COLD:
            self.guide._device_store.forget_pools()

    def check(self, sides: dict[str, Side], tokens: int) -> None:
        """All write as many tokens, and guided rows are of the language."""
        for name, side in sides.items():
            for row in side():
                assert len(row) == tokens, f"{name}: {len(row)} tokens"
                if name in self.constraints:
                    lines = self.guide.vocabulary.decode_bytes(row).split(b"\n")
                    assert all(re.fullmatch(LINE.encode(), line + b"\n") for line in lines[:-1]), lines


def seconds(side: Side, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    side()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def rounds(sides: dict[str, Side], pairs: int, device: str, prepare: Callable[[str], None]) -> list[dict[str, float]]:
    """Seconds of each side in each round, after its preparation."""
    found = []
    for number in range(pairs):
        order = list(sides)
        random.Random(number).shuffle(order)
        taken = {}
        for name in order:
            prepare(name)
            taken[name] = seconds(sides[name], device)
        found.append(taken)
    return found


def lower_bound(values: Sequence[float], doubt: float = 0.05) -> float | None:
    """What the median is above, but for this doubt; None where there are too few values to say.

    The k-th smallest is above the median only if fewer than k of the values are below it, and each of them is so with
    probability 1/2.
    """
    count, below, rank = len(values), 0.0, 0
    while rank < count:
        below += math.comb(count, rank) / 2**count
        if below > doubt:
            break
        rank += 1
    return sorted(values)[rank - 1] if rank else None


def result_rows(taken: Sequence[dict[str, float]], rows: int, tokens: int, **common: Any) -> list[dict[str, Any]]:
    """A row for each side, with what guided decoding is to it."""
    found = []
    for name in [one for one in SIDES if one in taken[0]]:
        ratios = [one[name] / one[GUIDED] for one in taken]
        bound = lower_bound(ratios)
        found.append(
            {
                **common,
                "batch": rows,
                "tokens": tokens,
                "side": name,
                "pairs": len(taken),
                "p50_s": f"{statistics.median(one[name] for one in taken):.4f}",
                "tokens_per_s": f"{rows * tokens / statistics.median(one[name] for one in taken):.1f}",
                "guided_ratio": "" if name == GUIDED else f"{statistics.median(ratios):.4f}",
                "guided_ratio_lower": "" if name == GUIDED or bound is None else f"{bound:.4f}",
            }
        )
    return found


def verdict(row: dict[str, Any]) -> str:
    """What was aimed at, met or not; empty where nothing was."""
    aimed = AIMED_AT.get((row["form"], row["side"]))
    if aimed is None:
        return ""
    median, lower = aimed
    met = float(row["guided_ratio"]) >= median
    if lower is not None:
        met = met and bool(row["guided_ratio_lower"]) and float(row["guided_ratio_lower"]) >= lower
    return "met" if met else "MISSED"


def table(rows: Sequence[dict[str, Any]], *, judged: bool) -> str:
    """As markdown; judged: with verdicts, which are for NVIDIA GPUs."""
    header = ["form", "batch", "side", "tokens a second", "guided to it", "lower bound", "aimed at"]
    names = ("form", "batch", "side", "tokens_per_s", "guided_ratio", "guided_ratio_lower")
    cells = [[*(str(row[name]) for name in names), verdict(row) if judged else ""] for row in rows]
    return markdown_table(header, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--shape", choices=list(SHAPES), default="1b")
    parser.add_argument("--form", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 64])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--csv", type=Path, default=RESULTS / "device.csv")
    arguments = parser.parse_args()
    model = Model(arguments.shape, arguments.device)
    common = {
        "model": f"random Llama ({arguments.shape})",
        "dtype": str(model.model.dtype),
        "device": torch.cuda.get_device_name() if arguments.device == "cuda" else hardware(),
        "kernels": kernel_loader.find(device=arguments.device).kernels.name,
    }
    rows: list[dict[str, Any]] = []
    for form in arguments.form:
        for batch in arguments.batch:
            sides = model.sides(batch, arguments.tokens, form)
            for _ in range(2):  # compiles, captures and fills the pool of masks
                model.check(sides, arguments.tokens)
            taken = rounds(sides, arguments.pairs, arguments.device, model.prepare)
            more = {**common, "form": form, "load": load_average()}
            rows += result_rows(taken, batch, arguments.tokens, **more)
            write_csv(arguments.csv, rows)  # what is measured is kept, whatever comes
    print(table(rows, judged=arguments.device == "cuda"))


if __name__ == "__main__":
    main()
