"""Regular languages as trees: frozen, hashable, and simplified as they are built.

Build them with ``concat``, ``alt``, ``repeat``, ``both``, ``complement``, ``chars``, ``text``; these keep some forms:
``Nothing`` is always the whole tree, a ``Concat`` holds no ``Concat``, an ``Alt`` holds no ``Alt``, one ``Chars`` at
most and no ``Empty`` (that is a ``Repeat`` from 0 to 1), and so on. So equal languages often, not always, are equal
trees. Each node keeps its hash: trees share parts and are looked up a lot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, reduce
from operator import and_, attrgetter

from .charset import ALL, CharSet, count_characters, tree_cache

_WORD = 32  # characters of a text that is kept
_nullable = attrgetter("nullable")


class UnsupportedRegex(ValueError):
    """The pattern is well formed, but not regular, or we do not know how to write it.

    ``reason`` names the construct and what to do instead, ``position`` its index in the pattern; None if it has none.
    """

    def __init__(self, reason: str, position: int | None = None):
        super().__init__(reason if position is None else f"{reason} (at position {position})")
        self.position = position


class Node:
    """A set of strings. ``nullable`` says whether the empty string is one of them."""

    __slots__ = ("_hash", "_key", "nullable")
    nullable: bool

    def __init__(self, nullable: bool, *key: object):
        self.nullable = nullable
        self._key = key
        self._hash = hash((type(self).__name__, key))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or self._hash != other._hash:
            return False
        if self._key is not other._key:
            if self._key != other._key:
                return False
            other._key = self._key  # so that equal trees with thousands of nodes are compared once
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._key))})"


class Nothing(Node):
    """No string at all."""

    __slots__ = ()


class Empty(Node):
    """The empty string."""

    __slots__ = ()


class Chars(Node):
    """One character of a set, which is not empty."""

    __slots__ = ("charset",)

    def __init__(self, charset: CharSet):
        self.charset = charset
        super().__init__(False, charset)


class Parts(Node):
    """A node made of several others."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Node, ...]):
        self.parts = parts
        super().__init__((any if isinstance(self, Alt) else all)(map(_nullable, parts)), parts)


class Concat(Parts):
    """Strings of several nodes, one after another."""

    __slots__ = ()


class Alt(Parts):
    """Strings of any of several nodes."""

    __slots__ = ()


class And(Parts):
    """Strings that several nodes have in common."""

    __slots__ = ()


class Repeat(Node):
    """``body`` at least ``low`` times and at most ``high`` times; None is no bound."""

    __slots__ = ("body", "high", "low")

    def __init__(self, body: Node, low: int, high: int | None):
        self.body, self.low, self.high = body, low, high
        super().__init__(low == 0 or body.nullable, body, low, high)


class Not(Node):
    """Every string of Unicode characters that ``body`` does not have."""

    __slots__ = ("body",)

    def __init__(self, body: Node):
        self.body = body
        super().__init__(not body.nullable, body)


class AllBut(Not):
    """Every string of Unicode characters but one or more words: there may be hundreds, and no tree is needed."""

    __slots__ = ("_body", "words")

    def __init__(self, words: tuple[str, ...]):
        count_characters(sum(map(len, words)))
        self.words = words
        self._body: Node | None = None
        Node.__init__(self, "" not in words, words)

    @property
    def body(self) -> Node:  # type: ignore[override]
        """The words."""
        if self._body is None:
            self._body = alt(*map(text, self.words))
        return self._body


NOTHING = Nothing(False)
EMPTY = Empty(True)
ANYTHING = Repeat(Chars(ALL), 0, None)


def chars(charset: CharSet) -> Node:
    """One character of the set."""
    return Chars(charset) if charset else NOTHING


def text(value: str) -> Node:
    """Exactly this text."""
    count_characters(len(value))
    return _word(value) if len(value) <= _WORD else _text(value)


def _text(value: str) -> Node:
    return Concat(tuple(map(_character, value))) if len(value) > 1 else _character(value) if value else EMPTY


_word = lru_cache(maxsize=4096)(_text)  # the same names come in most schemas


@lru_cache(maxsize=4096)
def _character(character: str) -> Node:
    return Chars(CharSet.of(character))


def concat(*parts: Node) -> Node:
    """Write several nodes one after another."""
    flat: list[Node] = []
    for part in parts:
        for node in part.parts if isinstance(part, Concat) else (part,):
            kind = type(node)
            if kind is Nothing:
                return NOTHING
            if kind is Empty or (kind is Repeat and flat and _is_star(node) and flat[-1] == node):
                continue
            flat.append(node)
    if len(flat) < 2:
        return flat[0] if flat else EMPTY
    return Concat(tuple(flat))


def alt(*branches: Node) -> Node:
    """Take the strings of any of several nodes."""
    if len(branches) == 1:
        return branches[0]
    flat: dict[Node, None] = {}
    single, empty = CharSet(), False
    single_branch: Node | None = None  # the one Chars among the branches
    for branch in _flattened(branches):
        if isinstance(branch, Chars):
            if single_branch is None:
                single_branch = branch
                flat[branch] = None
            single |= branch.charset
        elif type(branch) is Empty:
            empty = True
        elif type(branch) is not Nothing:
            flat[branch] = None
    kept = [Chars(single) if branch is single_branch else branch for branch in flat]
    if ANYTHING in flat:
        return ANYTHING
    if not kept:
        return EMPTY if empty else NOTHING
    whole = kept[0] if len(kept) == 1 else Alt(tuple(kept))
    return repeat(whole, 0, 1) if empty and not whole.nullable else whole


