"""From a pattern to the language it means, exactly or not at all."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import reduce
from itertools import product
from operator import ne

from .assertions import Branch, Edge, Look, Piece, language
from .ast import (
    ANYTHING,
    JOIN,
    Alt,
    Chars,
    Concat,
    Node,
    Not,
    Parts,
    Repeat,
    UnsupportedRegex,
    alt,
    both,
    chars,
    complement,
    concat,
    repeat,
)
from .charset import count_characters, tree_cache
from .dialect import (
    MULTI_LINE,
    NEWLINE,
    Dialect,
    PatternSyntaxError,
    Token,
    back_reference,
    changed,
    without_verbose_mode,
)
from .stored import stored

MAX_DEPTH = 50  # maximum nesting of groups: each costs several frames here, and Python allows a thousand
MAX_BRANCHES = 64  # maximum number of branches where alternatives with assertions follow one another
# Maximum numbers of characters in a pattern, and of those that mean more than themselves: about a second's work.
MAX_LENGTH = 500_000
MAX_SIGNS = 30_000
_SPECIAL = re.compile(r"[\\\[(){*+?^$.]")
_PYTHON, _PYTHON_IN_SCHEMA = Dialect(ecma=False, newline=True), Dialect(ecma=False, strict=True)
_ECMA, _ECMA_AND_MORE = Dialect(ecma=True, lenient=False), Dialect(ecma=True)
_ANNEX_B = Dialect(ecma=True, lenient=False, annex_b=True)
# Global flags that choose Python's own classes of characters: such a pattern is read by Python's rules alone.
_PYTHON_RULES = re.compile(r"\(\?[aimsx]*[au][aimsx]*\)")
_PYTHON_ONLY = re.compile(r"\(\?(?:P|#|[aiLmsux]+\))|\\[AZz]")
# What Python and ECMA-262 read alike where both take it: no classes by name, no dot, no group but (...) and (?:...).
_ALIKE = re.compile(r"(?:[^\\.(\[{]|\\[^\w\s]|\((?!\?)|\(\?:|\{(?!,)|\[(?!\^?\])\^?(?:[^\\\[\]]|\\[^\w\s])*\])*")
_SET_OPERATIONS = ("[[", "--", "&&", "||", "~~")  # Python warns of these, they may mean more some day


@tree_cache(maxsize=512)
def parse_fullmatch(pattern: str) -> Node:
    """All texts that ``re.fullmatch(pattern, text)`` accepts; raises re.error, or UnsupportedRegex.

    Not supported are back-references, possessive or atomic groups, and look-around, anchors or word boundaries where
    they cannot be said exactly (inside a repetition, for one).
    """
    with _shallow():
        return language(_branches(pattern, _PYTHON, _flags(pattern)))


@tree_cache(maxsize=512)
def parse_search(pattern: str) -> Node:
    r"""All texts in which a JSON Schema ``pattern`` is found; ``^`` and ``$`` anchor as usual.

    JSON Schema means ECMA-262 (in unicode mode), validators in Python use ``re``. Where the two disagree (``\d`` and
    Arabic digits, ``$`` before a last line end) the stricter meaning holds, so that both accept every match. What
    only one of them knows (``\p{L}``, ``\A``) has its meaning there; a pattern that begins with ``(?u)`` or ``(?a)``,
    flags that only Python knows, is read by Python's rules alone. A pattern that neither takes (``[\w-\.]``) is
    read as ECMA-262 without unicode mode; re.error where no reading is left, UnsupportedRegex as ``parse_fullmatch``.
    """
    found = stored(pattern)
    return parsed_search(pattern) if found is None else found


def parsed_search(pattern: str) -> Node:
    """The tree of ``parse_search``, without a look at the stored patterns."""
    with _shallow():
        return reduce(_meet, _readings(pattern, _PYTHON_IN_SCHEMA, _ECMA_AND_MORE))


@tree_cache(maxsize=512)
def parse_search_either(pattern: str) -> Node:
    """All texts in which ECMA-262 or Python's ``re`` finds a ``pattern``; raises as ``parse_search``."""
    with _shallow():
        return reduce(_join, _readings(pattern, _PYTHON, _ECMA))


