"""Markers of reasoning in several vocabularies: every tokenization, markers as special tokens, markers in prompts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace

import pytest
from transformers import PreTrainedTokenizerBase

from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.backends.xgrammar import XGrammarBackend
from hf_guided.constraints.values import Choice
from hf_guided.errors import InvalidConstraint, UnwritableConstraint
from hf_guided.session.reasoning import MarkerMatch, Opening, Reasoning, ReasoningGate, with_own_markers
from hf_guided.session.reasoning_gate import gate_constraint
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests.pairs import once_each
from tests.toy import pieces
from tests.vocabularies import byt5, fast_sentencepiece_32k, tekken, tiny_byte_level, tiny_unigram

TEXTS = (b"</</think>/", b"a</think>(yes)", b"</think></think>")
BACKENDS = {backend.name: backend for backend in (NetworkBackend, LLGuidanceBackend, XGrammarBackend)}
OPTIONS = ["(yes)", "/", "</think>"]


@cache
def byte_level() -> Vocabulary:
    """131,072 tokens."""
    return Vocabulary.from_tokenizer(tekken())


@cache
def sentencepiece() -> Vocabulary:
    """32,768 tokens, with each single byte twice."""
    return Vocabulary.from_tokenizer(fast_sentencepiece_32k())


@cache
def tiny() -> Vocabulary:
    """Every substring of one of the texts, for every tokenization of it, and the letters that the options need."""
    return pieces(TEXTS[0].decode(), "(yes)")


VOCABULARIES = {one.__name__: one for one in (byte_level, sentencepiece, tiny)}


@cache
def matcher_of(vocabulary_of: Callable[[], Vocabulary], backend: type) -> Matcher:
    vocabulary = vocabulary_of()
    gate = ReasoningGate(vocabulary, Reasoning(start=""))
    return gate_constraint(backend(vocabulary).compile(Choice(OPTIONS)), gate, Opening.START).matcher()


def tokenizations(ids: dict[bytes, list[int]], data: bytes) -> Iterator[list[bytes]]:
    """Yield every sequence of tokens that joins to these bytes."""
    if not data:
        yield []
    for end in range(1, len(data) + 1):
        if data[:end] in ids:
            yield from ([data[:end], *rest] for rest in tokenizations(ids, data[end:]))


@pytest.mark.parametrize(("vocabulary_name", "backend_name"), once_each(VOCABULARIES, BACKENDS))
def test_marker_is_found_in_every_tokenization(vocabulary_name, backend_name):
    vocabulary_of, backend = VOCABULARIES[vocabulary_name], BACKENDS[backend_name]
    vocabulary, rng = vocabulary_of(), random.Random(0)
    ids: dict[bytes, list[int]] = {}
    for token_id, data in enumerate(vocabulary.token_bytes):
        if data is not None:
            ids.setdefault(data, []).append(token_id)
    num_texts = num_merged = 0
    for text in TEXTS[:1] if vocabulary_of is tiny else TEXTS:
        begin = text.index(b"</think>") + len(b"</think>")
        for token_texts in tokenizations(ids, text):
            matcher, position = matcher_of(vocabulary_of, backend).fork(), 0
            tokens = [rng.choice(ids[piece]) for piece in token_texts]
            assert matcher.validate_tokens([*tokens, vocabulary.stop_token_ids[0]]) == len(tokens) + 1
            for piece, token_id in zip(token_texts, tokens, strict=True):
                assert not matcher.is_completed()
                assert matcher.accept_token(token_id), (token_texts, piece)
                num_merged += position < begin < position + len(piece)
                position += len(piece)
            assert matcher.is_completed()
            num_texts += 1
    assert num_merged > 0 and (num_texts == 2 ** (len(TEXTS[0]) - 1) if vocabulary_of is tiny else num_texts > 100)


@pytest.mark.parametrize("vocabulary_of", VOCABULARIES.values(), ids=VOCABULARIES)
def test_masks_around_the_marker_equal_brute_force(vocabulary_of):
    vocabulary = vocabulary_of()
    matcher, so_far = matcher_of(vocabulary_of, NetworkBackend).fork(), b""
    bitmask = allocate_bitmask(1, vocabulary.padded_size)
    options = [option.encode() for option in OPTIONS]
    for byte in b"</th</think>(y":
        matcher.fill_next_token_bitmask(bitmask)
        allowed = set(unpack(bitmask, vocabulary.padded_size)[0].nonzero().flatten().tolist())
        for token_id, data in enumerate(vocabulary.token_bytes):
            _, marker, answer = (so_far + data).partition(b"</think>") if data else (b"", b"", b"")
            fits = data is not None and (not marker or any(option.startswith(answer) for option in options))
            assert (token_id in allowed) == fits, (so_far, data)
        assert matcher.accept_token(vocabulary.encode_bytes(bytes([byte]))[0])
        so_far += bytes([byte])


def test_forced_end_marker_has_the_tokens_of_the_tokenizer():
    for tokenizer in (fast_sentencepiece_32k(), tiny_byte_level()):
        gate = ReasoningGate(Vocabulary.from_tokenizer(tokenizer), Reasoning())
        in_a_text = tokenizer("so\n</think>", add_special_tokens=False)["input_ids"]
        ids, matched = [], 0
        while matched < gate.end_length:
            ids.append(gate.first_token(matched))
            moved = gate.move(matched, ids[-1])
            assert moved is not None and not moved.rest
            matched = moved.matched
        assert ids == in_a_text[-len(ids) :]
        assert gate.tokens_to_end[0] == len(ids)


def test_only_those_parts_of_the_end_marker_are_begun_that_can_be_finished():
    vocabulary = Vocabulary((b"abcd", b"a", b"ab", b"cd", None), (4,), 5, byt5())
    gate = ReasoningGate(vocabulary, Reasoning(start="", end="abcd"))
    assert gate.move(0, 1) is None, "no token writes the rest, bcd"
    assert gate.move(0, 2) == MarkerMatch(2, b"")
    assert (gate.first_token(2), gate.tokens_to_end[2]) == (3, 1)


def test_default_markers_give_way_to_those_of_a_template_without_them():
    gemma = "<|channel>thought\n{{ message.reasoning }}<channel|>"
    templates = SimpleNamespace(chat_template=gemma)
    assert with_own_markers(Reasoning(), templates) == Reasoning("<|channel>thought\n", "<channel|>")
    assert with_own_markers(Reasoning("<a>", "</a>"), templates) == Reasoning("<a>", "</a>")
    harmony = "<|channel|>analysis<|message|>"
    assert with_own_markers(Reasoning(), SimpleNamespace(chat_template=harmony)) != Reasoning()
    assert with_own_markers(Reasoning(), SimpleNamespace(chat_template=harmony + "</think>")) == Reasoning()


def with_special_markers() -> PreTrainedTokenizerBase:
    """A copy of a tokenizer, with both markers as special tokens, as in some models."""
    from copy import deepcopy

    tokenizer = deepcopy(tiny_byte_level())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>", "<|im_end|>"]})
    return tokenizer


def test_gate_with_special_tokens_as_markers():
    tokenizer = with_special_markers()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    start, end, other = tokenizer.convert_tokens_to_ids(["<think>", "</think>", "<|im_end|>"])
    assert not any(map(vocabulary.is_text, (start, end, other)))
    gate = ReasoningGate(vocabulary, Reasoning(max_tokens=3))
    assert gate.start_ids == (start,) and gate.first_token(0) == end
    yes, a = tokenizer("yes")["input_ids"], tokenizer("a")["input_ids"]
    for backend in (NetworkBackend, LLGuidanceBackend, XGrammarBackend):
        matcher = gate_constraint(backend(vocabulary).compile(Choice(["yes"])), gate, Opening.NOTHING).matcher()
        assert not matcher.accept_token(a[0])
        assert matcher.accept_token(start)
        bitmask = allocate_bitmask(1, vocabulary.padded_size)
        matcher.fill_next_token_bitmask(bitmask)
        allowed = set(unpack(bitmask, vocabulary.padded_size)[0].nonzero().flatten().tolist())
        assert allowed == {i for i in range(len(tokenizer)) if vocabulary.is_text(i)} | {end}
        assert matcher.validate_tokens([*a * 3, end, *yes]) == 4 + len(yes)
        assert matcher.validate_tokens([*a * 4]) == 3  # the budget of the reasoning is used up
        assert all(map(matcher.accept_token, [*a * 3, end]))
        matcher.fill_next_token_bitmask(bitmask)
        allowed = set(unpack(bitmask, vocabulary.padded_size)[0].nonzero().flatten().tolist())
        assert not allowed & {start, end, other} and not matcher.accept_token(end)
        assert all(map(matcher.accept_token, yes)) and matcher.is_completed()
    assert gate.opening(tokenizer("Hi <think>\n")["input_ids"]) is Opening.START


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ("Hello", Opening.NOTHING),
        ("Hello <think>", Opening.START),
        ("Hello <think>\n\n", Opening.START),
        ("Hello <think>\n\n</think>\n\n", Opening.ALL),
        ("Think between <think> and </think>, then answer.", Opening.NOTHING),
        ("First <think>", Opening.START),
        ("<think> is the tag\n", Opening.NOTHING),
        ("", Opening.NOTHING),
    ],
)
def test_markers_in_a_prompt_are_found(prompt, opening):
    tokenizer = tiny_byte_level()
    gate = ReasoningGate(Vocabulary.from_tokenizer(tokenizer), Reasoning())
    assert gate.opening(tokenizer(prompt)["input_ids"]) is opening
    always = ReasoningGate(gate.vocabulary, Reasoning(start=""))
    expected = Opening.ALL if opening is Opening.ALL else Opening.START
    assert always.opening(tokenizer(prompt)["input_ids"]) is expected


def test_invalid_markers_are_refused():
    for bad in ({"end": ""}, {"start": None}, {"end": 7}, {"max_tokens": -1}, {"max_tokens": True}, {"end": "\ud800"}):
        with pytest.raises(InvalidConstraint, match="reasoning: "):
            Reasoning(**bad)
    with pytest.raises(InvalidConstraint, match=r"stop token <\|endoftext\|>"):
        ReasoningGate(Vocabulary.from_tokenizer(tiny_byte_level()), Reasoning(end="<|endoftext|>"))
    with pytest.raises(UnwritableConstraint, match="no tokens that write '<', '>'"):
        ReasoningGate(Vocabulary.from_tokenizer(tiny_unigram()), Reasoning())
