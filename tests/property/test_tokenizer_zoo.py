"""Two laws for every kind of tokenizer: the bytes of tokens equal its decoding, and its encodings are accepted.

The tokenizer itself is the oracle of both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase
from transformers.tokenization_mistral_common import MistralCommonBackend

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.errors import UnwritableConstraint
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests.effort import repeats
from tests.tokenizer_zoo import LARGE, ZOO

NAMES = [*ZOO, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
CHARACTERS = ("é", "東", "😀", "\u0301", "a", "\n")


@cache
def guide(name: str) -> hg.Guide:
    tokenizer = (LARGE if name in LARGE else ZOO)[name]()
    return hg.Guide(max(tokenizer.get_vocab().values()) + 1, tokenizer)


# --- the bytes of tokens equal the decoding of the tokenizer ---


def decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    # If mistral-common keeps special tokens, it spells out byte tokens of SentencePiece. These ids are all text.
    skip = isinstance(tokenizer, MistralCommonBackend)
    return tokenizer.decode(list(ids), skip_special_tokens=skip, clean_up_tokenization_spaces=False)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_decoded(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], data: Sequence[bytes]) -> str:
    """The text of the bytes of tokens. Tokenizers differ in the decoding of bytes that are no UTF-8."""
    if isinstance(tokenizer, ByT5Tokenizer):
        return b"".join(data).decode(errors="ignore")
    names = [tokenizer.convert_ids_to_tokens(token_id) for token_id in ids]
    if not any(map(BYTE_TOKEN.fullmatch, names)):
        return b"".join(data).decode(errors="replace")
    if isinstance(tokenizer, MistralCommonBackend):  # SentencePiece itself: each byte that is no UTF-8 becomes U+FFFD
        return re.sub("[\udc80-\udcff]", "\ufffd", b"".join(data).decode(errors="surrogateescape"))
    # Byte fallback: if a sequence of byte tokens is no UTF-8, each of its bytes becomes U+FFFD.
    text = ""
    for is_byte, group in groupby(zip(names, data, strict=True), lambda pair: bool(BYTE_TOKEN.fullmatch(pair[0]))):
        run = b"".join(piece for _, piece in group)
        text += "\ufffd" * len(run) if is_byte and not is_utf8(run) else run.decode()
    return text


@cache
def byte_tokens(name: str) -> dict[int, int]:
    """The byte tokens of byte fallback, keyed by their byte."""
    vocabulary = guide(name).vocabulary
    ids = [token_id for token_id, data in enumerate(vocabulary.token_bytes) if data is not None and len(data) == 1]
    names = vocabulary.tokenizer.convert_ids_to_tokens(ids)
    single = zip(ids, names, strict=True)
    return {int(token[3:5], 16): token_id for token_id, token in single if BYTE_TOKEN.fullmatch(token)}


@cache
def token_sequences(name: str) -> st.SearchStrategy[list[int]]:
    """Text tokens in any order, some of them byte tokens that join to a character."""
    vocabulary, single = guide(name).vocabulary, byte_tokens(name)
    parts = [[token_id] for token_id in range(len(vocabulary.token_bytes)) if vocabulary.is_text(token_id)]
    byte_sequences = [[single[byte] for byte in character.encode()] for character in CHARACTERS if single]
    part_tokens = (
        st.sampled_from(parts) if not single else st.one_of(st.sampled_from(parts), st.sampled_from(byte_sequences))
    )
    return st.lists(part_tokens, max_size=10).map(lambda parts: [token_id for part in parts for token_id in part])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=repeats(5, 20))
@given(data=st.data())
def test_bytes_equal_the_decoding_of_the_tokenizer(name: str, data: st.DataObject) -> None:
    vocabulary = guide(name).vocabulary
    tokenizer = vocabulary.tokenizer
    # A leading token, because SentencePiece drops a space at the start of a text.
    ids = [*vocabulary.encode_bytes(b"x"), *data.draw(token_sequences(name))]
    if hasattr(tokenizer, "sp_model"):
        # Transformers' slow class spells out byte tokens ("<0x0A>") and strips the text. SentencePiece does not.
        own = [token_id for token_id in ids if token_id < tokenizer.vocab_size]
        if is_utf8(vocabulary.decode_bytes(own)):
            assert vocabulary.decode_bytes(own).decode() == tokenizer.sp_model.decode(own)
        ids = [token_id for token_id in ids if token_id not in byte_tokens(name).values()]
        assert vocabulary.decode_bytes(ids).decode().strip() == decoded(tokenizer, ids)
    else:
        assert as_decoded(tokenizer, ids, [vocabulary.decode_bytes([i]) for i in ids]) == decoded(tokenizer, ids)


@pytest.mark.parametrize("name", NAMES)
def test_only_special_tokens_are_not_text(name: str) -> None:
    vocabulary = guide(name).vocabulary
    tokenizer = vocabulary.tokenizer
    special = set(tokenizer.all_special_ids)
    if not isinstance(tokenizer, MistralCommonBackend):  # it supports no added tokens
        special |= {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    if hasattr(tokenizer, "sp_model"):  # the file has control tokens that the class does not list
        special |= {token_id for token_id in range(tokenizer.vocab_size) if tokenizer.sp_model.is_control(token_id)}
    for token_id in range(len(vocabulary.token_bytes)):
        token = tokenizer.convert_ids_to_tokens(token_id)
        if token_id in special or token in (None, "<unk>"):
            assert not vocabulary.is_text(token_id)
        elif not vocabulary.is_text(token_id):  # a token that the tokenizer decodes to other text
            assert decoded(tokenizer, tokenizer.encode(token, add_special_tokens=False)) != token


# --- the encodings of the tokenizer are accepted ---

OPTIONS = (
    "naïve", "NAÏVE", "東京都 😀", "a<tool>b", "x<Loud>y", "<loud>", "two  spaces", "a b", "né", "word by word",
    "yes\n",
)  # fmt: skip
CONSTRAINTS = {
    "any text": hg.Regex(r"[\s\S]{0,40}"),
    "choice": hg.Choice(OPTIONS),
    "schema": hg.JsonSchema(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 20},
                "age": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            },
            "required": ["name", "tags"],
        }
    ),
}
# No schemas with xgrammar, because it restricts strings of bounded length to characters without an escape.
OTHER_ENGINES = [*((kind, "llguidance") for kind in CONSTRAINTS), ("any text", "xgrammar"), ("choice", "xgrammar")]
HARD = (
    *OPTIONS,
    "<left>",
    "<right>",
    "<0x0A>",
    "▁",
    "Ġ",
    " ",
    "  ",
    "\t",
    "\r\n",
    "don't",
    '"',
    "\\",
    "12",
    "e\u0301",
    "ﬁ",
    "İ",
)
hard = st.lists(st.one_of(st.sampled_from(HARD), st.text(max_size=3)), max_size=4).map("".join)
TEXTS = {
    "any text": hard.map(lambda text: text[:40]),
    "choice": st.sampled_from(OPTIONS),
    "schema": st.builds(
        lambda name, age, tags: json.dumps({"name": name[:20], **age, "tags": tags}, ensure_ascii=False),
        hard,
        st.sampled_from([{}, {"age": -7}, {"age": 5000}]),
        st.lists(hard, max_size=2),
    ),
}


@cache
def compiled(name: str, kind: str, backend: str) -> CompiledConstraint | None:
    """Return None if the vocabulary cannot write every option."""
    try:
        return guide(name).compile(CONSTRAINTS[kind], backend)
    except UnwritableConstraint:
        return None


def encode_continuation(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int] | None:
    """The tokens of a text after other text, by the tokenizer; None if they do not decode to the text."""
    for before in ("x", "x\n"):  # a tokenizer may add a space before a text, but not inside of it
        start = tokenizer.encode(before, add_special_tokens=False)
        whole = tokenizer.encode(before + text, add_special_tokens=False)
        ids = whole[len(start) :]
        special = set(tokenizer.all_special_ids) & set(ids)
        if (
            whole[: len(start)] == start
            and decoded(tokenizer, whole) == decoded(tokenizer, start) + text
            and not special
        ):
            return ids
    return None


def check_accepted(constraint: CompiledConstraint, ids: Sequence[int]) -> None:
    width = constraint.vocabulary.padded_size
    matcher, mask = constraint.matcher(), allocate_bitmask(1, width)
    for position, token_id in enumerate(ids):
        assert matcher.fill_next_token_bitmask(mask)
        assert unpack(mask, width)[0, token_id], (position, token_id)
        assert matcher.accept_token(token_id), (position, token_id)
    assert matcher.is_completed()


@pytest.mark.parametrize("name", NAMES)
def test_every_tokenizer_encodes_some_options(name: str) -> None:
    """So the test below has texts to check."""
    assert sum(encode_continuation(guide(name).tokenizer, option) is not None for option in OPTIONS) >= 5


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        *((kind, "auto") for kind in CONSTRAINTS),
        ("schema", "native"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHER_ENGINES),
    ],
)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=repeats(3, 10))
@given(data=st.data())
def test_encodings_of_the_tokenizer_are_accepted(name: str, kind: str, backend: str, data: st.DataObject) -> None:
    text = data.draw(TEXTS[kind])
    ids = encode_continuation(guide(name).tokenizer, text)
    if ids is None:
        return
    constraint = compiled(name, kind, backend)
    if constraint is None:
        assert kind == "choice" and any(
            encode_continuation(guide(name).tokenizer, option) is None for option in OPTIONS
        )
    else:
        check_accepted(constraint, ids)
