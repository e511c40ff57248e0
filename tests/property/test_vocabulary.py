"""Law: the bytes of the tokens of a text are the text, except for the tokenizer's prefix space and normalizer."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hf_guided.automaton.token_trie import token_trie
from hf_guided.errors import UnwritableConstraint
from hf_guided.vocabulary.bitmask import unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests import vocabularies
from tests.effort import repeats

HARD = (
    "😀", "👩‍👩‍👧", "🇩🇪", "東京", "한국어", "e\u0301", "\u0301", "\u200d", "\ufeff", "ß", "ﬁ", "²", "\u2028",
    "\xa0", "\u3000",
    "\x00", "\x07", "\x1b", "\x7f", "\x85", " ", "  ", "   ", "\n", "\r\n", "\t", "\n\n", "▁", "<0x0A>", "<tool>", "Ġ",
    '{"a": ', "}", '\\"', "12345", "naïve", "İ", "\U0010ffff",
)  # fmt: skip
hard_texts = st.lists(st.one_of(st.sampled_from(HARD), st.text(max_size=4)), max_size=8).map("".join)


@cache
def vocabulary_of(loader) -> Vocabulary:
    return Vocabulary.from_tokenizer(loader())


def unchanged(text: str) -> str:
    return text


def prefixed(text: str) -> str:
    """SentencePiece: adds a leading space, and its symbol for spaces is a space."""
    return " " + text.replace("▁", " ") if text else ""


def prefixed_once(text: str) -> str:
    """The tokenizers library: adds a leading space only if there is none."""
    text = text.replace("▁", " ")
    return " " + text if text and text[0] != " " else text


LAWS = {
    "tekken": (vocabularies.tekken, unchanged),
    "sentencepiece": (vocabularies.sentencepiece_32k, prefixed),
    "fast sentencepiece": (vocabularies.fast_sentencepiece_32k, prefixed_once),
    "slow sentencepiece": (vocabularies.slow_sentencepiece_32k, prefixed),
    "byte level": (vocabularies.tiny_byte_level, unchanged),
    "byt5": (vocabularies.byt5, unchanged),
    "demo": (vocabularies.demo, unchanged),
}


@pytest.mark.parametrize("name", LAWS)
@settings(max_examples=repeats(50, 150))
@given(text=hard_texts)
@example(text="")
@example(text="  two spaces, " + "".join(HARD) + "\n ")
def test_bytes_of_the_encoding_equal_the_text(name, text):
    loader, normalized = LAWS[name]
    tokenizer = loader()
    assume(not any(special in text for special in tokenizer.all_special_tokens))
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert vocabulary_of(loader).decode_bytes(ids) == normalized(text).encode()
    assert all(vocabulary_of(loader).is_text(token_id) for token_id in ids)


@settings(max_examples=repeats(50, 150))
@given(data=st.data())
def test_bytes_of_the_unigram_encoding_equal_the_words(data):
    # T5 writes one space before every word, for any whitespace, and has no tokens for characters outside its training.
    vocabulary = vocabulary_of(vocabularies.tiny_unigram)
    letters = sorted({c for c in "".join(vocabularies.TEXTS) if not c.isspace() and unicodedata.category(c) != "Cc"})
    letters = [letter for letter in letters if vocabulary._writes(letter.encode())]
    assert len(letters) > 40
    words = data.draw(st.lists(st.text(letters, min_size=1, max_size=6), max_size=6))
    gaps = data.draw(st.lists(st.sampled_from([" ", "  ", "\n", "\t "]), min_size=len(words), max_size=len(words)))
    ids = vocabularies.tiny_unigram().encode(
        "".join(gap + word for gap, word in zip(gaps, words, strict=True)), add_special_tokens=False
    )
    assert vocabulary.decode_bytes(ids) == "".join(" " + word for word in words).encode()


@pytest.mark.parametrize("name", LAWS)
@settings(max_examples=repeats(33, 100))
@given(data=st.one_of(st.binary(max_size=40), hard_texts.map(str.encode)))
def test_any_bytes_can_be_encoded(name, data):
    vocabulary = vocabulary_of(LAWS[name][0])
    ids = vocabulary.encode_bytes(data)
    assert vocabulary.decode_bytes(ids) == data
    assert all(vocabulary.is_text(token_id) for token_id in ids)


@given(
    tokens=st.lists(st.text("abc", min_size=1, max_size=4).map(str.encode), min_size=1, max_size=6),
    data=st.text("abc", max_size=10).map(str.encode),
)
def test_bytes_are_encoded_exactly_if_tokens_can_write_them(tokens, data):
    vocabulary = Vocabulary((*tokens, None), (len(tokens),), len(tokens) + 1, vocabularies.byt5())
    if re.fullmatch(b"(?:" + b"|".join(tokens) + b")*", data):
        assert vocabulary.decode_bytes(vocabulary.encode_bytes(data)) == data
    else:
        with pytest.raises(UnwritableConstraint):
            vocabulary.encode_bytes(data)


@given(size=st.integers(384, 450), data=st.data())
def test_bitmask_of_equals_the_set(size, data):
    vocabulary = Vocabulary.from_tokenizer(vocabularies.byt5(), padded_size=size)
    ids = data.draw(st.sets(st.integers(0, size - 1)))
    row = torch.tensor(vocabulary.bitmask_of(ids))[None]
    assert set(unpack(row, row.shape[1] * 32)[0].nonzero().flatten().tolist()) == ids


words_of_marks = st.binary(min_size=1, max_size=9).map(lambda data: bytes(b"ab<|"[byte % 4] for byte in data))


@given(st.lists(words_of_marks, max_size=30), st.dictionaries(st.integers(0, 8), words_of_marks, max_size=5))
def test_a_vocabulary_with_marks_is_one_that_has_them_as_text(texts, names):
    """What is made from the plain vocabulary is what is made from all tokens."""
    plain = Vocabulary((None,) * 9 + tuple(texts), (9,), 9 + len(texts) + 1, None)
    marked = plain.with_text(names)
    direct = Vocabulary(marked.token_bytes, (9,), plain.padded_size, None)
    assert marked.token_bytes == tuple(names.get(i, data) for i, data in enumerate(plain.token_bytes))
    assert marked.text_words.tolist() == direct.text_words.tolist()
    assert marked.writable_bytes == direct.writable_bytes
    assert marked._ids_by_bytes == direct._ids_by_bytes
    found, wanted = token_trie(marked), token_trie(direct)
    assert found.trie.levels == wanted.trie.levels
    for name in "byte", "parent", "child":
        ours, theirs = getattr(found.trie, name)[1:], getattr(wanted.trie, name)[1:]
        assert ours.dtype == theirs.dtype and ours.tolist() == theirs.tolist(), name
    assert found.token_start.tolist() == wanted.token_start.tolist()
    for low, high in pairwise(found.token_start.tolist()):
        assert sorted(found.token_ids[low:high]) == sorted(wanted.token_ids[low:high])
    assert found.has_token.tolist() == wanted.has_token.tolist() and found.size == wanted.size
