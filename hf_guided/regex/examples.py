"""Strings that surely are, or surely are not, in all of some languages: cheaper to try than a search (empty.py).

A language of few strings is read string by string. Of any other plain language a few strings are made, alone and one
after another, as long as a length wants them: patterns that match anywhere in a string all match such a chain. The
characters that its strings begin with tell that two languages have no string in common.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from .ast import (
    AllBut,
    Alt,
    And,
    Chars,
    Concat,
    Empty,
    Node,
    Not,
    Repeat,
    all_but,
    alt,
    both,
    complement,
    is_plain,
    only_text,
)
from .caches import tree_cache
from .charset import ALL, CharSet
from .match import matches

TURNS = 4  # strings that are made of each language
MAX_LENGTH = 200  # of a string that is made
MAX_FEW = 64  # strings of a language whose strings are listed
MAX_CHARACTERS = 10_000  # of those together
MAX_HEADS = 32  # first characters
MAX_BRANCHES = 256  # whose first characters are put together
PER_VISIT = 1000  # nodes of a tree times characters of a text: a few are looked at, as long as one node of a search
_USUAL = "a0A_"  # allowed by most patterns


def verdict(parts: tuple[Node, ...], most: int) -> tuple[bool | None, int]:
    """Whether no string is in all languages, None if that takes a search; and how much work that was.

    Args:
        parts: the languages.
        most: the greatest amount of work, in nodes of a search.
    """
    positive = [part for part in parts if is_plain(part)]
    if any(_are_apart(_heads(first), _heads(second)) for first, second in combinations(positive, 2)):
        return True, 0
    smallest = min(filter(few, positive), key=lambda part: len(few(part) or ()), default=None)
    listed = None if smallest is None else few(smallest)
    others = [part for part in parts if part is not smallest]
    others.sort(key=lambda part: isinstance(part, Not))  # a string is seldom in another language, and seldom excluded
    weight, work = sum(map(_weight, others)), 0
    for text in dict.fromkeys(_made(positive)) if listed is None else listed:
        once = 1 + weight * (8 + len(text)) // PER_VISIT
        if work + once > most:
            return None, work
        work += once
        if all(_has(part, text) for part in others):
            return False, work
    return (True if listed is not None else None), work


def begin_apart(first: Node, second: Node) -> bool:
    """Whether two languages surely have no string in common, since their strings begin differently."""
    return is_plain(first) and is_plain(second) and _are_apart(_heads(first), _heads(second))


def without_needless(node: Node) -> Node:
    """The same language; an intersection excludes only strings that its plain languages may have.

    The names of one kind match its pattern, and exclude all listed names and the patterns of other kinds: most of
    these have other first characters.
    """
    plain = [part for part in node.parts if is_plain(part)] if isinstance(node, And) else []
    if not isinstance(node, And) or not plain:
        return node
    heads = list(map(_heads, plain))
    return both(*(_needed(part, heads) if isinstance(part, Not) else part for part in node.parts))


def _needed(part: Not, heads: list[tuple[CharSet, ...]]) -> Node:
    """What a part excludes of languages whose strings begin so."""
    if isinstance(part, AllBut):
        return all_but(tuple(word for word in part.words if all(_may_begin(word, ours) for ours in heads)))
    branches = part.body.branches if isinstance(part.body, Alt) else (part.body,)
    if not all(map(is_plain, branches)):
        return part
    kept = [branch for branch in branches if not any(_are_apart(ours, _heads(branch)) for ours in heads)]
    return part if len(kept) == len(branches) else complement(alt(*kept))


# -- strings -----------------------------------------------------------------------------------------------------------


@tree_cache(maxsize=4096)
def few(node: Node) -> tuple[str, ...] | None:
    """The strings of a plain language, each once; None if they are not few."""
    if isinstance(node, Chars):
        return tuple(node.charset) if len(node.charset) <= MAX_FEW else None
    if isinstance(node, Concat):
        return _few_in_a_row(node.parts)
    if isinstance(node, Alt):
        found: dict[str, None] = {}
        for branch in node.branches if len(node.branches) <= MAX_FEW else ():
            branch_texts = few(branch)
            if branch_texts is None or len(found) + len(branch_texts) > MAX_FEW:
                return None
            found.update(dict.fromkeys(branch_texts))
        return tuple(found) or None
    if isinstance(node, Repeat):
        if node.high is None or node.high > MAX_HEADS:
            return None
        more = _few_in_a_row((node.body,) * node.low)
        texts = dict.fromkeys(more or ())
        for times in range(node.low + 1, node.high + 1):
            if more is None or len(texts) > MAX_FEW:
                return None
            more = _few_in_a_row((node.body,) * times)
            texts.update(dict.fromkeys(more or ()))
        return tuple(texts) if more is not None and len(texts) <= MAX_FEW else None
    return ("",) if isinstance(node, Empty) else None


def _few_in_a_row(parts: tuple[Node, ...]) -> tuple[str, ...] | None:
    texts: tuple[str, ...] = ("",)
    row: list[str] = []  # what comes after all of them: mostly letters side by side
    for part in (*parts, None):
        part_texts = ("",) if part is None else few(part)
        if part_texts is None or len(texts) * len(part_texts) > MAX_FEW:
            return None
        if len(part_texts) == 1 and part is not None:
            row += part_texts
            continue
        between = "".join(row)
        row.clear()
        if sum(map(len, texts)) + len(texts) * len(between) > MAX_CHARACTERS:
            return None
        texts = tuple(dict.fromkeys(first + between + last for first in texts for last in part_texts))
    return texts if sum(map(len, texts)) <= MAX_CHARACTERS else None


def _made(languages: list[Node]) -> Iterator[str]:
    """Strings that may be in all of some plain languages."""
    least = max((part.low for part in languages if isinstance(part, Repeat) and _is_length(part)), default=0)
    wanted = [part for part in languages if not _is_length(part)]
    for turn in range(TURNS):
        texts = [text for part in wanted if (text := _string(part, turn)) is not None]
        for text in texts if len(texts) == 1 else (*texts, "".join(texts)):
            yield text.ljust(least, _USUAL[turn]) if least <= MAX_LENGTH else text
    if not wanted and least <= MAX_LENGTH:
        yield from (character * max(least, 1) for character in _USUAL)


def _is_length(node: Node) -> bool:
    return isinstance(node, Repeat) and isinstance(node.body, Chars) and node.body.charset == ALL


@tree_cache(maxsize=4096)
def _string(node: Node, turn: int) -> str | None:
    """A string of a plain language, another one each turn where that is easy; None if it would be long."""
    if isinstance(node, Chars):
        usual = (_USUAL[turn:] + _USUAL[:turn]) if turn else _USUAL
        return next((character for character in usual if character in node.charset), None) or next(iter(node.charset))
    if isinstance(node, Alt):
        return _string(node.branches[turn % len(node.branches)], turn)
    if isinstance(node, Repeat):
        times = max(node.low, turn if node.high is None else min(turn, node.high))
        body = _string(node.body, turn) if times else ""
        return None if body is None or len(body) * times > MAX_LENGTH else body * times
    strings = []
    for part in node.parts if isinstance(node, Concat) else ():
        if (string := _string(part, turn)) is None:
            return None
        strings.append(string)
    text = "".join(strings)
    return text if len(text) <= MAX_LENGTH else None


# -- whether a string is in a language ---------------------------------------------------------------------------------


def _has(node: Node, text: str) -> bool:
    if isinstance(node, AllBut):
        return text not in node.words
    if isinstance(node, Not):
        return not _has(node.body, text)
    words = _words(node) if isinstance(node, Alt) else None
    return matches(node, text) if words is None else text in words


@tree_cache(maxsize=256)
def _words(node: Alt) -> frozenset[str] | None:
    """The branches, if each is exactly one string."""
    words = []
    for branch in node.branches:
        word = only_text(branch)
        if word is None:
            return None
        words.append(word)
    return frozenset(words)


@tree_cache(maxsize=4096)
def _weight(node: Node) -> int:
    """How many nodes are looked at where a text is matched."""
    if isinstance(node, Concat | And):
        return 1 + sum(map(_weight, node.parts))
    if isinstance(node, Alt):
        return 1 + (0 if _words(node) is not None else sum(map(_weight, node.branches)))
    if isinstance(node, Repeat):
        return 1 + max(1, min(node.low, MAX_LENGTH)) * _weight(node.body)
    return 1 + (_weight(node.body) if isinstance(node, Not) and not isinstance(node, AllBut) else 0)


# -- what strings begin with -------------------------------------------------------------------------------------------


@tree_cache(maxsize=4096)
def _heads(node: Node) -> tuple[CharSet, ...]:
    """Sets that the first characters of all strings of a plain language are in; no string is shorter."""
    return _begin(node)[0]


def _are_apart(first: tuple[CharSet, ...], second: tuple[CharSet, ...]) -> bool:
    return any(ours.isdisjoint(theirs) for ours, theirs in zip(first, second, strict=False))


def _may_begin(word: str, heads: tuple[CharSet, ...]) -> bool:
    for character, charset in zip(word, heads, strict=False):  # most end at the first one
        if character not in charset:
            return False
    return True


@tree_cache(maxsize=4096)
def _begin(node: Node) -> tuple[tuple[CharSet, ...], bool]:
    """As ``_heads``, and whether these are all characters of each string."""
    if isinstance(node, Chars):
        return (node.charset,), True
    if isinstance(node, Repeat):
        parts = (node.body,) * min(node.low, MAX_HEADS)
        is_all = node.high == node.low <= MAX_HEADS
    elif isinstance(node, Alt):
        if len(node.branches) > MAX_BRANCHES:
            return (), False
        begins = list(map(_begin, node.branches))
        heads = tuple(_union(charsets) for charsets in zip(*(heads for heads, _ in begins), strict=False))
        return heads, all(is_all and len(own) == len(heads) for own, is_all in begins)
    else:
        parts, is_all = node.parts if isinstance(node, Concat) else (), True
    found: tuple[CharSet, ...] = ()
    for part in parts:
        heads, ends = _begin(part)
        found += heads
        if not ends or len(found) > MAX_HEADS:
            return found[:MAX_HEADS], False
    return found, is_all


def _union(charsets: tuple[CharSet, ...]) -> CharSet:
    return CharSet(range_ for charset in dict.fromkeys(charsets) for range_ in charset.ranges)
