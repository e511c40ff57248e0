"""Grammars for vLLM and SGLang, compiled by the libraries as those do it, allow what hf-guided allows.

As in vLLM 0.33, ``v1/structured_output/backend_xgrammar.py`` and ``backend_guidance.py``, and SGLang's
``constrained/xgrammar_backend.py`` and ``llguidance_backend.py``.
"""

from __future__ import annotations

import random
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llguidance.hf
import numpy as np
import pytest
import torch
import xgrammar

import hf_guided as hg
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-zé]+$"},
        "age": {"type": "integer", "minimum": 3},
        "tags": {"type": "array", "items": {"enum": ["é", 1, None, "\u2028"]}, "maxItems": 2},
    },
    "required": ["name"],
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
BOTH = [
    pytest.param(RECORD, '{"name": "Ané", "age": 12, "tags": ["é"]}', id="record"),
    pytest.param({"type": "string", "minLength": 2, "maxLength": 5}, '"äbc"', id="length"),
    pytest.param(hg.JsonObject(), '{"a": [1, {}]}', id="any object"),
    pytest.param(hg.Regex("[^a]{2,9}x?"), "hello x", id="regex"),
    pytest.param(hg.Choice(['a\n"b', "é", "ü\\", "::="]), 'a\n"b', id="choice"),
]
REQUIRED_CALL = hg.ToolCalls(TOOLS, format="qwen_3", choice="required")
ONE = [
    pytest.param("xgrammar", REQUIRED_CALL, CALL, id="required call"),
    pytest.param("xgrammar", hg.ToolCalls(TOOLS, format="qwen_3"), f"First: {CALL}", id="call or text"),
    pytest.param("xgrammar", hg.Grammar('root ::= "a" x*\nx ::= [0-9] | "(" x ")"'), "a7((1))", id="GBNF"),
    pytest.param("llguidance", hg.Grammar('start: "a" x*\nx: /[0-9]/ | "(" x ")"'), "a7((1))", id="Lark"),
]


@cache
def guide() -> hg.Guide:
    tokenizer = vocabularies.demo()
    return hg.Guide(len(tokenizer), tokenizer)


class XGrammar:
    def __init__(self, grammar: str):
        info = xgrammar.TokenizerInfo.from_huggingface(guide().tokenizer, vocab_size=guide().vocabulary.padded_size)
        self._matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(info).compile_grammar(grammar))

    def allowed(self) -> torch.Tensor:
        bitmask = xgrammar.allocate_token_bitmask(1, guide().vocabulary.padded_size)
        self._matcher.fill_next_token_bitmask(bitmask)
        return bitmask

    def accept(self, token_id: int) -> bool:
        return bool(self._matcher.accept_token(token_id))


class LLGuidance:
    def __init__(self, grammar: str):
        tokenizer = llguidance.hf.from_tokenizer(guide().tokenizer, guide().vocabulary.padded_size)
        self._matcher = llguidance.LLMatcher(tokenizer, llguidance.grammar_from("ebnf", grammar))
        assert not self._matcher.get_error()

    def allowed(self) -> torch.Tensor:
        bitmask = allocate_bitmask(1, guide().vocabulary.padded_size)
        self._matcher.unsafe_compute_mask_ptr(bitmask.data_ptr(), 4 * bitmask.numel())
        return bitmask

    def accept(self, token_id: int) -> bool:
        return bool(self._matcher.consume_token(token_id))


SERVERS: dict[str, Callable[[str], Any]] = {"xgrammar": XGrammar, "llguidance": LLGuidance}


def texts(bitmask: torch.Tensor) -> set[int]:
    """The allowed text tokens; other special tokens than stop tokens are the server's to take for text."""
    vocabulary = guide().vocabulary
    allowed = np.flatnonzero(unpack(bitmask, vocabulary.padded_size)[0].numpy())
    return {token_id for token_id in allowed.tolist() if vocabulary.is_text(token_id)}


def bytes_of(token_id: int) -> bytes:
    return guide().vocabulary.token_bytes[token_id] or b""


def is_text(data: bytes, *, final: bool = False) -> bool:
    try:
        getincrementaldecoder("utf-8")().decode(data, final)
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(("constraint", "text"), BOTH)
@pytest.mark.parametrize("backend", SERVERS)
def test_a_server_allows_what_we_allow(backend: str, constraint: Any, text: str) -> None:
    check(backend, constraint, text)


