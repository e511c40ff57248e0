"""The bytes of every token, compared with the tokenizers' own libraries, and the tokenizers that are refused."""

from __future__ import annotations

import base64
import copy
import json

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizerFast, GPT2TokenizerFast, PreTrainedTokenizer, PreTrainedTokenizerFast
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

from hf_guided.errors import StopTokenError, UnsupportedTokenizer, UnwritableConstraint, VocabularySizeError
from hf_guided.vocabulary.bitmask import unpack
from hf_guided.vocabulary.tokens import Vocabulary
from tests import tokenizer_zoo, vocabularies

LOADERS = (
    vocabularies.tekken,
    vocabularies.sentencepiece_32k,
    vocabularies.fast_sentencepiece_32k,
    vocabularies.slow_sentencepiece_32k,
    vocabularies.tiny_byte_level,
    vocabularies.tiny_unigram,
    vocabularies.byt5,
)
FAST = (vocabularies.fast_sentencepiece_32k, vocabularies.tiny_byte_level, vocabularies.tiny_unigram)
SLOW_SENTENCEPIECE = (vocabularies.sentencepiece_32k, vocabularies.slow_sentencepiece_32k)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- compared with the libraries ---


def test_tekken_bytes_equal_its_file():
    vocabulary = Vocabulary.from_tokenizer(vocabularies.tekken())
    with open(vocabularies.mistral_common_file("tekken_240911.json"), encoding="utf-8") as file:
        ranks = json.load(file)["vocab"][: 131072 - 1000]
    expected = [base64.b64decode(entry["token_bytes"]) for entry in sorted(ranks, key=lambda entry: entry["rank"])]
    assert vocabulary.token_bytes == (None,) * 1000 + tuple(expected)
    assert sum(not is_utf8(data) for data in expected) > 300  # tokens that are only part of a character
    assert vocabulary.writable_bytes == frozenset(range(256))


@pytest.mark.parametrize("loader", SLOW_SENTENCEPIECE)
def test_sentencepiece_bytes_equal_its_decoding(loader):
    vocabulary = Vocabulary.from_tokenizer(loader())
    model = vocabularies.slow_sentencepiece_32k().sp_model
    anchor = model.piece_to_id("x")  # decoding drops a space at the start of a text
    text, hidden = 0, 0
    for token_id, data in enumerate(vocabulary.token_bytes):
        decoded = model.decode([anchor, token_id])
        if data is None:
            hidden += 1
            assert decoded in ("x", "x \u2047 ")  # control tokens decode to nothing, the unknown token to a mark
        elif is_utf8(data):
            text += 1
            assert decoded == "x" + data.decode()
        else:
            assert model.id_to_piece(token_id) == f"<0x{data[0]:02X}>"
    assert (text, hidden) == (32768 - 749 - 128, 749)


@pytest.mark.parametrize("loader", FAST)
def test_fast_bytes_equal_the_decoding_of_the_tokenizers_library(loader):
    tokenizer = loader()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    anchor = tokenizer.convert_tokens_to_ids("x")  # decoding drops a space at the start of a text
    # Both are needed: a token added as special is not always in all_special_ids.
    special = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    special |= set(tokenizer.all_special_ids)
    compared = 0
    for token_id, data in enumerate(vocabulary.token_bytes):
        if data is None:
            assert token_id in special
        else:
            assert tokenizer.backend_tokenizer.decode([anchor, token_id]) == "x" + data.decode(errors="replace")
            compared += 1
    assert compared == len(tokenizer) - len(special)


@pytest.mark.slow
def test_tekken_and_its_fast_conversion_agree():
    original, converted = (
        Vocabulary.from_tokenizer(vocabularies.tekken()),
        Vocabulary.from_tokenizer(vocabularies.fast_tekken()),
    )
    assert original.token_bytes == converted.token_bytes
    assert original.fingerprint == converted.fingerprint


def test_fast_slow_and_mistral_common_agree_on_one_file():
    mistral_common, slow, fast = (
        Vocabulary.from_tokenizer(loader()) for loader in (*SLOW_SENTENCEPIECE, vocabularies.fast_sentencepiece_32k)
    )
    assert mistral_common.token_bytes == slow.token_bytes == fast.token_bytes
    assert mistral_common.fingerprint == slow.fingerprint == fast.fingerprint


