"""The parts of bench_engines.py that decide the numbers in its table."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks import engine_constraints
from benchmarks.bench_engines import Judged, Target, different_masks, failures, ratios, summary, table, targets
from benchmarks.declared_order import DeclaredOrder
from benchmarks.engine_constraints import EngineCase
from benchmarks.engine_worker import Verdict, Worker, judge
from benchmarks.engines import ENGINES
from tests.toy import all_bytes

OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": True}, "required": ["b"]}
CASES = [
    EngineCase("g", "pattern", "regex", "(ab|a)c?é", ["abé", "acé"], ["abc", "é"]),
    EngineCase("g", "words", "choice", ["yes", 'say "no"\n', "é.*"], ["yes", 'say "no"\n', "é.*"], ["no", "é.", "éxx"]),
    EngineCase(
        "g",
        "schema",
        "schema",
        {"type": "array", "items": {"enum": ["a", 1]}, "maxItems": 2},
        ['["a", 1]', "[1]"],
        ["[2]"],
    ),
]


@pytest.mark.parametrize(
    ("schema", "instance", "undeclared"),
    [
        (OBJECT, {"a": 1, "b": 2}, False),
        (OBJECT, {"b": 2, "c": 2}, True),
        (OBJECT, [{"c": 2}], False),
        ({"items": OBJECT}, [{"b": 1}, {"c": 2}], True),
        ({**OBJECT, "additionalProperties": {"type": "null"}}, {"c": None}, False),
        ({**OBJECT, "patternProperties": {"^x": True}}, {"c": None}, False),
        ({"required": ["a"]}, {"a": 1, "c": 2}, False),
        ({"allOf": [OBJECT, {"properties": {"c": True}}]}, {"b": 1, "c": 2}, False),
        ({"allOf": [OBJECT, {"properties": {"c": True}}]}, {"b": 1, "d": 2}, True),
        ({"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"x": OBJECT}}}}, {"x": {"c": 1}}, True),
        ({"properties": {"x": {}}}, {"x": {"c": 1}}, False),
    ],
)
def test_undeclared_keys_are_found(schema: Any, instance: Any, undeclared: bool) -> None:
    assert DeclaredOrder(schema).has_undeclared(instance) == undeclared


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_judges_small_languages_correctly(name: str) -> None:
    engine = ENGINES[name](all_bytes())
    for case in CASES:
        verdict = judge(engine, case, lambda text: list(text.encode()))
        assert verdict.outcome == "compiled", verdict.reason
        assert all(verdict.accepted), case.name
        assert not any(verdict.others_accepted), case.name
        tokens = [len(text.encode()) for text in case.documents]
        assert list(map(len, verdict.cold_us)) == list(map(len, verdict.hot_us)) == tokens
        assert list(map(len, verdict.masks)) == tokens
        assert len(verdict.accept_us) == sum(tokens)
        assert verdict.ready_ms > verdict.compile_ms > 0
        assert all(microseconds > 0 for times in verdict.cold_us for microseconds in times)
    assert judge(engine, EngineCase("g", "broken", "regex", "(", [], []), list).outcome == "refused"


def test_computed_masks_are_timed_separately() -> None:
    verdict = judge(ENGINES["native"](all_bytes()), CASES[0], lambda text: list(text.encode()))
    assert 0 < len(verdict.made_us) < len(verdict.accept_us)
    assert verdict.nbytes > 0


@pytest.mark.slow
def test_timeout_affects_only_its_own_constraint() -> None:
    worker = Worker("outlines-core")
    try:
        slow = EngineCase("g", "slow", "regex", r"(\w{1,400}x){400}", [], [])
        assert worker(slow, limit_s=1.0).outcome == "timeout"
        assert worker(CASES[1], limit_s=60.0).outcome == "compiled"
    finally:
        worker.stop()


def judged(name: str, cold: list[list[float]], accepted: list[bool], **known: Any) -> Judged:
    verdict = Verdict("compiled", accepted=accepted, cold_us=cold, masks=[[1] * len(times) for times in cold], **known)
    return Judged(EngineCase("sample, compact", name, "regex", "", ["a"] * len(cold)), verdict)


def test_ratios_cover_texts_that_both_accepted() -> None:
    ours = [judged("one", [[2.0, 2.0], [50.0]], [True, True]), judged("two", [[2.0]], [True])]
    theirs = [judged("one", [[1.0, 1.0], [900.0]], [True, False])]
    assert ratios(ours, theirs) == [2.0, 2.0, 2.0]
    assert different_masks(ours, theirs) == 0
    theirs[0].verdict.masks = [[1, 2], [3]]
    assert different_masks(ours, theirs) == 1


def test_failures_are_counted_and_named() -> None:
    known = {"others_accepted": [], "made_us": [5_000.0], "ready_ms": 60.0}
    group = {
        "native": [judged("one", [[3.0]], [False], **known)],
        "xgrammar": [judged("one", [[1.0]], [True]), Judged(CASES[0], Verdict("timeout", "too long"))],
    }
    rows = [summary(name, group) for name in group]
    assert rows[0]["documents_refused"] == 1
    assert (rows[1]["compiled"], rows[1]["beyond_limits"]) == (1, 1)
    assert failures(group["native"], "native") == ["sample, compact, one: native: refuses 'a'"]
    assert failures(group["xgrammar"], "xgrammar") == ["g, pattern: xgrammar: timeout: too long"]
    assert "| 1 of 2 |" in table(rows)
    missed = {target.what: target for target in targets(rows) if not target.value <= target.most}
    assert "sample, compact: ready p90, ms" in missed
    assert "sample, compact: valid refused" in missed
    assert str(Target("x", 2, 1)) == "- NOT met: x: 2, at most 1 wanted"


def test_documents_of_the_cases_are_valid_and_others_are_not() -> None:
    """Checked with `re` and the lists of options."""
    for case in engine_constraints.regexes():
        assert all(re.fullmatch(case.what, text) for text in case.documents)
        assert not any(re.fullmatch(case.what, text) for text in case.others)
    for case in engine_constraints.choices():
        assert len(set(case.what)) == len(case.what)
        assert set(case.documents) <= set(case.what)
        assert not set(case.others) & set(case.what)
    bounded = engine_constraints.bounded_string()
    assert max(len(json.loads(text)) for text in bounded.documents) == bounded.what["maxLength"]
    assert all(len(json.loads(text)) > bounded.what["maxLength"] for text in bounded.others)
