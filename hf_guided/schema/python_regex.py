r"""A Python regular expression, rewritten so that every engine reads it as Python's ``re`` does.

Engines disagree on ``.``, ``\d``, ``\w``, ``\s``, ``(?i)``, ``&&`` in a class, ``$`` in the middle. So the pattern is
parsed by Python itself and written again with nothing but literals, classes of explicit ranges, non-capturing groups,
``|`` and counted repetition. Which characters a class holds is asked of ``re`` too: it is run over all of Unicode once.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Literal

# The standard library's own parser; private, but the only one that agrees with `re` by construction.
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_constants: Any = importlib.import_module("re._constants" if sys.version_info >= (3, 11) else "sre_constants")

Dialect = Literal["python", "schema"]
Ranges = tuple[tuple[int, int], ...]

_SURROGATES = (0xD800, 0xDFFF)  # cannot be written in UTF-8
_MAX = 0x10FFFF
_GAP = _SURROGATES[1] - _SURROGATES[0] + 1

# What ECMA-262 means by the classes, as the inside of [...]. JSON Schema says ECMA-262, validators in Python use `re`:
# for schemas we keep the characters on which both agree.
_ECMA_SPACE = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_ECMA = {
    "CATEGORY_DIGIT": "0-9",
    "CATEGORY_NOT_DIGIT": "\0-/:-\U0010ffff",
    "CATEGORY_WORD": "0-9A-Z_a-z",
    "CATEGORY_NOT_WORD": "\0-/:-@\\[-\\^`{-\U0010ffff",
    "CATEGORY_SPACE": _ECMA_SPACE,
    "CATEGORY_NOT_SPACE": "\0-\\x08\\x0e-\\x1f!-\\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e"
    "\u2030-\u205e\u2060-\u2fff\u3001-\ufefe\uff00-\U0010ffff",
}
_PYTHON = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
}
_START = ("AT_BEGINNING", "AT_BEGINNING_STRING")
_END = ("AT_END", "AT_END_STRING")


class UnsupportedRegex(ValueError):
    """Python accepts the pattern, but it is not a regular language, or we do not know how to write it plainly."""


def literal(text: str) -> str:
    """A pattern that matches exactly this text, in the plain form every engine reads alike."""
    return "".join(map(_character, map(ord, text)))


def fullmatch_pattern(pattern: str) -> str:
    r"""The plain pattern of all texts that ``re.fullmatch(pattern, text)`` accepts.

    Raises:
        re.error: it does not compile in Python.
        UnsupportedRegex: it uses look-around, back-references, ``\b``, possessive or atomic groups, or an anchor that
            is not at an edge.
    """
    tree = _parse(pattern)
    return _Writer("python").sequence(tree, tree.state.flags, at_start=True, at_end=True)


def search_pattern(pattern: str, *, alphabet: str = "") -> str:
    r"""The plain pattern of all texts in which a JSON Schema ``pattern`` is found; ``^`` and ``$`` anchor as usual.

    Where ECMA-262 and Python disagree (``\d`` and Arabic digits, ``$`` before a last newline) the stricter meaning
    holds, so that validators of both kinds accept every match.

    Args:
        pattern: the pattern.
        alphabet: a class ``[...]`` in Python's syntax; only texts of these characters are kept. Empty means all.

    Raises:
        re.error: it does not compile in Python.
        UnsupportedRegex: as ``fullmatch_pattern``; or no text of the alphabet is left.
    """
    tree = _parse(pattern)
    writer = _Writer("schema", alphabet)
    anything = writer.sequence(_parse("(?s:.*)"), 0, at_start=False, at_end=False)
    branches = []
    for branch in _top_branches(list(tree)):
        start, end = _anchored(branch, 0, _START), _anchored(branch, -1, _END)
        body = writer.sequence(branch, tree.state.flags, at_start=start, at_end=end)
        branches.append(("" if start else anything) + body + ("" if end else anything))
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _parse(pattern: str) -> Any:
    try:
        return _parser.parse(pattern)
    except (OverflowError, RecursionError) as error:
        raise UnsupportedRegex(f"the pattern is too large or nested too deeply for Python ({error})") from error


def _top_branches(nodes: list[Any]) -> list[list[Any]]:
    """The alternatives of a pattern, looking through groups that hold all of it."""
    if len(nodes) == 1:
        kind, value = str(nodes[0][0]), nodes[0][1]
        if kind == "SUBPATTERN" and not value[1] and not value[2]:
            return _top_branches(list(value[3]))
        if kind == "BRANCH":
            return [leaf for branch in value[1] for leaf in _top_branches(list(branch))]
    return [nodes]


def _anchored(nodes: list[Any], edge: int, anchors: tuple[str, ...]) -> bool:
    """Whether every match begins (edge 0) or ends (edge -1) with the anchor."""
    if not nodes:
        return False
    kind, value = str(nodes[edge][0]), nodes[edge][1]
    if kind == "AT":
        return str(value) in anchors
    if kind == "SUBPATTERN":
        return _anchored(list(value[3]), edge, anchors)
    if kind == "BRANCH":
        return all(_anchored(list(branch), edge, anchors) for branch in value[1])
    return False


class _Writer:
    def __init__(self, dialect: Dialect, alphabet: str = ""):
        self._dialect = dialect
        self._within = f"(?={alphabet})" if alphabet else ""

    def sequence(self, nodes: Iterable[Any], flags: int, *, at_start: bool, at_end: bool) -> str:
        nodes = list(nodes)
        plain = [str(kind) == "AT" for kind, _ in nodes]
        return "".join(
            self._node(str(kind), value, flags, at_start and all(plain[:index]), at_end and all(plain[index + 1 :]))
            for index, (kind, value) in enumerate(nodes)
        )

    def _node(self, kind: str, value: Any, flags: int, at_start: bool, at_end: bool) -> str:
        if kind == "LITERAL" and not flags & re.IGNORECASE and not self._within:
            return _character(value)
        if kind in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY"):
            return _class(self._ranges(kind, value, flags))
        if kind == "SUBPATTERN":
            _, add, remove, body = value
            inner = self.sequence(body, (flags | add) & ~remove, at_start=at_start, at_end=at_end)
            return f"(?:{inner})" if inner else ""
        if kind == "BRANCH":
            branches = [self.sequence(body, flags, at_start=at_start, at_end=at_end) for body in value[1]]
            written = "|".join(branch for branch in branches if branch)
            return f"(?:{written}){'' if all(branches) else '?'}" if written else ""
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):  # greedy or lazy: the same language
            low, high, body = value
            once = high == 1
            inner = self.sequence(body, flags, at_start=at_start and once, at_end=at_end and once)
            return f"(?:{inner}){_times(low, high)}" if inner and high != 0 else ""
        if kind == "AT":
            if (at_start and str(value) in _START) or (at_end and str(value) in _END):
                return ""
            raise UnsupportedRegex(_WHY.get(str(value), f"{value} is not supported"))
        raise UnsupportedRegex(_WHY.get(kind, f"{kind} is not supported"))

    def _ranges(self, kind: str, value: Any, flags: int) -> Ranges:
        flags &= re.IGNORECASE | re.DOTALL | re.ASCII
        python = _source(kind, value, _PYTHON)
        if self._dialect == "python":
            return _matching(self._within + python, flags)
        ecma = r"[^\n\r\u2028\u2029]" if kind == "ANY" and not flags & re.DOTALL else _source(kind, value, _ECMA)
        return _matching(f"{self._within}(?={python}){ecma}", flags)


_WHY = {
    "ASSERT": "look-ahead and look-behind are not supported",
    "ASSERT_NOT": "look-ahead and look-behind are not supported",
    "GROUPREF": "back-references are not regular and not supported",
    "GROUPREF_EXISTS": "conditional groups are not supported",
    "POSSESSIVE_REPEAT": "possessive repetition is not supported; use the plain one",
    "ATOMIC_GROUP": "atomic groups are not supported; use (?:...)",
    "AT_BOUNDARY": r"\b is not supported",
    "AT_NON_BOUNDARY": r"\B is not supported",
    **{name: "^ is supported only at the start of the pattern" for name in _START},
    **{name: "$ is supported only at the end of the pattern" for name in _END},
}


def _source(kind: str, value: Any, categories: dict[str, str]) -> str:
    """One class, written for `re`."""
    if kind == "ANY":
        return "."
    if kind == "LITERAL":
        return f"[{_escape(value)}]"
    if kind == "NOT_LITERAL":
        return f"[^{_escape(value)}]"
    if kind == "CATEGORY":
        return f"[{categories[str(value)]}]"
    parts = []
    for item_kind, item in value:
        name = str(item_kind)
        if name == "NEGATE":
            parts.append("^")
        elif name == "LITERAL":
            parts.append(_escape(item))
        elif name == "RANGE":
            parts.append(f"{_escape(item[0])}-{_escape(item[1])}")
        else:
            parts.append(categories[str(item)])
    return f"[{''.join(parts)}]"


def _escape(code: int) -> str:
    return f"\\U{code:08x}"


@lru_cache(maxsize=1024)
def _matching(source: str, flags: int) -> Ranges:
    """All characters that a one-character pattern matches."""
    ranges = []
    for run in re.finditer(f"(?:{source})+", _all_characters(), flags):
        first, last = (index if index < _SURROGATES[0] else index + _GAP for index in (run.start(), run.end() - 1))
        if first < _SURROGATES[0] and last > _SURROGATES[1]:
            ranges += [(first, _SURROGATES[0] - 1), (_SURROGATES[1] + 1, last)]
        else:
            ranges.append((first, last))
    if not ranges:
        raise UnsupportedRegex("a character class matches nothing")
    return tuple(ranges)


@lru_cache(maxsize=1)
def _all_characters() -> str:
    """Everything UTF-8 can write, in order; made when first needed, it takes 4 MB."""
    return "".join(map(chr, (*range(_SURROGATES[0]), *range(_SURROGATES[1] + 1, _MAX + 1))))


def _class(ranges: Ranges) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _character(ranges[0][0])
    written = (_character(a) if a == b else f"{_character(a)}-{_character(b)}" for a, b in ranges)
    return f"[{''.join(written)}]"


def _character(code: int) -> str:
    if _SURROGATES[0] <= code <= _SURROGATES[1]:
        raise UnsupportedRegex(f"U+{code:04X} is half of a surrogate pair and cannot be written")
    character = chr(code)
    return character if code < 128 and character.isalnum() else f"\\u{{{code:x}}}"


def _times(low: int, high: Any) -> str:
    if high is _constants.MAXREPEAT:
        return {0: "*", 1: "+"}.get(low, f"{{{low},}}")
    if (low, high) == (0, 1):
        return "?"
    return f"{{{low}}}" if low == high else f"{{{low},{high}}}"
