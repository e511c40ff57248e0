"""The benchmarks of device work, run on a CPU: their correctness checks, rows, bounds and verdicts."""

from __future__ import annotations

import csv
import runpy
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from benchmarks import bench_apply, bench_continuous, bench_device
from benchmarks.bench_apply import (
    ALL,
    CLONE,
    FILL,
    NEARLY_EMPTY,
    OURS,
    QUICK,
    TRITON,
    Buffer,
    all_sides,
    buffers_needed,
    measured_rows,
    targets,
    time_calls,
)
from benchmarks.bench_device import COLD, FREE, LINES, LOOP, LOOP_NOT_RESIDENT, RECORD, Side, Taken, lower_bound
from benchmarks.common import percentile_columns
from hf_guided.session.mask_kernel import apply_with_torch
from tests import vocabularies
from tests.kernel_harness import ROOT

CPU = torch.device("cpu")
TINY = replace(QUICK, vocabularies=(700,), batches=(3,), rotated=1 << 14)


class TestTiming:
    def test_every_replay_runs_all_calls(self) -> None:
        ran: list[str] = []
        times = time_calls([lambda: ran.append("a"), lambda: ran.append("b")], CPU, replays=4)
        assert len(times) == 4 and all(seconds > 0 for seconds in times)
        assert "".join(ran) == "ab" * (len(ran) // 2) and len(ran) // 2 > 4

    @pytest.mark.parametrize(("nbytes", "rotated", "count"), [(10, 100, 10), (11, 100, 10), (200, 100, 1), (0, 9, 9)])
    def test_number_of_buffers_covers_the_rotated_bytes(self, nbytes: int, rotated: int, count: int) -> None:
        assert buffers_needed(nbytes, rotated) == count

    def test_columns_are_quantiles(self) -> None:
        assert percentile_columns([6.0, 1.0, 2.0, 5.0, 3.0, 4.0], "p{}_us", 3) == {
            "p20_us": "2.000",
            "p50_us": "3.500",
            "p80_us": "5.000",
        }


class TestApply:
    def test_apply_has_a_row_for_each_side_and_share_and_launches_once(self) -> None:
        rows = list(measured_rows(TINY, all_sides(CPU, ["xgrammar CPU"]), torch.bfloat16, CPU))
        sides = [OURS, CLONE, FILL, "xgrammar CPU"]
        assert [row["side"] for row in rows if row["what"] == "apply"] == sides * 3
        assert [row["side"] for row in rows if row["what"] == "launch"] == sides
        assert all(float(row["p50_us"]) > 0 and not row["problem"] for row in rows)
        assert all(row["buffers"] * 3 * 700 * 2 >= TINY.rotated for row in rows)

    def test_failing_peer_is_named_and_our_failure_raises(self) -> None:
        def missing(device: torch.device) -> Any:
            raise ImportError("no such package")

        def wrong(device: torch.device) -> Any:
            return lambda buffer: torch.zeros_like(buffer.logits)

        made = {OURS: all_sides(CPU)[OURS], "absent": missing, "wrong": wrong}
        rows = list(measured_rows(TINY, made, torch.float32, CPU))
        problems = {row["side"]: row["problem"] for row in rows}
        assert problems == {
            OURS: "",
            "absent": "ImportError: no such package",
            "wrong": "AssertionError: wrong masks otherwise",
        }
        assert "no such package" in bench_apply.table(rows)
        with pytest.raises(AssertionError, match="masks otherwise"):
            list(measured_rows(TINY, {OURS: wrong}, torch.float32, CPU))

    @pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
    def test_random_buffer_has_the_given_share_of_allowed_tokens_and_no_empty_row(self, share: float) -> None:
        buffer = Buffer.random(4, 5_000, share, torch.float16, CPU, 1)
        allowed = buffer.masked() > -torch.inf
        assert allowed.float().mean().item() == pytest.approx(share, abs=0.02)
        assert allowed.any(-1).all()


class TestTargets:
    @staticmethod
    def row(allowed: float, side: str, p50: float, batch: int = 1, what: str = "apply") -> dict[str, Any]:
        return {"what": what, "vocab": 32_000, "batch": batch, "allowed": allowed, "side": side, "p50_us": str(p50)}

    def verdicts(self, rows: list[dict[str, Any]]) -> list[str]:
        return [target.rpartition(": ")[2] for target in targets(rows)]

    def test_targets_without_rows_are_not_measured(self) -> None:
        assert self.verdicts([]) == ["not measured"] * 3

    def test_targets_are_met_or_missed(self) -> None:
        rows = [
            *(self.row(ALL, side, p50) for side, p50 in ((OURS, 4.3), (CLONE, 2.0), (TRITON, 8.6))),
            *(self.row(ALL, side, p50, 64) for side, p50 in ((OURS, 10.0), (CLONE, 10.0), (TRITON, 5.0))),
            *(self.row(NEARLY_EMPTY, side, p50) for side, p50 in ((OURS, 2.3), (CLONE, 9.0), (FILL, 1.0))),
            self.row(ALL, OURS, 1_000.0, what="launch"),
            {**self.row(ALL, TRITON, 1.0, 256), "p50_us": ""},
        ]
        assert self.verdicts(rows) == ["met (1.000)", "MISSED (2.000)", "met (1.000)"]


def test_script_of_bench_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    arguments = ["--device", "cpu", "--quick", "--peers", "xgrammar CPU", "--vocab", "700", "--batch", "2"]
    monkeypatch.setattr(sys, "argv", ["bench_apply", *arguments, "--csv", str(path)])
    bench_apply.main()
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["what"] for row in rows] == ["apply"] * 4 + ["launch"] * 4 + ["apply"] * 8
    assert {row["kernel"] for row in rows} == {"torch"}
    assert capsys.readouterr().out.count("| launch | 700 | 2 |") == 4


