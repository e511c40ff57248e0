"""Masks of a network near the end of a token budget: the tokens after which few enough tokens are needed.

From each place the tokens that fit are found once, as for a mask without a budget (network_masks.py), in *parts*: those
that end in one component, on top of the same frames. How many tokens are needed after those of a part is known from its
states alone. First only a bound on it is looked at, in bytes; while the budget is larger, nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import CompileLimitExceeded
from .component_tables import ComponentTables, Reached
from .component_walk import Leaving, Words
from .exit_texts import NO_TEXT, written_out
from .frame import Frame, Frames, Text
from .length_rule import LengthRule
from .lru_bytes import ByteCache
from .network import Network
from .network_masks import NetworkMasks, is_doubtful
from .network_suspects import NONE
from .registers import Entered, ItemRule, NameRule
from .shortest_paths import UNREACHABLE
from .token_nodes import Ints, Nodes
from .token_trie import MaskBuilder
from .way_out import WaysOut

_BYTES = 4 * 2**20  # of what is known after texts
_PART_BYTES = 4096  # of a part
_MARGIN = 2  # tokens more that an item may take which could become one that is entered, or that comes later
_MOST_CHECKED = 2000  # nodes at which it is looked whether it does


class _Part:
    """Tokens that end in one component.

    Args:
        frame: where they begin there.
        begun: the nodes where they do; None is the root.
        text: before them; not at hand where the counts do not depend on it.
        without: nodes that are none of them, ascending.
        low: characters that a string still has to get; None if they are not counted.
        item: the frame in which an item has begun that may become one that is entered, and its text; None if none may.

    Attributes:
        bound: tokens that are enough after any of these; None where that is not known before they are counted.
        counts: nodes, and the tokens needed after those; None as long as they are not counted.
    """

    __slots__ = ("begun", "bound", "counts", "frame", "item", "low", "text", "without")

    def __init__(
        self,
        frame: Frame,
        begun: Nodes | None,
        text: Text,
        without: Ints,
        low: int | None = None,
        item: tuple[Frame, bytes] | None = None,
    ):
        self.frame, self.begun, self.text = frame, begun, text
        self.without, self.low, self.item = without, low, item
        self.bound: int | None = None
        self.counts: list[tuple[Reached, int]] | None = None


class _Walk(NamedTuple):
    """The tokens that fit after a text.

    Args:
        parts: those that are counted only near the end.
        nodes, needed: the others; tokens needed after each.
        most: no token needs more than that after it.
    """

    parts: list[_Part]
    nodes: list[NDArray[np.int32]]
    needed: list[int]
    most: int

    @property
    def nbytes(self) -> int:
        """Bytes held, about: most nodes are those of the tables."""
        return 2048 + _PART_BYTES * len(self.parts) + sum([200 + nodes.nbytes for nodes in self.nodes])


class BudgetedNetworkMasks(NetworkMasks):
    """Masks that keep budgets; thread safe.

    Args:
        network, tables, token_bytes: see ``NetworkMasks``.
    """

    def __init__(self, network: Network, tables: ComponentTables, token_bytes: Sequence[bytes | None]):
        super().__init__(network, tables, token_bytes)
        self.ways = WaysOut(network, tables.tokens)
        self._root = tables.nodes.of(np.zeros(1, np.int32))
        self._walks: ByteCache[_Walk] = ByteCache(_BYTES)

    def needed(self, frames: Frames, text: bytes | bytearray) -> int | None:
        """Tokens that are enough to finish, the stop token counted.

        None if the text would be too long, or a search for an item found no way.

        Args:
            frames: after the text.
            text: all of it.
        """
        try:
            needed = self.ways.needed(frames, Text(text, len(text)))
        except CompileLimitExceeded:
            return None
        return 1 + needed if needed < UNREACHABLE else None

    def within(self, frames: Frames, text: bytes | bytearray, tokens_left: int) -> Words:
        """(words,) int32: the tokens after which the rest of a budget is enough; as ``of`` where it is not already.

        Args:
            frames: after the text.
            text: all of it.
            tokens_left: of the budget, the stop token counted.
        """
        words = self.of(frames, text)
        try:
            return self._within(words, frames, Text(text, len(text)), tokens_left - 2)
        except CompileLimitExceeded:  # of a text that would be too long; without a budget all is well
            return words

    def _within(self, words: Words, frames: Frames, at: Text, room: int) -> Words:
        key = self._key(frames, at)
        walk = self._walks.get(key)
        if walk is None:
            walk = _Walker(self).walk(frames, at)
            self._walks.put(key, walk)
        if walk.most <= room or self.ways.needed(frames, at) > room + 1:
            return words
        mask, is_whole = MaskBuilder(self._tokens), True
        for nodes, needed in zip(walk.nodes, walk.needed, strict=True):
            if needed <= room:
                mask.add_nodes(nodes)
            else:
                is_whole = False
        for part in walk.parts:
            is_whole &= self._add(part, room, mask)
        if is_whole:
            return words
        for frame in frames:
            mask.add_nodes(np.array(self.ways.along(frame, at, room), np.int32))
        within: Words = mask.words() & words
        return within

    def _add(self, part: _Part, room: int, mask: MaskBuilder) -> bool:
        """Allow the tokens of a part after which few enough are needed; whether these are all of them."""
        if part.bound is not None and part.bound <= room:
            table = self._tables.table(self._component(part.frame), part.frame.state, part.begun)
            if len(part.without):
                mask.add_words(table.mask(self._tokens) & ~self._tokens.mask_of(part.without))
            else:
                table.add_to(mask)
            return True
        is_whole = True
        for reached, needed in self.counts(part):
            if needed > room:
                is_whole = False
            elif reached.words is None:
                mask.add_nodes(reached.nodes)
            else:
                mask.add_words(reached.words)
        return is_whole

    def counts(self, part: _Part) -> list[tuple[Reached, int]]:
        """The nodes of a part, and the tokens needed after them."""
        if part.counts is None:
            part.counts = [*self._counted(part)]
        return part.counts

    def _counted(self, part: _Part) -> Iterator[tuple[Reached, int]]:
        frame, tokens = part.frame, self._tokens
        for reached in self._tables.by_state(self._component(frame), frame.state, part.begun):
            place = self._network.frame(frame.component, reached.state, frame.entered, frame.below)
            here = reached
            if len(part.without):
                nodes = here.nodes[~np.isin(here.nodes, part.without)]
                if len(nodes) < len(here.nodes):
                    here = Reached.of(tokens, here.state, nodes)
            if part.low:
                rule = self._network.rules[frame.component]
                assert isinstance(rule, LengthRule)
                left = np.maximum(0, part.low - rule.string.characters_on(tokens)[here.nodes])
                for left_there in np.unique(left).tolist():
                    some = Reached.of(tokens, here.state, here.nodes[left == left_there])
                    yield some, self.ways.way(place, part.text, left_there).needed
                continue
            count = self.ways.way(place, part.text, part.low).needed
            if part.item is not None:
                if len(here.nodes) <= _MOST_CHECKED:
                    others = self._checked(place, here.nodes, part.text, *part.item)
                    yield from others
                    if others:
                        nodes = np.setdiff1d(here.nodes, [some.nodes[0] for some, _ in others])
                        here = Reached.of(tokens, here.state, nodes)
                else:
                    count += _MARGIN
            yield here, count

    def _checked(
        self, place: Frame, nodes: Ints, text: Text, owner: Frame, written: bytes
    ) -> list[tuple[Reached, int]]:
        """The nodes from which an item cannot end as its frame would have it, each counted on its own."""
        entered, rule = owner.entered, self._network.rules[owner.component]
        assert entered is not None
        ending = written_out(self.ways.texts.of(place, text).text)
        others = []
        for node in nodes.tolist():
            path = self._tokens.path_to(node)
            if node and self._tokens.has_token[node] and rule.end(entered, written + path + ending) is None:
                count = self.ways.way(place, Text(None, entered.begin, written + path)).needed
                others.append((Reached(0, np.array([node], np.int32), None), count))
        return others


class _Walker:
    """Finds the tokens that fit after one text.

    Args:
        masks: of the network.
    """

    def __init__(self, masks: BudgetedNetworkMasks):
        self._masks, self._network, self._tables = masks, masks._network, masks._tables
        self._tokens, self._strings, self._ways = masks._tokens, masks._strings, masks.ways
        self._parts: list[_Part] = []
        self._nodes: list[NDArray[np.int32]] = []
        self._needed: list[int] = []
        self._most = 0

    def walk(self, frames: Frames, text: Text) -> _Walk:
        """The tokens that fit.

        Args:
            frames: after the text.
            text: all of it.
        """
        self._frames, self._text = frames, text
        for frame in self._network.everywhere(frames, text):
            self._from(frame, text)
        return _Walk(self._parts, self._nodes, self._needed, self._most)

    def _note(self, nodes: NDArray[np.int32], frames: Frames, text: Text) -> None:
        """Count the tokens that end in some nodes, after which a text is in some frames."""
        if self._tokens.has_token[nodes].any():
            needed = self._ways.needed(frames, text)
            self._nodes.append(nodes)
            self._needed.append(needed)
            self._most = max(self._most, needed)

    def _part(self, part: _Part) -> None:
        part.bound = self._ways.bound(part.frame, part.text, part.low)
        self._parts.append(part)
        if part.bound is not None:
            part.bound += 0 if part.item is None else _MARGIN
            self._most = max(self._most, part.bound)
        else:
            self._most = max([self._most, *(needed for _, needed in self._masks.counts(part))])

    def _from(self, frame: Frame, text: Text) -> None:
        """Find the tokens that begin with a byte in this frame's component."""
        network, masks = self._network, self._masks
        rule = network.rules.get(frame.component)
        entered = frame.entered
        if isinstance(rule, NameRule) and entered is not None and entered.has_begun:
            self._follow(masks._root, (frame,), text)
            return
        table = self._tables.table(masks._component(frame), frame.state)
        leaving, bounds = table.leaving, self._strings.bounds(frame, text)
        if bounds is not None:
            leaving = self._strings.leaving(frame, leaving, bounds)
        wary = self._wary(frame)
        suspects = masks._suspects.of(wary, text) if wary.is_watched else NONE
        without = suspects.nodes
        if bounds is not None and bounds[1] is not None:
            nodes, states = self._tables.stay(masks._component(frame), frame.state)
            assert isinstance(rule, LengthRule)
            characters = rule.string.characters_on(self._tokens)[nodes] + rule.string.owed[states]
            without = np.union1d(without, nodes[characters > bounds[1]])
        unknown = Text(None, text.end + 1) if frame.has_begun else NO_TEXT
        is_counted = self._strings.begun(frame) is not None
        low = (0 if bounds is None else bounds[0]) if is_counted else None
        self._part(_Part(frame, None, unknown, without, low, self._contested(wary, text)))
        beyond = Text(None, text.end + 1)
        for state, left in leaving:
            here = network.frame(frame.component, state, frame.entered, frame.below)
            self._follow(masks._but(without, left), self._onwards(here, beyond), beyond)
        for node, state in zip(suspects.nodes.tolist(), suspects.states.tolist(), strict=True):
            here = network.frame(frame.component, state, frame.entered, frame.below)
            longer = text.plus(self._tokens.path_to(node))
            if node and network.is_alive(here, longer):
                self._note(np.array([node], np.int32), (here,), longer)
                if network.leaves(frame.component, state):
                    self._follow(self._one(node), self._onwards(here, longer), longer)

    def _one(self, node: int) -> Nodes:
        return self._tables.nodes.of(np.array([node], np.int32))

    def _onwards(self, here: Frame, text: Text) -> Frames:
        return tuple(place for place in self._network.everywhere([here], text) if place is not here)

    def _contested(self, frame: Frame, text: Text) -> tuple[Frame, bytes] | None:
        """The item that has begun and could become one that is entered, where its suspects alone do not tell."""
        item = None
        for owner in frame.stack() if frame.is_watched else ():
            if owner.entered is not None and owner.entered.has_begun:
                rule, written = self._network.rules[owner.component], text.since(owner.entered.begin)
                if isinstance(rule, ItemRule) and written is not None:
                    found = rule.rivals(owner.entered, written, self._network.search)
                    if found.keys and found.after is None:
                        item = owner, written  # the outermost
        return item

    def _wary(self, frame: Frame) -> Frame:
        """The frame as if what comes later were entered already: what has begun may become that too."""
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
        """Whether what comes after an item or a name that has begun depends on what it becomes."""
        if owner.entered is None or not owner.entered.has_begun:
            return False
        rule, keys = self._network.rules[owner.component], owner.entered.keys
        if isinstance(rule, NameRule):
            return not rule.any_order or rule.low - len(keys) - 1 > len(rule.required - keys)
        return isinstance(rule, ItemRule) and (not rule.is_simple or rule.low > len(keys) + 1)

    def _follow(self, begun: Nodes, frames: Frames, text: Text) -> None:
        """Find the tokens below some nodes of the trie.

        Args:
            begun: the nodes.
            frames: there, and those that calls, marks and the ends of components lead to.
            text: up to there.
        """
        network, masks = self._network, self._masks
        todo = [(begun, frames, text)] if frames and len(begun.nodes) else []
        while todo:
            begun, frames, text = todo.pop()
            if any(place.has_begun and is_doubtful(place) for place in frames):
                self._read_each(begun)
                continue
            busy = []
            for place in frames:
                rule = self._strings.begun_here(place, text)
                if rule is not None:
                    todo += self._follow_string(begun, place, rule, text)
                elif place.has_begun:
                    busy.append(place)
                else:
                    table = self._tables.table(masks._component(place), place.state, begun)
                    self._part(_Part(place, begun, NO_TEXT, NONE.nodes))
                    todo += masks._beyond(place, table.leaving, text)
            possible = {byte for place in busy for byte, _ in network.graph.moves(place.component, place.state, 256)}
            for byte, below in begun.children if busy else ():
                if byte not in possible:
                    continue
                longer = text.plus(bytes((byte,)))
                after = network.moved(busy, byte)
                after = tuple(frame for frame in after if network.is_alive(frame, longer))
                if after:
                    self._note(below.nodes, after, longer)
                    todo.append((below, tuple(network.everywhere(after, longer)), longer))

    def _follow_string(
        self, begun: Nodes, frame: Frame, rule: LengthRule, text: Text
    ) -> Iterator[tuple[Nodes, Frames, Text]]:
        """Find the tokens of a string that begins at some nodes."""
        bounds = self._strings.left(rule, 0) or (0, None)
        string, characters = rule.string, rule.string.characters_on(self._tokens)
        component = self._masks._component(frame)
        for already, nodes in begun.by_characters(characters):
            without = NONE.nodes
            if bounds[1] is not None:
                known = len(nodes.nodes)
                inside, states = (some[known:] for some in self._tables.below(component, frame.state, nodes))
                without = inside[characters[inside] + string.owed[states] > bounds[1] + already]
            self._part(_Part(frame, nodes, Text(None, text.end + 1), without, bounds[0] + already))
            leaving: Leaving = self._tables.table(component, frame.state, nodes).leaving
            yield from self._masks._beyond(frame, self._strings.leaving(frame, leaving, bounds, already), text)

    def _read_each(self, begun: Nodes) -> None:
        """Find tokens below some nodes that have to be read one by one: what has begun before them is not at hand."""
        todo = [begun]
        while todo:
            for _, below in todo.pop().children:
                todo.append(below)
                for node in below.nodes[self._tokens.has_token[below.nodes]].tolist():
                    path = self._tokens.path_to(node)
                    after = self._network.read(self._frames, path, self._text)
                    if after:
                        self._note(np.array([node], np.int32), after, self._text.plus(path))
