"""The number of tokens of a text, in the best way to cut it.

Two bytes that are in no text in UTF-8 mark choices: a space that may come or not (``": "`` is often one token), and a
place that no token crosses, so that the count of many parts is a sum, whatever their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .frame_exits import UNREACHABLE
from .token_trie import TokenTrie

SPACE, CUT = 0xFF, 0xFE
_AHEAD = 48  # bytes of a text that tokens from before it may reach into


class Way(NamedTuple):
    """The text of a frame."""

    ahead: bytes  # its first bytes and choices
    counts: Sequence[int]  # tokens from each of these to the end of the text; one entry more

    @property
    def needed(self) -> int:
        """Tokens to the end of the text."""
        return self.counts[0]


END = Way(b"", (0,))


class TokenCounts:
    """Counts the tokens of a vocabulary."""

    def __init__(self, tokens: TokenTrie):
        self._child, self._letters = tokens.children, tokens.letters
        self._has_token = tokens.has_token.tobytes()
        self._costs: dict[bytes, int] = {}
        self._fills: dict[bytes, list[int]] = {}

    def cost(self, text: bytes) -> int:
        """Tokens of a text alone."""
        known = self._costs.get(text)
        if known is None:
            known = self._costs[text] = self.before(text, (END,)).needed
        return known

    def filled(self, fill: bytes) -> int:
        """Tokens of the same character again and again."""
        counts = self._fills.setdefault(fill[:1], [0])
        if len(counts) <= len(fill):
            lengths, node = [], 0
            for length in range(1, len(fill) + 1):
                node = self._letters.find(fill[0], self._child[node], self._child[node + 1])
                if node < 0:
                    break
                if self._has_token[node]:
                    lengths.append(length)
            for size in range(len(counts), len(fill) + 1):
                counts.append(1 + min([counts[size - length] for length in lengths if length <= size]))
        return counts[len(fill)]

    def before(self, text: bytes, ahead: Sequence[Way]) -> Way:
        """The way of a text before others: the shortest path along it, token by token."""
        size = len(text)
        nearest = min(ahead, key=lambda way: way.counts[0])
        counts = [UNREACHABLE] * size + [*nearest.counts]
        if len(ahead) == 1:
            self._count(text + nearest.ahead, counts, size)
        else:
            for i in range(size - 1, -1, -1):
                for way in ahead:
                    self._count(text + way.ahead, counts[: size + 1] + [*way.counts[1:]], i + 1, i, counts)
        whole = text + nearest.ahead
        return Way(whole[:_AHEAD], counts[: _AHEAD + 1])

    def _count(self, text: bytes, counts: list[int], size: int, low: int = 0, into: list[int] | None = None) -> None:
        """Count the tokens from the places before ``size``, down to ``low``; those after it are known."""
        child, letters, has_token, length = self._child, self._letters, self._has_token, len(text)
        into = counts if into is None else into
        for start in range(size - 1, low - 1, -1):
            if text[start] >= CUT:
                best = counts[start + 1]
                if text[start] == CUT:
                    into[start] = min(into[start], best)
                    continue
            else:
                best = into[start]
            todo = [(start, 0)]
            while todo:
                at, node = todo.pop()
                while at < length:
                    byte = text[at]
                    if byte >= CUT:
                        if byte == CUT:
                            break
                        todo.append((at + 1, node))
                        byte = 32
                    node = letters.find(byte, child[node], child[node + 1])
                    if node < 0:
                        break
                    at += 1
                    if has_token[node] and counts[at] < best:
                        best = counts[at] + 1
            if best < into[start]:
                into[start] = best

    def along(self, way: Way, room: int) -> list[int]:
        """The nodes of the tokens that lie along a way, and leave no more than ``room`` tokens to come."""
        ahead, counts = way
        nodes: list[int] = []
        todo = [(0, 0)]
        while todo:
            at, node = todo.pop()
            if at == len(ahead):
                continue
            byte = ahead[at]
            if byte == CUT:
                if not node:
                    todo.append((at + 1, 0))
                continue
            if byte == SPACE:
                todo.append((at + 1, node))
                byte = 32
            node = self._letters.find(byte, self._child[node], self._child[node + 1])
            if node >= 0:
                todo.append((at + 1, node))
                if self._has_token[node] and counts[at + 1] <= room:
                    nodes.append(node)
        return nodes
