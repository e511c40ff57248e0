"""The parts of the schema benchmarks that decide the numbers in their tables."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from benchmarks import bench_regexes, bench_schemas, bench_suite, bench_tags
from benchmarks.bench_schemas import (
    Job,
    Judged,
    Sample,
    Text,
    Verdict,
    Worker,
    failures,
    judge,
    summary,
    texts_of,
    tokenizing,
)
from benchmarks.bench_suite import mistakes
from benchmarks.declared_order import DeclaredOrder
from benchmarks.processes import resident_bytes
from benchmarks.readme_tables import ARCHITECTURES, MEASURED, README, TABLES, documents_of, written
from benchmarks.schema_libraries import GRAMMAR_LIBRARIES, REGEX_LIBRARIES, SCHEMA_LIBRARIES, TOOL_LIBRARIES, Refused

OBJECT = {"type": "object", "properties": {"b": True, "a": True}}


class TestDeclaredOrder:
    @pytest.mark.parametrize(
        ("schema", "given", "order"),
        [
            (OBJECT, "abc", "bac"),
            ({**OBJECT, "required": ["z", "a"]}, "yza", "azy"),
            ({"allOf": [OBJECT], "properties": {"c": True}}, "abc", "cba"),
            ({"$ref": "#/$defs/o", "$defs": {"o": OBJECT}, "properties": {"c": True}}, "abc", "cba"),
            (
                {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/d", "d": OBJECT, "allOf": [{}]},
                "ab",
                "ba",
            ),
            ({"anyOf": [{"required": ["q"], **OBJECT}, {"properties": {"c": True, "a": True}}]}, "abc", "cab"),
            ({"oneOf": [OBJECT], "properties": {"a": True}}, "cba", "abc"),
            ({"if": {"required": ["b"]}, "then": OBJECT, "else": {"properties": {"c": True}}}, "ab", "ba"),
            ({"if": {"required": ["b"]}, "then": OBJECT, "else": {"properties": {"c": True}}}, "ac", "ca"),
            ({"dependentSchemas": {"a": OBJECT, "q": {"properties": {"c": True}}}}, "acb", "bac"),
            ({"dependencies": {"a": OBJECT, "b": ["a"]}}, "ab", "ba"),
            ({"anyOf": [{"anyOf": [OBJECT]}, True], "allOf": [{"properties": {"c": True}}]}, "abc", "cba"),
            (True, "ba", "ba"),
        ],
    )
    def test_order_of_an_object(self, schema: Any, given: str, order: str) -> None:
        ordered = DeclaredOrder(schema)({name: 1 for name in given})
        assert "".join(ordered) == order

    @pytest.mark.parametrize(
        "holder",
        [
            {"properties": {"x": OBJECT}},
            {"patternProperties": {"^x": OBJECT}},
            {"additionalProperties": OBJECT},
            {"anyOf": [{"properties": {"x": OBJECT}}]},
        ],
    )
    def test_order_inside_a_property(self, holder: Any) -> None:
        assert list(DeclaredOrder(holder)({"x": {"a": 1, "b": 2}})["x"]) == ["b", "a"]

    @pytest.mark.parametrize(
        "holder",
        [{"items": OBJECT}, {"prefixItems": [True, OBJECT]}, {"items": [True, OBJECT]}, {"contains": OBJECT}],
    )
    def test_order_inside_an_array(self, holder: Any) -> None:
        assert list(DeclaredOrder(holder)([0, {"a": 1, "b": 2}])[1]) == ["b", "a"]

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
    def test_undeclared_keys_are_found(self, schema: Any, instance: Any, undeclared: bool) -> None:
        assert DeclaredOrder(schema).has_undeclared(instance) == undeclared

    def test_follows_references_to_other_documents_and_back(self) -> None:
        tree = {"properties": {"v": True, "next": {"$ref": "#"}}}
        order = DeclaredOrder({"$ref": "http://x.example/tree"}, {"http://x.example/tree": tree})
        ordered = order({"next": {"next": {"v": 1}, "v": 2}, "v": 3})
        assert json.dumps(ordered) == '{"v": 3, "next": {"v": 2, "next": {"v": 1}}}'

    def test_recursive_reference_terminates(self) -> None:
        assert DeclaredOrder({"$ref": "#"})({"a": 1}) == {"a": 1}

    def test_patterns_unsupported_by_python_match_nothing(self) -> None:
        schema = {"patternProperties": {r"^\p{L}+$": OBJECT}, "anyOf": [{"pattern": r"\p{L}"}]}
        assert list(DeclaredOrder(schema)({"x": {"a": 1, "b": 2}})["x"]) == ["a", "b"]


class TestTexts:
    def test_instance_in_declared_order_gives_one_text(self) -> None:
        (text,) = texts_of(OBJECT, [{"data": {"b": 1, "a": 2}, "valid": True}])
        assert (text.as_written, text.in_order) == (True, True)

    def test_instance_in_another_order_gives_two_texts(self) -> None:
        written, ordered = texts_of(OBJECT, [{"data": {"a": "é", "b": 2}, "valid": False}])
        assert (written.text, written.as_written, written.in_order) == ('{"a": "é", "b": 2}', True, False)
        assert (ordered.text, ordered.as_written, ordered.in_order) == ('{"b": 2, "a": "é"}', False, True)


class TestVerdicts:
    sample = Sample(
        "s",
        OBJECT,
        texts_of(OBJECT, [{"data": {"a": 1, "b": 2}, "valid": True}, {"data": {"a": 3, "b": 4}, "valid": False}]),
    )

    def judged(self, *accepted: bool, ready: float = 1.0) -> Judged:
        return Judged(self.sample, Verdict("compiled", [], [*accepted], [9] * 4, ready, [1.0, 3.0]))

    @pytest.mark.parametrize(
        ("accepted", "as_written", "in_order"),
        [
            ((True, True, False, False), True, True),
            ((False, True, False, False), False, True),
            ((False, False, False, False), False, False),
            ((True, True, False, True), True, False),  # refused only for the order of its keys
            ((True, True, True, False), False, False),
        ],
    )
    def test_passing_needs_all_verdicts_right(
        self, accepted: tuple[bool, ...], as_written: bool, in_order: bool
    ) -> None:
        judged = self.judged(*accepted)
        assert (judged.passing(in_order=False), judged.passing(in_order=True)) == (as_written, in_order)

    def test_summary_counts_schemas_and_compares_those_both_compiled(self) -> None:
        refused = Judged(self.sample, Verdict("refused", [("/a", "not", "no")]))
        late = Judged(self.sample, Verdict("timeout"))
        ours = [self.judged(False, True, False, False, ready=4.0), self.judged(True, True, True, True, ready=8.0)]
        theirs = [self.judged(True, True, False, False, ready=2.0), refused]
        row = summary("x", [*ours, refused, late], [*theirs, refused, refused])
        expected = {
            "schemas": 4,
            "compiled": 2,
            "with_instances": 4,
            "passing_as_written": 0,
            "passing_in_order": 1,
            "valid_refused_as_written": 1,
            "valid_refused_in_order": 0,
            "invalid_accepted": 1,
            "refused": 1,
            "crashed": 0,
            "beyond_limits": 1,
            "ready_p50_ms": "6.00",
            "ready_ratio": "2.00",
            "mask_p50_us": "2.00",
        }
        assert {name: row[name] for name in expected} == expected
        assert "0 of 4 (0.0%)" in bench_schemas.table([row])

    def test_failures_have_kind_pointer_and_keyword(self) -> None:
        refused = Judged(self.sample, Verdict("refused", [("/a", "not", "no")]))
        rows = failures([refused, self.judged(False, True, False, True), self.judged(True, True, False, False)])
        assert [(row["what"], row["pointer"], row["keyword"]) for row in rows] == [
            ("refused", "/a", "not"),
            ("invalid accepted", "", ""),
            ("valid refused, as written", "", "order of keys"),
        ]
        assert rows[2]["reason"] == '{"a": 1,  >>> "b": 2}'


class TestSuite:
    texts = (Text("1", True, True, True), Text('"x"', False, True, True))
    group = Sample("draft7/type: a group", {"type": "integer"}, texts)
    never = Sample("draft7/not: nothing fits", False, texts[1:])

    @pytest.mark.parametrize(
        ("verdict", "whats"),
        [
            (Verdict("compiled", [], [True, False], [1, 0]), []),
            (Verdict("compiled", [], [False, True], [0, 3]), ["invalid accepted", "valid refused, in order"]),
            (Verdict("refused", [("", "type", "no")]), []),
            (Verdict("unsatisfiable", [("", "", "nothing fits")]), ["unsatisfiable"]),
            (Verdict("timeout"), ["timeout"]),
        ],
    )
    def test_wrong_verdicts_are_mistakes(self, verdict: Verdict, whats: list[str]) -> None:
        assert [mistake["what"] for mistake in mistakes(Judged(self.group, verdict))] == whats

    def test_unsatisfiable_verdict_is_right_for_unsatisfiable_schemas(self) -> None:
        verdict = Verdict("unsatisfiable", [("", "", "nothing fits")])
        never, ever = Judged(self.never, verdict), Judged(self.group, verdict)
        assert mistakes(never) == []
        row = bench_suite.summary("x", [never, Judged(self.group, Verdict("refused")), ever])
        assert (row["handled"], row["refused"], row["failed"], row["share"]) == (1, 1, 1, "0.3333")
        assert "| x | 3 | 1 | 0.3333 | 1 |" in bench_suite.table([row])


@pytest.mark.parametrize("name", SCHEMA_LIBRARIES)
def test_every_library_judges_texts(name: str) -> None:
    vocabulary, tokenize = tokenizing("bytes")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    verdict = judge(SCHEMA_LIBRARIES[name](vocabulary), Job(schema, ['{"a": 1}', '{"a": "é"}', '{"a": 1']), tokenize)
    assert (verdict.outcome, verdict.accepted, verdict.stopped_at) == ("compiled", [True, False, False], [8, 6, 7])
    assert verdict.ready_ms > 0 and len(verdict.mask_us) == 8 + 7 + 7 and len(verdict.warm_us) == 8


@pytest.mark.parametrize(
    ("name", "schema", "unsatisfiable"),
    [
        ("hf-guided", {"$ref": "http://x.example/missing"}, False),
        ("hf-guided", False, True),
        ("llguidance", {"not": {"type": "string"}}, False),
        ("llguidance", {"type": "string", "minLength": 2, "maxLength": 1}, True),
        ("xgrammar", {"type": "string", "pattern": "("}, False),
    ],
)
def test_refusal_is_distinguished_from_a_crash(name: str, schema: Any, unsatisfiable: bool) -> None:
    library = SCHEMA_LIBRARIES[name](tokenizing("bytes")[0])
    with pytest.raises(Refused) as refused:
        library.compile(schema)
    assert refused.value.unsatisfiable == unsatisfiable


class TestWorker:
    long = Job({"type": "string"}, [f'"{"x" * 300_000}"'])
    short = Job({"type": "string"}, ['"x"', "1"])

    @pytest.mark.slow
    def test_timeout_affects_only_its_own_job(self) -> None:
        worker = Worker("llguidance", "bytes", limit_s=0.4)
        try:
            assert worker(self.short).accepted == [True, False]
            assert worker(self.long).outcome == "timeout"
            assert worker(self.short).accepted == [True, False]
        finally:
            worker.stop()

    @pytest.mark.slow
    def test_job_over_the_memory_limit_is_stopped(self) -> None:
        worker = Worker("llguidance", "bytes", limit_bytes=2**20)
        try:
            assert worker(self.long).outcome == "memory"
        finally:
            worker.stop()

    def test_resident_memory_of_a_process(self) -> None:
        assert resident_bytes(os.getpid()) > 2**20
        assert resident_bytes(2**30) == 0


@pytest.mark.parametrize("name", TABLES)
def test_documents_contain_the_measured_tables(name: str) -> None:
    begin, end = f"<!-- {name}: the table of `python -m benchmarks.{name}` -->", f"<!-- {name}: end -->"
    block = f"{begin}\n\n{written(name)}\n\n{end}"
    for document in (README, MEASURED, ARCHITECTURES):
        text = document.read_text(encoding="utf-8")
        expected = 1 if document in documents_of(name) else 0
        assert text.count(block) == text.count(begin) == expected


@pytest.mark.parametrize("name", TOOL_LIBRARIES)
def test_every_library_has_a_first_mask_of_tool_calls(name: str) -> None:
    library = TOOL_LIBRARIES[name](tokenizing("bytes")[0])
    tools = {"f": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    library.compile(tools).fill()
    refused = {"f": {**tools["f"], "not": {"required": ["a"]}}}  # by llguidance's own reader
    if name.startswith("llguidance"):
        with pytest.raises(Refused):
            library.compile(refused)
    elif name.startswith("hf-guided of"):
        library.compile(refused).fill()


def test_row_of_tool_calls_compares_the_sets_that_both_take() -> None:
    def judged(*ready_ms: float | None) -> list[Judged]:
        verdicts = [Verdict("refused") if ms is None else Verdict("compiled", ready_ms=ms) for ms in ready_ms]
        return [Judged(Sample("", {}, ()), verdict) for verdict in verdicts]

    row = bench_tags.row("llguidance of tools", 1, judged(2.0, None, 1.0), judged(1.0, 50.0, 3.5))
    assert "| 1 | llguidance | 1.5 | 2.0 | 2 | 1 | 3 |" in bench_tags.table([row])
    assert row["ratio"] == "1.50"


def test_forty_patterns_have_texts_that_python_judges_alike() -> None:
    samples = bench_regexes.load_patterns()
    assert len(samples) == len({sample.schema for sample in samples}) == 40
    assert all(any(text.valid for text in sample.texts) for sample in samples)


def test_forty_grammars_have_texts_of_both_kinds() -> None:
    samples = bench_regexes.load_grammars()
    assert len(samples) == len({sample.schema for sample in samples}) >= 40
    assert all({text.valid for text in sample.texts} == {True, False} for sample in samples)


@pytest.mark.parametrize("name", {**REGEX_LIBRARIES, **GRAMMAR_LIBRARIES})
def test_every_library_judges_texts_of_a_pattern(name: str) -> None:
    """Also the row that is made of the verdict."""
    vocabulary, tokenize = tokenizing("bytes")
    texts = (Text("ab12", True, True, True), Text("ab", False, True, True))
    pattern = "root ::= [a-z] root | [0-9]{2}" if name in GRAMMAR_LIBRARIES else r"[a-z]+\d{2}"
    sample = Sample("words", pattern, texts)
    verdict = judge({**REGEX_LIBRARIES, **GRAMMAR_LIBRARIES}[name](vocabulary), sample.job, tokenize)
    assert verdict.accepted == [True, False]
    row = bench_regexes.line(name, Judged(sample, verdict))
    assert (row["outcome"], row["wrong"]) == ("compiled", 0)
