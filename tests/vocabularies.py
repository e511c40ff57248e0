"""Real and tiny tokenizers, loaded once per test run and shared: do not change them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from transformers import PreTrainedTokenizerBase

TEXTS = (
    'The invoice {"number": 12, "total": 99.50} was paid on 2024-03-01.',
    "Anna Schmidt booked two rooms in Zürich, from Monday to Thursday.",
    "  Spaces,\ttabs\nand line ends\r\n count; naïve café, 東京, 😀.",
    "def f(x): return [x, x * 2, None, True, False]  # code",
) * 4


@cache
def tekken() -> PreTrainedTokenizerBase:
    """Tekken, 131,072 tokens, of which the first 1,000 are special."""
    return _mistral_common("tekken_240911.json")


@cache
def sentencepiece_32k() -> PreTrainedTokenizerBase:
    """SentencePiece BPE with byte fallback, 32,768 tokens, 748 control tokens."""
    return _mistral_common("mistral_instruct_tokenizer_241114.model.v7")


def mistral_common_file(name: str) -> str:
    import mistral_common

    return str(Path(mistral_common.__file__).parent / "data" / name)


def _mistral_common(name: str) -> PreTrainedTokenizerBase:
    from transformers.tokenization_mistral_common import MistralCommonBackend

    return MistralCommonBackend(mistral_common_file(name))


@cache
def fast_tekken() -> PreTrainedTokenizerBase:
    """The tokenizers library's byte-level BPE made from the Tekken file."""
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.mistral.tokenizer import MistralConverter

    backend = MistralConverter(mistral_common_file("tekken_240911.json")).converted()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


@cache
def fast_sentencepiece_32k() -> PreTrainedTokenizerBase:
    """The tokenizers library's Llama tokenizer made from a SentencePiece file (32,768 tokens)."""
    from transformers import LlamaTokenizerFast
    from transformers.tokenization_utils_sentencepiece import SentencePieceExtractor

    extractor = SentencePieceExtractor(mistral_common_file("mistral_instruct_tokenizer_241114.model.v7"))
    vocab, _, merges = extractor.extract()
    control = [extractor.sp.id_to_piece(i) for i in range(len(vocab)) if extractor.sp.is_control(i)]
    return LlamaTokenizerFast(vocab=vocab, merges=merges, additional_special_tokens=control)


@cache
def slow_sentencepiece_32k() -> PreTrainedTokenizerBase:
    """Transformers' slow tokenizer on a SentencePiece file."""
    from transformers.tokenization_utils_sentencepiece import SentencePieceBackend

    file = mistral_common_file("mistral_instruct_tokenizer_241114.model.v7")
    return SentencePieceBackend(vocab_file=file, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@cache
def tiny_byte_level() -> PreTrainedTokenizerBase:
    """Byte-level BPE of 400 tokens; "<tool>" is an added token that is text, "<|im_end|>" one that is not."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.add_tokens([AddedToken("<tool>", special=False), AddedToken("<|im_end|>", special=True)])
    return tokenizer


@cache
def tiny_unigram() -> PreTrainedTokenizerBase:
    """T5's kind: Unigram without byte fallback, so that "{" cannot be written."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import T5TokenizerFast

    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator([text.replace("{", "").replace("}", "") for text in TEXTS], trainer)
    vocab = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    return T5TokenizerFast(vocab=[(token, -float(i)) for token, i in vocab], extra_ids=10)


@cache
def byt5() -> PreTrainedTokenizerBase:
    """ByT5: three special tokens, 256 bytes, 125 sentinels."""
    from transformers import ByT5Tokenizer

    return ByT5Tokenizer()


@cache
def demo() -> PreTrainedTokenizerBase:
    """The tokenizer of the demo model, read without its weights."""
    from transformers import PreTrainedTokenizerFast

    from hf_guided import demo as package

    return PreTrainedTokenizerFast.from_pretrained(Path(package.__file__).parent / package.TOKENIZER_FOLDER)


VOCABULARIES: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "tekken": tekken,
    "sentencepiece": sentencepiece_32k,
    "demo": demo,
}
"""The three that the tests of generation modes use."""
