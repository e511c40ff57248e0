"""How long does it take to mask scores that are on a device, with masks that are there?

    python -m benchmarks.bench_apply                         # on an NVIDIA GPU, about two minutes
    python -m benchmarks.bench_apply --device cpu --quick    # the same code on a CPU, small shapes

- apply: the time on the device, of calls in a CUDA graph. hf-guided copies and masks in one pass;
  the kernels of xgrammar and llguidance write in place, so they get a clone. Each token is allowed with the probability
  in the column "allowed": nearly empty, half, full. Bounds: ``clone()`` reads and writes every logit, and
  ``fill_`` only writes every logit, which is what a nearly empty mask needs.
- launch: the host's time for one call, without a graph and without waiting for the device.

Every side's result is compared before it is timed. On a GPU, the targets are printed below the table, met or missed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import Row, hardware, parser, percentile_columns, table_of, write_csv
from hf_guided.session.mask_kernel import kernel_in_use, mask_kernel
from hf_guided.vocabulary.bitmask import WORD_BITS, pack, words

OURS, TRITON = "hf-guided", "xgrammar triton"
CLONE, FILL = "clone()", "fill_"  # bounds: reads and writes every logit; writes every logit
BOUNDS = CLONE, FILL
NODES = 20  # calls in a graph, at least
ROTATED_BYTES = 180 * 2**20  # more than any GPU's L2 cache
_BUSY, _BUSY_PER_CALL = 400_000, 2_000  # cycles: some 200 microseconds, and one more for each call
VOCABULARIES = 32_000, 131_072, 151_936, 262_208
BATCHES = 1, 8, 64, 256
NEARLY_EMPTY, HALF, ALL = 0.001, 0.5, 1.0
ALLOWED = NEARLY_EMPTY, HALF, ALL
DTYPE = torch.bfloat16
_LAUNCHES = 50  # of one timing: few enough that the queue of a GPU does not fill up
_WARM_UPS = 3


# -- the functions that mask scores ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Buffer:
    """A batch of logits and masks."""

    logits: Tensor  # (rows, vocab); no side writes them
    bitmask: Tensor  # (rows, words) int32
    slots: Tensor  # (rows,) int32: row i has mask i
    forbidden: Tensor  # (rows, vocab) bool
    stops: Tensor  # (1,) int64: the stop token

    @classmethod
    def random(
        cls, rows: int, vocab: int, allowed: float, dtype: torch.dtype, device: torch.device, seed: int
    ) -> Buffer:
        """A buffer in which each token is allowed with this probability."""
        generator = torch.Generator(device).manual_seed(seed)
        logits = torch.randn(rows, vocab, generator=generator, device=device).to(dtype)
        forbidden = torch.rand(rows, vocab, generator=generator, device=device) >= allowed
        forbidden[:, seed % vocab] = False  # a row that can only end is another case
        # Bits after the vocabulary are set: for bits that are not, xgrammar's CPU kernel writes -inf past the row.
        bits = torch.ones(rows, words(vocab) * WORD_BITS, dtype=torch.bool, device=device)
        bits[:, :vocab] = ~forbidden
        slots = torch.arange(rows, dtype=torch.int32, device=device)
        return cls(logits, pack(bits), slots, forbidden, torch.zeros(1, dtype=torch.int64, device=device))

    @property
    def nbytes(self) -> int:
        return self.logits.numel() * self.logits.element_size()

    def masked(self) -> Tensor:
        """The scores that every side should return."""
        return self.logits.masked_fill(self.forbidden, float("-inf"))


Side = Callable[[Buffer], Tensor]  # returns the masked copy; a bound returns any tensor of that size


def ours(device: torch.device) -> Side:
    kernel = mask_kernel(device)
    return lambda buffer: kernel(buffer.logits, buffer.bitmask, buffer.slots, stops=buffer.stops)[0]


def clone(device: torch.device) -> Side:
    return lambda buffer: buffer.logits.clone()


def fill(device: torch.device) -> Side:
    return lambda buffer: torch.empty_like(buffer.logits).fill_(float("-inf"))


def _in_place(apply: Callable[[Tensor, Tensor], object]) -> Side:
    """A side of a function (logits, bitmask) that writes into the logits."""

    def run(buffer: Buffer) -> Tensor:
        copy = buffer.logits.clone()
        apply(copy, buffer.bitmask)
        return copy

    return run


def xgrammar_triton(device: torch.device) -> Side:
    from xgrammar.kernels.apply_token_bitmask_inplace_triton import apply_token_bitmask_inplace_triton

    return _in_place(apply_token_bitmask_inplace_triton)


def xgrammar_cuda(device: torch.device) -> Side:
    # Compiled with nvcc when it is imported.
    from xgrammar.kernels.apply_token_bitmask_inplace_cuda import apply_token_bitmask_inplace_cuda

    return _in_place(apply_token_bitmask_inplace_cuda)


def xgrammar_cpu(device: torch.device) -> Side:
    import xgrammar

    return _in_place(lambda logits, bitmask: xgrammar.apply_token_bitmask_inplace(logits, bitmask, backend="cpu"))


def llguidance(device: torch.device) -> Side:
    from llguidance.torch import apply_token_bitmask_inplace

    return _in_place(apply_token_bitmask_inplace)


Make = Callable[[torch.device], Side]
PEERS: dict[str, dict[str, Make]] = {
    "cuda": {TRITON: xgrammar_triton, "xgrammar CUDA": xgrammar_cuda, "llguidance": llguidance},
    "cpu": {"xgrammar CPU": xgrammar_cpu, "llguidance": llguidance},
}


def all_sides(device: torch.device, peers: list[str] | None = None) -> dict[str, Make]:
    """Ours, the bounds and the other libraries' kernels on this kind of device; of these only ``peers``, or all."""
    others = {name: make for name, make in PEERS[device.type].items() if peers is None or name in peers}
    return {OURS: ours, CLONE: clone, FILL: fill, **others}


