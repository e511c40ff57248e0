"""How long does masking take on the device? Writing -inf, and the whole automaton step, at many shapes.

    python -m benchmarks.bench_apply                         # on an NVIDIA GPU, about two minutes
    python -m benchmarks.bench_apply --device cpu --quick    # the same code on a CPU, small shapes

- apply: -inf into logits from bits, of which a share is set by chance; ours, torch's ``masked_fill_`` (which is given a
  bool mask), and the kernels of xgrammar and llguidance. "fill_" is the time of writing as many bytes in one piece as
  cannot be helped: the mask's words, and the 32-byte sectors that hold a forbidden logit.
- step: every row moves by one token, finds its mask or has it made, and is masked. Hot: all masks are there. Cold: none
  is, and each row needs another, or all need the same.

Every side's result is compared before it is timed. Times are of calls in a CUDA graph, see device_timing.py. What was
aimed at on a GPU is printed below the table, met or not.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.apply_sides import BOUND, OURS, Buffer, Make, Side, all_sides
from benchmarks.common import RESULTS, hardware, load_average, markdown_table, write_csv
from benchmarks.device_timing import NODES, ROTATED_BYTES, buffers_needed, taken_columns, time_calls
from benchmarks.step_cases import COLD, HOT, KINDS, SHARED, Constrained, Steps, resized
from hf_guided.hf.device import kernel_loader
from hf_guided.hf.device.kernels import Kernels, TorchKernels
from hf_guided.vocabulary.tokens import Vocabulary

VOCABULARIES = 32_000, 131_072, 151_936, 262_208
BATCHES = 1, 8, 64, 256
ALLOWED = 0.001, 0.5, 0.999
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Args:
        vocabularies: widths of the logits.
        batches: rows.
        rotated: bytes of logits that calls take in turn.
        replays: timed.
        tokens: the vocabulary of the steps, before it is resized.
    """

    vocabularies: Sequence[int]
    batches: Sequence[int]
    rotated: int
    replays: int
    tokens: Callable[[], Vocabulary]


def tekken() -> Vocabulary:
    from tests.vocabularies import tekken as tokenizer

    return Vocabulary.from_tokenizer(tokenizer())


def small() -> Vocabulary:
    from tests.vocabularies import demo as tokenizer

    return Vocabulary.from_tokenizer(tokenizer())


FULL = Sizes(VOCABULARIES, BATCHES, ROTATED_BYTES, 15, tekken)
QUICK = Sizes((700, 1_501), (1, 3), 2**16, 2, small)


def apply_rows(sizes: Sizes, sides: dict[str, Make], dtype: torch.dtype, device: torch.device) -> Iterator[Row]:
    """One for each shape, share and side."""
    made: dict[str, Side | str] = {}
    for name, make in sides.items():
        try:
            made[name] = make(device)
        except Exception as error:  # a peer that is not installed, or does not build here
            made[name] = _reason(error)
    for vocab in sizes.vocabularies:
        for rows in sizes.batches:
            count = buffers_needed(rows * vocab * dtype.itemsize, sizes.rotated)
            for allowed in ALLOWED:
                buffers = [Buffer.random(rows, vocab, allowed, dtype, device, seed) for seed in range(count)]
                for name, side in made.items():
                    row = {"what": "apply", "vocab": vocab, "batch": rows, "allowed": allowed, "side": name}
                    yield {**row, **_taken(name, side, buffers, sizes, device)}
                del buffers


def _taken(name: str, side: Side | str, buffers: list[Buffer], sizes: Sizes, device: torch.device) -> Row:
    """The columns after a side's name."""
    nbytes = buffers[0].touched.numel() * buffers[0].touched.element_size()
    columns = {"buffers": len(buffers), "bytes": nbytes, "distinct": ""}
    if isinstance(side, str):
        return {**columns, **dict.fromkeys(("p20_us", "p50_us", "p80_us", "gb_s"), ""), "problem": side}
    try:
        if name != BOUND:
            expected = buffers[0].masked()
            side(buffers[0])
            assert torch.equal(buffers[0].logits, expected), f"{name} masks otherwise"
        calls = [_bind(side, buffers[i % len(buffers)]) for i in range(max(NODES, len(buffers)))]
        taken = taken_columns(time_calls(calls, device, replays=sizes.replays))
    except Exception as error:
        if name == OURS:
            raise
        return {**columns, **dict.fromkeys(("p20_us", "p50_us", "p80_us", "gb_s"), ""), "problem": _reason(error)}
    return {**columns, **taken, "gb_s": f"{nbytes / float(taken['p50_us']) / 1e3:.1f}", "problem": ""}


def _bind(side: Side, buffer: Buffer) -> Callable[[], None]:
    return lambda: side(buffer)


def step_rows(sizes: Sizes, kernels: Kernels, dtype: torch.dtype, device: torch.device) -> Iterator[Row]:
    """One for each shape and kind."""
    whole = sizes.tokens()
    for vocab in sizes.vocabularies:
        where = Constrained.of(resized(whole, vocab), max(sizes.batches), device)
        for rows in sizes.batches:
            for kind in KINDS:
                steps = Steps.of(where, kernels, kind, rows, dtype=dtype, rotated=sizes.rotated)
                steps.check(where, kernels)
                taken = time_calls(steps.calls(kernels), device, replays=sizes.replays, reset=steps.reset)
                row = {"what": "step", "vocab": vocab, "batch": rows, "allowed": "", "side": kind}
                row |= {"buffers": len(steps.logits), "bytes": "", "distinct": steps.distinct}
                yield {**row, **taken_columns(taken), "gb_s": "", "problem": ""}
                del steps