def test_byt5_bytes():
    vocabulary = Vocabulary.from_tokenizer(vocabularies.byt5())
    assert vocabulary.token_bytes == (None,) * 3 + tuple(bytes([byte]) for byte in range(256)) + (None,) * 125


# --- added tokens ---


def test_added_tokens_are_literal_text_unless_special():
    tokenizer = vocabularies.tiny_byte_level()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    tool, end = tokenizer.convert_tokens_to_ids(["<tool>", "<|im_end|>"])
    assert vocabulary.token_bytes[tool] == b"<tool>"
    assert vocabulary.token_bytes[end] is None
    assert vocabulary.encode_bytes(b"a<tool>")[-1] == tool


def test_added_tokens_that_do_not_round_trip_are_never_text():
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.add_tokens([AddedToken(text, special=False) for text in ("é", "Ġx", "｜é", "  ")])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["é", "Ġx", "｜é", "  "])
    # The library encodes the first two unchanged, but decodes them to other text.
    assert [tokenizer.decode(tokenizer.encode(text)) for text in ("é", "Ġx", "｜é", "  ")] == [
        "\ufffd",
        " x",
        "｜é",
        "  ",
    ]
    assert [vocabulary.token_bytes[token_id] for token_id in ids] == [None, None, "｜é".encode(), b"  "]


def test_normalized_added_tokens_equal_their_decoding():
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.add_tokens([AddedToken("TOOL", normalized=True), AddedToken("LOUD", normalized=False)])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    tool, loud = tokenizer.convert_tokens_to_ids(["TOOL", "LOUD"])
    for text in ("x TOOL y", "x tool y", "x LOUD y"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert {tool, loud} & set(ids)
        assert vocabulary.decode_bytes(ids).decode() == tokenizer.decode(ids)
    assert (vocabulary.token_bytes[tool], vocabulary.token_bytes[loud]) == (b"tool", b"LOUD")


def test_normalized_added_tokens_include_the_space_of_the_normalizer():
    vocabulary = Vocabulary.from_tokenizer(tokenizer_zoo.with_added(tokenizer_zoo.llama2_normalizer)())
    assert b" a b" in vocabulary.token_bytes and b"a b" not in vocabulary.token_bytes


def test_duplicate_tokens_of_a_model():
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("a", -1.0), ("a", -2.0)], 0, False))
    backend.decoder = decoders.Fuse()
    vocabulary = Vocabulary.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))
    assert vocabulary.token_bytes == (None, None, b"a", b"a")


def test_added_tokens_of_slow_tokenizers():
    tokenizer = copy.deepcopy(vocabularies.byt5())
    tokenizer.add_tokens(["<tool>", AddedToken("<|im_end|>", special=True)])
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    ids = tokenizer.encode("é<tool><|im_end|>", add_special_tokens=False)
    assert [vocabulary.token_bytes[token_id] for token_id in ids] == [b"\xc3", b"\xa9", b"<tool>", None]


def test_byte_tokens_unknown_to_the_decoder_are_never_text():
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("<0x0A>", -1.0), ("▁a", -2.0)], 0, False))
    backend.decoder = decoders.Metaspace()
    vocabulary = Vocabulary.from_tokenizer(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))
    assert vocabulary.token_bytes == (None, None, None, b" a")  # the unknown token is not declared special here


def test_unused_pieces_are_never_text(tmp_path):
    with open(vocabularies.mistral_common_file("mistral_instruct_tokenizer_241114.model.v7"), "rb") as file:
        model = file.read()
    for piece, kind in (
        (b"\xe2\x96\x81(defined)", b"\x04"),
        (b"\xe2\x96\x81(unused)", b"\x05"),
    ):  # user defined, unused
        entry = b"\n" + bytes([len(piece)]) + piece + b"\x15\0\0\0\0\x18" + kind
        model += b"\n" + bytes([len(entry)]) + entry  # appending to a protobuf message appends to its list of pieces
    (tmp_path / "tokenizer.model").write_bytes(model)
    tokenizer = SentencePieceBackend(vocab_file=str(tmp_path / "tokenizer.model"), unk_token="<unk>", eos_token="</s>")
    assert Vocabulary.from_tokenizer(tokenizer).token_bytes[-3:] == ("梦".encode(), b" (defined)", None)


# --- sizes and stop tokens ---