def _flattened(branches: Iterable[Node]) -> Iterable[Node]:
    for branch in branches:
        if isinstance(branch, Alt):
            yield from branch.parts
        elif isinstance(branch, Repeat) and (branch.low, branch.high) == (0, 1):
            yield EMPTY
            yield from _flattened((branch.body,))
        else:
            yield branch


def repeat(body: Node, low: int = 0, high: int | None = None) -> Node:
    """``body`` again and again."""
    if high is not None and high < low:
        return NOTHING
    if high == 0 or body == EMPTY:
        return EMPTY
    if body == NOTHING:
        return EMPTY if low == 0 else NOTHING
    if low == high == 1 or ((low, high) == (0, 1) and body.nullable):
        return body
    if isinstance(body, Repeat):
        if body.high is None and body.low <= 1 and (high is None or body.low == 0):
            return repeat(body.body, low if body.low else 0, None)  # (x+)* is x*; (x*){3} is x*
        if (body.low, body.high) == (0, 1):
            return repeat(body.body, 0, high)
        if (low, high) == (0, 1) and body.low <= 1:
            return Repeat(body.body, 0, body.high)
    return Repeat(body, low, high)


def both(*parts: Node) -> Node:
    """Take the strings that several nodes have in common."""
    flat: dict[Node, None] = {}
    single: CharSet | None = None
    for part in (inner for given in parts for inner in (given.parts if isinstance(given, And) else (given,))):
        if isinstance(part, Chars):
            single = part.charset if single is None else single & part.charset
        elif part == NOTHING:
            return NOTHING
        elif part != ANYTHING:
            flat[part] = None
    if single is not None:
        flat[chars(single)] = None
    if NOTHING in flat or any([type(part) is Not and part.body in flat for part in flat]):
        return NOTHING
    if EMPTY in flat:
        return EMPTY if all(part.nullable for part in flat) else NOTHING
    if len(flat) < 2:
        return next(iter(flat), ANYTHING)
    return And(tuple(flat))


def complement(node: Node) -> Node:
    """Every string of Unicode characters that is not in ``node``."""
    if isinstance(node, Not):
        return node.body
    if node == NOTHING:
        return ANYTHING
    return NOTHING if node == ANYTHING else Not(node)


@tree_cache(maxsize=256)
def all_but(words: tuple[str, ...]) -> Node:
    """Every string of Unicode characters that is none of the words."""
    return AllBut(words) if words else ANYTHING


@tree_cache(maxsize=4096)
def is_plain(node: Node) -> bool:
    """Whether it holds no And and no Not; then only ``NOTHING`` has no string."""
    if isinstance(node, Parts):
        return not isinstance(node, And) and all(map(is_plain, node.parts))
    return is_plain(node.body) if isinstance(node, Repeat) else not isinstance(node, Not)


@tree_cache(maxsize=4096)
def characters(node: Node) -> int:
    """The number of characters in an expression, about, repetitions written out."""
    if isinstance(node, Parts):
        return sum(map(characters, node.parts))
    if isinstance(node, Repeat):
        return max(node.low, node.high or 1, 1) * characters(node.body)
    if isinstance(node, AllBut):
        return 1 + sum(map(len, node.words))
    return 1 + characters(node.body) if isinstance(node, Not) else 1


@tree_cache(maxsize=4096)
def alphabet(node: Node) -> CharSet:
    """Every character that occurs in a string of the language; maybe more where the tree has an And or a Not."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, Parts):
        sets = map(alphabet, node.parts)
        return reduce(and_, sets) if isinstance(node, And) else CharSet({pair for each in sets for pair in each.ranges})
    if isinstance(node, Repeat):
        return alphabet(node.body)
    return ALL if isinstance(node, Not) else CharSet()


def only_text(node: Node) -> str | None:
    """The text, if the language has exactly one, of one character or more, and is written as such."""
    kind = type(node)  # asked of every node of a language
    if kind is not Chars and kind is not Concat:
        return None
    codes = []
    for part in node.parts if isinstance(node, Concat) else (node,):
        if not isinstance(part, Chars):
            return None
        ranges = part.charset.ranges
        if len(ranges) != 1 or ranges[0][0] != ranges[0][1]:
            return None
        codes.append(ranges[0][0])
    return "".join(map(chr, codes))


def mapped(node: Node, spell: Callable[[CharSet], Node], again: Callable[[Node], Node]) -> Node:
    """A tree in which texts stand for characters; a complement is one among all texts that stand for strings.

    ``spell`` gives the texts of the characters of a set; ``again`` is this function for parts, with a cache.
    """
    if isinstance(node, Chars):
        return spell(node.charset)
    if isinstance(node, Parts):
        return JOIN[type(node)](*map(again, node.parts))
    if isinstance(node, Repeat):
        return repeat(again(node.body), node.low, node.high)
    if isinstance(node, Not):
        return both(repeat(spell(ALL)), complement(again(node.body)))
    return node


def only(node: Node, charset: CharSet) -> Node:
    """The strings of ``node`` that are made of these characters alone."""
    return mapped(node, lambda characters: chars(characters & charset), lambda part: only(part, charset))


def _is_star(node: Node) -> bool:
    return isinstance(node, Repeat) and node.low == 0 and node.high is None


JOIN: dict[type[Node], Callable[..., Node]] = {Concat: concat, Alt: alt, And: both}
"""The function that builds a node, by each kind that has parts."""
