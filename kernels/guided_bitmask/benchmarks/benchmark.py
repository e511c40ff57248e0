"""Writing -inf, for `kernels benchmark`: a row of 131,072 tokens or 64 of them, few, half or nearly all allowed."""

import torch
from kernels.benchmark import Benchmark

VOCAB = 131_072


class GuidedBitmaskBenchmark(Benchmark):
    """One workload for each batch and share of allowed tokens."""

    seed = 0

    def _setup(self, rows: int, share: float) -> None:
        self.logits = torch.randn(rows, VOCAB, device=self.device, dtype=torch.bfloat16)
        self.may = torch.rand(rows, VOCAB, device=self.device) < share
        bits = self.may.view(rows, -1, 32).long() << torch.arange(32, device=self.device)
        self.bitmask = bits.sum(2).to(torch.int32)
        self.out = self.logits

    def _run(self) -> None:
        self.kernel.apply_bitmask_(self.logits, self.bitmask)

    def _verify(self) -> torch.Tensor:
        return self.logits.masked_fill(~self.may, float("-inf"))

    def setup_one_row_few(self) -> None:
        self._setup(1, 0.001)

    def setup_one_row_most(self) -> None:
        self._setup(1, 0.999)

    def setup_many_rows_few(self) -> None:
        self._setup(64, 0.001)

    def setup_many_rows_half(self) -> None:
        self._setup(64, 0.5)

    def setup_many_rows_most(self) -> None:
        self._setup(64, 0.999)

    benchmark_one_row_few = benchmark_one_row_most = _run
    benchmark_many_rows_few = benchmark_many_rows_half = benchmark_many_rows_most = _run
    verify_one_row_few = verify_one_row_most = _verify
    verify_many_rows_few = verify_many_rows_half = verify_many_rows_most = _verify
