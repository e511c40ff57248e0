"""Where does a step's time go on a GPU? Launches, waits and busy time of each way to generate.

    python -m benchmarks.gpu_profile [--device cpu --shape tiny] [--batch 8] [--trace FILE.json.gz]

The sides are those of bench_device.py. Numbers are for each step, that is for each token of the longest row.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.bench_device import COMPANION, FORMS, FREE, LINES, LOOP, PROCESSOR, RECORD, Model
from benchmarks.common import markdown_table, parser
from benchmarks.decode_cases import SHAPES

SIDES = FREE, PROCESSOR, COMPANION, LOOP
WAITS = "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "aten::_local_scalar_dense"
LAUNCHES = "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch"
COPIES = ("cudaMemcpyAsync",)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    made.add_argument("--shape", choices=list(SHAPES), default="1b")
    made.add_argument("--form", choices=list(FORMS), default="eager")
    made.add_argument("--constraint", choices=[LINES, RECORD], default=LINES)
    made.add_argument("--batch", type=int, default=8)
    made.add_argument("--tokens", type=int, default=32)
    made.add_argument("--trace", type=Path, help="a Chrome trace of the fast loop")
    given = made.parse_args()
    model = Model(given.shape, given.device)
    tokens = model.limit(given.constraint, given.tokens)
    on_gpu = given.device == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    rows, kept = [], None
    for name, side in model.sides(given.constraint, given.batch, tokens, given.form, SIDES).items():
        for _ in range(2):
            side.run()
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        steps = max(map(len, side.run()))
        if on_gpu:
            torch.cuda.synchronize()
        wall = time.perf_counter() - start
        with profile(activities=activities) as seen:  # it costs time too, so the time above is of another call
            side.run()
            if on_gpu:
                torch.cuda.synchronize()
        averages = seen.key_averages()
        count = {one.key: one.count for one in averages}
        busy = sum(one.self_device_time_total for one in averages) / 1e3
        numbers = (sum(count.get(key, 0) for key in keys) / steps for keys in (LAUNCHES, COPIES, WAITS))
        rows.append([name, f"{wall / steps * 1e3:.2f}", f"{busy / steps:.2f}", *(f"{one:.1f}" for one in numbers)])
        print(" | ".join(rows[-1]), flush=True)
        if name == LOOP:
            kept = seen
    print(markdown_table(["side", "ms a step", "GPU busy ms", "launches", "copies", "waits"], rows))
    if kept is not None:
        order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
        for by in dict.fromkeys((order, "self_cpu_time_total")):
            print(kept.key_averages().table(sort_by=by, row_limit=20, max_name_column_width=60))
        if given.trace:
            kept.export_chrome_trace(str(given.trace))


if __name__ == "__main__":
    main()
