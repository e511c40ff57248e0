"""Streamed answers: nothing that is shown is taken back, and in the end they are what is written without streaming."""

from __future__ import annotations

import copy
import gc
import json
import random
import re
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import pydantic
import pytest
import torch
from transformers import PreTrainedTokenizerBase

import hf_guided as hg
from hf_guided import demo
from hf_guided.tool_formats import formats
from tests import vocabularies
from tests.integration import models
from tests.integration.test_decoder import SCHEMA
from tests.integration.test_tool_calls import TOOLS
from tests.property.strategies import _ORDER as ORDER
from tests.property.test_partial_json import has_come_to, parts

NESTED = {
    "type": "object",
    "properties": {
        "a/b": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "maxItems": 2,
        },
        "é": {
            "type": "object",
            "properties": {"x": {"type": ["number", "null"]}, "~": {"type": "string", "maxLength": 9}},
        },
        "last": {"type": "boolean"},
    },
    "required": ["a/b", "é"],
}
CONSTRAINTS: list[Any] = [
    hg.JsonSchema(SCHEMA, whitespace="compact"),
    hg.JsonSchema(SCHEMA),
    hg.JsonSchema(ORDER),
    hg.JsonSchema(NESTED),
    hg.JsonSchema(NESTED, whitespace="compact"),
    hg.JsonSchema({"type": "number"}),
    hg.JsonSchema({"type": "string", "maxLength": 12}),
    hg.JsonSchema(
        {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "array", "items": {"enum": [1, 12, 123]}}]}
    ),
    hg.JsonSchema({"const": {"fixed": [1, 2, 3]}}),
    hg.JsonObject(),
    hg.Regex(r"id-[0-9]{3}-(?:north|south)ern(?: part)?"),
    hg.Regex(r"[^a]{1,8}é?"),
    hg.Choice(["red", "green with stripes", "東京"]),
    hg.Grammar('root ::= "<" root ">" | [a-z]+ "b"'),
    None,
]
BEGINNINGS = {0: '{"name": "', 2: '{"id": 1', 4: '{"a/b": [[1', 5: "-1", 10: "id-1"}
TOKENIZERS = {"byte-level": vocabularies.tiny_byte_level, "demo": vocabularies.demo}


@cache
def loaded(name: str, seed: int) -> tuple[Any, PreTrainedTokenizerBase, hg.Guide]:
    tokenizer = TOKENIZERS[name]()
    model = models.llama(tokenizer, seed=seed)
    return model, tokenizer, hg.Guide(tokenizer, model)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


def repeats_a_name(text: str) -> bool:
    found: list[bool] = []

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append(len(members) > len(dict(members)))
        return dict(members)

    json.loads(text, object_pairs_hook=pairs)
    return any(found)


def follow(partials: Iterable[hg.Partial]) -> dict[int, list[hg.Partial]]:
    """Every answer's Partials, with what never changes checked."""
    rows: dict[int, list[hg.Partial]] = {}
    then: list[tuple[hg.Partial, Any]] = []
    for partial in partials:
        before = rows.setdefault(partial.index, [])
        if before:
            last = before[-1]
            assert last.result is None, "nothing comes behind the result"
            assert partial.text.startswith(last.text)
            assert (partial.thinking is None) == (last.thinking is None)
            assert (partial.thinking or "").startswith(last.thinking or "")
            assert (
                partial.result is not None
                or partial.closed
                or (partial.text, partial.thinking) != (last.text, last.thinking)
            )
        before.append(partial)
        then.append(
            (partial, copy.deepcopy(partial.value) if not isinstance(partial.value, re.Match) else partial.value)
        )
    for partial, value in then:
        assert partial.value == value, "a later step has changed it"
    for some in rows.values():
        result = some[-1].result
        assert result is not None
        assert (some[-1].text, some[-1].thinking) == (result.text, result.thinking)
    return rows


