"""The exact bytes of every token, read from the tokenizer's decoder.

One reader per kind of tokenizer, chosen by the tokenizer's components, never by the look of its vocabulary.
``None`` means a token that can never be typed inside text: special, control, unknown, unused, or without bytes.

A tokenizer's own treatment of the ends of a text is not part of any token: SentencePiece's "▁Hi" is ``b" Hi"`` here,
although decoding drops a space at the very start of a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenizers import AddedToken
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase

from ..errors import UnsupportedTokenizer

SPACE_MARK = "▁"
SUPPORTED = (
    "supported are byte-level BPE (GPT-2, Llama 3, Qwen ...), SentencePiece BPE and Unigram (Llama 2, Mistral, Gemma, "
    "T5 ...; fast, or slow with the package sentencepiece), Tekken (MistralCommonBackend) and ByT5"
)

TokenBytes = list[bytes | None]
_Decode = Callable[[str], bytes]


def read_token_bytes(tokenizer: PreTrainedTokenizerBase) -> TokenBytes:
    """The bytes of every token the tokenizer can emit, by id; None where a token is no text.

    Raises:
        UnsupportedTokenizer: a class whose tokens have no exact bytes, or one whose decoding is not understood.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        hint = (
            "; pass its .tokenizer"
            if isinstance(getattr(tokenizer, "tokenizer", None), PreTrainedTokenizerBase)
            else ""
        )
        raise UnsupportedTokenizer(f"expected a transformers tokenizer, got {type(tokenizer).__name__}{hint}")
    if getattr(tokenizer, "backend", None) == "mistral_common":
        known = _mistral_common(tokenizer)
    elif tokenizer.is_fast:
        known = _fast(tokenizer)
    elif isinstance(tokenizer, ByT5Tokenizer):
        known = _byt5(tokenizer)
    elif hasattr(tokenizer, "sp_model"):
        known = _slow_sentencepiece(tokenizer)
    else:
        raise _unsupported(tokenizer, "its tokens have no bytes that can be read exactly")
    for token_id in tokenizer.all_special_ids:
        known[token_id] = None
    # A token without bytes could be typed for ever without the text moving on.
    return [known.get(token_id) or None for token_id in range(max(known, default=-1) + 1)]


def added_token_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """The ids of tokens that were added to the tokenizer's own."""
    if getattr(tokenizer, "backend", None) == "mistral_common":  # takes none
        return frozenset()
    return frozenset(tokenizer.added_tokens_decoder)


def _unsupported(tokenizer: PreTrainedTokenizerBase, reason: str) -> UnsupportedTokenizer:
    return UnsupportedTokenizer(f"this {type(tokenizer).__name__} is not supported: {reason}; {SUPPORTED}")


# --- tokenizers library ("fast") ---


def _fast(tokenizer: PreTrainedTokenizerBase) -> dict[int, bytes | None]:
    backend = tokenizer.backend_tokenizer
    model = backend.model
    kind = type(model).__name__
    if kind == "WordPiece":
        raise _unsupported(tokenizer, "WordPiece tokens cannot give back the whitespace between words")
    if kind not in ("BPE", "Unigram"):
        raise _unsupported(tokenizer, f"a {kind} model splits text into words and drops what is between them")
    for option in ("continuing_subword_prefix", "end_of_word_suffix"):
        if getattr(model, option, None):
            raise _unsupported(tokenizer, f"its tokens mark words by {option} {getattr(model, option)!r}")
    stages = _stages(json.loads(backend.decoder.__getstate__())) if backend.decoder is not None else []
    try:
        decode = _compile_decoder(stages)
    except _NotUnderstood as refused:
        raise _unsupported(tokenizer, str(refused)) from None
    known: dict[int, bytes | None] = {}
    # By id: a Unigram model may have a token twice. Ids may have gaps, which are None.
    for token_id in range(max(backend.get_vocab().values(), default=-1) + 1):
        token = backend.id_to_token(token_id)
        known[token_id] = None if token is None else decode(token)
    for token_id, added in tokenizer.added_tokens_decoder.items():
        if added.special or not _comes_back(backend, added, known[token_id]):
            known[token_id] = None
    if (unknown := _unknown_id(backend)) is not None:
        known[unknown] = None
    return known


def _comes_back(backend: Any, added: AddedToken, decoded: bytes | None) -> bool:
    """Whether an added token's text is encoded as this token again.

    The tokenizers library matches an added "é" as it stands, but sends it through the decoder on the way back, which
    for a byte-level one gives a broken character. No bytes are right for such a token, so it is never typed. A
    normalized token matches, and decodes to, what the normalizer makes of it: an added "TOOL" may mean "tool".
    """
    try:
        text = (decoded or b"").decode()
    except UnicodeDecodeError:
        return False
    if not added.normalized or backend.normalizer is None:
        return text == added.content
    # A normalizer that puts a space before a text does so twice here.
    return bool(text) and backend.normalizer.normalize_str(added.content) in backend.normalizer.normalize_str(text)


def _unknown_id(backend: Any) -> int | None:
    """The model's token for unknown text; not every tokenizer lists it among its special ones."""
    if type(backend.model).__name__ == "Unigram":  # this model has it in its state only
        unknown: int | None = json.loads(backend.model.__getstate__())["unk_id"]
        return unknown
    return None if backend.model.unk_token is None else backend.model.token_to_id(backend.model.unk_token)


class _NotUnderstood(Exception):
    """A part of the decoder whose effect on a single token is not known."""


