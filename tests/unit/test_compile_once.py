"""Every kind of call submits each constraint to the compiler once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from transformers import pipeline

import hf_guided as hg
from hf_guided import demo
from hf_guided.backends.compile import Compiler

CHOICE = hg.Choice(["yes", "no"])


@pytest.fixture(scope="module")
def loaded() -> Any:
    return demo.load()


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how often each constraint was submitted to a compiler, by its key."""
    counts: Counter[str] = Counter()
    submit = Compiler.submit

    def counting(self: Compiler, constraint: hg.Constraint, *options: Any) -> Any:
        counts[constraint.key] += 1
        return submit(self, constraint, *options)

    monkeypatch.setattr(Compiler, "submit", counting)
    return counts


@pytest.mark.parametrize("jump_forward", [True, False])
def test_generate_submits_a_constraint_once(loaded: Any, submissions: Counter[str], jump_forward: bool) -> None:
    arguments = {"jump_forward": jump_forward, "batch_size": 2, "max_new_tokens": 8, "do_sample": False}
    assert len(hg.generate(*loaded, ["x"] * 8, CHOICE, **arguments)) == 8
    assert submissions == {CHOICE.key: 1}


def test_generate_submits_equal_constraints_once(loaded: Any, submissions: Counter[str]) -> None:
    constraints = [hg.Choice(["yes", "no"]), None, re.compile("a{4}"), re.compile("a{4}"), ["yes", "no"]]
    hg.generate(*loaded, ["x"] * 5, constraints, max_new_tokens=8, do_sample=False)
    assert sorted(submissions.values()) == [1, 1]


@pytest.mark.parametrize("jump_forward", [True, False])
def test_pipeline_submits_a_constraint_once(loaded: Any, submissions: Counter[str], jump_forward: bool) -> None:
    hg.register()
    pipe = pipeline("guided-generation", model=loaded[0], tokenizer=loaded[1])
    arguments = {"jump_forward": jump_forward, "batch_size": 2, "max_new_tokens": 8, "do_sample": False}
    assert len(pipe(["x"] * 8, response_format=CHOICE, **arguments)) == 8
    assert submissions == {CHOICE.key: 1}
    pipe(["x"] * 3, response_format=[CHOICE, None, hg.Regex("a{4}")], **arguments)
    assert sorted(submissions.values()) == [1, 2]


@pytest.mark.parametrize("batching", [False, True], ids=["one by one", "shared batches"])
def test_server_submits_a_constraint_once(submissions: Counter[str], batching: bool) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    from tests.serving import client, serving

    asked: Any = {"max_tokens": 8, "n": 2, "messages": [{"role": "user", "content": "x"}]}
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes", "no"]}}}
    with serving(continuous_batching=batching) as url, client(url) as api:
        api.chat.completions.create(model="demo", response_format=schema, **asked)
    assert list(submissions.values()) == [1]


def test_warm_up_compiles_in_advance() -> None:
    _, tokenizer = demo.load()
    guide = hg.Guide(len(tokenizer), tokenizer)
    guide.warm_up([hg.Regex("[a-f]{3}"), None, {"type": "integer"}, CHOICE])
    guide.warm_up(["left", "right"])  # a list of strings is one choice
    assert (guide.stats().entries, guide.stats().misses) == (4, 4)
    for constraint in hg.Regex("[a-f]{3}"), {"type": "integer"}, CHOICE, hg.Choice(["left", "right"]):
        guide.compile(constraint)
    assert guide.stats().misses == 4
    with pytest.raises(hg.InvalidConstraint):
        guide.warm_up([CHOICE, hg.Regex("(")])
