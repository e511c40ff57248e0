"""What is compiled in the worker process, and what comes back; ``re`` and ``jsonschema`` judge the texts."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends import compiler, cost_estimate, worker_compile
from hf_guided.backends.cost_estimate import MOST_WRITTEN_OUT, is_costly, written_out
from hf_guided.backends.lark_grammar import MOST_STATES, lexer_cost
from hf_guided.backends.subprocess_worker import JobKilled
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint, UnsupportedConstraint
from hf_guided.options import CompilerOptions
from hf_guided.regex import parse_fullmatch, to_lark
from tests import type_zoo, vocabularies
from tests.integration.hostile_constraints import WORDS, periods, wide

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}, "required": ["a"]}
BACKENDS = ["auto", "llguidance", "xgrammar"]


@dataclass
class Point:
    """A type that the worker process cannot import."""

    x: int


@cache
def guide() -> hg.Guide:
    tokenizer = vocabularies.demo()
    return hg.Guide(tokenizer, len(tokenizer))


@pytest.fixture
def all_in_worker(monkeypatch: pytest.MonkeyPatch) -> hg.Guide:
    """A guide that takes every constraint for costly."""
    monkeypatch.setattr(compiler, "is_costly", lambda constraint: True)
    tokenizer = vocabularies.demo()
    return hg.Guide(tokenizer, len(tokenizer))


def accepts(compiled: Any, text: str) -> bool:
    matcher = compiled.matcher()
    ids = guide().vocabulary.encode_bytes(text.encode())
    return all(map(matcher.accept_token, ids)) and bool(matcher.is_completed())


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_comes_back_accepts_the_same_texts(all_in_worker: hg.Guide, backend: str) -> None:
    compiled = all_in_worker.compile(SCHEMA, backend)
    assert compiled.backend == ("native" if backend == "auto" else backend)
    closed = {**SCHEMA, "additionalProperties": False}
    for text in (
        '{"a": 1}',
        '{"a": 1, "b": "x"}',
        '{"b": "x"}',
        '{"a": 1, "c": 2}',
        '{"a": 1.5}',
        '{"a": 1, "b": "z"}',
    ):
        assert accepts(compiled, text) == jsonschema.Draft202012Validator(closed).is_valid(json.loads(text)), text
    pattern = all_in_worker.compile(hg.Regex("a{2,3}b?"), backend)
    for text in ("aa", "aab", "a", "aaaa", "aaabb"):
        assert accepts(pattern, text) == bool(re.fullmatch("a{2,3}b?", text))


def test_errors_and_losses_come_back(all_in_worker: hg.Guide) -> None:
    with pytest.raises(InvalidConstraint, match="x"):
        all_in_worker.compile(hg.Grammar('start: "a" x'))
    with pytest.raises(UnsupportedConstraint, match="uniqueItems") as caught:
        all_in_worker.compile({"type": "array", "contains": {"enum": list(range(40))}, "uniqueItems": True})
    assert caught.value.losses
    audit = all_in_worker.audit({"type": "array", "contains": {"enum": list(range(40))}, "uniqueItems": True})
    assert [row.keyword for row in audit.lost] == ["uniqueItems"]
    with pytest.raises(InvalidConstraint, match="strng"):
        all_in_worker.audit({"type": "strng"})
    relaxed = hg.JsonSchema({"type": "array", "contains": {}, "uniqueItems": True}, on_unsupported="warn")
    with pytest.warns(UserWarning, match="uniqueItems"):
        assert all_in_worker.compile(relaxed).losses


def test_types_that_the_worker_cannot_import(all_in_worker: hg.Guide) -> None:
    constraint = hg.JsonSchema(Point)
    assert accepts(all_in_worker.compile(constraint), '{"x": 1}')
    assert constraint.parse('{"x": 1}') == Point(1)


def test_budget_after_the_worker(all_in_worker: hg.Guide) -> None:
    compiled = all_in_worker.compile(hg.Regex("[ab]{3,9}"))
    needed = compiled.matcher().min_tokens_to_finish()
    assert needed is not None and needed <= 4


def test_ordinary_constraints_stay_in_the_process() -> None:
    ordinary: list[Any] = [
        hg.Regex(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w!?]{8,64}"),
        hg.Regex(r"[\w.+-]{1,64}@[\w-]{1,63}(\.[\w-]{1,63}){1,4}"),
        hg.Choice([f"option {i}" for i in range(1000)]),
        hg.JsonSchema(SCHEMA),
        hg.JsonSchema(wide(200)),
        hg.JsonSchema({"oneOf": [{"const": i} for i in range(250)]}),
        *(hg.JsonSchema(entry.type) for entry in type_zoo.ZOO),
    ]
    assert not [constraint for constraint in ordinary if is_costly(constraint)]


def triggered(count: int) -> dict[str, Any]:
    tags = [{"begin": f"<{i:04}>", "content": {"type": "any_text"}, "end": "</>"} for i in range(count)]
    return {"type": "triggered_tags", "triggers": [tag["begin"] for tag in tags], "tags": tags}


def test_costly_constraints_go_to_the_worker() -> None:
    long_grammar = {"type": "grammar", "grammar": "root ::= " + "|".join(f'"{i}"' for i in range(5000))}
    costly: list[Any] = [
        hg.JsonSchema(wide(2000)),
        hg.JsonSchema({"enum": list(range(20_000))}),
        hg.JsonSchema({"const": "x" * 300_000}),
        hg.JsonSchema({"oneOf": [{"const": i} for i in range(400)]}),
        hg.Regex("a?" * 5000),
        hg.Choice([str(i) for i in range(50_000)]),
        hg.Grammar("root ::= " + "|".join(f'"{i}"' for i in range(20_000))),
    ]
    costly += [hg.StructuralTag({"format": part}) for part in (triggered(100), long_grammar)]
    assert all(map(is_costly, costly))
    assert not is_costly(hg.StructuralTag({"format": triggered(50)}))


def test_estimate_ends_at_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = hg.JsonSchema({"enum": ["x" * 1000] * 10_000})
    monkeypatch.setattr(cost_estimate, "read_only", lambda text: pytest.fail("the text is too long to be read"))
    assert is_costly(constraint)


@pytest.mark.parametrize(
    ("pattern", "states"),
    [
        (periods(7, 11), 77),
        (periods(2, 3, 5), 30),
        ("(?=.*a)(?=.*b).{8,}", 8),
        (r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[\w!?]{8,64}", 1),
        ("a|b", 1),
    ],
)
def test_lexer_cost_multiplies_what_is_repeated_side_by_side(pattern: str, states: int) -> None:
    assert lexer_cost(f"start: T\nT: {to_lark(parse_fullmatch(pattern))}") == states
    assert states < MOST_STATES < lexer_cost(f"start: T\nT: {to_lark(parse_fullmatch(periods(7, 11, 13, 17)))}")


@pytest.mark.parametrize(
    ("text", "size"), [("a{10}", 11), ("(ab){10}", 20), ("((a|b){3}c){4}", 24), ('"minItems": 7', 20)]
)
def test_written_out_counts_repetitions(text: str, size: int) -> None:
    assert size * 0.7 <= written_out(text) <= size * 1.7
    assert written_out("(" * 5 + "a" + "){1,50}" * 5) > MOST_WRITTEN_OUT


def test_trouble_of_the_machine_is_tried_again(all_in_worker: hg.Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker that the system kills for want of memory says nothing about the constraint."""
    kills = [JobKilled("died of SIGKILL", title="native", used_s=0.1, may_recur=False)]
    run = worker_compile.SHARED.run

    def run_or_die(*args: Any) -> Any:
        if kills:
            raise kills.pop()
        return run(*args)

    monkeypatch.setattr(worker_compile.SHARED, "run", run_or_die)
    with pytest.raises(CompileLimitExceeded, match="SIGKILL"):
        all_in_worker.compile(hg.Regex("ab"))
    assert all_in_worker.compile(hg.Regex("ab")).backend == "native"
    kills.append(JobKilled("native needed more memory", title="native", used_s=0.1))
    tag = {"type": "structural_tag", "format": {"type": "regex", "pattern": "abc"}}
    with pytest.raises(CompileLimitExceeded, match="native needed more memory"):
        all_in_worker.compile(hg.StructuralTag(tag))