@pytest.mark.parametrize(("backend", "constraint", "text"), ONE)
def test_and_what_only_one_library_can_enforce(backend: str, constraint: Any, text: str) -> None:
    check(backend, constraint, text)


def check(backend: str, constraint: Any, text: str) -> None:
    """Compare the masks along a text that ends, and along random ones."""
    grammar = guide().to_sglang(constraint, backend)["ebnf"]
    assert guide().to_vllm(constraint, backend) == {"grammar": grammar}
    assert walk(backend, constraint, grammar, iter(guide().tokenizer.encode(text, add_special_tokens=False)))
    for seed in range(8):
        walk(backend, constraint, grammar, random.Random(seed))


def walk(backend: str, constraint: Any, grammar: str, chosen: Iterator[int] | random.Random) -> bool:
    """Whether the text may end where the walk ends."""
    matcher, server = guide().compile(constraint, backend).matcher(), SERVERS[backend](grammar)
    vocabulary, written = guide().vocabulary, b""
    bitmask, stop = allocate_bitmask(1, vocabulary.padded_size), vocabulary.stop_token_ids[0]
    for _ in range(100):
        matcher.fill_next_token_bitmask(bitmask, 0)
        allowed = server.allowed()
        ours, theirs = texts(bitmask), texts(allowed)
        assert ours <= theirs
        # xgrammar takes what is no UTF-8, and may end within a character; hf-guided masks both.
        assert not any(is_text(written + bytes_of(token_id)) for token_id in theirs - ours)
        assert (bool(unpack(allowed, stop + 1)[0, stop]) and is_text(written, final=True)) == matcher.is_completed()
        token_id = chosen.choice([*ours, None]) if isinstance(chosen, random.Random) else next(chosen, None)
        if token_id is None:
            break
        assert matcher.accept_token(token_id) and server.accept(token_id)
        written += bytes_of(token_id)
    return matcher.is_completed()


@pytest.mark.parametrize("export", ["to_vllm", "to_sglang"])
def test_what_the_library_would_lose_is_refused_unless_allowed(export: str) -> None:
    schema = {"type": "integer", "multipleOf": 3}
    with pytest.raises(hg.UnsupportedConstraint) as refused:
        getattr(guide(), export)(schema)
    assert [loss.keyword for loss in refused.value.losses] == ["multipleOf"]
    assert "hg.JsonSchema(..., on_unsupported=" in str(refused.value) and "auto" not in str(refused.value)
    relaxed = hg.JsonSchema(schema, on_unsupported="validate")
    assert "root ::=" in next(iter(getattr(guide(), export)(relaxed).values()))
    with pytest.raises(hg.InvalidArgument, match='vLLM calls llguidance "guidance"'):
        getattr(guide(), export)(schema, "guidance")


@pytest.mark.parametrize("export", ["to_vllm", "to_sglang"])
def test_calls_are_refused_where_the_server_decodes_with_llguidance(export: str) -> None:
    with pytest.raises(hg.UnsupportedConstraint, match="llguidance takes no structural tags") as refused:
        getattr(guide(), export)(REQUIRED_CALL, "llguidance")
    assert [loss.keyword for loss in refused.value.losses] == ["structural_tag"]
    assert 'backend="xgrammar"' in str(refused.value)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (hg.Grammar('start: "a" <bos>'), "special"),
        (hg.Grammar('start: "a" %json {"type": "integer"}'), "%json"),
    ],
)
def test_a_grammar_that_would_mean_something_else_is_refused(constraint: Any, message: str) -> None:
    assert guide().compile(constraint, "llguidance").matcher()
    with pytest.raises(hg.UnsupportedConstraint, match=message):
        guide().to_vllm(constraint, "llguidance")


@pytest.mark.parametrize("backend", SERVERS)
def test_vllm_takes_it(backend: str) -> None:
    params = pytest.importorskip("vllm.sampling_params", reason="vllm is not installed")
    from vllm.v1.structured_output import backend_guidance, backend_xgrammar

    outputs = params.StructuredOutputsParams(**guide().to_vllm(RECORD, backend))
    validate = {
        "xgrammar": backend_xgrammar.validate_xgrammar_grammar,
        "llguidance": backend_guidance.validate_guidance_grammar,
    }
    validate[backend](params.SamplingParams(structured_outputs=outputs))
