"""Retokenization: the tokens that a tokenizer writes for a text after a text that is already tokenized."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from .bitmask import WORD_BITS
from .tokens import Vocabulary

# This number of tokens before a text decides how the tokenizer cuts it: its rules look at words, not at pages.
_CONTEXT = 8
_REMEMBERED = 4096
_LONGEST = 512  # bytes; no token is as long


class Continuation:
    """Tokenizes text in the context of the tokens before it. The same few texts come again and again: remembered.

    Args:
        vocabulary: whose tokenizer writes.
    """

    def __init__(self, vocabulary: Vocabulary):
        self._vocabulary = vocabulary
        self._remembered = lru_cache(_REMEMBERED)(self._tokens_after)
        self.followers = lru_cache(_REMEMBERED)(self._followers)

    def __call__(self, before: Sequence[int], data: bytes) -> list[int]:
        """Tokens that join to exactly ``data``.

        Where the tokenizer ends a token between the two texts, the tokens are those that it writes for the whole;
        where it would join them in one token, those that it writes for ``data`` alone.

        Args:
            before: token ids in front; special tokens among them count for nothing.
            data: UTF-8, except that it may begin inside a character; not empty.

        Raises:
            UnwritableConstraint: no tokens of the vocabulary join to these bytes.
        """
        return list(self._remembered(self._context(before), data))

    def rewritten(self, before: Sequence[int], last: int, data: bytes) -> list[int] | None:
        """The tokens of ``last`` and ``data`` together, where the tokenizer would not have written ``last``; else None.

        Args:
            before: token ids before ``last``.
            last: a text token.
            data: as above.
        """
        piece = self._vocabulary.decode_bytes([last])
        whole = self._cut(self._context(before), piece + data)
        return None if whole is None or whole[0] == last else whole

    def _followers(self, data: bytes) -> frozenset[int]:
        """The bytes that come next in text tokens that begin with ``data`` and have more."""
        texts, _ = self._vocabulary.in_order
        index, end = bisect_right(texts, data), len(texts)
        following = []
        while index < end and texts[index].startswith(data):
            following.append(texts[index][len(data)])
            index = bisect_left(texts, data + bytes([following[-1]]) + b"\xff" * _LONGEST, lo=index)
        return frozenset(following)

    def leading_bytes(self, words: NDArray[np.int32]) -> frozenset[int]:
        """The bytes that allowed text tokens begin with.

        Where a byte has a token of its own, that token decides: no grammar allows longer ones without it.

        Args:
            words: (words,) int32, a bitmask row.
        """
        token_ids, their_bytes = self._single
        alone = (words[token_ids // WORD_BITS] >> token_ids % WORD_BITS & 1).astype(np.bool_)
        others = (byte for byte, starting in self._starting.items() if (words & starting).any())
        return frozenset((*their_bytes[alone].tolist(), *others))

    @cached_property
    def _single(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of one byte, and that byte."""
        its_bytes = sorted(self._vocabulary.writable_bytes)
        token_ids = [self._vocabulary.encode_bytes(bytes([byte]))[0] for byte in its_bytes]
        return np.array(token_ids, np.int64), np.array(its_bytes, np.int64)

    @cached_property
    def _starting(self) -> dict[int, NDArray[np.int32]]:
        """Bitmask rows of the tokens that begin with a byte, by each byte without a token of its own."""
        texts, _ = self._vocabulary.in_order
        others = {text[0] for text in texts if text} - self._vocabulary.writable_bytes
        return {byte: self._vocabulary.bitmask_of(self._vocabulary.starting_with(bytes([byte]))) for byte in others}

    def _context(self, before: Sequence[int]) -> bytes:
        return self._vocabulary.decode_bytes(before[-_CONTEXT:])

    def _tokens_after(self, context: bytes, data: bytes) -> tuple[int, ...]:
        token_ids = self._cut(context, data)
        if token_ids is None:
            token_ids = self._cut(b"", data)
        return tuple(self._vocabulary.encode_bytes(data) if token_ids is None else token_ids)

    def _cut(self, context: bytes, data: bytes) -> list[int] | None:
        """The tokenizer's tokens of ``context + data`` that are of ``data``; None if there is no such cut."""
        context = context[_inside_a_character(context) :]
        try:
            text = (context + data).decode()
        except UnicodeDecodeError:
            return None
        # Special tokens that the text only looks like are not text, so they fail below.
        token_ids = self._vocabulary.tokenizer(text, add_special_tokens=False)["input_ids"]
        missing = len(data)
        for index in range(len(token_ids) - 1, -1, -1):
            missing -= len(self._vocabulary.decode_bytes([token_ids[index]]))
            if missing == 0:
                cut: list[int] = list(token_ids[index:])
                return cut if self._vocabulary.decode_bytes(cut) == data else None
            if missing < 0:
                return None
        return None


def _inside_a_character(data: bytes) -> int:
    """Count the bytes at the beginning that continue a character that began before."""
    return next((i for i, byte in enumerate(data) if byte & 0xC0 != 0x80), len(data))
