"""How many tokens it takes to finish a text that a network reads: the fewest along the text of each frame.

The count is that of tokens which lie along the text (exit_texts.py), so it is always achievable: one of them leads to a
frame that needs one token less. It need not be the least there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from .exit_texts import CUT, SPACE, ExitTexts, Own
from .frame import Frame, Frames, Text
from .network import Network
from .shortest_paths import UNREACHABLE
from .token_trie import TokenTrie

_AHEAD = 48  # bytes of a text that tokens from before it may reach into
_MAX_WAYS = 5_000  # remembered
_EXACTLY = 1 << 30  # more bytes than any bound


class Way(NamedTuple):
    """The text of a frame.

    Args:
        ahead: its first bytes and choices.
        counts: tokens from each of these to the end of the text; one entry more.
    """

    ahead: bytes
    counts: Sequence[int]

    @property
    def needed(self) -> int:
        """Tokens to the end of the text."""
        return self.counts[0]


_END = Way(b"", (0,))
_NO_WAY = Way(b"", (UNREACHABLE,))


class WaysOut:
    """The ways of a network and a vocabulary; thread safe.

    Args:
        network: what reads the texts.
        tokens: the vocabulary.
    """

    def __init__(self, network: Network, tokens: TokenTrie):
        self.texts = ExitTexts(network, tokens)
        self._network = network
        self._child, self._letters = tokens.children, tokens.letters
        self._has_token = tokens.has_token.tobytes()
        self._ways: dict[Hashable, Way] = {}
        self._members: dict[tuple[int, bytes], int] = {}
        self._fills: dict[bytes, list[int]] = {}

    def needed(self, frames: Frames, text: Text) -> int:
        """Tokens to the end of the text, the stop token not counted; UNREACHABLE if no way was found.

        Args:
            frames: after ``text``.
            text: at hand as far as something has begun.
        """
        return min([self.way(frame, text).needed for frame in frames])

    def way(self, frame: Frame, text: Text, left: int | None = None) -> Way:
        """The way of one frame.

        Args:
            frame: after ``text``.
            text: see ``needed``.
            left: see ``ExitTexts.of``.
        """
        key = self._key(frame, text, left)
        known = self._ways.get(key)
        if known is not None:
            return known
        if len(self._ways) > _MAX_WAYS:
            self._ways.clear()
        found: dict[Hashable, Way] = {}
        todo: list[tuple[Hashable, Frame, Own]] = [(key, frame, self.texts.of(frame, text, left))]
        while todo:
            key, frame, own = todo[-1]
            onwards = frame.below if own.onwards is None else own.onwards
            ahead: list[Way] = []
            missing = False
            for place in onwards:
                of_place = self._key(place, own.at)
                way = found.get(of_place) or self._ways.get(of_place)
                if way is not None:
                    ahead.append(way)
                elif not missing:
                    missing = True
                    todo.append((of_place, place, self.texts.of(place, own.at)))
            if missing:
                continue
            if not onwards:
                ahead = [_END if own.onwards is None else _NO_WAY]
            found[key] = self._along(frame.component, own, ahead)
            todo.pop()
        self._ways.update(found)
        return found[key]

    def bound(self, frame: Frame, text: Text, left: int | None) -> int | None:
        """Tokens that are enough from each state of a frame's component; None where that is not known at once.

        Args:
            frame: of its state nothing depends.
            text: see ``way``.
            left: see ``way``.
        """
        most = self.texts.most(frame.component)
        if most is None:
            return None
        below = min([self.way(under, text).needed for under in frame.below], default=0)
        return most + (left or 0) + below

    def along(self, frame: Frame, text: Text, room: int) -> list[int]:
        """The nodes of the tokens that lie along the way of a frame, and leave no more than ``room`` tokens to come."""
        ahead, counts = self.way(frame, text)
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

    def _key(self, frame: Frame, text: Text, left: int | None = None) -> Hashable:
        if not frame.has_begun:
            return frame
        place = self._network.place(frame, text, _EXACTLY)
        return place if left is None else (place, left)

    def _along(self, component: int, own: Own, ahead: Sequence[Way]) -> Way:
        if not own.has_cut:
            return self._counted(own.text, ahead)
        after = self._counted(own.rest, ahead).needed
        after += sum([self._member(component, name) for name in own.members])
        if own.fill:
            after += self._filled(own.fill)
        return self._counted(own.text, (Way(b"", (min(after, UNREACHABLE),)),))

    def _member(self, component: int, name: bytes) -> int:
        """Tokens of a member, counted apart."""
        key = component, name
        known = self._members.get(key)
        if known is None:
            known = self._members[key] = self._counted(self.texts.member(component, name), (_END,)).needed
        return known

    def _filled(self, fill: bytes) -> int:
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

    def _counted(self, text: bytes, ahead: Sequence[Way]) -> Way:
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
