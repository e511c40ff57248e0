"""Masks of a network near the end of a token budget: the tokens after which few enough tokens are needed.

From each place the tokens that fit are found once, as for a mask without a budget (network_masks.py). How many tokens
are needed after those of a part is known from its states alone. First only a bound on it is looked at, in bytes; while
the budget is larger, nothing is counted.

The count is that of tokens which lie along the text that each frame writes to finish (exit_texts.py), so it is always
achievable: one of them leads to a frame that needs one token less. It need not be the least there is.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from ..errors import CompileLimitExceeded
from .component_tables import ComponentTables, Reached
from .component_walk import Words
from .exit_texts import ExitTexts, Own
from .frame import Frame, Frames, Text
from .frame_exits import UNREACHABLE
from .lru_bytes import ByteCache
from .network import EXACTLY, Network
from .network_masks import NetworkMasks, Part, TokenWalk
from .registers import Entered, ItemRule, NameRule
from .token_counts import END, NO_WAY, Way, written_out
from .token_trie import Ints, MaskBuilder, TokenTrie

_MAX_WAYS = 5_000  # remembered
_BYTES = 4 * 2**20  # bytes of the facts about texts
_PART_BYTES = 4096  # estimated bytes of a part
_MARGIN = 2  # tokens more that an item may take which could become one that is entered, or that comes later
_MOST_CHECKED = 2000  # nodes at which it is looked whether it does


class WaysOut:
    """The ways of a network and a vocabulary; thread safe."""

    def __init__(self, network: Network, tokens: TokenTrie):
        self.texts = ExitTexts(network, tokens)
        self._network, self._counts = network, self.texts.counts
        self._ways: dict[Hashable, Way] = {}

    def needed(self, frames: Frames, text: Text) -> int:
        """Tokens to the end of the text without the stop token, or UNREACHABLE; open items are at hand."""
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


class BudgetedNetworkMasks(NetworkMasks):
    """Masks that keep budgets; thread safe."""

    def __init__(self, network: Network, tables: ComponentTables, token_bytes: Sequence[bytes | None]):
        super().__init__(network, tables, token_bytes)
        self.ways = WaysOut(network, tables.tokens)
        self._walks: ByteCache[_BudgetWalk] = ByteCache(_BYTES)

    def needed(self, frames: Frames, text: bytes | bytearray) -> int | None:
        """Tokens that finish the text, with the stop token; None if it would be too long, or a search found no way."""
        try:
            needed = self.ways.needed(frames, Text(text, len(text)))
        except CompileLimitExceeded:
            return None
        return 1 + needed if needed < UNREACHABLE else None

    def within(self, frames: Frames, text: bytes | bytearray, tokens_left: int) -> Words:
        """(words,) int32: the tokens after which the rest of ``tokens_left`` is enough, the stop token counted."""
        words = self.of(frames, text)
        try:
            return self._within_budget(words, frames, Text(text, len(text)), tokens_left - 2)
        except CompileLimitExceeded:  # the text would be too long; without a budget all is well
            return words

    def _within_budget(self, words: Words, frames: Frames, at: Text, room: int) -> Words:
        walk = self._walks.of(self._key(frames, at), lambda: _BudgetWalk(self, frames, at))
        if walk.most <= room or self.ways.needed(frames, at) > room + 1:
            return words
        mask, is_whole = MaskBuilder(self.tokens), True
        for part in walk.parts:
            if part.tokens is not None and part.bound is not None and part.bound <= room:
                self.add(part.tokens, mask)
                continue
            for reached, needed in walk.counts(part):
                if needed > room:
                    is_whole = False
                elif reached.words is None:
                    mask.add_nodes(reached.nodes)
                else:
                    mask.add_words(reached.words)
        if is_whole:
            return words
        for frame in frames:
            mask.add_nodes(np.array(self.ways.along(frame, at, room), np.int32))
        within: Words = mask.words() & words
        return within


class _Counted:
    """Some tokens, and how many are needed after them.

    ``item`` is the frame of an open item that may become one that is entered, and its text; None if it may not.
    ``bound`` tokens are enough after any of these; None where that is not known before they are counted. ``counts`` has
    nodes, and the tokens needed after those; None as long as nothing is counted.
    """

    def __init__(self, tokens: Part | None, item: tuple[Frame, Entered, bytes] | None = None, bound: int | None = None):
        self.tokens, self.item, self.bound = tokens, item, bound
        self.counts: list[tuple[Reached, int]] | None = None


class _BudgetWalk(TokenWalk):
    """The tokens that fit after a text, in parts; after none of them more than ``most`` are needed."""

    _masks: BudgetedNetworkMasks

    def __init__(self, masks: BudgetedNetworkMasks, frames: Frames, text: Text):
        self._ways = masks.ways
        self.parts: list[_Counted] = []
        self.most = 0
        super().__init__(masks, frames, text)

    @property
    def nbytes(self) -> int:
        return 2048 + _PART_BYTES * len(self.parts)  # most nodes are those of the tables

    def _from(self, frame: Frame) -> None:
        if frame.entered is not None and frame.entered.has_begun:
            if isinstance(self._network.rules[frame.component], NameRule):  # the value depends on the name
                self._follow(self._tables.nodes.of(np.zeros(1, np.int32)), (frame,), self._text)
                return
        super()._from(frame)

    def _note(self, nodes: Ints, frames: Frames, text: Text) -> None:
        if self._tokens.has_token[nodes].any():
            needed = self._ways.needed(frames, text)
            part = _Counted(None)
            part.counts = [(Reached(0, nodes.astype(np.int32), None), needed)]
            self.parts.append(part)
            self.most = max(self.most, needed)

    def _part(self, part: Part, wary: Frame) -> None:
        item = self._contested(wary)
        bound = self._ways.bound(part.frame, part.text, part.low)
        counted = _Counted(part, item, bound if bound is None or item is None else bound + _MARGIN)
        self.parts.append(counted)
        if counted.bound is not None:
            self.most = max(self.most, counted.bound)
        else:
            self.most = max([self.most, *(needed for _, needed in self.counts(counted))])

    def counts(self, part: _Counted) -> list[tuple[Reached, int]]:
        if part.counts is None:
            assert part.tokens is not None
            part.counts = [*self._counted(part.tokens, part.item)]
        return part.counts

    def _counted(self, part: Part, item: tuple[Frame, Entered, bytes] | None) -> Iterator[tuple[Reached, int]]:
        frame, tokens = part.frame, self._tokens
        for reached in self._tables.by_state(self._masks.component(frame), frame.state, part.begun):
            place = self._network.frame(frame.component, reached.state, frame.entered, frame.below)
            here = self._masks.reached(part, reached)
            if part.low:
                rule = self._network.open_string(frame)
                assert rule is not None
                left = np.maximum(0, part.low - rule.string.characters_on(tokens)[here.nodes])
                for left_there in np.unique(left).tolist():
                    some = Reached.of(tokens, here.state, here.nodes[left == left_there])
                    yield some, self._ways.way(place, part.text, left_there).needed
                continue
            count = self._ways.way(place, part.text, part.low).needed
            if item is not None and len(here.nodes) <= _MOST_CHECKED:
                others = self._checked(place, here.nodes, part.text, *item)
                yield from others
                if others:
                    nodes = np.setdiff1d(here.nodes, [some.nodes[0] for some, _ in others])
                    here = Reached.of(tokens, here.state, nodes)
            elif item is not None:
                count += _MARGIN
            yield here, count

    def _checked(
        self, place: Frame, nodes: Ints, text: Text, owner: Frame, entered: Entered, written: bytes
    ) -> list[tuple[Reached, int]]:
        """The nodes from which an item cannot end as its frame would have it, each counted on its own."""
        rule = self._network.rules[owner.component]
        ending = written_out(self._ways.texts.of(place, text).text)
        others = []
        for node in nodes.tolist():
            path = self._tokens.path_to(node)
            if node and self._tokens.has_token[node] and rule.end(entered, written + path + ending) is None:
                count = self._ways.way(place, Text(None, entered.begin, written + path)).needed
                others.append((Reached(0, np.array([node], np.int32), None), count))
        return others

    def _contested(self, frame: Frame) -> tuple[Frame, Entered, bytes] | None:
        """The outermost open item that could become one that is entered, if that takes more than tokens to tell."""
        item = None
        for owner, entered in frame.opened() if frame.is_watched else ():
            rule, written = self._network.rules[owner.component], self._text.since(entered.begin)
            if isinstance(rule, ItemRule) and written is not None:
                found = rule.competing_items(entered, written, self._network.search)
                if found.keys and found.after is None:
                    item = owner, entered, written
        return item

    def _wary(self, frame: Frame) -> Frame:
        """The frame as if what comes later were entered already: an open item may become that too."""
        stack = [place for place in frame.stack() if place.has_begun]
        if not any(map(self._depends_on_others, stack)):
            return frame
        below = stack[-1].below
        for place in reversed(stack):
            entered = place.entered
            if entered is not None and self._depends_on_others(place):
                entered = Entered(self._ways.texts.later(place), entered.begin)
            below = (self._network.frame(place.component, place.state, entered, below),)
        return below[0]

    def _depends_on_others(self, owner: Frame) -> bool:
        """Whether what comes after an open item or name depends on what it becomes."""
        if owner.entered is None or not owner.entered.has_begun:
            return False
        rule, keys = self._network.rules[owner.component], owner.entered.keys
        if isinstance(rule, NameRule):
            return not rule.any_order or rule.low - len(keys) - 1 > len(rule.required - keys)
        return isinstance(rule, ItemRule) and (not rule.is_simple or rule.low > len(keys) + 1)
