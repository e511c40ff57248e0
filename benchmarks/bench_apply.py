"""How long does it take to mask scores that are on a device, with masks that are there?

    python -m benchmarks.bench_apply                         # on an NVIDIA GPU, about two minutes
    python -m benchmarks.bench_apply --device cpu --quick    # the same code on a CPU, small shapes

- apply: the time on the device, of calls in a CUDA graph (device_timing.py). hf-guided copies and masks in one pass;
  the kernels of xgrammar and llguidance write in place, so they get a clone. Each token is allowed with the probability
  in the column "allowed": nearly empty, half, full. Bounds: ``clone()`` reads and writes every logit, and
  ``fill_`` only writes every logit, which is what a nearly empty mask needs.
- launch: the host's time for one call, without a graph and without waiting for the device.

Every side's result is compared before it is timed. On a GPU, the targets are printed below the table, met or missed.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.apply_sides import BOUNDS, CLONE, FILL, OURS, TRITON, Buffer, Make, Side, all_sides
from benchmarks.common import RESULTS, hardware, load_average, markdown_table, write_csv
from benchmarks.device_timing import NODES, ROTATED_BYTES, buffers_needed, taken_columns, time_calls
from hf_guided.session.mask_kernel import kernel_in_use

VOCABULARIES = 32_000, 131_072, 151_936, 262_208
BATCHES = 1, 8, 64, 256
NEARLY_EMPTY, HALF, ALL = 0.001, 0.5, 1.0
ALLOWED = NEARLY_EMPTY, HALF, ALL
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
KINDS = "apply", "launch"
_LAUNCHES = 50  # of one timing: few enough that the queue of a GPU does not fill up
_WARM_UPS = 3
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Args:
        vocabularies: widths of the logits.
        batches: rows.
        rotated: bytes of logits that calls take in turn.
        replays: timed.
    """

    vocabularies: Sequence[int]
    batches: Sequence[int]
    rotated: int
    replays: int


FULL = Sizes(VOCABULARIES, BATCHES, ROTATED_BYTES, 15)
QUICK = Sizes((700, 1_501), (1, 3), 2**16, 2)


def measured_rows(
    sizes: Sizes, sides: dict[str, Make], dtype: torch.dtype, device: torch.device, kinds: Sequence[str] = KINDS
) -> Iterator[Row]:
    """A row for each shape, share, side and kind; launches of the first share only, which does not change them."""
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
                for kind in kinds if allowed == ALLOWED[0] else [one for one in kinds if one == "apply"]:
                    for name, side in made.items():
                        row = {"what": kind, "vocab": vocab, "batch": rows, "allowed": allowed, "side": name}
                        yield {**row, "buffers": count, **_measured(kind, name, side, buffers, sizes, device)}
                del buffers


def _measured(kind: str, name: str, side: Side | str, buffers: list[Buffer], sizes: Sizes, device: torch.device) -> Row:
    """The columns of times and problems."""
    nothing = dict.fromkeys(("p20_us", "p50_us", "p80_us", "gb_s"), "")
    if isinstance(side, str):
        return {**nothing, "problem": side}
    try:
        if name not in BOUNDS:
            assert torch.equal(side(buffers[0]), buffers[0].masked()), f"{name} masks otherwise"
        if kind == "launch":
            taken = taken_columns(launch_times(side, buffers, device, sizes.replays))
            return {**nothing, **taken, "problem": ""}
        calls = [_bound(side, buffers[i % len(buffers)]) for i in range(max(NODES, len(buffers)))]
        taken = taken_columns(time_calls(calls, device, replays=sizes.replays))
    except Exception as error:
        if name == OURS:
            raise
        return {**nothing, "problem": _reason(error)}
    # Of a copy: read once, written once; with few allowed tokens, ours and fill_ need not read.
    return {**taken, "gb_s": f"{2 * buffers[0].nbytes / float(taken['p50_us']) / 1e3:.1f}", "problem": ""}


def _bound(side: Side, buffer: Buffer) -> Callable[[], None]:
    def call() -> None:
        side(buffer)

    return call


def launch_times(side: Side, buffers: Sequence[Buffer], device: torch.device, replays: int) -> list[float]:
    """Microseconds of the host for a call, one entry for each series of calls."""
    found = []
    for number in range(_WARM_UPS + replays):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for i in range(_LAUNCHES):
            side(buffers[i % len(buffers)])
        taken = (time.perf_counter_ns() - start) / 1e3 / _LAUNCHES
        if number >= _WARM_UPS:
            found.append(taken)
    return found


@dataclass(frozen=True)
class Target:
    """A bound on a measured number.

    Args:
        what: the number, in words.
        allowed: the bound.
        measured: the number; None: not measured.
    """

    what: str
    allowed: float
    measured: float | None

    def __str__(self) -> str:
        if self.measured is None:
            return f"{self.what}: not measured"
        return f"{self.what}: {'met' if self.measured <= self.allowed else 'MISSED'} ({self.measured:.3f})"


def targets(rows: Sequence[Row]) -> list[Target]:
    """The targets, each with the worst of its shapes or the mean of all."""
    medians = {
        (row["vocab"], row["batch"], row["allowed"], row["side"]): float(row["p50_us"])
        for row in rows
        if row["what"] == "apply" and row["p50_us"]
    }
    shapes = [key[:3] for key in medians if key[3] == OURS]

    def worst(allowed: float, bound: str, extra: float) -> float | None:
        ratios = [
            medians[(*shape, OURS)] / (1.15 * medians[(*shape, bound)] + extra)
            for shape in shapes
            if shape[2] == allowed and (*shape, bound) in medians
        ]
        return max(ratios, default=None)

    logs = [
        math.log(medians[(*shape, OURS)] / medians[(*shape, TRITON)]) for shape in shapes if (*shape, TRITON) in medians
    ]
    return [
        Target("full masks: time to 1.15 * clone() + 2 us, at most 1", 1.0, worst(ALL, CLONE, 2.0)),
        Target("nearly empty masks: time to 1.15 * fill_, at most 1", 1.0, worst(NEARLY_EMPTY, FILL, 0.0)),
        Target(
            "time to clone() and xgrammar's Triton kernel, geometric mean at most 1",
            1.0,
            math.exp(sum(logs) / len(logs)) if logs else None,
        ),
    ]


def table(rows: Sequence[Row]) -> str:
    header = ["what", "vocabulary", "batch", "allowed", "side", "microseconds (p20 - p80)", "GB/s"]
    cells = [
        [
            *(str(row[name]) for name in ("what", "vocab", "batch")),
            f"{row['allowed']:.1%}",
            row["side"],
            row["problem"] or f"{float(row['p50_us']):.2f} ({float(row['p20_us']):.2f} - {float(row['p80_us']):.2f})",
            row["gb_s"],
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
    parser.add_argument("--what", nargs="+", choices=KINDS, default=KINDS)
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
    kernel, why_torch = kernel_in_use(device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else hardware()
    print(f"{name}; kernel: {kernel} {why_torch}")
    rows: list[Row] = []
    common = {"device": name, "dtype": arguments.dtype, "load": load_average()}
    for row in measured_rows(sizes, all_sides(device, arguments.peers), dtype, device, arguments.what):
        rows.append({**row, **common, "kernel": kernel_in_use(device)[0]})  # torch, if the kernel has failed until now
        write_csv(arguments.csv, rows)  # after each row: an interrupted run keeps its rows
    print(table(rows))
    if device.type == "cuda":
        print("\n" + "\n".join(f"- {target}" for target in targets(rows)))


if __name__ == "__main__":
    main()
