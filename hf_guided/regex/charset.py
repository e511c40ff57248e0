"""Sets of characters, as sorted ranges; and the caches of what was found out about sets and trees.

Trees may be large, so all caches are emptied when many characters have been read. A cache that counts its entries holds
as many trees as it has entries. A pattern of 20,000 characters has a tree of two megabytes, and thousands of different
ones may come in one process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import _lru_cache_wrapper, lru_cache
from typing import Any, TypeVar

Range = tuple[int, int]

SURROGATES: Range = (0xD800, 0xDFFF)
LAST = 0x10FFFF
# Maximum number of characters of patterns and words until the caches are emptied: about 100 megabytes of trees.
MOST_CHARACTERS = 1_000_000
_T = TypeVar("_T")
_caches: list[_lru_cache_wrapper[Any]] = []
_read = 0  # counted without a lock: it need not be exact


def tree_cache(maxsize: int) -> Callable[[Callable[..., _T]], _lru_cache_wrapper[_T]]:
    """A ``lru_cache`` for functions of trees and of their parts."""

    def decorated(function: Callable[..., _T]) -> _lru_cache_wrapper[_T]:
        cached = lru_cache(maxsize)(function)
        _caches.append(cached)
        return cached

    return decorated


def count_characters(number: int) -> None:
    """Count the characters of a tree; empties all caches now and then."""
    global _read
    _read += number
    if _read > MOST_CHARACTERS:
        _read = 0
        for cached in _caches:
            cached.cache_clear()


class CharSet:
    """An immutable set of Unicode scalar values, without surrogates; made of ranges that may overlap, in any order."""

    __slots__ = ("_firsts", "_hash", "ranges")
    ranges: tuple[Range, ...]

    def __init__(self, ranges: Iterable[Range] = ()):
        self._keep(_without_surrogates(_merged(ranges)))

    def _keep(self, ranges: Iterable[Range]) -> None:
        self.ranges = tuple(ranges)
        self._firsts: list[int] | None = None  # made when first looked into
        self._hash = hash(self.ranges)

    @classmethod
    def _of(cls, ranges: Iterable[Range]) -> CharSet:
        made = cls.__new__(cls)
        made._keep(ranges)
        return made

    @classmethod
    def of(cls, characters: str) -> CharSet:
        """The characters of a text."""
        return cls((ord(character), ord(character)) for character in characters)

    def __contains__(self, character: str) -> bool:
        if self._firsts is None:
            self._firsts = [first for first, _ in self.ranges]
        code = ord(character)
        index = bisect_right(self._firsts, code) - 1
        return index >= 0 and code <= self.ranges[index][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __iter__(self) -> Iterator[str]:
        return (chr(code) for first, last in self.ranges for code in range(first, last + 1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharSet) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"CharSet({', '.join(f'{first:x}-{last:x}' for first, last in self.ranges)})"

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet((*self.ranges, *other.ranges))

    def __and__(self, other: CharSet) -> CharSet:
        return _intersection(self, other)

    def isdisjoint(self, other: CharSet) -> bool:
        """Whether no character is in both."""
        ours, theirs = self.ranges, other.ranges
        i = j = 0
        while i < len(ours) and j < len(theirs):
            if ours[i][1] < theirs[j][0]:
                i += 1
            elif theirs[j][1] < ours[i][0]:
                j += 1
            else:
                return False
        return True

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other

    def __invert__(self) -> CharSet:
        edges = [-1, *(edge for range_ in self.ranges for edge in range_), LAST + 1]
        gaps = ((edges[i] + 1, edges[i + 1] - 1) for i in range(0, len(edges), 2))
        return CharSet._of(_without_surrogates(gap for gap in gaps if gap[0] <= gap[1]))


@tree_cache(maxsize=1024)  # the same few again and again: those of \w have 770 ranges
def _intersection(first: CharSet, second: CharSet) -> CharSet:
    ours, theirs = first.ranges, second.ranges
    common = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        low, high = max(ours[i][0], theirs[j][0]), min(ours[i][1], theirs[j][1])
        if low <= high:
            common.append((low, high))
        if ours[i][1] < theirs[j][1]:
            i += 1
        else:
            j += 1
    return CharSet._of(common)


def _merged(ranges: Iterable[Range]) -> Iterator[Range]:
    start, end = 0, -1
    for first, last in sorted(ranges):
        if first > end + 1:
            if start <= end:
                yield start, end
            start, end = first, last
        else:
            end = max(end, last)
    if start <= end:
        yield start, end


def _without_surrogates(ranges: Iterable[Range]) -> Iterator[Range]:
    for first, last in ranges:
        if first < SURROGATES[0]:
            yield first, min(last, SURROGATES[0] - 1)
        if last > SURROGATES[1]:
            yield max(first, SURROGATES[1] + 1), last


ALL = CharSet([(0, LAST)])