def test_padding_is_not_text_and_ids_out_of_range_are_refused():
    vocabulary = Vocabulary.from_tokenizer(vocabularies.byt5(), padded_size=400)
    assert vocabulary.padded_size == 400 and len(vocabulary.token_bytes) == 384
    text = unpack(torch.tensor(vocabulary.text_words)[None], 400)[0]
    assert text.nonzero().flatten().tolist() == list(range(3, 259))
    assert [vocabulary.is_text(token_id) for token_id in (-1, 2, 3, 258, 259, 384, 399, 400, 10**9)] == [
        False, False, True, True, False, False, False, False, False,
    ]  # fmt: skip
    assert unpack(torch.tensor(vocabulary.bitmask_of([0, 399]))[None], 400)[0].nonzero().flatten().tolist() == [0, 399]
    for outside in (-1, 400):
        with pytest.raises(ValueError, match=f"token {outside} is outside the model's logits, which have 400"):
            vocabulary.bitmask_of([0, outside])


def test_bitmasks_are_read_only():
    vocabulary = Vocabulary.from_tokenizer(vocabularies.byt5())
    for row in (vocabulary.text_words, vocabulary.bitmask_of([1])):
        assert row.dtype == np.int32 and row.shape == (12,)
        with pytest.raises(ValueError, match="read-only"):
            row[0] = 0


def test_logits_narrower_than_the_vocabulary():
    with pytest.raises(
        VocabularySizeError, match=r"ByT5Tokenizer has 384 tokens.*258 columns.*1 text tokens.*resize_token_embeddings"
    ):
        Vocabulary.from_tokenizer(vocabularies.byt5(), padded_size=258)
    cut = Vocabulary.from_tokenizer(
        vocabularies.byt5(), padded_size=259
    )  # without the sentinels, which are special tokens
    assert cut.token_bytes == Vocabulary.from_tokenizer(vocabularies.byt5()).token_bytes[:259]
    assert not cut.is_text(300) and cut.token_text(300) == "<token 300>"


def test_stop_tokens_are_not_text():
    newline = 3 + ord("\n")
    vocabulary = Vocabulary.from_tokenizer(vocabularies.byt5(), padded_size=400, stop_token_ids=[390, newline, 1])
    assert vocabulary.stop_token_ids == (1, newline, 390)
    assert not vocabulary.is_text(newline)
    assert ord("\n") not in vocabulary.writable_bytes
    with pytest.raises(UnwritableConstraint, match=r"'\\n'"):
        vocabulary.encode_bytes(b"a\nb")


def test_missing_stop_token_and_stop_token_out_of_range():
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.eos_token = None
    with pytest.raises(StopTokenError, match="no EOS token.*eos_token"):
        Vocabulary.from_tokenizer(tokenizer)
    assert Vocabulary.from_tokenizer(tokenizer, stop_token_ids=[5]).stop_token_ids == (5,)
    for outside in (-1, 500):
        with pytest.raises(StopTokenError, match=f"stop token {outside} is outside the model's logits, which have 402"):
            Vocabulary.from_tokenizer(vocabularies.tiny_byte_level(), stop_token_ids=[outside])


def test_different_vocabularies_have_different_fingerprints():
    def fingerprint(**options):
        return Vocabulary.from_tokenizer(vocabularies.byt5(), **options).fingerprint

    assert fingerprint() == fingerprint(padded_size=384)
    variants = ({}, {"padded_size": 385}, {"stop_token_ids": [2]}, {"stop_token_ids": [7]})
    assert len({fingerprint(**options) for options in variants}) == 4
    split = [Vocabulary(tokens, (2,), 3, vocabularies.byt5()) for tokens in ((b"ab", b"c", None), (b"a", b"bc", None))]
    assert split[0].fingerprint != split[1].fingerprint


# --- encoding and printing ---


def test_unwritable_characters_are_named():
    vocabulary = Vocabulary.from_tokenizer(vocabularies.tiny_unigram())
    with pytest.raises(UnwritableConstraint, match=r"T5Tokenizer has no tokens that write '\{', '龍';"):
        vocabulary.encode_bytes("{a龍".encode())
    with pytest.raises(UnwritableConstraint, match=r"write b'\\xff'"):
        vocabulary.encode_bytes(b"a\xff")


def test_encoding_takes_the_longest_token_whose_rest_can_be_written():
    vocabulary = Vocabulary((b"a", b"ab", b"abc", b"cd", None), (4,), 5, vocabularies.byt5())
    assert vocabulary.encode_bytes(b"abca") == [2, 0]
    assert vocabulary.encode_bytes(b"abcd") == [1, 3]  # "abc" would leave "d"
    assert vocabulary.encode_bytes(b"") == []