def _stages(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The decoder's steps, with nested sequences laid flat."""
    if state["type"] == "Sequence":
        return [stage for inner in state["decoders"] for stage in _stages(inner)]
    return [state]


def _compile_decoder(stages: Iterable[Mapping[str, Any]]) -> _Decode:
    """One function that applies the decoder's steps to a token, as in the middle of a text."""
    rewrites: list[Callable[[str], str]] = []
    finish: _Decode | None = None  # the step that turns a token into bytes
    fused = False
    for stage in stages:
        kind = stage["type"]
        if kind == "Fuse":
            fused = True
        elif kind == "Strip" and fused and not stage["stop"]:
            pass  # the start of a whole text, not of a token
        elif fused:
            raise _NotUnderstood(f"its decoder has a step {kind} that works on whole texts")
        elif kind == "ByteLevel":
            finish, fused = byte_level, True  # joins all tokens, as Fuse does
        elif kind == "ByteFallback" and finish is None:
            finish = _byte_fallback
        elif finish is not None:
            raise _NotUnderstood(f"its decoder has a step {kind} after the one that makes bytes")
        elif kind == "Metaspace":
            rewrites.append(_replacing(stage["replacement"], " "))
        elif kind == "Replace" and "String" in stage["pattern"]:
            rewrites.append(_replacing(stage["pattern"]["String"], stage["content"]))
        else:
            raise _NotUnderstood(f"its decoder has a step {kind} ({json.dumps(stage, ensure_ascii=False)})")
    if not rewrites and finish is None and not fused:  # the library then puts spaces between tokens
        raise _NotUnderstood("it has no decoder that says how tokens join to a text")
    to_bytes = finish or _without_byte_tokens

    def decode(token: str) -> bytes:
        for rewrite in rewrites:
            token = rewrite(token)
        return to_bytes(token)

    return decode


def _replacing(old: str, new: str) -> Callable[[str], str]:
    return lambda token: token.replace(old, new)


def _without_byte_tokens(token: str) -> bytes:
    # A fast T5 made from a model with byte fallback still lists <0x0A>, but neither encodes nor decodes with it.
    return b"" if len(token) == 6 and _BYTE_TOKEN.fullmatch(token) else token.encode()


def _byte_fallback(token: str) -> bytes:
    if len(token) == 6 and (match := _BYTE_TOKEN.fullmatch(token)):
        return bytes([int(match[1], 16)])
    return token.encode()


_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def _byte_level_table() -> dict[int, int]:
    """GPT-2's alphabet, backwards: character -> byte; other characters below 256 -> one that Latin-1 has not."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = dict.fromkeys(range(256), 0xFFFF) | {byte: byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    return table | {256 + index: byte for index, byte in enumerate(others)}


_BYTE_LEVEL = _byte_level_table()


def byte_level(token: str) -> bytes:
    """GPT-2's decoding of one token; one with a character outside the alphabet is taken literally, as a whole."""
    try:
        return token.translate(_BYTE_LEVEL).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode()


# --- transformers' MistralCommonBackend ---


def _mistral_common(tokenizer: PreTrainedTokenizerBase) -> dict[int, bytes | None]:
    inner = tokenizer.tokenizer.instruct_tokenizer.tokenizer
    if hasattr(inner, "id_to_byte_piece"):  # Tekken
        # Special tokens come first and give b"" here; ordinary ids are shifted past all of them.
        return {token_id: inner.id_to_byte_piece(token_id) for token_id in range(inner.n_words)}
    return {token_id: _piece_bytes(inner._model, token_id) for token_id in range(inner.n_words)}


# --- transformers' slow tokenizers ---


def _added(tokenizer: PreTrainedTokenizerBase) -> dict[int, bytes | None]:
    return {
        token_id: None if token.special else token.content.encode()
        for token_id, token in tokenizer.added_tokens_decoder.items()
    }


def _piece_bytes(model: Any, piece_id: int) -> bytes | None:
    if model.is_control(piece_id) or model.is_unknown(piece_id) or model.is_unused(piece_id):
        return None
    piece: str = model.id_to_piece(piece_id)
    return bytes([int(piece[3:5], 16)]) if model.is_byte(piece_id) else piece.replace(SPACE_MARK, " ").encode()


def _slow_sentencepiece(tokenizer: PreTrainedTokenizerBase) -> dict[int, bytes | None]:
    model = tokenizer.sp_model
    known: dict[int, bytes | None] = {}
    texts: list[str] = []
    for token_id in range(tokenizer.vocab_size):
        # Through the piece: a class may shift the model's ids, or keep a word list of its own.
        piece = tokenizer.convert_ids_to_tokens(token_id)
        piece_id = model.piece_to_id(piece)
        known[token_id] = _piece_bytes(model, piece_id) if model.id_to_piece(piece_id) == piece else None
        if (
            known[token_id] is not None
            and not model.is_byte(piece_id)
            and token_id not in tokenizer.added_tokens_decoder
        ):
            texts.append(piece)
    # Some classes spell spaces and line ends differently when they decode.
    joined = "".join(texts).replace(SPACE_MARK, " ")
    decoded = tokenizer.convert_tokens_to_string(texts)
    if decoded.strip() != joined.strip():
        raise _unsupported(tokenizer, "it does not decode SentencePiece pieces as SentencePiece does")
    return known | _added(tokenizer)


def _byt5(tokenizer: PreTrainedTokenizerBase) -> dict[int, bytes | None]:
    known: dict[int, bytes | None] = {tokenizer.offset + byte: bytes([byte]) for byte in range(256)}
    return known | _added(tokenizer)
