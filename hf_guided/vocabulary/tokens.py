"""A tokenizer and a model's logits width, as plain data: bytes of every token, stop tokens, which ids are text."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgument, StopTokenError, UnwritableConstraint, VocabularySizeError
from .layout import WORD_BITS, words

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The facts about a tokenizer that engines need; immutable, shared by threads.

    Args:
        token_bytes: one entry per id the tokenizer knows and the model has logits for; None = can never be typed inside
            text (special, control, unused, without bytes, or a stop token).
        stop_token_ids: sorted, at least one.
        padded_size: width of the model's logits, at least ``len(token_bytes)``.
        tokenizer: the transformers tokenizer read, for chat templates and error texts.
        num_surplus: ids from ``padded_size`` on that the tokenizer knows. The model can write none of them.
        marks: the vocabulary that this one is but for some tokens, and their bytes here; see ``with_text``.
    """

    token_bytes: tuple[bytes | None, ...] = field(repr=False)
    stop_token_ids: tuple[int, ...]
    padded_size: int
    tokenizer: Any = field(repr=False)
    num_surplus: int = 0
    marks: tuple[Vocabulary, Mapping[int, bytes]] | None = field(default=None, repr=False)

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        *,
        padded_size: int | None = None,
        stop_token_ids: Iterable[int] = (),
    ) -> Vocabulary:
        """Read a tokenizer.

        Checkpoints often have special tokens that were added to the tokenizer alone. The model has no logits for them
        and cannot write them, so they are left out, as are added tokens that are text.

        Args:
            tokenizer: a byte-level BPE, SentencePiece, Tekken, Unigram or ByT5 tokenizer of transformers.
            padded_size: width of the model's logits; None means as many as the tokenizer has tokens.
            stop_token_ids: stop tokens in addition to the tokenizer's EOS (those of the generation config).

        Raises:
            UnsupportedTokenizer: its tokens have no exact bytes.
            VocabularySizeError: it has text tokens of its own, not added ones, that the logits have no column for: it
                belongs to another model.
            StopTokenError: the model can write no stop token, or one is unknown to the tokenizer and the model.
        """
        from .token_bytes import added_token_ids, read_token_bytes  # transformers, which compiling does without

        token_bytes = read_token_bytes(tokenizer)
        name = type(tokenizer).__name__
        size = len(token_bytes) if padded_size is None else int(padded_size)
        added = added_token_ids(tokenizer)
        missing = [i for i in range(size, len(token_bytes)) if token_bytes[i] is not None and i not in added]
        if missing:
            raise VocabularySizeError(
                f"{name} has {len(token_bytes)} tokens, the model's logits have {size} columns: there is none for "
                f"{len(missing)} text tokens, such as {_show(token_bytes[missing[0]] or b'')}; pass the tokenizer that "
                f"belongs to the model, or call model.resize_token_embeddings({len(token_bytes)}) and train it"
            )
        eos = tokenizer.eos_token_id
        given = {int(token_id) for token_id in stop_token_ids} | (set() if eos is None else {int(eos)})
        if not given:
            raise StopTokenError(
                f"{name} has no EOS token, so no output could ever end; set tokenizer.eos_token, or eos_token_id in "
                "the model's generation_config"
            )
        without_stops = cls((), (), size, tokenizer, num_surplus=max(len(token_bytes) - size, 0))
        stops = without_stops.stops_with_logits(given)
        texts = (None if token_id in stops else data for token_id, data in enumerate(token_bytes[:size]))
        return replace(without_stops, token_bytes=tuple(texts), stop_token_ids=stops)

    def stops_with_logits(self, stop_token_ids: Iterable[int]) -> tuple[int, ...]:
        """Sort stop tokens, and leave out those that the tokenizer knows and the model has no logits for.

        Args:
            stop_token_ids: one or more.

        Raises:
            StopTokenError: none is left, or one is unknown to both.
        """
        given = sorted({int(token_id) for token_id in stop_token_ids})
        stops = tuple(token_id for token_id in given if token_id < self.padded_size)
        known = self.padded_size + (self.num_surplus if stops else 0)
        outside = [token_id for token_id in given if not 0 <= token_id < known]
        if outside:
            raise StopTokenError(
                f"stop token {outside[0]} is outside the model's logits, which have {self.padded_size} columns, so the "
                "model cannot write it; correct eos_token_id in the generation_config, or pass the tokenizer that "
                "belongs to the model"
            )
        return stops

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over token bytes, stop tokens and padded size: the same for vocabularies that compile alike."""
        lengths = np.fromiter((-1 if data is None else len(data) for data in self.token_bytes), "<i4")
        digest = hashlib.sha256(f"{self.padded_size} {self.stop_token_ids} {len(lengths)} ".encode())
        digest.update(lengths.tobytes())
        digest.update(b"".join(data for data in self.token_bytes if data is not None))
        return digest.hexdigest()

    @cached_property
    def text_words(self) -> NDArray[np.int32]:
        """(words,) int32, read-only: 1 where the token may be typed; stop tokens are 0."""
        return self.bitmask_of(np.flatnonzero([data is not None for data in self.token_bytes]))

    @cached_property
    def writable_bytes(self) -> frozenset[int]:
        """The bytes that a text token of just that byte exists for."""
        return frozenset(data[0] for data in self.token_bytes if data is not None and len(data) == 1)

    def is_text(self, token_id: int) -> bool:
        """Whether the token may be typed inside text; False for any int outside the vocabulary."""
        return 0 <= token_id < len(self.token_bytes) and self.token_bytes[token_id] is not None

    def some_text(self, number: int) -> list[int]:
        """Choose any ``number`` of text tokens; repeated where the vocabulary has fewer."""
        texts = (token_id for token_id, data in enumerate(self.token_bytes) if data is not None)
        return list(islice(cycle(texts), number))

    def bitmask_of(self, token_ids: Iterable[int] | NDArray[np.int64]) -> NDArray[np.int32]:
        """A bitmask row of these tokens.

        Args:
            token_ids: each at least 0 and below ``padded_size``.

        Returns:
            (words,) int32, read-only.

        Raises:
            InvalidArgument: an id is outside.
        """
        ids = token_ids if isinstance(token_ids, np.ndarray) else np.fromiter(token_ids, np.int64)
        outside = ids[(ids < 0) | (ids >= self.padded_size)]
        if len(outside):
            raise InvalidArgument(
                f"token {outside[0]} is outside the model's logits, which have {self.padded_size} columns"
            )
        bits = np.zeros(words(self.padded_size) * WORD_BITS, np.bool_)
        bits[ids] = True
        row = np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)
        row.flags.writeable = False
        return row

    def decode_bytes(self, token_ids: Iterable[int]) -> bytes:
        """The text of the tokens; tokens that are no text give nothing."""
        return b"".join(self.token_bytes[token_id] or b"" for token_id in token_ids if self.is_text(token_id))

    def encode_bytes(self, data: bytes) -> list[int]:
        """Text tokens that join to exactly these bytes, each the longest that leaves a rest which can be written.

        This is not the tokenizer's own tokenization; it exists for any bytes, and needs no text around them.

        Raises:
            UnwritableConstraint: no tokens of this vocabulary join to these bytes; names the characters.
        """
        path = self._longest_path(data)
        if path is None:
            # Lone bytes (text that is no UTF-8) travel through the str as surrogates.
            characters = sorted(set(data.decode("utf-8", "surrogateescape")))
            missing = [
                raw for raw in (c.encode("utf-8", "surrogateescape") for c in characters) if not self._writes(raw)
            ]
            raise UnwritableConstraint(
                f"{type(self.tokenizer).__name__} has no tokens that write {', '.join(map(_show, missing))}; "
                "change the constraint so that it can be met without them, or use a model with another tokenizer"
            )
        return path

    @cached_property
    def in_order(self) -> tuple[list[bytes], list[int]]:
        """All text tokens' bytes, sorted, and their ids."""
        ordered = sorted((data, token_id) for token_id, data in enumerate(self.token_bytes) if data is not None)
        return [data for data, _ in ordered], [token_id for _, token_id in ordered]

    def starting_with(self, data: bytes) -> list[int]:
        """The text tokens whose bytes begin with ``data``."""
        texts, ids = self.in_order
        first = bisect_left(texts, data)
        return ids[first : bisect_left(texts, True, lo=first, key=lambda text: not text.startswith(data))]

    def token_text(self, token_id: int) -> str:
        r"""The token as an error message shows it: ``' Hi'``, ``b'\xf0\x9f'``, ``</s>`` or ``<token 7>``."""
        if self.is_text(token_id):
            return _show(self.token_bytes[token_id] or b"")
        if 0 <= token_id < len(self.token_bytes):
            try:
                return str(self.tokenizer.convert_ids_to_tokens(int(token_id)) or f"<token {token_id}>")
            except Exception:  # some tokenizers raise arbitrary errors for a reserved id
                pass
        return f"<token {token_id}>"

    def id_of(self, name: str) -> int | None:
        """The token whose text, or whose name where it is not text, is this; None if there is none."""
        token_id = self._ids_by_bytes.get(name.encode())
        if token_id is None:
            token_id = next((other for other, known in self._other_names if known == name), None)
        return token_id

    def special_in(self, texts: Iterable[str]) -> dict[int, bytes]:
        """The tokens that are not text but occur in these texts by name (``<|tool_call_begin|>``), and their names."""
        texts = list(texts)
        together = "\0".join(texts)  # thousands of names, each looked for once
        found = {token_id: name for token_id, name in self._other_names if len(name) > 1 and name in together}
        return {token_id: name.encode() for token_id, name in found.items() if any(name in text for text in texts)}

    @cached_property
    def _other_names(self) -> list[tuple[int, str]]:
        """The tokens that are not text, and their names."""
        return [(token_id, self.token_text(token_id)) for token_id, data in enumerate(self.token_bytes) if data is None]

    def with_text(self, names: Mapping[int, bytes]) -> Vocabulary:
        """Make a vocabulary like this one in which some tokens that are not text are text."""
        token_bytes = list(self.token_bytes)
        for token_id, data in names.items():
            token_bytes[token_id] = data
        return replace(self, token_bytes=tuple(token_bytes), marks=(self, dict(names)))

    @cached_property
    def _ids_by_bytes(self) -> dict[bytes, int]:
        # The last of several tokens with the same bytes stays: SentencePiece's byte tokens come before its pieces, and
        # the tokenizer writes "A" with the piece; added tokens come last, and win when the tokenizer encodes.
        return {data: token_id for token_id, data in enumerate(self.token_bytes) if data is not None}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids_by_bytes), default=0)

    def _writes(self, data: bytes) -> bool:
        return self._longest_path(data) is not None

    def _longest_path(self, data: bytes) -> list[int] | None:
        ids = self._ids_by_bytes
        end = len(data)
        steps = [0] * end + [-1]  # length of the token that starts here; 0 = the rest cannot be written
        for start in range(end - 1, -1, -1):
            for length in range(min(self._longest, end - start), 0, -1):
                if steps[start + length] and data[start : start + length] in ids:
                    steps[start] = length
                    break
        path: list[int] = []
        start = 0
        while start < end:
            if not steps[start]:
                return None
            path.append(ids[data[start : start + steps[start]]])
            start += steps[start]
        return path


@lru_cache(maxsize=1)
def single_bytes() -> Vocabulary:
    """The 256 bytes and a stop token."""
    tokens = (*(bytes([byte]) for byte in range(256)), None)
    # No tokenizer: there is no chat template and no error text.
    return Vocabulary(token_bytes=tokens, stop_token_ids=(256,), padded_size=257, tokenizer=None)


def _show(data: bytes) -> str:
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)