def test_encoding_prefers_pieces_to_byte_tokens(sentencepiece):
    vocabulary = Vocabulary.from_tokenizer(sentencepiece)
    model = vocabularies.slow_sentencepiece_32k().sp_model
    assert not any(model.is_byte(token_id) for token_id in vocabulary.encode_bytes(b'{"a": 1}'))


def test_token_text(tekken):
    vocabulary = Vocabulary.from_tokenizer(tekken, padded_size=131200)
    word, partial = vocabulary.encode_bytes(b" Hi")[0], vocabulary.encode_bytes(b"\xf0")[0]
    assert vocabulary.token_text(word) == "' Hi'"
    assert vocabulary.token_text(2) == "</s>"
    assert vocabulary.token_text(partial) == "b'\\xf0'"
    assert [vocabulary.token_text(token_id) for token_id in (131100, -1)] == ["<token 131100>", "<token -1>"]


def test_only_long_names_of_special_tokens_are_found_in_a_text():
    """A name of one character would be found in nearly every text."""
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<call>", "<other>", "é"]})
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    found = vocabulary.special_in(["é", "a <call>"])
    assert found == {tokenizer.convert_tokens_to_ids("<call>"): b"<call>"}


# --- tokenizers that are refused ---


def word_piece():
    backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=100, special_tokens=["[UNK]", "[SEP]"], show_progress=False)
    backend.train_from_iterator(vocabularies.TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[SEP]")


def word_level():
    backend = Tokenizer(models.WordLevel({"a": 0, "</s>": 1}, unk_token="a"))
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


def with_decoder(decoder, **model):
    backend = Tokenizer(models.BPE({"a": 0, "</s>": 1}, [], **model))
    if decoder is not None:
        backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


class ShoutingTokenizer(SentencePieceBackend):
    def convert_tokens_to_string(self, tokens):
        return super().convert_tokens_to_string(tokens).upper()


def shouting():
    file = vocabularies.mistral_common_file("mistral_instruct_tokenizer_241114.model.v7")
    return ShoutingTokenizer(vocab_file=file, unk_token="<unk>", eos_token="</s>")


class Words(PreTrainedTokenizer):
    """A tokenizer in pure Python."""

    vocab_size = 1

    def get_vocab(self):
        return {"a": 0}

    def _convert_id_to_token(self, index):
        return "a"


REFUSED = {
    "this BertTokenizer is not supported: WordPiece": lambda: BertTokenizerFast(vocab={"[UNK]": 0, "[SEP]": 1, "a": 2}),
    "is not supported: WordPiece": word_piece,
    "is not supported: a WordLevel model": word_level,
    "this Words is not supported: its tokens have no bytes": Words,
    "this ShoutingTokenizer is not supported: it does not decode": shouting,
    "expected a transformers tokenizer, got Tokenizer": lambda: Tokenizer(models.BPE()),
    "it has no decoder": lambda: with_decoder(None),
    "a step CTC": lambda: with_decoder(decoders.CTC()),
    "a step BPEDecoder": lambda: with_decoder(decoders.BPEDecoder()),
    "a step Replace .*Regex": lambda: with_decoder(decoders.Replace(Regex("a+"), "b")),
    "a step Replace that works on whole texts": lambda: with_decoder(
        decoders.Sequence([decoders.ByteLevel(), decoders.Replace("a", "b")])
    ),
    "a step Strip that works on whole texts": lambda: with_decoder(
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(content=" ", right=1)])
    ),
    "a step Metaspace after": lambda: with_decoder(decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])),
    "end_of_word_suffix '</w>'": lambda: with_decoder(decoders.ByteLevel(), end_of_word_suffix="</w>"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_unsupported_tokenizer_is_refused(message):
    with pytest.raises(UnsupportedTokenizer, match=message) as refusal:
        Vocabulary.from_tokenizer(REFUSED[message]())
    if "expected" not in message:
        assert "supported are byte-level BPE" in str(refusal.value)


def test_gpt2_tokenizer_class():
    tokenizer = GPT2TokenizerFast(vocab={"a": 0, "Ġa": 1, "<|endoftext|>": 2}, merges=[])
    assert Vocabulary.from_tokenizer(tokenizer).token_bytes == (b"a", b" a", None)
