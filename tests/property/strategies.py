"""Strategies of the property tests: constraints that a backend fully enforces, and walks through their grammars."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

import torch
from hypothesis import strategies as st

from hf_guided.backends import registry
from hf_guided.backends.base import Backend, CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import UnwritableConstraint
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests import vocabularies

BACKENDS = registry.available()
SCHEMA_BACKENDS = tuple(name for name in BACKENDS if name not in ("outlines", "lm_format_enforcer"))

_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 120},
        "name": {"type": "string", "maxLength": 6},
        "paid": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["a", "é", "null"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["id", "tags"],
}
CONSTRAINTS: tuple[Constraint, ...] = (
    Regex(r"(\d{2,4}|[^\W\d]+ ?)*é?"),
    Regex(r"[^a]{1,3}x"),
    Choice(["a", "ab", "abc", "naïve café", 'say "yes"\n', "東京"]),
    JsonSchema(_ORDER, whitespace="compact"),
    JsonSchema(_ORDER),
    JsonSchema({"type": "string"}),
    JsonSchema({"anyOf": [{"type": "number"}, {"type": "null"}, {"type": "array", "items": {"type": "boolean"}}]}),
    JsonObject(),
    Grammar('start: "<" start ">" | NAME\nNAME: /[a-z]{1,3}/'),
    Grammar('root ::= "<" root ">" | [a-z]+ "b"'),
    StructuralTag({"type": "structural_tag", "format": {"type": "const_string", "value": "yes, indeed"}}),
)


@cache
def tiny() -> Vocabulary:
    """400 tokens, three stop tokens (one of them padding of the logits), 21 columns of padding."""
    tokenizer = vocabularies.tiny_byte_level()
    im_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    size = len(tokenizer) + 21  # no multiple of 32
    return Vocabulary.from_tokenizer(tokenizer, padded_size=size, stop_token_ids=[im_end, size - 1])


@cache
def single_bytes() -> Vocabulary:
    """The 256 bytes and one stop token."""
    data: tuple[bytes | None, ...] = (*(bytes([byte]) for byte in range(256)), None)
    return Vocabulary(data, (256,), 257, vocabularies.tiny_byte_level())


@cache
def sentencepiece() -> Vocabulary:
    """32,768 tokens, with byte fallback."""
    return Vocabulary.from_tokenizer(vocabularies.sentencepiece_32k())


@cache
def without_bytes() -> Vocabulary:
    """A vocabulary like that of T5: about 200 tokens, no byte tokens, é as one token, no {."""
    return Vocabulary.from_tokenizer(vocabularies.tiny_unigram())


@cache
def backend(name: str, vocabulary: Vocabulary) -> Backend:
    return registry.create(name, vocabulary)


class Case:
    """A compiled constraint that a failing test can print in one line."""

    def __init__(self, compiled: CompiledConstraint):
        self.compiled = compiled

    def __repr__(self) -> str:
        return f"<{self.compiled.backend}: {self.compiled.constraint}>"


@cache
def cases(vocabulary: Vocabulary, names: tuple[str, ...] = BACKENDS) -> tuple[Case, ...]:
    """Every constraint with every backend that fully enforces it, if this vocabulary can write it."""
    compiled = []
    for engine in (backend(name, vocabulary) for name in names):
        for constraint in CONSTRAINTS:
            if not engine.losses(constraint):
                with suppress(UnwritableConstraint):
                    compiled.append(Case(engine.compile(constraint)))
    return tuple(compiled)


@cache
def native_cases() -> tuple[Case, ...]:
    """The cases of the native engine with three vocabularies, one of them without byte tokens."""
    return tuple(case for make in (tiny, sentencepiece, without_bytes) for case in cases(make(), ("native",)))


def allowed(matcher: Matcher, tokens_left: int | None = None) -> list[int]:
    """The tokens that the mask of a matcher allows."""
    size = matcher.compiled.vocabulary.padded_size
    bitmask = allocate_bitmask(2, size + 40)  # wider than needed, and not the first row
    matcher.fill_next_token_bitmask(bitmask, 1, tokens_left=tokens_left)
    mask = unpack(bitmask, bitmask.shape[1] * 32)[1]
    assert not mask[size:].any(), "bits past the vocabulary"
    assert (bitmask[0] == -1).all(), "another row was written"
    return torch.nonzero(mask).flatten().tolist()


def still_open(matcher: Matcher, token_ids: list[int]) -> list[int]:
    """The tokens that a sampler which avoids ending the text prefers."""
    token_bytes = matcher.compiled.vocabulary.token_bytes
    text = [token_id for token_id in token_ids if token_id not in matcher.stop_token_ids]
    return [token_id for token_id in text if not _CLOSING & set(token_bytes[token_id] or b"")] or text or token_ids


def walk(matcher: Matcher, picks: Sequence[int], *, past_the_end: bool = True) -> list[int]:
    """Accept allowed tokens, each chosen by a number. Continues after the end (stop tokens), stops at a dead end."""
    taken: list[int] = []
    for pick in picks:
        if matcher.is_terminated() and not past_the_end:
            break
        tokens = allowed(matcher)
        if not tokens:
            break
        token_id = tokens[pick % len(tokens)]
        assert matcher.accept_token(token_id)
        taken.append(token_id)
    return taken


def walk_within(matcher: Matcher, left: int, steps: int, random: Random) -> list[int]:
    """Accept random tokens of text that a budget of ``left`` tokens allows, until there is none."""
    taken: list[int] = []
    for _ in range(steps):
        text = [token_id for token_id in allowed(matcher, left) if token_id not in matcher.stop_token_ids]
        if not text:
            break
        taken.append(random.choice(text))
        assert matcher.accept_token(taken[-1])
        left -= 1
    return taken


def view(matcher: Matcher) -> tuple[Any, ...]:
    """Everything that a matcher reports about its position."""
    return (
        allowed(matcher),
        matcher.is_completed(),
        matcher.is_terminated(),
        matcher.jump_forward_bytes(),
        matcher.num_accepted,
    )


def layout(text: str) -> str:
    """A JSON text with its strings and numbers replaced, so that only its whitespace can differ."""
    return re.sub(r"-?[0-9][0-9.eE+-]*", "0", re.sub(r'"(?:[^"\\]|\\.)*"', '""', text))


def is_laid_out_as_json_dumps_does(text: str) -> bool:
    """Whether the whitespace equals that of ``json.dumps``; numbers and strings may have other spellings."""
    return layout(text) == layout(json.dumps(json.loads(text)))


# Small numbers too, so that short and completed texts are drawn as often as long ones.
picks = st.lists(st.one_of(st.integers(0, 10_000), st.integers(0, 3)), max_size=24)

_CLOSING = frozenset(b'"]})>')
_names = st.sampled_from(["a", "b", "name", "é", "x y"])
_leaves = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more},
        st.integers(-30, 30),
        st.integers(0, 200),
    ),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    st.sampled_from([r"^[a-z]{1,3}$", r"^\d\d?$", "^(yes|no)$", r"^[^x]{2}$"]).map(
        lambda p: {"type": "string", "pattern": p}
    ),
    st.lists(st.sampled_from(["a", "ab", "é", 1, 12]), min_size=1, max_size=3, unique=True).map(lambda v: {"enum": v}),
    st.just({"type": "string", "format": "date"}),
)


def _inner(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def an_object(properties: dict[str, Any], required: bool) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": list(properties) if required else []}

    return st.one_of(
        st.builds(an_object, st.dictionaries(_names, schemas, max_size=3), st.booleans()),
        st.builds(
            lambda item, low, more: {"type": "array", "items": item, "minItems": low, "maxItems": low + more},
            schemas,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.lists(schemas, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches}),
    )


schemas = st.recursive(_leaves, _inner, max_leaves=5)
"""Bounded schemas: every walk through their grammars ends."""
