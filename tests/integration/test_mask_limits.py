"""One mask is bounded: a row whose mask takes too much ends alone, and the others write what they write without it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from torch import Tensor
from transformers import LogitsProcessor

import hf_guided as hg
from hf_guided.backends import llguidance
from hf_guided.backends.compile import Compiler
from hf_guided.session import row
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import toy, vocabularies
from tests.integration import models

AMBIGUOUS = 'start: s "!"\ns: s s | "a" | "b"'  # the text is not complete at the limit
GREEDY: dict[str, Any] = {"do_sample": False, "progress": False}


class Continues(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """A model that ends a text only where nothing else is allowed."""

    def __init__(self, tokenizer: Any):
        self._ends = [tokenizer.eos_token_id, *tokenizer.encode("!", add_special_tokens=False)]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, self._ends] -= 100.0
        return scores


@pytest.mark.parametrize("jump_forward", [True, False])
def test_ambiguous_grammar_ends_its_row_alone(monkeypatch: pytest.MonkeyPatch, jump_forward: bool) -> None:
    monkeypatch.setattr(llguidance, "LLGUIDANCE_MASK_ITEMS", 200)  # not 10,000: reached early
    tokenizer = vocabularies.demo()
    model = models.llama(tokenizer)
    settings = {
        **GREEDY,
        "guide": hg.Guide(model, tokenizer),  # its engines are made after the line above
        "max_new_tokens": 150,
        "jump_forward": jump_forward,
        "logits_processor": [Continues(tokenizer)],
    }
    plain = hg.Regex("[ab]{40}")
    with pytest.warns(UserWarning, match="row 0 reached a dead end"):
        limited, beside = hg.generate(model, tokenizer, ["a", "b"], [hg.Grammar(AMBIGUOUS), plain], **settings)
    assert limited.finish_reason == "dead_end" and "llguidance gave up" in str(limited.error)
    assert set(limited.text) <= {"a", "b"} and limited.text
    none, alone = hg.generate(model, tokenizer, ["a", "b"], [None, plain], **settings)
    assert beside.finish_reason == "stop" and beside.token_ids == alone.token_ids


@pytest.mark.filterwarnings("ignore:llguidance keeps no token limit")
@pytest.mark.parametrize(("method", "call"), [("fill", "one mask"), ("accept", "one token")])
def test_slow_call_ends_its_row_alone(monkeypatch: pytest.MonkeyPatch, method: str, call: str) -> None:
    """An engine without a limit of its own."""
    monkeypatch.setattr(row, "CALL_CPU_S", 0.05)
    tokenizer = vocabularies.demo()
    model = models.llama(tokenizer)
    guide = hg.Guide(model, tokenizer)
    original = getattr(llguidance._Engine, method)

    def dawdling(self: Any, *args: Any) -> Any:
        if len(self._history) > 3 and "[a-c]" in self.template.grammar:
            end = time.thread_time() + 0.1
            while time.thread_time() < end:
                pass
        return original(self, *args)

    monkeypatch.setattr(llguidance._Engine, method, dawdling)
    constraints = [hg.Regex("[a-c]{20}"), hg.Regex("[x-z]{20}")]
    with pytest.warns(UserWarning, match="row 0 reached a dead end"):
        results = hg.generate(
            model, tokenizer, ["a", "b"], constraints, guide=guide, backend="llguidance", max_new_tokens=60, **GREEDY
        )
    assert results[0].finish_reason == "dead_end" and f"CPU time for {call}" in str(results[0].error)
    assert results[1].finish_reason == "stop" and len(results[1].text) == 20


@pytest.mark.parametrize("optional", [1000, 1400, pytest.param(1600, marks=pytest.mark.slow)])
def test_many_optional_properties_are_enforced_or_refused_when_compiled(optional: int) -> None:
    """Each of them may come next; no text that begins reaches a limit."""
    vocabulary = toy.all_bytes()
    schema = {"type": "object", "properties": {f"p{i:04}": {"type": "string"} for i in range(optional)}}
    compiler = Compiler(vocabulary)
    if optional > 1500:
        with pytest.raises(hg.CompileLimitExceeded):
            compiler.compile(hg.JsonSchema(schema))
        return
    matcher = compiler.compile(hg.JsonSchema(schema)).matcher()
    bitmask = allocate_bitmask(1, vocabulary.padded_size)
    for byte in json.dumps({f"p{i:04}": "x" for i in (0, 3, optional // 2, optional - 1)}).encode():
        matcher.fill_next_token_bitmask(bitmask)
        assert matcher.accept_token(byte)
    assert matcher.is_completed()
    declared = b'{"p0001": "x", "p000'  # the first property does not come after the second
    assert compiler.compile(hg.JsonSchema(schema)).matcher().validate_tokens(declared + b"0") == len(declared)
