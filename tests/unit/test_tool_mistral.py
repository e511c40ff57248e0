"""Mistral's tool calls: what the encoders of `mistral-common` write is accepted and read back."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mistral_common
import pytest
from mistral_common.protocol.instruct.messages import AssistantMessage
from mistral_common.protocol.instruct.tool_calls import FunctionCall
from mistral_common.protocol.instruct.tool_calls import ToolCall as MistralCall
from mistral_common.tokens.tokenizers import instruct
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy, SpecialTokens, TokenizerVersion
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from tests import toy

DATA = Path(mistral_common.__file__).parent / "data"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("now", "now_2")]
CALLS = (hg.ToolCall("now", {"city": 'Ö "x" [ARGS]', "days": 3}), hg.ToolCall("now_2", {"city": "]}"}))


def tekken(version: TokenizerVersion) -> Tekkenizer:
    """A tokenizer of single bytes, with all special tokens that there are."""
    return Tekkenizer(
        vocab=[
            {"rank": i, "token_bytes": base64.b64encode(bytes([i])).decode(), "token_str": None} for i in range(256)
        ],
        special_tokens=[
            {"rank": i, "token_str": str(token), "is_control": True} for i, token in enumerate(SpecialTokens)
        ],
        pattern=r"[\s\S]",
        vocab_size=356,
        num_special_tokens=100,
        version=version,
    )


def sentencepiece(name: str) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(str(DATA / name))


ENCODERS: dict[str, tuple[str, Any, str | None]] = {
    "v2": ("mistral", lambda: sentencepiece("mistral_instruct_tokenizer_240216.model.v2"), None),
    "v3": ("mistral", lambda: sentencepiece("mistral_instruct_tokenizer_240323.model.v3"), "aB3456789"),
    "v3 without ids": ("mistral", lambda: sentencepiece("mistral_instruct_tokenizer_240323.model.v3"), None),
    "v3, tekken": ("mistral", lambda: tekken(TokenizerVersion.v3), "aB3456789"),
    "v7": ("mistral", lambda: sentencepiece("mistral_instruct_tokenizer_241114.model.v7"), "aB3456789"),
    "v11": ("mistral_v11", lambda: tekken(TokenizerVersion.v11), "aB3456789"),
    "v11 without ids": ("mistral_v11", lambda: tekken(TokenizerVersion.v11), None),
    "v13": ("mistral_v13", lambda: tekken(TokenizerVersion.v13), "aB3456789"),
}
CLASSES = {
    "v2": instruct.InstructTokenizerV2,
    "v3": instruct.InstructTokenizerV3,
    "v7": instruct.InstructTokenizerV7,
    "v11": instruct.InstructTokenizerV11,
    "v13": instruct.InstructTokenizerV13,
}


def encoded(name: str, calls: tuple[hg.ToolCall, ...]) -> str:
    """The text that the library's encoder writes for these calls, up to the stop token."""
    _, make, call_id = ENCODERS[name]
    tokenizer = make()
    message = AssistantMessage(
        tool_calls=[
            MistralCall(
                **({} if call_id is None else {"id": call_id}),
                function=FunctionCall(name=call.name, arguments=call.arguments),
            )
            for call in calls
        ]
    )
    encoder: Any = CLASSES[name.split()[0].rstrip(",")](tokenizer)
    token_ids = encoder._encode_tool_calls_in_assistant_message(message)
    text: str = tokenizer.decode(token_ids, special_token_policy=SpecialTokenPolicy.KEEP)
    return text.replace("▁", " ")  # with special tokens kept, SentencePiece's pieces are shown, not their text


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("parallel", [True, False])
def test_what_mistral_common_writes_is_accepted_and_read_back(compiler: Compiler, name: str, parallel: bool) -> None:
    for calls in (CALLS, CALLS[:1], CALLS[1:]):
        text = encoded(name, calls)
        assert text.startswith("[TOOL_CALLS]"), text
        for choice in ("auto", "required", calls[0].name, "none"):
            constraint = hg.ToolCalls(TOOLS, ENCODERS[name][0], choice, parallel)
            token_ids = [*text.encode(), 256]
            accepted = compiler.compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)
            one_only = not parallel or choice == calls[0].name
            assert accepted is (choice != "none" and not (one_only and len(calls) > 1)), (choice, text)
            if accepted:
                assert constraint.parse(text) == hg.ToolAnswer("", calls)