@pytest.mark.slow
def test_many_options() -> None:
    """llguidance would need too much memory."""
    compiled = guide().compile(hg.Choice(WORDS))
    assert compiled.backend == "native"
    assert accepts(compiled, WORDS[-1])
    assert not accepts(compiled, WORDS[-1] + "0")


def test_vocabulary_is_sent_once(all_in_worker: hg.Guide, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    bare = type(all_in_worker.vocabulary).bare
    monkeypatch.setattr(type(all_in_worker.vocabulary), "bare", lambda self: (sent.append(1), bare(self))[1])
    for text in "abc":
        all_in_worker.compile(hg.Choice([text]))
    assert len(sent) <= 1


def test_worker_forgets_old_vocabularies() -> None:
    held = worker_compile._held.copy()
    try:
        for name in "abc":
            worker_compile.hold_vocabulary(name, guide().vocabulary)
        assert list(worker_compile._held) == ["b", "c"]
    finally:
        worker_compile._held.clear()
        worker_compile._held.update(held)


def test_constraint_that_the_cache_cannot_hold() -> None:
    """A warning, once; as long as a caller holds it, other callers get the same object."""
    tokenizer = vocabularies.demo()
    small = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(cache_bytes=1000))
    with pytest.warns(UserWarning, match=r"takes \d+ bytes when compiled, .* holds 1000 .* raise .*cache_bytes"):
        first = small.compile(hg.Regex("ab"))
    assert small.compile(hg.Regex("ab")) is first
    assert small.stats().misses == 1
    del first
    others = [threading.Thread(target=small.compile, args=(hg.Regex("ab"),)) for _ in range(3)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    small.compile(hg.Regex("ab"))  # a second warning would be an error here


def test_limit_of_the_whole_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "is_costly", lambda constraint: True)
    tokenizer = vocabularies.demo()
    short = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(cpu_s=0.5))
    began = time.process_time()
    with pytest.raises(CompileLimitExceeded, match="steps of work|s of CPU time"):
        short.compile(wide(5_000))
    assert time.process_time() - began < 2