def check_json(some: list[hg.Partial]) -> None:
    """One answer in JSON, against what `json` reads in the end."""
    result = some[-1].result
    assert result is not None
    closed = [(pointer, partial) for partial in some for pointer in partial.closed]
    if result.finish_reason != "stop":
        assert all(has_come_to(one.value, other.value) for one, other in zip(some, some[1:], strict=False))
        return
    whole = json.loads(result.text)
    assert some[-1].value == whole
    if repeats_a_name(result.text):
        return
    known = dict(parts(whole))
    assert sorted(pointer for pointer, _ in closed) == sorted(known)
    for pointer, partial in closed:
        assert dict(parts(partial.value))[pointer] == known[pointer]
    assert all(has_come_to(partial.value, whole) for partial in some)


def same_results(found: dict[int, list[hg.Partial]], expected: list[hg.GuidedResult]) -> None:
    assert sorted(found) == list(range(len(expected)))
    for index, wanted in enumerate(expected):
        result = found[index][-1].result
        assert result is not None
        for name in ("text", "token_ids", "finish_reason", "error", "thinking"):
            assert getattr(result, name) == getattr(wanted, name), name
        if not isinstance(wanted.value, re.Match):
            assert result.value == wanted.value


def one_run(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A call of a random kind; returns how many answers it had."""
    rng = random.Random(seed)
    model, tokenizer, guide = loaded(rng.choice(list(TOKENIZERS)), rng.randrange(3))
    which = [rng.randrange(len(CONSTRAINTS)) for _ in range(rng.choice([1, 1, 2, 3, 5]))]
    arguments: dict[str, Any] = {
        "guide": guide,
        "max_new_tokens": rng.choice([40, 60, 90]),
        "batch_size": rng.choice([1, 2, 8]),
    }
    sampled = rng.random() < 0.6
    arguments |= (
        {"do_sample": True, "temperature": rng.choice([1.0, 2.0]), "top_k": 0} if sampled else {"do_sample": False}
    )
    if sampled and rng.random() < 0.3:
        arguments["num_return_sequences"] = 2
    kind = rng.choice(["jumps", "jumps", "drafts", "device", "host", "criteria", "prompt lookup"])
    if kind == "drafts":
        arguments["draft"] = rng.choice([["grammar", "prompt_lookup"], "grammar", "prompt_lookup"])
    elif kind == "device":
        arguments |= {"jump_forward": False, "device_lane": True}
        if all(isinstance(CONSTRAINTS[i], (hg.Regex, hg.Choice)) or i < 3 for i in which):
            arguments["backend"] = "automaton"
    elif kind == "host":
        arguments |= {"jump_forward": False, "device_lane": False}
    elif kind == "criteria":
        arguments["stop_strings"] = ["zq", "}}}"]
    elif kind == "prompt lookup" and arguments.get("num_return_sequences") is None:
        arguments["prompt_lookup_num_tokens"] = 3
    if rng.random() < 0.2:
        arguments["reasoning"] = hg.Reasoning(max_tokens=rng.choice([0, 5, 12]))
    elif rng.random() < 0.4:
        arguments["prefix"] = [BEGINNINGS.get(i) for i in which]
    monkeypatch.setenv("HF_GUIDED_OVERLAP", rng.choice(["0", "1", "auto"]))
    asked = (
        model,
        tokenizer,
        [f"{'What is it? ' * n}" for n in range(1, len(which) + 1)],
        [CONSTRAINTS[i] for i in which],
    )
    torch.manual_seed(seed)
    expected = hg.generate(*asked, **arguments)
    torch.manual_seed(seed)
    found = follow(hg.generate(*asked, stream=True, **arguments))
    same_results(found, expected)
    copies = arguments.get("num_return_sequences", 1)
    for index, some in found.items():
        constraint = CONSTRAINTS[which[index // copies]]
        if isinstance(constraint, (hg.JsonSchema, hg.JsonObject)):
            check_json(some)
        else:
            assert all(partial.value is None for partial in some[:-1])
    return len(found)


@pytest.mark.parametrize("first", range(0, 150, 30))
def test_random_runs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(one_run(seed, monkeypatch) for seed in range(first, first + 30)) >= 30


@pytest.mark.slow
@pytest.mark.parametrize("first", range(150, 1000, 50))
def test_a_thousand_random_runs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(one_run(seed, monkeypatch) for seed in range(first, first + 50)) >= 50