@dataclass(frozen=True)
class Target:
    """Something aimed at.

    Args:
        what: in words.
        allowed: the bound.
        measured: what came out; None: not measured.
    """

    what: str
    allowed: float
    measured: float | None

    def __str__(self) -> str:
        if self.measured is None:
            return f"{self.what}: not measured"
        return f"{self.what}: {'met' if self.measured <= self.allowed else 'MISSED'} ({self.measured:.3f})"


def targets(rows: Sequence[Row]) -> list[Target]:
    """What was aimed at, each with the worst of its shapes."""
    medians = {
        (row["what"], row["vocab"], row["batch"], row["allowed"], row["side"]): float(row["p50_us"])
        for row in rows
        if row["p50_us"]
    }
    apply_shapes = [key for key in medians if key[0] == "apply" and key[4] == OURS]
    to_bound = [medians[key] / (1.15 * medians[(*key[:4], BOUND)] + 2) for key in apply_shapes]
    peers = {row["side"] for row in rows if row["what"] == "apply"} - {OURS, BOUND}
    to_peer = []
    for key in apply_shapes:
        others = [medians[(*key[:4], peer)] for peer in peers if (*key[:4], peer) in medians]
        if others:
            to_peer.append(medians[key] / min(others))
    mean = math.exp(sum(map(math.log, to_peer)) / len(to_peer)) if to_peer else None
    steps = {(row["batch"], row["side"]): row for row in rows if row["what"] == "step" and row["vocab"] == 131_072}

    def step(batch: int, kind: str) -> float | None:
        return float(steps[batch, kind]["p50_us"]) if (batch, kind) in steps else None

    cold = [float(row["p50_us"]) / (60 + 6 * row["distinct"]) for (_, kind), row in steps.items() if kind == COLD]
    one, shared = step(1, COLD), [float(row["p50_us"]) for (_, kind), row in steps.items() if kind == SHARED]
    return [
        Target("apply: time to 1.15 * fill_ + 2 us, at most 1", 1.0, max(to_bound, default=None)),
        Target("apply: time to the best peer's, at most 1.03 at every shape", 1.03, max(to_peer, default=None)),
        Target("apply: the same, geometric mean at most 1", 1.0, mean),
        Target("step at 131,072 tokens, hot, one row: under 15 us", 15.0, step(1, HOT)),
        Target("step at 131,072 tokens, hot, 64 rows: under 20 us", 20.0, step(64, HOT)),
        Target("step at 131,072 tokens, cold: time to 60 + 6 us a state, at most 1", 1.0, max(cold, default=None)),
        Target(
            "step at 131,072 tokens, cold, all rows in one state: to one row's, at most 1.1",
            1.1,
            max(shared) / one if one and shared else None,
        ),
    ]


def table(rows: Sequence[Row]) -> str:
    header = ["what", "vocabulary", "batch", "allowed", "side", "microseconds (p20 - p80)", "GB/s", "states"]
    cells = [
        [
            *(str(row[name]) for name in ("what", "vocab", "batch")),
            f"{row['allowed']:.1%}" if row["allowed"] else "",
            row["side"],
            row["problem"] or f"{float(row['p50_us']):.2f} ({float(row['p20_us']):.2f} - {float(row['p80_us']):.2f})",
            *(str(row[name]) for name in ("gb_s", "distinct")),
        ]
        for row in rows
    ]
    return markdown_table(header, cells)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="small shapes, to see that everything runs")
    parser.add_argument("--what", nargs="+", choices=["apply", "step"], default=["apply", "step"])
    parser.add_argument("--dtype", choices=list(DTYPES), default="bfloat16")
    parser.add_argument("--vocab", nargs="+", type=int, help="other widths")
    parser.add_argument("--batch", nargs="+", type=int, help="other batches")
    parser.add_argument("--peers", nargs="*", help="only these libraries' kernels")
    parser.add_argument("--csv", type=Path, default=RESULTS / "apply.csv")
    arguments = parser.parse_args()
    device, dtype = torch.device(arguments.device), DTYPES[arguments.dtype]
    sizes = QUICK if arguments.quick else FULL
    sizes = replace(
        sizes,
        vocabularies=arguments.vocab or sizes.vocabularies,
        batches=arguments.batch or sizes.batches,
    )
    found = kernel_loader.find(device=device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else hardware()
    print(
        f"{name}; kernels: {found.kernels.name}"
        + "".join(f"\n  not {way}: {why}" for way, why in found.why_not.items())
    )
    rows: list[Row] = []
    common = {"device": name, "dtype": arguments.dtype, "kernels": found.kernels.name, "load": load_average()}
    if "apply" in arguments.what:
        for row in apply_rows(sizes, all_sides(device, arguments.peers), dtype, device):
            _keep(arguments.csv, rows, {**row, **common})
    # The automaton step in plain torch waits for the device, so no graph can hold it.
    no_steps = device.type == "cuda" and isinstance(found.kernels, TorchKernels)
    if "step" in arguments.what and not no_steps:
        for row in step_rows(sizes, found.kernels, dtype, device):
            _keep(arguments.csv, rows, {**row, **common})
    print(table(rows))
    if device.type == "cuda":  # what was aimed at is for NVIDIA GPUs
        print("\n" + "\n".join(f"- {target}" for target in targets(rows)))
    if "step" in arguments.what and no_steps:
        raise SystemExit("no kernels, so the automaton step was not timed")


def _keep(path: Path, rows: list[Row], row: Row) -> None:
    """What is measured is kept, whatever comes."""
    rows.append(row)
    write_csv(path, rows)


if __name__ == "__main__":
    main()