# -- time of short device work -----------------------------------------------------------------------------------------
#
# A call of a few microseconds cannot be timed alone: putting it on the stream takes longer. So at least 20 calls, each
# on the next of many buffers, so that caches do not hold them, are in one graph, which is replayed, and the time
# between two events around it is shared out. The GPU is kept busy for a moment before, so that the graph is on the
# stream when the first event comes by. On a CPU the same calls run one by one.

Call = Callable[[], object]


def buffers_needed(nbytes: int, rotated: int = ROTATED_BYTES) -> int:
    """The number of buffers of this size that hold this number of bytes together."""
    return max(1, -(-rotated // max(nbytes, 1)))


def time_calls(calls: Sequence[Call], device: torch.device, *, replays: int) -> list[float]:
    """Microseconds a call, each on the next buffer: one entry for each replay of all of them."""
    timed = _graph_replays(calls) if device.type == "cuda" else _plain_replays(calls)
    return [timed() / len(calls) for _ in range(_WARM_UPS + replays)][_WARM_UPS:]


def _plain_replays(calls: Sequence[Call]) -> Callable[[], float]:
    def replay() -> float:
        start = time.perf_counter_ns()
        for call in calls:
            call()
        return (time.perf_counter_ns() - start) / 1e3

    return replay


def _graph_replays(calls: Sequence[Call]) -> Callable[[], float]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:_WARM_UPS]:  # whatever is compiled at first use
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay() -> float:
        torch.cuda._sleep(_BUSY + _BUSY_PER_CALL * len(calls))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3

    return replay


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    vocabularies: Sequence[int]  # widths of the logits
    batches: Sequence[int]  # numbers of rows
    rotated: int  # bytes of logits that calls take in turn
    replays: int  # number of timed replays


FULL = Sizes(VOCABULARIES, BATCHES, ROTATED_BYTES, 15)
QUICK = Sizes((700, 1_501), (1, 3), 2**16, 2)


def measured_rows(
    sizes: Sizes, sides: dict[str, Make], dtype: torch.dtype, device: torch.device
) -> Iterator[dict[str, Any]]:
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
                for kind in ("apply", "launch") if allowed == ALLOWED[0] else ("apply",):
                    for name, side in made.items():
                        row = {"what": kind, "vocab": vocab, "batch": rows, "allowed": allowed, "side": name}
                        yield {**row, "buffers": count, **_measured(kind, name, side, buffers, sizes, device)}
                del buffers


def _measured(
    kind: str, name: str, side: Side | str, buffers: list[Buffer], sizes: Sizes, device: torch.device
) -> dict[str, str]:
    nothing = dict.fromkeys(("p20_us", "p50_us", "p80_us", "gb_s"), "")
    if isinstance(side, str):
        return {**nothing, "problem": side}
    try:
        if name not in BOUNDS:
            assert torch.equal(side(buffers[0]), buffers[0].masked()), f"{name} masks otherwise"
        if kind == "launch":
            taken = percentile_columns(launch_times(side, buffers, device, sizes.replays), "p{}_us", 3)
            return {**nothing, **taken, "problem": ""}
        calls = [partial(side, buffers[i % len(buffers)]) for i in range(max(NODES, len(buffers)))]
        taken = percentile_columns(time_calls(calls, device, replays=sizes.replays), "p{}_us", 3)
    except Exception as error:
        if name == OURS:
            raise
        return {**nothing, "problem": _reason(error)}
    # Of a copy: read once, written once; with few allowed tokens, ours and fill_ need not read.
    return {**taken, "gb_s": f"{2 * buffers[0].nbytes / float(taken['p50_us']) / 1e3:.1f}", "problem": ""}


def launch_times(side: Side, buffers: Sequence[Buffer], device: torch.device, replays: int) -> list[float]:
    """Microseconds of the host for a call, one entry for each series of calls."""
    series = _plain_replays([partial(side, buffers[i % len(buffers)]) for i in range(_LAUNCHES)])
    found = []
    for _ in range(_WARM_UPS + replays):
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(series() / _LAUNCHES)
    return found[_WARM_UPS:]


def targets(rows: Sequence[Row]) -> list[str]:
    """The targets, each with the worst of its shapes or the mean of all: met where the number is at most 1."""
    medians = {
        (row["vocab"], row["batch"], row["allowed"], row["side"]): float(row["p50_us"])
        for row in rows
        if row["what"] == "apply" and row["p50_us"]
    }
    shapes = [key[:3] for key in medians if key[3] == OURS]

    def ratios(side: str, allowed: float | None = None, factor: float = 1.0, extra: float = 0.0) -> list[float]:
        """Our times over another side's, with a factor and microseconds that are allowed beyond it."""
        return [
            medians[(*shape, OURS)] / (factor * medians[(*shape, side)] + extra)
            for shape in shapes
            if allowed in (None, shape[2]) and (*shape, side) in medians
        ]

    triton = [math.log(ratio) for ratio in ratios(TRITON)]
    found = {
        "full masks: time to 1.15 * clone() + 2 us": max(ratios(CLONE, ALL, 1.15, 2.0), default=None),
        "nearly empty masks: time to 1.15 * fill_": max(ratios(FILL, NEARLY_EMPTY, 1.15), default=None),
        "time to clone() and xgrammar's Triton kernel, geometric mean": math.exp(fmean(triton)) if triton else None,
    }
    return [
        f"{what}: " + ("not measured" if value is None else f"{'met' if value <= 1 else 'MISSED'} ({value:.3f})")
        for what, value in found.items()
    ]


table = partial(
    table_of, columns=("what", "vocab", "batch", "allowed", "side", "p20_us", "p50_us", "p80_us", "gb_s", "problem")
)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def main() -> None:
    made = parser(__doc__, "apply.csv")
    made.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    made.add_argument("--quick", action="store_true", help="small shapes, to see that everything runs")
    made.add_argument("--vocab", nargs="+", type=int, help="other widths")
    made.add_argument("--batch", nargs="+", type=int, help="other batches")
    made.add_argument("--peers", nargs="*", help="only these libraries' kernels")
    arguments = made.parse_args()
    device = torch.device(arguments.device)
    sizes = QUICK if arguments.quick else FULL
    sizes = replace(sizes, vocabularies=arguments.vocab or sizes.vocabularies, batches=arguments.batch or sizes.batches)
    kernel, why_torch = kernel_in_use(device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else hardware()
    print(f"{name}; kernel: {kernel} {why_torch}")
    rows: list[dict[str, Any]] = []
    common = {"device": name, "dtype": str(DTYPE)}
    for row in measured_rows(sizes, all_sides(device, arguments.peers), DTYPE, device):
        rows.append({**row, **common, "kernel": kernel_in_use(device)[0]})  # torch, if the kernel has failed until now
        write_csv(arguments.csv or arguments.results, rows)  # after each row: an interrupted run keeps its rows
    print(table(rows))
    if device.type == "cuda":
        print("\n" + "\n".join(f"- {target}" for target in targets(rows)))


if __name__ == "__main__":
    main()
