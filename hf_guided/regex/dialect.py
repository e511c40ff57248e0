r"""The tokens of a pattern, and their meaning in Python and in ECMA-262 (unicode mode).

A class ``[...]`` is one token, and so is each escape, and so are characters side by side that nothing repeats. Patterns
that compile nowhere are not searched for: ``re.compile`` refuses them.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .assertions import Boundary
from .ast import Node, UnsupportedRegex, chars, concat, text
from .charset import ALL, CharSet
from .classes import LINE_ENDS, caseless, category, ecma_class, python_class

_HEX = "[0-9a-fA-F]"
# One escape; of digits, as outside of classes.
_ESCAPE = (
    rf"\\(?:u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}|u{_HEX}{{4}}|u\{{{_HEX}+\}}|x{_HEX}{{2}}|U{_HEX}{{8}}|c[A-Za-z]"
    r"|[pP]\{[^{}]*\}|N\{[^{}]*\}|k<[^<>]*>|0[0-7]{0,2}|[1-3][0-7]{2}|[1-9][0-9]?|.)"
)
_INSIDE_HOLDS_ON_EMPTY = re.search(r"\B", "") is not None  # from Python 3.14 on
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
# In a class three digits are octal, and a single one is no back-reference.
_MEMBER = re.compile(_ESCAPE.replace("0[0-7]{0,2}|", "[0-7]{1,3}|") + "|.", re.DOTALL)


class PatternSyntaxError(ValueError):
    """The dialect has no such pattern."""

    def __init__(self, pattern: str, position: int):
        super().__init__(f"the regular expression {pattern!r} is malformed at position {position}")


class Token(NamedTuple):
    """A part of a pattern: the name of its group in ``_lexer``, its text, and its position."""

    kind: str
    text: str
    position: int


@lru_cache(maxsize=4)
def _lexer(ecma: bool, annex_b: bool) -> re.Pattern[str]:
    # The text between the braces of a repetition; ``{,3}`` is text in Annex B, and an error in unicode mode.
    times = "[0-9]+(?:,[0-9]*)?" if annex_b else "[0-9]+(?:,[0-9]*)?|,[0-9]*"
    # A class that begins with "]" is empty in ECMA-262, or all characters after "^"; in Python the "]" is in it.
    bracket = "" if ecma else r"\]?"
    return re.compile(
        rf"""(?P<TIMES>(?:[*+?]|\{{(?:{times})\}})[?+]?) | (?P<IGNORED>\(\?\#[^)]*\)|\(\?[aiLmsux]+\))
          | (?P<LOOK>\(\?<?[=!]) | (?P<SAME>\(\?P=\w+\))
          | (?P<OPEN>\((?:\?(?:>|\(\w+\)|P<\w+>|<(?![=!])[^<>]*>|[aiLmsux]*(?:-[imsx]+)?:))?(?!\?)) | (?P<CLOSE>\))
          | (?P<OR>\|) | (?P<CLASS>\[\^?{bracket}(?:\\.|[^\]\\])*\]) | (?P<ESCAPE>{_ESCAPE}) | (?P<DOT>\.)
          | (?P<START>\^) | (?P<END>\$)
          | (?P<TEXT>[^\\\[|()*+?^$.{{]+(?![*+?{{(])|[^\\\[|()*+?^$.{{]|\{{(?!(?:{times})\}})) | (?P<WRONG>.)""",
        re.VERBOSE | re.DOTALL,
    )


# The flags in force at one position are bits of an integer: those of ``re``, and NEWLINE.
IGNORE_CASE, DOT_ALL, ASCII, MULTI_LINE = map(int, (re.IGNORECASE, re.DOTALL, re.ASCII, re.MULTILINE))
NEWLINE = 1 << 16  # ``$`` also holds before a last line end
_LETTERS = {"i": IGNORE_CASE, "s": DOT_ALL, "a": ASCII, "m": MULTI_LINE}


_SETS_VERBOSE = re.compile(r"\(\?[aiLmsu]*x|\(\?[aiLmsu]*-[ims]*x")
_PART = r"""(?P<group>\(\?(?P<on>[aiLmsux]*)(?:-(?P<off>[imsx]+))?:) | (?P<close>\))
  | \\(?:N\{[^{}]*\}|.) | \[\^?\]?(?:\\.|[^\]\\])*\] | \(\?(?:\#[^)]*|[aiLmsux]+)\) | (?P<open>\() | ."""
_PARTS = {
    False: re.compile(_PART, re.VERBOSE | re.DOTALL),
    True: re.compile(rf"(?P<ignored>(?:[ \t\n\r\v\f]|\#[^\n]*)+) | {_PART}", re.VERBOSE | re.DOTALL),
}


def without_verbose_mode(pattern: str, flags: int) -> str:
    r"""A pattern of Python's with an empty comment in place of everything that verbose mode ignores.

    The comment keeps its neighbours apart: in verbose mode ``\0 1`` is two characters, and ``x{1, 2}`` no repetition.
    """
    if not flags & re.VERBOSE and not _SETS_VERBOSE.search(pattern):
        return pattern
    written: list[str] = []
    is_verbose = [bool(flags & re.VERBOSE)]  # flag of the whole pattern, and of each open group
    position = 0
    while position < len(pattern):
        part = _PARTS[is_verbose[-1]].match(pattern, position)
        assert part is not None
        text, position, found = part[0], part.end(), part.groupdict()
        if found.get("ignored"):
            text = "(?#)"
        elif found["group"]:
            added, removed = found["on"], found["off"] or ""
            is_verbose.append((is_verbose[-1] or "x" in added) and "x" not in removed)
            removed = removed.replace("x", "")
            text = f"(?{added.replace('x', '')}{'-' * bool(removed)}{removed}:"
        elif found["open"]:
            is_verbose.append(is_verbose[-1])
        elif found["close"] and len(is_verbose) > 1:  # the reader refuses one that closes nothing
            is_verbose.pop()
        written.append(text)
    return "".join(written)


def changed(flags: int, letters: str) -> int:
    """The flags with ``is-m`` and the like applied."""
    added, _, removed = letters.partition("-")
    if "u" in added:
        flags &= ~ASCII
    for letter in added:
        flags |= _LETTERS.get(letter, 0)
    for letter in removed:
        flags &= ~_LETTERS.get(letter, 0)
    return flags


@dataclass(frozen=True)
class Dialect:
    r"""One reading of patterns: as ECMA-262 reads where it differs (``ecma``), else as Python does.

    ``annex_b`` is ECMA-262 without its unicode mode, as browsers read old patterns (Annex B): ``\z`` is the letter z,
    and the ``-`` of ``[\w-.]`` is itself.
    """

    ecma: bool
    newline: bool = False  # ``$`` also holds before a last line end, outside of negative look-around at least
    strict: bool = False  # the reading of ``$`` that matches less, or more where something must not match
    lenient: bool = True  # knows what only Python writes as well; for patterns that Python takes
    annex_b: bool = False

    def tokens(self, pattern: str) -> list[Token]:
        """The tokens, without comments and global flags, and one of kind "CLOSE" after them; or PatternSyntaxError."""
        tokens: list[Token] = []
        depth, before = 0, "OR"
        for match in _lexer(self.ecma, self.annex_b).finditer(pattern):
            kind, text, position = str(match.lastgroup), match[0], match.start()
            if kind == "IGNORED":
                continue
            if kind == "TIMES":
                wrong = before in ("OR", "LOOK", "OPEN", "TIMES") or (text.startswith("{,") and self.ecma)
            else:
                depth += (kind in ("LOOK", "OPEN")) - (kind == "CLOSE")
                wrong = depth < 0 or kind == "WRONG"
            if wrong:
                raise PatternSyntaxError(pattern, position)
            tokens.append(Token(kind, text, position))
            before = kind
        if depth:
            raise PatternSyntaxError(pattern, len(pattern))
        return [*tokens, Token("CLOSE", "", len(pattern))]

    def dot(self, flags: int) -> Node:
        """The characters that ``.`` matches."""
        return chars(ALL if flags & DOT_ALL else ~LINE_ENDS["ecma" if self.ecma else "python"])

    def literal(self, written: str, flags: int) -> Node:
        """Literal characters side by side."""
        if written.isascii() and not flags & IGNORE_CASE:
            return text(written)
        return concat(*(self._literal(CharSet.of(character), flags) for character in written))

    def escape(self, written: str, position: int, flags: int) -> Node:
        r"""The characters that an escape outside of classes matches."""
        first = written[1]
        if (first in "123456789" and len(written) < 4) or (first == "k" and len(written) > 2):
            raise back_reference(written, position)
        meant = self._meant(written, position, flags)
        return chars(meant) if isinstance(meant, CharSet) else self._literal(_one(meant), flags)

    def boundary(self, written: str, position: int, flags: int) -> Boundary:
        r"""The meaning of ``\b`` and ``\B``."""
        word = ecma_class("w") if self.ecma else python_class("w", bool(flags & ASCII))
        return Boundary(written == r"\B", word, self.ecma or _INSIDE_HOLDS_ON_EMPTY, position)

    def in_class(self, written: str, position: int, flags: int) -> Node:
        """The characters that a class ``[...]`` matches."""
        negative = written.startswith("[^")
        matches = _MEMBER.finditer(written, 2 if negative else 1, len(written) - 1)
        members = [(member[0], position + member.start()) for member in matches]
        ranges, classes = [], CharSet()
        while members:
            member, start = members.pop(0)
            first = self._meant(member, start, flags) if len(member) > 1 else ord(member)
            if len(members) > 1 and members[0][0] == "-":
                other, _ = members[1]
                last = self._meant(other, start, flags) if len(other) > 1 else ord(other)
                del members[:2]
                if isinstance(first, CharSet) or isinstance(last, CharSet):
                    if not self.annex_b:
                        raise PatternSyntaxError(written, start)
                    classes |= _as_set(first) | _as_set(last) | _as_set(ord("-"))
                    continue
                if last < first:
                    raise PatternSyntaxError(written, start)
                ranges.append((first, last))
            elif isinstance(first, CharSet):
                classes |= first
            else:
                ranges.append((first, first))
        literals = CharSet(ranges)
        meant = (caseless(literals, bool(flags & ASCII)) if flags & IGNORE_CASE else literals) | classes
        return chars(~meant if negative else meant)

    def _literal(self, charset: CharSet, flags: int) -> Node:
        return chars(caseless(charset, bool(flags & ASCII)) if flags & IGNORE_CASE else charset)

    def _meant(self, written: str, position: int, flags: int) -> CharSet | int:
        """The set of a class escape, or the code point of any other escape."""
        first, rest = written[1], written[2:]
        if first in "dDwWsS":
            return ecma_class(first) if self.ecma else python_class(first, bool(flags & ASCII))
        if first in _SIMPLE:
            return ord(_SIMPLE[first])
        if self.annex_b:
            # Unicode mode refused the pattern, and only there these have a meaning that people intend.
            if first in "pP" or (rest and (first in "NUk" or rest[0] == "{")):
                raise PatternSyntaxError(written, position)
            if not rest and first not in "01234567bc":
                return ord(first)
        elif not self.lenient and (first in "aN1234567" or (first == "U" and rest)):
            raise PatternSyntaxError(written, position)
        if first in "xuU" and rest:
            if "\\" in rest:  # a surrogate pair
                return ord(bytes.fromhex(rest[:4] + rest[6:]).decode("utf-16-be"))
            return int(rest.strip("{}"), 16)
        if first in "01234567":
            return int(written[1:], 8)
        if first == "b":
            return 8
        if first in "pP" and rest:
            return self._property(first, rest[1:-1], position)
        if first == "c" and rest:
            return ord(rest) % 32
        if first == "N" and rest:
            return ord(unicodedata.lookup(rest[1:-1]))
        if first == "a":
            return 7
        if first.isascii() and first.isalnum():
            raise PatternSyntaxError(written, position)
        return ord(first)

    def _property(self, letter: str, name: str, position: int) -> CharSet:
        charset = category(name)
        if charset is None:
            raise UnsupportedRegex(f"the property {name} is not supported, only general categories are", position)
        return charset if letter == "p" else ~charset


def back_reference(written: str, position: int) -> UnsupportedRegex:
    """The error for a back-reference."""
    return UnsupportedRegex(
        f"a back-reference ({written}) is not regular, so no engine can enforce it; write out the texts it may repeat, "
        "as in (?:a.a|b.b)",
        position,
    )


def _one(code: int) -> CharSet:
    return CharSet([(code, code)])


def _as_set(meant: CharSet | int) -> CharSet:
    return meant if isinstance(meant, CharSet) else _one(meant)
