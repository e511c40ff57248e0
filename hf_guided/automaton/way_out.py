"""How many tokens it takes to finish a text that a network reads: the fewest along the text of each frame.

The count is that of tokens which lie along the text (exit_texts.py), so it is always achievable: one of them leads to a
frame that needs one token less. It need not be the least there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from .exit_texts import ExitTexts, Own
from .frame import Frame, Frames, Text
from .frame_exits import UNREACHABLE
from .network import EXACTLY, Network
from .token_counts import END, NO_WAY, Way
from .token_trie import TokenTrie

_MAX_WAYS = 5_000  # remembered


class WaysOut:
    """The ways of a network and a vocabulary; thread safe."""

    def __init__(self, network: Network, tokens: TokenTrie):
        self.texts = ExitTexts(network, tokens)
        self._network, self._counts = network, self.texts.counts
        self._ways: dict[Hashable, Way] = {}

    def needed(self, frames: Frames, text: Text) -> int:
        """Tokens to the end of the text, the stop token not counted; UNREACHABLE if no way was found.

        The text is at hand as far as something is open.
        """
        return min([self.way(frame, text).needed for frame in frames])

    def way(self, frame: Frame, text: Text, left: int | None = None) -> Way:
        """The way of one frame; see ``needed``, and ``ExitTexts.of`` for ``left``."""
        key = self._key(frame, text, left)
        known = self._ways.get(key)
        if known is not None:
            return known
        if len(self._ways) > _MAX_WAYS:
            self._ways.clear()
        found: dict[Hashable, Way] = {}
        todo: list[tuple[Hashable, Frame, Own]] = [(key, frame, self.texts.of(frame, text, left))]
        while todo:  # texts are deeper than a stack
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
                ahead = [END if own.onwards is None else NO_WAY]
            found[key] = self._before(own, ahead)
            todo.pop()
        self._ways.update(found)
        return found[key]

    def bound(self, frame: Frame, text: Text, left: int | None) -> int | None:
        """Tokens that are enough from each state of a frame's component; None where that is not known at once."""
        most = self.texts.most(frame.component)
        if most is None:
            return None
        below = min([self.way(under, text).needed for under in frame.below], default=0)
        return most + (left or 0) + below

    def along(self, frame: Frame, text: Text, room: int) -> list[int]:
        """The nodes of the tokens that lie along the way of a frame, and leave no more than ``room`` tokens to come."""
        return self._counts.along(self.way(frame, text), room)

    def _key(self, frame: Frame, text: Text, left: int | None = None) -> Hashable:
        if not frame.has_begun:
            return frame
        place = self._network.place(frame, text, EXACTLY)
        return place if left is None else (place, left)

    def _before(self, own: Own, ahead: Sequence[Way]) -> Way:
        if not own.has_cut:
            return self._counts.before(own.text, ahead)
        after = self._counts.before(own.rest, ahead).needed
        after += sum(map(self._counts.cost, own.members))
        if own.fill:
            after += self._counts.filled(own.fill)
        return self._counts.before(own.text, (Way(b"", (min(after, UNREACHABLE),)),))