@pytest.mark.parametrize("name", ["mistral", "mistral_v11", "mistral_v13"])
@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS][{"name": "new", "arguments": {"city": ""}}]',
        '[TOOL_CALLS][{"name": "now", "arguments": {"days": 1}}]',
        '[TOOL_CALLS][{"name": "now", "arguments": {"city": ""}, "id": "short"}]',
        '[TOOL_CALLS][{"name": "now", "arguments": {"city": "[TOOL_CALLS]"}}]',
        "[TOOL_CALLS][]",
        "[TOOL_CALLS]",
        '[TOOL_CALLS]now[ARGS]{"days": 1}',
        '[TOOL_CALLS]new[ARGS]{"city": ""}',
        '[TOOL_CALLS]now[CALL_ID]short[ARGS]{"city": ""}',
        '[TOOL_CALLS]now[ARGS]{"city": "[TOOL_CALLS]"}',
        '[TOOL_CALLS]now[ARGS]{"city": ""} and text',
    ],
)
def test_other_calls_are_refused(compiler: Compiler, name: str, text: str) -> None:
    matcher = compiler.compile(hg.ToolCalls(TOOLS, name)).matcher()
    assert matcher.validate_tokens([*text.encode(), 256]) <= len(text)


@pytest.mark.parametrize("name", ["mistral", "mistral_v11", "mistral_v13"])
def test_text_may_come_before_the_calls(compiler: Compiler, name: str) -> None:
    written = {"mistral": "v3", "mistral_v11": "v11", "mistral_v13": "v13"}[name]
    text = "Let me see [x]." + encoded(written, CALLS)
    matcher = compiler.compile(hg.ToolCalls(TOOLS, name)).matcher()
    assert matcher.validate_tokens([*text.encode(), 256]) == len(text.encode()) + 1
    assert hg.ToolCalls(TOOLS, name).parse(text) == hg.ToolAnswer("Let me see [x].", CALLS)


def backend(name: str, folder: Path) -> Any:
    """transformers' tokenizer for one of the encoders above."""
    from transformers.tokenization_mistral_common import MistralCommonBackend

    tokenizer = ENCODERS[name][1]()
    if isinstance(tokenizer, SentencePieceTokenizer):
        return MistralCommonBackend(str(tokenizer.file_path))
    saved = json.loads((DATA / "tekken_240911.json").read_text(encoding="utf-8"))
    saved["vocab"] = saved["vocab"][:300]
    saved["special_tokens"] = [
        {"rank": i, "token_str": str(token), "is_control": True} for i, token in enumerate(SpecialTokens)
    ]
    saved["config"] |= {"num_vocab_tokens": 300, "default_vocab_size": 1300, "version": tokenizer.version.value}
    (folder / "tekken.json").write_text(json.dumps(saved), encoding="utf-8")
    return MistralCommonBackend(str(folder / "tekken.json"))


@pytest.mark.parametrize("name", ["v2", "v3", "v3, tekken", "v7", "v11", "v13"])
def test_format_goes_by_the_version_of_the_tokenizer(name: str, tmp_path: Path) -> None:
    """Such a tokenizer has no chat template. That the format is the encoder's is tested above."""
    tokenizer = backend(name, tmp_path)
    assert hg.ToolCalls(TOOLS).for_tokenizer(tokenizer).format == ENCODERS[name][0]
    assert hg.ToolCalls(TOOLS).for_tokenizer(SimpleNamespace(tokenizer=tokenizer)).format == ENCODERS[name][0]


def test_first_version_has_no_tool_calls(tmp_path: Path) -> None:
    oldest = SimpleNamespace(tokenizer=sentencepiece("tokenizer.model.v1"))
    with pytest.raises(hg.InvalidConstraint, match="say which format"):
        hg.ToolCalls(TOOLS).for_tokenizer(oldest)