def test_hostile_constraint_does_not_hold_up_others() -> None:
    """One thread compiles in this process, and is free while the worker is busy."""
    tokenizer = vocabularies.demo()
    narrow = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(workers=1))
    hostile = narrow.submit({"enum": [f"v{i}" for i in range(100_000)]})
    ordinary = narrow.submit(SCHEMA)
    while not ordinary.done() and not hostile.done():
        time.sleep(0.001)
    assert not hostile.done()
    assert ordinary.result().backend == "native"
    hostile.cancel()


def test_lexer_cost_of_texts_that_end_and_of_complements() -> None:
    side_by_side = "/(?:.{70})*/ & /(?:.{110})*/"
    assert lexer_cost(f"start: T\nT: {side_by_side} & /[a-z]{{5}}/") == 1
    assert lexer_cost(f"start: T\nT: {side_by_side} & ~(/[a-z]{{5}}/)") > MOST_STATES


def test_special_tokens_have_their_names_in_the_worker(all_in_worker: hg.Guide) -> None:
    vocabulary = all_in_worker.vocabulary
    stop, bare = vocabulary.stop_token_ids[0], vocabulary.bare()
    assert bare.token_text(stop) == vocabulary.token_text(stop)
    assert bare.fingerprint == vocabulary.fingerprint
    with pytest.raises(InvalidConstraint, match=r"no token <\|nonesuch\|>"):
        all_in_worker.compile(hg.Grammar('start: "a" <|nonesuch|>'))


@pytest.mark.parametrize(
    "schema",
    [
        {"examples": [{}] * 640},
        {"examples": [1] * 980},
        {"pattern": "?" * 1_900},
        {"enum": ["[" * 1_900]},
        {"title": "allOf", "items": {"allOf": [{}] * 600}},
        {"anyOf": [{}] * 600},
    ],
    ids=lambda schema: "-".join(schema),
)
def test_what_is_short_is_not_costly_but_for_its_branches(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    constraint = hg.JsonSchema(schema)
    assert len(constraint.schema_json) <= cost_estimate._SHORT
    found = cost_estimate.is_costly(constraint)
    monkeypatch.setattr(cost_estimate, "_SHORT", -1)
    assert cost_estimate.is_costly(constraint) == found
    assert found == ("Of" in json.dumps(schema))
