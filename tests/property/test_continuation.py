"""A continuation gets the same tokens as in the tokenizer's encoding of the whole text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Regex
from hf_guided.errors import UnwritableConstraint
from hf_guided.vocabulary.bitmask import allocate_bitmask
from hf_guided.vocabulary.retokenize import Continuation
from hf_guided.vocabulary.tokens import Vocabulary
from tests import vocabularies
from tests.property.strategies import allowed, sentencepiece, tiny, without_bytes
from tests.tokenizer_zoo import ZOO

TOKENIZERS: dict[str, Callable[[], Any]] = {
    "byte_level": vocabularies.tiny_byte_level,
    "demo": vocabularies.demo,
    "tekken": vocabularies.tekken,
    "sentencepiece": vocabularies.sentencepiece_32k,
}
PIECES = [
    '{"name": "',
    '", "age": ',
    "42",
    "Ada Lovelace",
    "é",
    "東京",
    '"}',
    "  ",
    "\n",
    "don't",
    "</s>",
    "😀",
    "a",
    " of",
]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


@cache
def vocabulary(name: str) -> Vocabulary:
    tokenizer = TOKENIZERS[name]()
    return Vocabulary.from_tokenizer(tokenizer, padded_size=len(tokenizer), stop_token_ids=[tokenizer.eos_token_id])


def check_every_cut(name: str, text: str) -> None:
    ours = vocabulary(name)
    whole = ours.tokenizer(text, add_special_tokens=False)["input_ids"]
    if ours.decode_bytes(whole) != text.encode():
        return  # the tokenizer adds a space, cannot write a character, or reads a special token
    for cut in range(len(whole)):
        rest = ours.decode_bytes(whole[cut:])
        token_ids = Continuation(ours)(whole[:cut], rest)
        assert ours.decode_bytes(token_ids) == rest
        if cut:
            assert token_ids == whole[cut:]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=TEXTS)
def test_continuation_has_the_tokens_of_the_whole_text(name: str, text: str) -> None:
    check_every_cut(name, text)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_pairs_have_the_tokens_of_the_whole_text(name: str) -> None:
    for pair in product(PIECES, PIECES):
        check_every_cut(name, "".join(pair))


def test_context_may_begin_inside_a_character() -> None:
    """In a long text, only the last tokens are read, and they may begin inside a character."""
    ours = vocabulary("tekken")
    whole = ours.tokenizer('😀 ofa\n"}{"name": "😀don\'t', add_special_tokens=False)["input_ids"]
    assert len(ours.decode_bytes(whole[:1])) == 1
    for cut in range(1, len(whole)):
        assert Continuation(ours)(whole[:cut], ours.decode_bytes(whole[cut:])) == whole[cut:]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(before=TEXTS, text=TEXTS)
def test_continuation_writes_exactly_its_bytes(name: str, before: str, text: str) -> None:
    ours = vocabulary(name)
    context = ours.tokenizer(before, add_special_tokens=False)["input_ids"]
    try:
        token_ids = Continuation(ours)(context, text.encode())
    except UnwritableConstraint:
        assert ours.tokenizer.unk_token_id is not None
        return
    assert ours.decode_bytes(token_ids) == text.encode() and all(map(ours.is_text, token_ids))


def test_tokenizer_that_changes_letters_writes_exactly_its_bytes() -> None:
    """A lower-casing tokenizer: as many bytes, but others."""
    tokenizer = ZOO["gpt2, added, lower case"]()
    ours = Vocabulary.from_tokenizer(tokenizer, padded_size=len(tokenizer), stop_token_ids=[tokenizer.eos_token_id])
    assert ours.decode_bytes(tokenizer("AB")["input_ids"]) == b"ab"
    assert ours.decode_bytes(Continuation(ours)([], b"AB")) == b"AB"


@pytest.mark.parametrize("name", ["byte_level", "tekken"])
@given(text=st.sampled_from(["é", "東京x", "😀!"]), cut=st.integers(1, 2))
def test_incomplete_character_is_completed(name: str, text: str, cut: int) -> None:
    ours = vocabulary(name)
    head, rest = text.encode()[:cut], text.encode()[cut:]
    if rest:
        assert ours.decode_bytes(Continuation(ours)(ours.encode_bytes(head), rest)) == rest


@pytest.mark.parametrize("name", ["byte_level", "demo", "tekken"])
@given(text=TEXTS, data=st.data())
def test_rewritten_gives_the_tokens_of_the_tokenizer(name: str, text: str, data: st.DataObject) -> None:
    """A token that the tokenizer would write is kept. A shorter token at its position is replaced."""
    ours = vocabulary(name)
    whole = ours.tokenizer(text, add_special_tokens=False)["input_ids"]
    if ours.decode_bytes(whole) != text.encode() or len(whole) < 3:
        return
    cut = data.draw(st.integers(1, len(whole) - 2))
    rest = ours.decode_bytes(whole[cut + 1 :])
    assert Continuation(ours).rewritten(whole[:cut], whole[cut], rest) is None
    piece = ours.decode_bytes([whole[cut]])
    shorter = ours.encode_bytes(piece[:1])
    if len(piece) > 1 and len(shorter) == 1:
        assert Continuation(ours).rewritten(whole[:cut], shorter[0], piece[1:] + rest) == whole[cut:]


@pytest.mark.parametrize("pattern", [r"[a-z0-9 ]{1,9}", r"(?:yes|no|née)", r'"[^"]*"', r"\{ ?\"a\": [0-9]{1,3}\}"])
@pytest.mark.parametrize("make", [tiny, sentencepiece, without_bytes])
def test_leading_bytes_equal_those_of_the_allowed_tokens(make: Callable[[], Vocabulary], pattern: str) -> None:
    ours = make()
    try:
        matcher = NetworkBackend(ours).compile(Regex(pattern)).matcher()
    except UnwritableConstraint:
        assert make is without_bytes
        return
    continuation = Continuation(ours)
    for _ in range(6):
        tokens = allowed(matcher)
        bitmask = allocate_bitmask(1, ours.padded_size)
        matcher.fill_next_token_bitmask(bitmask)
        text = [ours.token_bytes[token_id] for token_id in tokens if ours.is_text(token_id)]
        assert continuation.leading_bytes(bitmask[0].numpy()) == {data[0] for data in text if data}
        if not text:
            break
        assert matcher.accept_token(next(token_id for token_id in tokens if ours.is_text(token_id)))
