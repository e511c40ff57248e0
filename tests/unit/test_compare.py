"""compare.py: the rows and the table of its figures, and the column of a library that is not installed."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import compare
from benchmarks.bench_schemas import Job, Judged, Sample, Text, Verdict, judge
from benchmarks.common import NOT_INSTALLED, installed, python_for, runs_here, write_csv
from benchmarks.compare import MEASURES, READY, STEP, WORKING, Figure, table
from benchmarks.libraries import LIBRARIES, Constraint, Guidance, NotSupported
from benchmarks.schema_libraries import SCHEMA_PEERS
from hf_guided.vocabulary.tokens import Vocabulary
from tests.vocabularies import demo

VERSIONS = {"hf-guided": "0.1.0", "outlines": "1.3.3", "guidance": NOT_INSTALLED}
FIGURES = [
    Figure(STEP, "outlines", 0.1, ratio=0.5, detail="200 steps"),
    Figure(STEP, "hf-guided", 0.2, ratio=1.0),
    Figure(WORKING, "hf-guided", 22, 22),
    Figure(WORKING, "outlines", 13, 22, detail="beam search: crashes: ValueError"),
]


class TestTable:
    def test_has_a_line_for_each_measure_and_a_column_for_each_library(self) -> None:
        assert table(compare.result_rows(FIGURES, VERSIONS)).splitlines() == [
            "| measure (unit) | hf-guided 0.1.0 | outlines 1.3.3 | guidance |",
            "| --- | --- | --- | --- |",
            f"| {WORKING.name} (modes) | **22 of 22** | 13 of 22 | not installed |",
            f"| {STEP.name} (ms) | 0.2 | **0.1** | not installed |",
        ]

    def test_is_the_same_from_the_rows_of_a_file(self, tmp_path: Path) -> None:
        rows = compare.result_rows(FIGURES, VERSIONS)
        write_csv(tmp_path / "compare.csv", rows)
        with (tmp_path / "compare.csv").open(newline="") as file:
            assert table(list(csv.DictReader(file))) == table(rows)

    def test_shows_the_reason_for_a_missing_figure_and_marks_equal_bests(self) -> None:
        figures = [
            Figure(WORKING, "hf-guided", 3, 3),
            Figure(WORKING, "outlines", 3, 3),
            Figure(WORKING, "guidance", None, detail="raises ValueError"),
        ]
        versions = {**VERSIONS, "guidance": "0.3.1"}
        line = table(compare.result_rows(figures, versions)).splitlines()[-1]
        assert line.endswith("| **3 of 3** | **3 of 3** | raises ValueError |")

    def test_best_is_decided_by_the_values_that_are_shown(self) -> None:
        figures = [Figure(READY, "hf-guided", 9.0, ratio=1.0), Figure(READY, "outlines", 2.0, ratio=15.0)]
        line = table(compare.result_rows(figures, {"hf-guided": "0.1.0", "outlines": "1.3.3"})).splitlines()[-1]
        assert line.endswith("| 9 | **2** |")


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_every_measure_has_a_unit_and_a_unique_name(measure: compare.Measure) -> None:
    assert measure.unit.strip() and measure.name.strip()
    assert [other.name for other in MEASURES].count(measure.name) == 1


@pytest.mark.parametrize(("value", "shown"), [(0.10861, "0.109"), (1234.4, "1234"), (0.5, "0.5"), (12.0, "12")])
def test_cell_shows_three_digits(value: float, shown: str) -> None:
    assert compare.cell(Figure(READY, "outlines", value, ratio=2.0).row("1.3.3")) == shown


def number(cell: str) -> float | None:
    found = re.match(r"[\d.]+", cell)
    return float(found[0]) if found else None


@pytest.mark.parametrize("page", ["README.md", "docs/measured.md"])
def test_bold_cells_of_a_page_are_the_best_of_their_lines(page: str) -> None:
    """By the numbers that the page shows; no ratio beside them can say otherwise."""
    better = {f"{measure.name} ({measure.unit})": max if measure.more_is_better else min for measure in MEASURES}
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    seen = 0
    for name, *cells in lines:
        bold = [cell.startswith("**") for cell in cells]
        assert name in better or not any(bold), name
        if name in better:
            seen += 1
            values = [number(cell.strip("*")) for cell in cells]
            best = better[name](value for value in values if value is not None)
            assert bold == [value == best for value in values], name
            assert not re.search(r"\dx\b", " ".join(cells))
    assert seen == len(MEASURES)


def test_schema_figures_count_schemas_and_compare_those_both_compiled() -> None:
    sample = Sample("a", {}, (Text("1", True, True, True), Text("2", False, True, True)))

    def judged(ready_ms: float, *accepted: bool) -> Judged:
        return Judged(sample, Verdict("compiled", accepted=list(accepted), ready_ms=ready_ms, mask_us=[ready_ms]))

    refused = Judged(sample, Verdict("refused"))
    ours = [judged(1.0, True, False), judged(2.0, True, False), judged(300.0, True, False)]
    peer = [judged(4.0, True, False), judged(8.0, True, True), refused]
    figures = {figure.measure: figure for figure in compare.schema_figures("peer", peer, ours)}
    assert (figures[compare.COMPILED].value, figures[compare.COMPILED].of) == (2, 3)
    assert (figures[compare.EXACT].value, figures[compare.LOOSE].value) == (1, 1)
    assert (figures[READY].value, figures[READY].ratio) == (6.0, 4.0)


def test_step_figure_is_a_median_and_its_ratio_to_ours() -> None:
    taken = {"hf-guided": [(2_000_000, 1_000_000)] * 3, "outlines": [(1_000_000, 1_000_000)] * 2 + [(9_000_000, 1)]}
    figure = compare.step_figure(STEP, "outlines", taken, {})
    assert (figure.value, figure.ratio) == (1.0, 0.5)
    unsupported = compare.step_figure(STEP, "guidance", taken, {"guidance": "not supported"})
    assert unsupported.value is None and compare.cell(unsupported.row("")) == "not supported"


class TestAnotherPython:
    def test_is_named_by_the_environment(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("HF_GUIDED_BENCH_LM_FORMAT_ENFORCER", str(tmp_path / "python"))
        assert python_for("lm-format-enforcer") == str(tmp_path / "python")
        assert not runs_here("lm-format-enforcer")
        assert python_for("outlines") == sys.executable

    def test_reports_installed_versions(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        python = tmp_path / "python"  # the same interpreter by another path
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        for package in ("torch", "no-such-package"):
            monkeypatch.setenv(f"HF_GUIDED_BENCH_{package.upper().replace('-', '_')}", str(python))
        installed.cache_clear()
        try:
            assert installed("torch") == torch.__version__
            assert installed("no-such-package") == NOT_INSTALLED
        finally:
            installed.cache_clear()


class TestGuidance:
    """The checks that do not need the library itself."""

    library = object.__new__(Guidance)

    @pytest.mark.parametrize("asked", [[Constraint("regex", "a"), None], [Constraint("regex", "a")]])
    def test_takes_one_constraint(self, asked: list[Constraint | None]) -> None:
        with pytest.raises(NotSupported, match="one prompt"):
            self.library.prepare(asked)

    def test_does_not_support_generate(self) -> None:
        with pytest.raises(NotSupported, match="loop of its own"):
            self.library.constrain(Constraint("regex", "a"))

    @pytest.mark.parametrize(
        ("rows", "settings", "reason"), [(2, {}, "one prompt"), (1, {"num_beams": 2}, "no num_beams")]
    )
    def test_refuses_settings_that_its_loop_lacks(self, rows: int, settings: dict[str, int], reason: str) -> None:
        shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=4, **shape))
        inputs = {"input_ids": torch.zeros(rows, 1, dtype=torch.long)}
        with pytest.raises(NotSupported, match=reason):
            self.library.generate(model, inputs, {"constraint": Constraint("regex", "a")}, **settings)


def test_every_library_has_a_column_and_ours_is_first() -> None:
    assert compare.COLUMNS[0] == "hf-guided" and set(compare.COLUMNS) == set(LIBRARIES)


@pytest.mark.parametrize("name", SCHEMA_PEERS)
def test_schema_peers_judge_texts_by_their_masks(name: str) -> None:
    peer = SCHEMA_PEERS[name]
    if not runs_here(peer.package):
        pytest.skip(f"{peer.package} does not run in this Python")
    tokenizer = demo()
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "yes"]}}, "required": ["a"]}
    texts = ['{"a": "x"}', '{"a": "yes"}', '{"a": "no"}', '{"a": "x"', "{}"]
    verdict = judge(
        peer(Vocabulary.from_tokenizer(tokenizer)),
        Job(schema, texts),
        lambda text: tokenizer.encode(text, add_special_tokens=False),
    )
    assert (verdict.outcome, verdict.accepted) == ("compiled", [True, True, False, False, False])
