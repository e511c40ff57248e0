"""Caches of what was found out about trees, which may be large: all are emptied when many characters have been read.

A cache that counts its entries holds as many trees as it has entries. A pattern of 20,000 characters has a tree of two
megabytes, and thousands of different ones may come in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, TypeVar

MOST_CHARACTERS = 1_000_000  # of patterns and words until all is forgotten: about 100 megabytes of trees
_T = TypeVar("_T")
_caches: list[_lru_cache_wrapper[Any]] = []
_read = 0  # counted without a lock: it need not be exact


def tree_cache(maxsize: int) -> Callable[[Callable[..., _T]], _lru_cache_wrapper[_T]]:
    """As ``lru_cache``, for functions of trees, and of what trees are made of."""

    def decorated(function: Callable[..., _T]) -> _lru_cache_wrapper[_T]:
        cached = lru_cache(maxsize)(function)
        _caches.append(cached)
        return cached

    return decorated


def count_characters(number: int) -> None:
    """Count what a tree is made of; empties all caches now and then."""
    global _read
    _read += number
    if _read > MOST_CHARACTERS:
        _read = 0
        for cached in _caches:
            cached.cache_clear()
