"""The benchmarks of device work, run on a CPU: their correctness checks, rows, bounds and verdicts."""

from __future__ import annotations

import csv
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hf_guided.hf.device.kernels import Kernels, TorchKernels
from hf_guided.hf.device.reference import apply_slots_, step_
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from benchmarks import bench_apply, bench_continuous, bench_device
from benchmarks.apply_sides import BOUND, MASKED_FILL, OURS, Buffer, all_sides, touched_sectors
from benchmarks.bench_apply import QUICK, apply_rows, step_rows, targets
from benchmarks.bench_device import COLD as NO_MASKS
from benchmarks.bench_device import GENERATE, GUIDED, LOOP, lower_bound
from benchmarks.device_timing import buffers_needed, taken_columns, time_calls
from benchmarks.step_cases import COLD, HOT, KINDS, SHARED, Constrained, Steps, resized
from hf_guided.vocabulary.tokens import Vocabulary
from tests import vocabularies
from tests.kernel_harness import ROOT, HarnessKernels

CPU = torch.device("cpu")
TINY = replace(QUICK, vocabularies=(700,), batches=(3,), rotated=1 << 14)


class TestTiming:
    def test_every_replay_resets_and_runs_all_calls(self) -> None:
        ran: list[str] = []
        calls = [lambda: ran.append("a"), lambda: ran.append("b")]
        times = time_calls(calls, CPU, replays=4, reset=lambda: ran.append("reset"))
        assert len(times) == 4 and all(seconds > 0 for seconds in times)
        assert "".join(ran) == "resetab" * (len(ran) // 3) and len(ran) // 3 > 4

    @pytest.mark.parametrize(("nbytes", "rotated", "count"), [(10, 100, 10), (11, 100, 10), (200, 100, 1), (0, 9, 9)])
    def test_number_of_buffers_covers_the_rotated_bytes(self, nbytes: int, rotated: int, count: int) -> None:
        assert buffers_needed(nbytes, rotated) == count

    def test_columns_are_quantiles(self) -> None:
        assert taken_columns([6.0, 1.0, 2.0, 5.0, 3.0, 4.0]) == {
            "p20_us": "2.000",
            "p50_us": "3.500",
            "p80_us": "5.000",
        }


class TestApply:
    @pytest.mark.parametrize("itemsize", [2, 4])
    @pytest.mark.parametrize("width", [1, 16, 33, 100])
    def test_touched_sectors_have_32_bytes(self, itemsize: int, width: int) -> None:
        forbidden = torch.rand(3, width, generator=torch.Generator().manual_seed(width)) < 0.05
        positions = torch.nonzero(forbidden.flatten()).flatten().tolist()
        assert touched_sectors(forbidden, itemsize) == len({position * itemsize // 32 for position in positions})

    def test_apply_has_a_row_for_each_side_and_share(self) -> None:
        rows = list(apply_rows(TINY, all_sides(CPU, ["xgrammar CPU"]), torch.bfloat16, CPU))
        assert [row["side"] for row in rows] == [OURS, BOUND, MASKED_FILL, "xgrammar CPU"] * 3
        assert all(float(row["p50_us"]) > 0 and not row["problem"] for row in rows)
        assert all(row["buffers"] * 3 * 700 * 2 >= TINY.rotated for row in rows)

    def test_failing_peer_is_named_and_our_failure_raises(self) -> None:
        def missing(device: torch.device) -> Any:
            raise ImportError("no such package")

        def wrong(device: torch.device) -> Any:
            return lambda buffer: buffer.logits.zero_()

        made = {OURS: all_sides(CPU)[OURS], "absent": missing, "wrong": wrong}
        rows = list(apply_rows(TINY, made, torch.float32, CPU))
        problems = {row["side"]: row["problem"] for row in rows}
        assert problems == {
            OURS: "",
            "absent": "ImportError: no such package",
            "wrong": "AssertionError: wrong masks otherwise",
        }
        assert "no such package" in bench_apply.table(rows)
        with pytest.raises(AssertionError, match="masks otherwise"):
            list(apply_rows(TINY, {OURS: wrong}, torch.float32, CPU))

    def test_random_buffer_has_the_given_share_of_allowed_tokens(self) -> None:
        buffer = Buffer.random(4, 5_000, 0.25, torch.float16, CPU, 1)
        assert (buffer.masked() > -torch.inf).float().mean().item() == pytest.approx(0.25, abs=0.02)


class StationaryKernels(TorchKernels):
    """Wrong kernels that do not advance the rows."""

    def step_(self, lane: Any, logits: Tensor, alive: Tensor | None = None) -> None:
        step_(replace(lane, length=torch.zeros_like(lane.length)), logits, alive)


@pytest.fixture(scope="module")
def constrained() -> Constrained:
    return Constrained.of(resized(Vocabulary.from_tokenizer(vocabularies.demo()), 700), 5, CPU)


@pytest.fixture(scope="module", params=["torch", "kernel"])
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    """Both implementations in turn."""
    if request.param == "torch":
        yield TorchKernels()
    else:
        yield HarnessKernels(request.getfixturevalue("harness"))


class TestStep:
    @pytest.mark.parametrize("tokens", [300, 1_501])
    def test_resized_vocabulary_keeps_the_first_tokens(self, tokens: int) -> None:
        whole = Vocabulary.from_tokenizer(vocabularies.demo())
        vocabulary = resized(whole, tokens)
        same = min(tokens, len(whole.token_bytes))
        assert len(vocabulary.token_bytes) == vocabulary.padded_size == tokens
        assert vocabulary.token_bytes[:same] == whole.token_bytes[:same]
        assert all(vocabulary.token_bytes[same:])

    @pytest.mark.parametrize("kind", KINDS)
    def test_cold_steps_compute_masks_and_hot_steps_reuse_them(
        self, constrained: Constrained, kernels: Kernels, kind: str
    ) -> None:
        steps = Steps.of(constrained, kernels, kind, 5, dtype=torch.float32, rotated=1, least=3)
        assert steps.distinct == (1 if kind == SHARED else 5)
        for _ in range(2):
            steps.check(constrained, kernels)
            steps.reset()
            for lane, call in zip(steps.lanes, steps.calls(kernels), strict=True):
                before = int((lane.claims != 0).sum())
                call()
                made = int((lane.claims != 0).sum()) - before
                assert lane.known.tolist() == [1] * 5
                assert made == (0 if kind == HOT else steps.distinct)

    def test_check_detects_a_wrong_step(self, constrained: Constrained) -> None:
        steps = Steps.of(constrained, TorchKernels(), COLD, 2, dtype=torch.float32, rotated=1, least=1)
        # The check reports the first row whose mask changes with the move. A letter inside a string may not change it.
        language, allowed = constrained.language, constrained.allowed
        wrong = [
            not torch.equal(allowed(state), allowed(language.after(state, token))) for state, token in steps.moves[0]
        ]
        with pytest.raises(AssertionError, match=f"row {wrong.index(True)} in state"):
            steps.check(constrained, StationaryKernels())

    def test_step_has_a_row_for_each_kind(self) -> None:
        rows = list(step_rows(TINY, TorchKernels(), torch.bfloat16, CPU))
        assert [(row["side"], row["distinct"]) for row in rows] == [(HOT, 3), (COLD, 3), (SHARED, 1)]
        assert all(float(row["p50_us"]) > 0 for row in rows)


class TestTargets:
    @staticmethod
    def row(what: str, side: str, p50: float, batch: int = 1, **more: Any) -> dict[str, Any]:
        common = {"what": what, "vocab": 131_072, "batch": batch, "allowed": 0.5 if what == "apply" else ""}
        return {**common, "side": side, "p50_us": str(p50), "distinct": "", **more}

    def verdicts(self, rows: list[dict[str, Any]]) -> list[str]:
        return [str(target).rpartition(": ")[2] for target in targets(rows)]

    def test_targets_without_rows_are_not_measured(self) -> None:
        assert set(self.verdicts([])) == {"not measured"}

    def test_targets_are_met_or_missed(self) -> None:
        rows = [
            *(self.row("apply", side, p50) for side, p50 in ((OURS, 4.3), (BOUND, 2.0), ("peer", 8.6), ("slow", 90))),
            *(self.row("apply", side, p50, 64) for side, p50 in ((OURS, 10.0), (BOUND, 9.0), ("peer", 5.0))),
            self.row("apply", "slow", 1.0, 64, p50_us=""),
            self.row("step", HOT, 14.0),
            self.row("step", HOT, 21.0, 64),
            self.row("step", COLD, 66.0, distinct=1),
            self.row("step", COLD, 222.0, 64, distinct=64),
            self.row("step", SHARED, 73.0, 64, distinct=1),
        ]
        assert self.verdicts(rows) == [
            "met (1.000)",
            "MISSED (2.000)",
            "met (1.000)",
            "met (14.000)",
            "MISSED (21.000)",
            "met (1.000)",
            "MISSED (1.106)",
        ]


def test_script_of_bench_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    arguments = ["--device", "cpu", "--quick", "--peers", "xgrammar CPU", "--vocab", "700", "--batch", "2"]
    monkeypatch.setattr(sys, "argv", ["bench_apply", *arguments, "--csv", str(path)])
    bench_apply.main()
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["what"] for row in rows] == ["apply"] * 12 + ["step"] * 3
    assert {row["kernels"] for row in rows} == {"torch"}
    assert capsys.readouterr().out.count("| step | 700 | 2 |") == 3


def tiny_model() -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    tokenizer = vocabularies.demo()
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **shape)
    return LlamaForCausalLM(config).eval(), tokenizer


class TestPairs:
    @pytest.mark.parametrize("count", range(1, 14))
    def test_lower_bound_exceeds_the_median_rarely(self, count: int) -> None:
        """Over all combinations of values above and below the median, which are equally likely."""
        wrong = 0
        for signs in product((-1.0, 1.0), repeat=count):
            bound = lower_bound(signs)
            assert (bound is None) == (count < 5)  # five values on one side have a probability of 1/32
            wrong += bound == 1.0
        assert wrong / 2**count <= 0.05
        if count >= 5:  # the next larger value would exceed it too often
            rank = int(lower_bound([float(i) for i in range(count)]) or 0) + 1
            above = sum(sorted(signs)[rank] == 1.0 for signs in product((-1.0, 1.0), repeat=count))
            assert above / 2**count > 0.05

    def test_result_rows_and_verdicts(self) -> None:
        taken = [{GUIDED: 2.0, GENERATE: 2.0 + 0.1 * i, LOOP: 1.9} for i in range(-1, 9)]
        rows = bench_device.result_rows(taken, 8, 64, form="eager")
        by_side = {row["side"]: row for row in rows}
        assert [row["side"] for row in rows] == [GENERATE, LOOP, GUIDED]
        assert by_side[GENERATE]["guided_ratio"] == "1.1750"
        assert by_side[GENERATE]["guided_ratio_lower"] == "1.0000"
        assert by_side[GUIDED]["tokens_per_s"] == "256.0"
        assert [bench_device.verdict(row) for row in rows] == ["met", "MISSED", ""]
        assert "MISSED" in bench_device.table(rows, judged=True)
        assert "MISSED" not in bench_device.table(rows, judged=False)

    def test_too_few_pairs_miss_the_bound(self) -> None:
        rows = bench_device.result_rows([{GUIDED: 1.0, GENERATE: 2.0, LOOP: 2.0}] * 4, 1, 64, form="eager")
        assert [bench_device.verdict(row) for row in rows] == ["MISSED", "MISSED", ""]
        compiled = [{**row, "form": "compiled"} for row in rows]
        assert [bench_device.verdict(row) for row in compiled] == ["met", "met", ""]

    def test_script_of_bench_device(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "rows.csv"
        arguments = ["--device", "cpu", "--pairs", "1", "--tokens", "9", "--batch", "2"]
        monkeypatch.setattr(bench_device, "random_model", lambda shape, **given: tiny_model())  # loads fast
        monkeypatch.setattr(sys, "argv", ["bench_device", *arguments, "--csv", str(path)])
        bench_device.main()
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["form"], row["side"]) for row in rows] == [
            (form, side) for form in ("eager", "captured", "compiled") for side in (GENERATE, LOOP, GUIDED, NO_MASKS)
        ]
        assert all(float(row["tokens_per_s"]) > 0 for row in rows)

    def test_script_of_bench_continuous(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "rows.csv"
        arguments = ["--device", "cpu", "--rounds", "1", "--tokens", "20", "--requests", "2"]
        monkeypatch.setattr(bench_device, "random_model", lambda shape, **given: tiny_model())
        monkeypatch.setattr(sys, "argv", ["bench_continuous", *arguments, "--csv", str(path)])
        bench_continuous.main()
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert [row["side"] for row in rows] == list(bench_continuous.SIDES)
        assert rows[0]["ratio_to_free"] == "1.0000" and all(float(row["tokens_per_s"]) > 0 for row in rows)


class TestBenchmarkOfTheKernelPackage:
    def test_workloads_cover_all_shapes_and_verify_their_results(self, monkeypatch: pytest.MonkeyPatch) -> None:
        package = ModuleType("kernels.benchmark")
        package.Benchmark = type("Benchmark", (), {})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "kernels", ModuleType("kernels"))
        monkeypatch.setitem(sys.modules, "kernels.benchmark", package)
        module = runpy.run_path(str(ROOT / "kernels" / "guided_bitmask" / "benchmarks" / "benchmark.py"))
        kind = module["GuidedBitmaskBenchmark"]
        names = [name.removeprefix("benchmark_") for name in dir(kind) if name.startswith("benchmark_")]
        assert len(names) == 4 * 4 * 3
        assert all(hasattr(kind, f"{what}_{name}") for name in names for what in ("setup", "verify"))
        for name, share in module["ALLOWED"].items():
            benchmark = kind()
            benchmark.device = "cpu"
            benchmark.kernel = SimpleNamespace(apply_bitmask_=apply_slots_)
            getattr(benchmark, f"setup_1_by_32000_{name}")()
            expected = getattr(benchmark, f"verify_1_by_32000_{name}")()
            getattr(benchmark, f"benchmark_1_by_32000_{name}")()
            assert torch.equal(benchmark.out, expected)
            assert (expected > -torch.inf).float().mean().item() == pytest.approx(share, abs=0.02)