def _readings(pattern: str, python: Dialect, ecma: Dialect) -> list[Node]:
    """The texts in which a pattern is found: by Python and by ECMA-262, or by the one that knows it."""
    try:
        flags = _flags(pattern)
    except re.error:
        if _PYTHON_ONLY.search(pattern):
            raise
        for dialect in (_ECMA, _ANNEX_B):
            with suppress(PatternSyntaxError):
                return [_parsed(pattern, dialect, 0)]
        raise
    if _PYTHON_RULES.match(pattern):
        return [_parsed(pattern, _PYTHON, flags)]
    found = _parsed(pattern, python if "$" in pattern else _PYTHON_IN_SCHEMA, flags)
    is_alike = _ALIKE.fullmatch(pattern) is not None
    if is_alike and not (python.newline and "$" in pattern):
        return [found]
    try:
        return [found, _parsed(pattern, _PYTHON_IN_SCHEMA if is_alike else ecma, flags)]
    except PatternSyntaxError:
        return [found]


@tree_cache(maxsize=512)
def _parsed(pattern: str, dialect: Dialect, flags: int) -> Node:
    count_characters(len(pattern))
    return language([(ANYTHING, *branch, ANYTHING) for branch in _branches(pattern, dialect, flags)])


def _branches(pattern: str, dialect: Dialect, flags: int) -> list[Branch]:
    return _Reader(without_verbose_mode(pattern, flags), dialect).alternatives(flags | NEWLINE * dialect.newline, 0)


def check_length(pattern: str) -> int:
    """The number of characters that mean more than themselves: each takes time to read; or UnsupportedRegex."""
    special = len(_SPECIAL.findall(pattern)) if len(pattern) <= MAX_LENGTH else MAX_SIGNS
    if special + pattern.count("|") > MAX_SIGNS or len(pattern) > MAX_LENGTH:
        raise UnsupportedRegex(
            f"the pattern is too long (more than {MAX_LENGTH} characters, or {MAX_SIGNS} of them with a meaning); "
            "use Choice for a list of texts"
        )
    return special


