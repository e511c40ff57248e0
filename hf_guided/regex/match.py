"""Whether a text is in a language, without any engine."""

from __future__ import annotations

from functools import lru_cache, reduce

from .ast import Alt, And, Chars, Concat, Empty, Node, Not, Repeat
from .charset import CharSet, tree_cache


def matches(node: Node, text: str) -> bool:
    """Whether the whole text is one of the language's strings.

    Sets of positions are the bits of an integer and travel through the tree together, so nothing is tried twice:
    the time is at most the size of the tree times the square of the length (a 64th of it), however it is nested.
    """
    return bool(_Text(text).after(node, 1) >> len(text) & 1)


@tree_cache(maxsize=1024)
def _beginning(node: Concat) -> str:
    codes = []
    for part in node.parts:
        if not isinstance(part, Chars) or len(part.charset) > 1:
            break
        codes.append(part.charset.ranges[0][0])
    return "".join(map(chr, codes))


class _Digits(dict[int, str]):
    """Table for ``str.translate``: "1" for the characters of a set, "0" for others; keeps those of ASCII, a few."""

    def __init__(self, charset: CharSet):
        self._charset = charset

    def __missing__(self, code: int) -> str:
        digit = "1" if chr(code) in self._charset else "0"
        if code < 128:
            self[code] = digit
        return digit


_digits = lru_cache(maxsize=1024)(_Digits)


class _Text:
    def __init__(self, text: str):
        self._text = text
        self._holds: dict[CharSet, int] = {}

    def after(self, node: Node, starts: int) -> int:
        if not starts:
            return 0
        if isinstance(node, Chars):
            if starts & starts - 1 == 0:  # one position, as all through a word
                here = starts.bit_length() - 1
                return starts << 1 if here < len(self._text) and self._text[here] in node.charset else 0
            return (starts & self._where(node.charset)) << 1
        if isinstance(node, Empty):
            return starts
        if isinstance(node, Concat):
            parts = node.parts
            if starts & starts - 1 == 0:  # most names end here
                beginning, here = _beginning(node), starts.bit_length() - 1
                if not self._text.startswith(beginning, here):
                    return 0
                starts, parts = starts << len(beginning), parts[len(beginning) :]
            for part in parts:
                starts = self.after(part, starts)
                if not starts:
                    break
            return starts
        if isinstance(node, Alt):
            return reduce(lambda ends, branch: ends | self.after(branch, starts), node.parts, 0)
        if isinstance(node, Repeat):
            return self._repeated(node, starts)
        if isinstance(node, (And, Not)):
            return self._each(node, starts)
        return 0  # Nothing

    def _where(self, charset: CharSet) -> int:
        if charset not in self._holds:
            self._holds[charset] = int(self._text[::-1].translate(_digits(charset)) or "0", 2)
        return self._holds[charset]

    def _repeated(self, node: Repeat, starts: int) -> int:
        times, here = 0, starts
        while times < node.low and here:
            before, here = here, self.after(node.body, here)
            times += 1
            if here == before:  # going round without moving: the rest of the count adds nothing
                times = node.low
        ends = here
        while here and (node.high is None or times < node.high):
            here = self.after(node.body, here) & ~ends
            ends |= here
            times += 1
        return ends

    def _each(self, node: And | Not, starts: int) -> int:
        """A string satisfies And and Not from the position where it began, so each start is a case of its own."""
        ends = 0
        while starts:
            start = starts & -starts
            starts ^= start
            if isinstance(node, And):
                ends |= reduce(lambda ends_so_far, part: ends_so_far & self.after(part, start), node.parts, -1)
            else:
                ends |= ((1 << len(self._text) + 1) - start) & ~self.after(node.body, start)
        return ends
