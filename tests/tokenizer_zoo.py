"""Small tokenizers of every kind in use, trained here on a few sentences: the same ones in every run.

Each is made with the components that the real ones have (normalizer, pre-tokenizer, model, decoder), so that a few
hundred tokens show what a vocabulary of 100,000 does.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaTokenizerFast, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.tokenization_utils_sentencepiece import SentencePieceBackend, SentencePieceExtractor

from tests import vocabularies

Loader = Callable[[], PreTrainedTokenizerBase]

TEXTS = (
    *vocabularies.TEXTS,
    *('{"name": "Zoë Ünal", "age": 41, "tags": ["a", "bb"]}', "The TOOL and the tool; NAÏVE, naïve, 東京都 😀😀") * 3,
)
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ADDED = (
    AddedToken("<tool>", special=False),
    AddedToken("<Loud>", normalized=True),
    AddedToken("<left>", lstrip=True),
    AddedToken("<right>", rstrip=True),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("  ", normalized=False),
    AddedToken("a b", normalized=True),
    AddedToken("né", normalized=False),  # a byte-level decoder breaks it
    AddedToken("<|control|>", special=True),
)


# --- byte-level BPE ---


def _byte_level(pre_tokenizer: Any, model: Any, **arguments: Any) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=420,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>"],
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>", **arguments)


def gpt2() -> PreTrainedTokenizerBase:
    return _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), models.BPE())


def gpt2_prefix_space() -> PreTrainedTokenizerBase:
    return _byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), models.BPE())


def llama3() -> PreTrainedTokenizerBase:
    split = pre_tokenizers.Split(Regex(LLAMA_3), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return _byte_level(pre_tokenizers.Sequence([split, byte_level]), models.BPE(ignore_merges=True))


def qwen() -> PreTrainedTokenizerBase:
    """Byte-level with a normalizer: Qwen composes characters."""
    tokenizer = gpt2()
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def tiktoken() -> PreTrainedTokenizerBase:
    """From a file of tiktoken: every merge is a rank, and there are no merges beside it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ranks.tiktoken"
        file.write_text("\n".join(f"{base64.b64encode(data).decode()} {rank}" for rank, data in enumerate(_ranks())))
        backend = TikTokenConverter(str(file), extra_special_tokens=["<|endoftext|>", "<|python|>"]).converted()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")


@cache
def _ranks() -> tuple[bytes, ...]:
    """The 256 bytes, then what byte-pair merges make of them, most frequent first."""
    from hf_guided.vocabulary.token_bytes import byte_level

    vocab = llama3().get_vocab()
    merged = sorted((token_id, byte_level(token)) for token, token_id in vocab.items() if token != "<|endoftext|>")
    return (*(bytes([byte]) for byte in range(256)), *(data for _, data in merged if len(data) > 1))


def tekken() -> PreTrainedTokenizerBase:
    """Mistral's file with fewer ranks: special tokens first, and a tokenizer of mistral-common's own."""
    from transformers.tokenization_mistral_common import MistralCommonBackend

    with open(vocabularies.mistral_common_file("tekken_240911.json"), encoding="utf-8") as file:
        tekken = json.load(file)
    tekken["vocab"] = tekken["vocab"][:700]
    tekken["config"] |= {"num_vocab_tokens": 700, "default_vocab_size": 1700}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tekken.json").write_text(json.dumps(tekken), encoding="utf-8")
        return MistralCommonBackend(str(Path(folder) / "tekken.json"))


# --- SentencePiece ---


@cache
def _sentencepiece_model(model_type: str, byte_fallback: bool, **arguments: Any) -> bytes:
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=written,
        model_type=model_type,
        vocab_size=420 if byte_fallback else 120,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        **arguments,
    )
    return written.getvalue()


