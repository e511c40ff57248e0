"""A mask that is put together from parts: nodes of the trie are collected, and their tokens set all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .token_trie import TokenTrie


class MaskBuilder:
    """The mask of one call.

    Args:
        tokens: the vocabulary.
    """

    def __init__(self, tokens: TokenTrie):
        self._tokens = tokens
        self._words = np.zeros(tokens.size // 32, np.int32)
        self._forbidden: list[int] = []
        self._nodes: list[NDArray[np.integer[Any]]] = []  # to set each part's tokens takes longer than to collect it

    def add_nodes(self, nodes: NDArray[np.integer[Any]]) -> None:
        """Allow the tokens that end in these nodes (n,)."""
        self._nodes.append(nodes)

    def add_words(self, words: NDArray[np.int32]) -> None:
        """Allow the tokens of another mask (words,)."""
        np.bitwise_or(self._words, words, out=self._words)

    def add_token(self, token_id: int) -> None:
        """Allow one token."""
        self._words.view(np.uint32)[token_id >> 5] |= np.uint32(1 << (token_id & 31))

    def forbid_token(self, token_id: int) -> None:
        """Take back one token, whatever allows it."""
        self._forbidden.append(token_id)

    def words(self) -> NDArray[np.int32]:
        """(words,) int32, read-only: the mask; nothing is added after that."""
        if self._nodes:
            self._tokens.add_to(self._words, np.concatenate(self._nodes))
        for token_id in self._forbidden:
            self._words.view(np.uint32)[token_id >> 5] &= ~np.uint32(1 << (token_id & 31))
        self._words.flags.writeable = False
        return self._words
