"""Masking, for `kernels benchmark`: vocabularies and batches of all sizes; few, half or most tokens allowed.

hf-guided's benchmarks/bench_apply.py times it in CUDA graphs and beside other libraries' kernels.
"""

from itertools import product

import torch
from kernels.benchmark import Benchmark

VOCABULARIES = 32_000, 131_072, 151_936, 262_208
BATCHES = 1, 16, 64, 256
ALLOWED = {"few": 0.001, "half": 0.5, "most": 0.999}


class GuidedBitmaskBenchmark(Benchmark):
    """A workload for each shape and share of allowed tokens; they are added below."""

    seed = 0

    def _setup(self, rows: int, vocab: int, share: float) -> None:
        self.scores = torch.randn(rows, vocab, device=self.device, dtype=torch.bfloat16)
        self.may = torch.rand(rows, vocab, device=self.device) < share
        words = -(-vocab // 32)
        bits = torch.zeros(rows, words * 32, dtype=torch.int64, device=self.device)
        bits[:, :vocab] = self.may
        self.masks = (bits.view(rows, words, 32) << torch.arange(32, device=self.device)).sum(2).to(torch.int32)
        self.slots = torch.arange(rows, dtype=torch.int32, device=self.device)

    def _run(self) -> None:
        self.out, _ = self.kernel.apply_masks(self.scores, self.masks, self.slots)

    def _verify(self) -> torch.Tensor:
        return self.scores.masked_fill(~self.may, float("-inf"))


def _add_workloads() -> None:
    for rows, vocab, (name, share) in product(BATCHES, VOCABULARIES, ALLOWED.items()):

        def setup(self, rows=rows, vocab=vocab, share=share) -> None:
            self._setup(rows, vocab, share)

        workload = f"{rows}_by_{vocab}_{name}"
        setattr(GuidedBitmaskBenchmark, f"setup_{workload}", setup)
        setattr(GuidedBitmaskBenchmark, f"benchmark_{workload}", GuidedBitmaskBenchmark._run)
        setattr(GuidedBitmaskBenchmark, f"verify_{workload}", GuidedBitmaskBenchmark._verify)


_add_workloads()