def _with_sentencepiece_file(model: bytes, make: Callable[[str], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.model"
        file.write_bytes(model)
        return make(str(file))


def _fast_llama(**arguments: Any) -> PreTrainedTokenizerBase:
    def make(file: str) -> PreTrainedTokenizerBase:
        vocab, _, merges = SentencePieceExtractor(file).extract()
        return LlamaTokenizerFast(vocab=vocab, merges=merges, **arguments)

    return _with_sentencepiece_file(_sentencepiece_model("bpe", True), make)


def llama2() -> PreTrainedTokenizerBase:
    return _fast_llama(legacy=False)


def llama2_legacy() -> PreTrainedTokenizerBase:
    return _fast_llama(legacy=True)


def llama2_without_prefix_space() -> PreTrainedTokenizerBase:
    return _fast_llama(add_prefix_space=False)


def llama2_normalizer() -> PreTrainedTokenizerBase:
    """As checkpoints were converted before: the normalizer writes the spaces, and there is no pre-tokenizer."""
    tokenizer = llama2()
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = None
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", bos_token="<s>")


def gemma() -> PreTrainedTokenizerBase:
    """No space is put before a text, and no pre-tokenizer divides words."""
    backend = llama2().backend_tokenizer
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def _slow(model_type: str, byte_fallback: bool) -> PreTrainedTokenizerBase:
    return _with_sentencepiece_file(
        _sentencepiece_model(model_type, byte_fallback),
        lambda file: SentencePieceBackend(vocab_file=file, unk_token="<unk>", bos_token="<s>", eos_token="</s>"),
    )


def slow_bpe() -> PreTrainedTokenizerBase:
    return _slow("bpe", byte_fallback=True)


def slow_unigram() -> PreTrainedTokenizerBase:
    return _slow("unigram", byte_fallback=False)


# --- Unigram ---


def _unigram(pieces: Sequence[tuple[str, float]], decoder: Any, **model: Any) -> Tokenizer:
    backend = Tokenizer(models.Unigram(list(pieces), 2, **model))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoder
    return backend


@cache
def _pieces(byte_fallback: bool) -> tuple[tuple[str, float], ...]:
    def extract(file: str) -> tuple[tuple[str, float], ...]:
        extractor = SentencePieceExtractor(file)
        processor = extractor.sp
        return tuple(
            (processor.id_to_piece(i), processor.get_score(i))
            for i in range(processor.get_piece_size())
            if not processor.is_control(i) and not processor.is_unknown(i)
        )

    found = _with_sentencepiece_file(_sentencepiece_model("unigram", byte_fallback), extract)
    return (("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *found)


def t5() -> PreTrainedTokenizerBase:
    backend = _unigram(_pieces(False), decoders.Metaspace())
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def xlnet() -> PreTrainedTokenizerBase:
    """Its normalizer changes what users write: quotes, compatibility characters, case."""
    backend = _unigram(_pieces(False), decoders.Metaspace())
    backend.normalizer = normalizers.Sequence(
        [
            normalizers.Replace("``", '"'),
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(" {2,}"), " "),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>")


def unigram_byte_fallback() -> PreTrainedTokenizerBase:
    decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend = _unigram(_pieces(True), decoder, byte_fallback=True)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def duplicates() -> PreTrainedTokenizerBase:
    """Several ids for one string, and two tokens for one text: "<0x61>" and "a"."""
    pieces = [*_pieces(True), ("▁the", -1.0), ("a", -9.0), ("▁the", -2.0)]
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend = _unigram(pieces, decoder, byte_fallback=True)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


# --- others ---


def characters() -> PreTrainedTokenizerBase:
    """One token for each character, and a decoder that only joins them."""
    letters = sorted(set("".join(TEXTS)))
    backend = Tokenizer(
        models.BPE({"</s>": 0, "<unk>": 1} | {c: 2 + i for i, c in enumerate(letters)}, [], unk_token="<unk>")
    )
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")


def gaps() -> PreTrainedTokenizerBase:
    """Ids that no token has, in the middle and before the added tokens."""
    state = json.loads(gpt2().backend_tokenizer.to_str())
    vocab = state["model"]["vocab"]
    state["model"]["vocab"] = {token: token_id + 5 * (token_id > 300) for token, token_id in vocab.items()}
    state["added_tokens"] = [
        token | {"id": state["model"]["vocab"][token["content"]]} for token in state["added_tokens"]
    ]
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state)), eos_token="<|endoftext|>")


def with_added(loader: Loader, normalizer: Any = None) -> Loader:
    """The same with every kind of added token, and another normalizer."""

    def load() -> PreTrainedTokenizerBase:
        tokenizer = copy.deepcopy(loader())
        if normalizer is not None:
            tokenizer.backend_tokenizer.normalizer = normalizer
        tokenizer.add_tokens(list(ADDED))
        return tokenizer

    return load


ZOO: dict[str, Loader] = {
    "gpt2": gpt2,
    "gpt2, prefix space": gpt2_prefix_space,
    "llama3": llama3,
    "qwen": qwen,
    "tiktoken": tiktoken,
    "tekken": tekken,
    "llama2": llama2,
    "llama2, legacy": llama2_legacy,
    "llama2, no prefix space": llama2_without_prefix_space,
    "llama2, normalizer": llama2_normalizer,
    "gemma": gemma,
    "slow bpe": slow_bpe,
    "slow unigram": slow_unigram,
    "t5": t5,
    "xlnet": xlnet,
    "unigram, byte fallback": unigram_byte_fallback,
    "duplicates": duplicates,
    "characters": characters,
    "byt5": vocabularies.byt5,
    "gaps": gaps,
    "gpt2, added": with_added(gpt2),
    "gpt2, added, lower case": with_added(gpt2, normalizers.Lowercase()),
    "llama3, added": with_added(llama3),
    "gaps, added": with_added(gaps),
    "llama2, added": with_added(llama2),
    "llama2, normalizer, added": with_added(llama2_normalizer),
    "gemma, added": with_added(gemma),
    "t5, added": with_added(t5),
    "xlnet, added": with_added(xlnet),
    "characters, added": with_added(characters, normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])),
    "slow bpe, added": with_added(slow_bpe),
    "byt5, added": with_added(vocabularies.byt5),
}
"""Small ones; each loads in less than a second."""

LARGE: dict[str, Loader] = {
    "tekken, 131k": vocabularies.tekken,
    "fast tekken, 131k": vocabularies.fast_tekken,
    "sentencepiece, 32k": vocabularies.sentencepiece_32k,
    "fast sentencepiece, 32k": vocabularies.fast_sentencepiece_32k,
    "slow sentencepiece, 32k": vocabularies.slow_sentencepiece_32k,
}
"""Files of real models."""