def _flags(pattern: str) -> int:
    """The flags a pattern has in Python, where it compiles: else ``re.error``."""
    if not check_length(pattern):
        return re.UNICODE.value  # nothing can be wrong with a list of words
    try:
        if any(operation in pattern for operation in _SET_OPERATIONS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                return re.compile(pattern).flags
        return re.compile(pattern).flags
    except OverflowError as error:
        raise UnsupportedRegex(f"the pattern repeats more often than Python can count ({error})") from error


@contextmanager
def _shallow() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise UnsupportedRegex("the pattern nests too deeply") from error


class _Reader:
    """Reads a pattern in one dialect, from its first token to its last."""

    def __init__(self, pattern: str, dialect: Dialect):
        self._dialect = dialect
        self._tokens = iter(dialect.tokens(pattern))
        self._token = next(self._tokens)
        self._read: dict[tuple[str, int], Node] = {}  # the same few characters and classes come again and again

    def _next(self) -> Token:
        token, self._token = self._token, next(self._tokens, self._token)
        return token

    def alternatives(self, flags: int, depth: int) -> list[Branch]:
        """The branches up to the end of a group; those without assertions are joined to one."""
        plain: list[Node] = []
        branches: list[Branch] = []
        while True:
            for branch in self._sequence(flags, depth):
                node = _plain(branch)
                if node is None:
                    branches.append(branch)
                else:
                    plain.append(node)
            if self._next().kind == "CLOSE":
                return [*branches, (alt(*plain),)] if plain else branches

    def _sequence(self, flags: int, depth: int) -> list[Branch]:
        read: list[list[Branch]] = []
        count = 1
        while self._token.kind not in ("OR", "CLOSE"):
            token = self._next()
            branches = self._item(token, flags, depth)
            if self._token.kind == "TIMES":
                branches = self._repeated(branches, self._next())
            if count > 1 < len(branches) and count * len(branches) > MAX_BRANCHES:
                raise UnsupportedRegex("too many alternatives hold anchors or look-around", token.position)
            count *= len(branches)
            read.append(branches)
        if count == 1:  # the usual case
            return [tuple([piece for (branch,) in read for piece in branch])]
        return [tuple(piece for branch in chosen for piece in branch) for chosen in product(*read)]

    def _item(self, token: Token, flags: int, depth: int) -> list[Branch]:
        if token.kind in ("OPEN", "LOOK"):
            return self._group(token, flags, depth)
        return [(self._piece(token, flags),)]

    def _piece(self, token: Token, flags: int) -> Piece:
        dialect, (kind, text, position) = self._dialect, token
        if kind in ("START", "END") or text in (r"\A", r"\Z", r"\z"):
            if flags & MULTI_LINE and kind != "ESCAPE":
                raise UnsupportedRegex(f"{text} in multi-line mode is not supported", position)
            return Edge(text in ("^", r"\A"), position, newline=text == "$" and flags & NEWLINE > 0)
        if kind == "SAME":
            raise back_reference(text, position)
        if text in (r"\b", r"\B"):
            return dialect.boundary(text, position, flags)
        node = self._read.get((text, flags))
        if node is None:
            if kind == "DOT":
                node = dialect.dot(flags)
            elif kind == "ESCAPE":
                node = dialect.escape(text, position, flags)
            elif kind == "CLASS":
                node = dialect.in_class(text, position, flags)
            else:
                node = dialect.literal(text, flags)
            self._read[text, flags] = node
        return node

    def _group(self, token: Token, flags: int, depth: int) -> list[Branch]:
        kind, opening, position = token
        if depth >= MAX_DEPTH:
            raise UnsupportedRegex(f"the pattern nests more than {MAX_DEPTH} groups", position)
        if opening == "(?>":
            raise UnsupportedRegex("atomic groups are not supported; use (?:...)", position)
        if opening.startswith("(?("):
            raise UnsupportedRegex("conditional groups are not supported", position)
        if opening.endswith(":"):
            flags = changed(flags, opening[2:-1])
        negative = opening.endswith("!")
        if negative and self._dialect.strict:
            flags ^= NEWLINE
        branches = self.alternatives(flags, depth + 1)
        return [(Look("<" not in opening, negative, tuple(branches), position),)] if kind == "LOOK" else branches

    def _repeated(self, branches: list[Branch], times: Token) -> list[Branch]:
        if times.text[-1] == "+" and len(times.text) > 1:
            raise UnsupportedRegex("possessive repetition is not supported; use the plain one", times.position)
        low, high = _bounds(times.text)
        nodes = [node for node in map(_plain, branches) if node is not None]
        if len(nodes) == len(branches):
            return [(repeat(alt(*nodes), low, high),)]
        if high == 1:
            return branches if low else [*branches, ()]
        raise UnsupportedRegex(
            "anchors, look-around and word boundaries inside a repetition are not supported; write the repetition out",
            times.position,
        )


def _bounds(times: str) -> tuple[int, int | None]:
    if times[0] != "{":
        return (1 if times[0] == "+" else 0), (1 if times[0] == "?" else None)
    low, comma, high = times.rstrip("?")[1:-1].partition(",")
    return int(low or 0), int(high or low) if high or not comma else None


def _plain(branch: Branch) -> Node | None:
    nodes = [piece for piece in branch if isinstance(piece, Node)]
    return concat(*nodes) if len(nodes) == len(branch) else None


def _meet(first: Node, other: Node) -> Node:
    """Strings of both readings: part by part, which stays a plain pattern; an And only where the shapes differ."""
    if first == other:
        return first
    if isinstance(first, Chars) and isinstance(other, Chars):
        return chars(first.charset & other.charset)
    if isinstance(first, Parts) and isinstance(other, Parts):
        if type(first) is type(other) and len(first.parts) == len(other.parts):
            return JOIN[type(first)](*map(_meet, first.parts, other.parts))
    if isinstance(first, Repeat) and isinstance(other, Repeat) and (first.low, first.high) == (other.low, other.high):
        return repeat(_meet(first.body, other.body), first.low, first.high)
    if isinstance(first, Not) and isinstance(other, Not):
        return complement(alt(first.body, other.body))
    return both(first, other)


def _join(first: Node, other: Node) -> Node:
    """Strings of either reading: the larger one, a union of the one part that differs, or the union of both."""
    for small, large in ((first, other), (other, first)):
        if _is_within(small, large):
            return large
    if isinstance(first, Chars) and isinstance(other, Chars):
        return chars(first.charset | other.charset)
    if isinstance(first, (Alt, Concat)) and type(first) is type(other) and len(first.parts) == len(other.parts):
        if isinstance(first, Alt) or sum(map(ne, first.parts, other.parts)) == 1:
            return JOIN[type(first)](*map(_join, first.parts, other.parts))
    return alt(first, other)


def _is_within(small: Node, large: Node) -> bool:
    """Whether it is plain that all strings of one reading of a pattern are those of another one."""
    if small == large:
        return True
    if isinstance(small, Chars) and isinstance(large, Chars):
        return small.charset & large.charset == small.charset
    if isinstance(small, Repeat) and isinstance(large, Repeat):
        return (small.low, small.high) == (large.low, large.high) and _is_within(small.body, large.body)
    if isinstance(small, Alt) and isinstance(large, Alt):
        return len(small.parts) == len(large.parts) and all(map(_is_within, small.parts, large.parts))
    if isinstance(large, Concat):  # at its end there may be a line end more
        parts = small.parts if isinstance(small, Concat) else (small,)
        more = large.parts[len(parts) :]
        return len(parts) <= len(large.parts) and all(map(_is_within, parts, large.parts)) and concat(*more).nullable
    return False