def tiny_model() -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    tokenizer = vocabularies.demo()
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, **shape)
    return LlamaForCausalLM(config).eval(), tokenizer


class TestRounds:
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
        taken = [
            {FREE: Taken(2.0, 100), LOOP: Taken(2.0 + 0.1 * i, 110, 1_100), LOOP_NOT_RESIDENT: Taken(1.0, 40, 0)}
            for i in range(-1, 9)
        ]
        rows = bench_device.result_rows(taken, 512, form="eager", constraint=LINES, batch=8)
        by_side = {row["side"]: row for row in rows}
        assert list(by_side) == [FREE, LOOP, LOOP_NOT_RESIDENT]
        assert by_side[FREE]["tokens_per_s"] == "50.0" and by_side[FREE]["ratio_to_free"] == ""
        assert by_side[LOOP_NOT_RESIDENT]["ratio_to_free"] == "0.8000"
        assert float(by_side[LOOP]["ratio_lower"]) < float(by_side[LOOP]["ratio_to_free"])
        assert [row["sent_bytes_a_token"] for row in rows] == ["", 10.0, 512]
        assert [bench_device.verdict(row) for row in rows] == ["", "MISSED", ""]
        assert "MISSED" in bench_device.table(rows, judged=True)
        assert "MISSED" not in bench_device.table(rows, judged=False)

    @pytest.mark.parametrize(("form", "verdict"), [("eager", "MISSED"), ("compiled", "met")])
    def test_too_few_rounds_miss_the_bound(self, form: str, verdict: str) -> None:
        taken = [{FREE: Taken(2.0, 100), LOOP: Taken(1.0, 100, 0)}] * 4
        rows = bench_device.result_rows(taken, 0, form=form, constraint=LINES, batch=8)
        assert [bench_device.verdict(row) for row in rows] == ["", verdict]

    def test_a_failing_side_costs_no_other_and_free_generation_raises(self) -> None:
        class Unchecked(bench_device.Model):
            def __init__(self) -> None:
                self.stop = 0

        def fails() -> list[list[int]]:
            raise RuntimeError("no kernel image")

        sides = {FREE: Side(lambda: [[5, 0]]), "other": Side(fails), "long": Side(lambda: [[5, 5, 5]])}
        left, problems = bench_device.working(Unchecked(), LINES, sides, 2)
        assert list(left) == [FREE]
        assert problems == {"other": "RuntimeError: no kernel image", "long": "AssertionError: long: 3 tokens"}
        with pytest.raises(RuntimeError, match="no kernel image"):
            bench_device.working(Unchecked(), LINES, {FREE: Side(fails)}, 2)

    def test_script_of_bench_device(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "rows.csv"
        arguments = ["--device", "cpu", "--rounds", "1", "--tokens", "9", "--batch", "2", "--more"]
        monkeypatch.setattr(bench_device, "random_model", lambda shape, **given: tiny_model())  # loads fast
        record = {"schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
        monkeypatch.setattr(bench_device, "record12", lambda: record)
        monkeypatch.setattr(sys, "argv", ["bench_device", *arguments, "--csv", str(path)])
        bench_device.main()
        with path.open() as file:
            rows = list(csv.DictReader(file))
        sides = {row["side"] for row in rows}
        assert {FREE, *bench_device.OURS, *bench_device.MORE} <= sides <= set(bench_device.SIDES)
        assert [(row["form"], row["constraint"]) for row in rows if row["side"] == COLD] == [
            (form, name) for form in ("eager", "compiled") for name in (LINES, RECORD)
        ]
        assert all(float(row["tokens_per_s"]) > 0 and not row["problem"] for row in rows)

    @pytest.mark.filterwarnings("ignore:llguidance keeps no token limit")
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
            benchmark.kernel = SimpleNamespace(apply_masks=apply_with_torch)
            getattr(benchmark, f"setup_1_by_32000_{name}")()
            expected = getattr(benchmark, f"verify_1_by_32000_{name}")()
            getattr(benchmark, f"benchmark_1_by_32000_{name}")()
            assert torch.equal(benchmark.out, expected)
            assert (expected > -torch.inf).float().mean().item() == pytest.approx(share, abs=0.02)
