"""JSON texts by their values: one key for all texts of a value, and what is certain of a text that has only begun."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

_TOKEN = re.compile(r'[ \t\n\r]+|"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*\\?|-?[0-9][0-9.eE+-]*|-|[a-z]+|.', re.DOTALL)
# A string without its last quote, as far as its characters are complete: half of a surrogate pair may get the other.
_CHARACTERS = re.compile(
    r'"(?:[^"\\]|\\[^u]|\\u(?![dD][89abAB])[\da-fA-F]{4}'
    r"|\\u[dD][89abAB][\da-fA-F]{2}(?=[^\\]|\\[^u]|\\u[\da-fA-F]{4}))*",
    re.DOTALL,
)
_CHARACTER = re.compile(
    rb"\\u[dD][89abAB][\da-fA-F]{2}(?:\\(?:u[\da-fA-F]{0,4})?)?|\\u[\da-fA-F]{0,4}|\\.?|[^\\\x80-\xbf]", re.DOTALL
)
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of a character after its first
CHARACTER_BYTES = 12
"""Length of the longest spelling of a character in a JSON string: two escapes."""
SPACE = frozenset(b" \t\n\r")
OUTSIDE, INSIDE, _ESCAPED = range(3)  # places: outside or inside a string, and after a backslash in one
_QUOTE, _BACKSLASH = b'"\\'
_NUMBER = frozenset("-0123456789")


class Begun(NamedTuple):
    """A text that has only begun."""

    key: bytes  # the beginning of its value's key
    is_whole: bool  # whether key and text end at the same place, white space and spellings aside
    in_string: bool  # whether the text ends inside a string


class CompetingItems(NamedTuple):
    """Keys that a value may still get whose text has begun."""

    keys: list[bytes]  # empty if it is certain to get another one, as long as no name is repeated
    after: bytes | None  # the text after which, anywhere in them, the keys may continue as the text does; None: unknown
    is_whole: bool = False  # whether ``after`` is how each key begins, and they continue so nowhere else
    names: Collection[bytes] = ()  # names that would be repeated

    def endings(self, most: int) -> set[bytes]:
        """The bytes after ``after`` in the keys and names: at most ``most`` bytes of each."""
        found: set[bytes] = set()
        if self.after is None:
            return found
        for key in (*self.keys, *self.names):
            at = key.find(self.after)
            while at >= 0:
                found.add(key[at + len(self.after) :][:most])
                at = -1 if self.is_whole else key.find(self.after, at + 1)
        return found


def lexed(place: int, byte: int) -> int:
    """The place after one byte of a JSON text: OUTSIDE a string, or inside one."""
    if place == _ESCAPED:
        return INSIDE
    if byte == _QUOTE:
        return OUTSIDE if place == INSIDE else INSIDE
    return _ESCAPED if place == INSIDE and byte == _BACKSLASH else place


def characters(content: bytes) -> int:
    """How many characters the content of a JSON string has, one that has only begun counted; it follows the quote."""
    if b"\\" not in content:
        return first_bytes(content)
    return sum(1 for _ in _CHARACTER.finditer(content))


def first_bytes(text: bytes) -> int:
    """How many characters have begun in a text."""
    return len(text.translate(None, _CONTINUATION))


def key_of(text: bytes, *, ordered: bool) -> bytes:
    """One text for all texts of the same JSON value; ``ordered`` where equal values have members in the same order."""
    return _encoded(_dumps(json.loads(text, parse_int=Decimal, parse_float=Decimal), is_sorted=not ordered))


def begun(text: bytes, *, ordered: bool) -> Begun:
    """All that is certain of a value whose text has begun.

    Where members are not ``ordered``, the key is only known up to the first object; see ``key_of``.
    """
    data = _without_tail(text)
    parts: list[str] = []
    tokens = _TOKEN.findall(data)
    for i, token in enumerate(tokens):
        first, is_last = token[0], i == len(tokens) - 1
        if first == '"':
            if len(token) > 1 and _is_closed(token):
                parts.append(_spelled(token))
                continue
            characters = _CHARACTERS.match(token)
            assert characters is not None
            whole = characters.group()
            spelled = json.loads(f'{whole}"', strict=False) if "\\" in whole else whole[1:]
            parts.append(_dumps(spelled)[:-1])
            return Begun(_encoded("".join(parts)), whole == token and len(data.encode()) == len(text), True)
        if first in _NUMBER:
            if is_last:
                return Begun(_encoded("".join(parts)), False, False)
            parts.append(_number(Decimal(token)))
        elif first not in " \t\n\r":
            parts.append(token)
            if first == "{" and not ordered:
                return Begun(_encoded("".join(parts)), False, False)
    return Begun(_encoded("".join(parts)), True, False)


class Strings(NamedTuple):
    """The strings in a JSON text that has begun, by their keys."""

    complete: list[bytes]  # strings that have ended
    last: bytes | None  # the beginning of that in which the text ends; None if it ends in none, or in an escape
    names: set[bytes]  # names of the members of the objects that are open
    repeats: bool  # whether an object has a name twice: the second member takes the place of the first

    @classmethod
    def of(cls, text: bytes) -> Strings:
        """The strings of a text."""
        data = _without_tail(text)
        tokens = [token for token in _TOKEN.findall(data) if token[0] not in " \t\n\r"]
        complete: list[bytes] = []
        objects: list[set[bytes]] = []
        repeats = False
        for token, following in pairwise([*tokens, ""]):
            if token == "{":
                objects.append(set())
            elif token == "}":
                objects.pop()
            elif token[0] == '"' and _is_closed(token):
                complete.append(_encoded(_spelled(token)))
                if following == ":":
                    repeats = repeats or complete[-1] in objects[-1]
                    objects[-1].add(complete[-1])
        names = {name for members in objects for name in members}
        if not tokens or tokens[-1][0] != '"' or _is_closed(tokens[-1]):
            return cls(complete, None, names, repeats)
        last = begun(tokens[-1].encode(), ordered=True)
        key = last.key + text[len(data.encode()) :] if last.is_whole else None
        return cls(complete, key, names, repeats)


def competing_items(keys: Iterable[bytes], begun: Begun, text: bytes) -> CompetingItems:
    """The keys among some that a value may still get whose text has begun."""
    similar = [key for key in keys if key.startswith(begun.key)]
    if not similar or (begun.is_whole and begun.in_string):
        return CompetingItems(similar, begun.key, is_whole=True)
    written = Strings.of(text)
    if written.repeats:
        return CompetingItems(similar, None)
    needed = written.complete if written.last is None else [*written.complete, written.last]
    found = [key for key in similar if all(string in key for string in needed)]
    return CompetingItems(found, written.last, names=written.names)


def _spelled(string: str) -> str:
    return _dumps(json.loads(string, strict=False)) if "\\" in string else string


def _without_tail(text: bytes) -> str:
    return text.decode("utf-8", "ignore")


def _is_closed(token: str) -> bool:
    return re.fullmatch(r'"(?:[^"\\]|\\.)*"', token, re.DOTALL) is not None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _dumps(value: Any, *, is_sorted: bool = False) -> str:
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, list):
        return f"[{','.join(_dumps(item, is_sorted=is_sorted) for item in value)}]"
    if isinstance(value, dict):
        names = sorted(value) if is_sorted else value
        members = (f"{_dumps(name)}:{_dumps(value[name], is_sorted=is_sorted)}" for name in names)
        return "{" + ",".join(members) + "}"
    return json.dumps(value, ensure_ascii=False)


def _number(number: Decimal) -> str:
    sign, digits, exponent = number.as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    stripped = written.rstrip("0")
    return f"{'-' * sign}{stripped}e{int(exponent) + len(written) - len(stripped)}" if stripped else "0"
