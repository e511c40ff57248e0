"""The tokens that may come after a text that a network reads.

Most tokens that fit stay in one component, or leave it near their end. For each state of a component it is known which
stay and where the others leave (component_tables.py). What the others do after that depends on the frames below, but
hardly on how they began: nodes of the trie are followed together from there, in the next component alike. Only where
something has begun they are followed byte by byte.

Where an item or a name may be one that is entered already, the tokens that could make it equal are read one by one.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .component_tables import ComponentTables, Reached
from .component_walk import LeavingNodes, StayingNodes, Words
from .frame import NO_TEXT, Frame, Frames, Text
from .lru_bytes import ByteCache
from .network import Network
from .registers import UNKNOWN, Different, ItemRule, LengthRule
from .rtn import Component
from .token_trie import Ints, MaskBuilder, Nodes
from .written_values import CHARACTER_BYTES, characters

_MASK_BYTES = 2 * 2**20  # bytes of the masks that are kept
_NO_TOKENS = np.empty(0, np.int64)
_NONE = StayingNodes(np.empty(0, np.int32), np.empty(0, np.int32))


class Part:
    """Tokens that end in one component, on top of the same frames.

    They begin there in ``frame``, at the nodes ``begun``; None is the root. The text before them ends at ``end``. The
    nodes ``without`` are ascending, and none of them. Of an open string that is counted, the whole token needs ``low``
    characters and may have ``high``; None where it has no such bound.
    """

    def __init__(
        self,
        frame: Frame,
        begun: Nodes | None,
        end: int,
        without: Ints,
        low: int | None = None,
        high: int | None = None,
    ):
        self.frame, self.begun, self.without, self.low, self.high = frame, begun, without, low, high
        self.text = Text(None, end + 1) if frame.has_begun else NO_TEXT  # not at hand, for that of each token differs


class CompetingNodes:
    """Finds the tokens that could make items or names equal that have to be different.

    Any other token leaves the open item different from all that are there already, or leaves it infinitely many ways to
    become so.
    """

    def __init__(self, network: Network, tables: ComponentTables):
        self._network, self._tables, self._tokens = network, tables, tables.tokens
        self._reach = len(tables.tokens.trie.levels)  # no token is longer

    def of(self, frame: Frame, text: Text) -> StayingNodes:
        """The nodes where something that has begun may be equal to what is entered already, ascending."""
        competing: list[Ints] = []
        reached: StayingNodes | None = None
        for owner, entered in frame.opened():
            if not owner.is_watched:
                break
            rule = self._network.rules[owner.component]
            written = text.since(entered.begin)
            assert written is not None
            if isinstance(rule, LengthRule):
                if self._network.bounds(frame, text, self._reach) is None:
                    continue
                if rule.string.in_json and _is_inside_character(written):
                    return self._stay(frame)
                if not rule.string.has_one_spelling:
                    reached = self._stay(frame)
                continue
            assert isinstance(rule, Different)
            items = rule.competing_items(entered, written, self._network.search)
            if items.keys and items.after is None:
                return self._bounded(frame, owner, text)
            competing += map(self._along, items.endings(self._reach))
            if items.keys and not rule.one_spelling:
                reached = self._stay(frame)
        if reached is not None:
            competing.append(self._tokens.after_escape)
        if not competing:
            return _NONE
        nodes = np.unique(np.concatenate(competing))
        if reached is not None:
            places = np.searchsorted(reached.nodes, nodes)
            places, nodes = places[places < len(reached.nodes)], nodes[places < len(reached.nodes)]
            return _part(reached, places[reached.nodes[places] == nodes])
        states = self._tables.states_at(self._network.components[frame.component], frame.state, nodes)
        return _part(StayingNodes(nodes, states), states != 0)

    def with_names(self, frame: Frame, text: Text) -> NDArray[np.int64]:
        """(tokens,) those that write a name which may be in an object of an item already: they have to be read too."""
        for owner, entered in frame.opened() if frame.is_watched else ():
            if isinstance(self._network.rules[owner.component], ItemRule):
                written = text.since(entered.begin)
                if written is not None and b"{" in written:
                    return self._tokens.with_names
        return _NO_TOKENS

    def _bounded(self, frame: Frame, owner: Frame, text: Text) -> StayingNodes:
        """The nodes from which only few ways lead to the end of the open item, or that leave the component."""
        nodes, states = self._stay(frame)
        bounds = self._network.bounds(frame, text, self._reach)
        if bounds is not None and bounds[1] is not None:  # how many ways there are depends on the room
            return StayingNodes(nodes, states)
        graph = self._network.graph
        unbounded = graph.unbounded_begun if owner is frame else graph.unbounded
        leaves = self._tables.leaves(self._network.components[frame.component])[states]
        if (rule := self._network.open_string(frame)) is not None:  # nothing but one byte ends it
            ends = rule.string.ends(self._tables.nodes.of(nodes[leaves])).nodes
            leaves[leaves] = np.isin(nodes[leaves], ends)
        return _part(StayingNodes(nodes, states), leaves | ~unbounded(frame.component)[states])

    def _along(self, path: bytes) -> Ints:
        child, letters = self._tokens.children, self._tokens.letters
        nodes = [0]
        for byte in path:
            at = letters.find(byte, child[nodes[-1]], child[nodes[-1] + 1])
            if at < 0:
                break
            nodes.append(at)
        return np.array(nodes)

    def _stay(self, frame: Frame) -> StayingNodes:
        return self._tables.stay(self._network.components[frame.component], frame.state)


def _part(stay: StayingNodes, kept: NDArray[Any]) -> StayingNodes:
    return StayingNodes(stay.nodes[kept], stay.states[kept])


def _is_inside_character(written: bytes) -> bool:
    """Whether a string has only begun to write its last character with an escape, or with two."""
    count = characters(written)
    return b"\\" in written[-CHARACTER_BYTES:] and count in [characters(written + byte) for byte in (b"a", b"u", b"\\")]


class TokenWalk(ABC):
    """Finds the tokens that fit after all of a text, in parts, and the others by the nodes where they end."""

    def __init__(self, masks: NetworkMasks, frames: Frames, text: Text):
        self._masks, self._network, self._tables = masks, masks.network, masks.tables
        self._tokens, self._frames, self._text = masks.tokens, frames, text
        for frame in self._network.everywhere(frames, text):
            self._from(frame)

    @abstractmethod
    def _part(self, part: Part, wary: Frame) -> None:
        """Take the tokens of a part; see ``_wary``."""

    @abstractmethod
    def _note(self, nodes: Ints, frames: Frames, text: Text) -> None:
        """Take the tokens that end in some nodes, after which a text is in some frames."""

    def _wary(self, frame: Frame) -> Frame:
        """A frame with all that the open items must not become."""
        return frame

    def _from(self, frame: Frame) -> None:
        """Find the tokens that begin with a byte in this frame's component."""
        network, text = self._network, self._text
        table = self._tables.table(self._masks.component(frame), frame.state)
        leaving, bounds = table.leaving, network.bounds(frame, text, self._masks.reach)
        if bounds is not None:
            leaving = self._leaving(frame, leaving, bounds)
        wary = self._wary(frame)
        competing = self._masks.competing.of(wary, text) if wary.is_watched else _NONE
        low, high = bounds or (0, None)
        is_counted = network.open_string(frame) is not None
        self._part(Part(frame, None, text.end, competing.nodes, low if is_counted else None, high), wary)
        for left, onwards, beyond in self._beyond(frame, leaving, text):
            self._follow(self._but(competing.nodes, left), onwards, beyond)
        if len(competing.nodes):
            self._read_competing(frame, competing)

    def _beyond(self, frame: Frame, leaving: LeavingNodes, text: Text) -> Iterator[tuple[Nodes, Frames, Text]]:
        """The continuations of tokens that leave a frame's component in some states: nodes, frames there, and the text.

        Where the text ends is not the same for all nodes, so what began before is at hand for none.
        """
        beyond = Text(None, text.end + 1)
        for state, left in leaving:
            here = self._network.frame(frame.component, state, frame.entered, frame.below)
            onwards = self._onwards(here, beyond)
            if onwards and len(left.nodes):
                yield left, onwards, beyond

    def _onwards(self, here: Frame, text: Text) -> Frames:
        return tuple(place for place in self._network.everywhere([here], text) if place is not here)

    def _but(self, competing: Ints, left: Nodes) -> Nodes:
        """The nodes that are none of a few others, ascending like these."""
        if not len(competing):
            return left
        places = np.searchsorted(left.nodes, competing)
        places = places[places < len(left.nodes)]
        dropped = places[np.isin(left.nodes[places], competing)]
        return self._tables.nodes.of(np.delete(left.nodes, dropped)) if len(dropped) else left

    def _follow(self, begun: Nodes, frames: Frames, text: Text) -> None:
        """Find the tokens below some nodes, where a text is in frames that include all that calls and ends lead to."""
        network = self._network
        todo = [(begun, frames, text)] if len(begun.nodes) else []
        while todo:
            begun, frames, text = todo.pop()
            if any(place.has_begun and _is_doubtful(place) for place in frames):
                self._read_each(begun)
                continue
            busy = []
            for place in frames:
                rule = network.open_string(place)
                if rule is not None and place.entered is not None and place.entered.begin == text.end:
                    if not any(under.has_begun for under in place.below):  # nothing but the quote is written
                        todo += self._follow_string(begun, place, rule, text)
                        continue
                if place.has_begun:
                    busy.append(place)
                else:
                    self._part(Part(place, begun, text.end, _NONE.nodes), place)
                    table = self._tables.table(self._masks.component(place), place.state, begun)
                    todo += self._beyond(place, table.leaving, text)
            possible = {byte for place in busy for byte, _ in network.graph.moves(place.component, place.state, 256)}
            for byte, below in begun.children if busy else ():
                if byte not in possible:
                    continue
                longer = text.plus(bytes((byte,)))
                after = network.moved(busy, byte)
                after = tuple(frame for frame in after if network.is_productive(frame, longer))
                if after:
                    self._note(below.nodes, after, longer)
                    todo.append((below, tuple(network.everywhere(after, longer)), longer))

    def _follow_string(
        self, begun: Nodes, frame: Frame, rule: LengthRule, text: Text
    ) -> Iterator[tuple[Nodes, Frames, Text]]:
        """Find the tokens of a string that begins at some nodes with known numbers of characters; see ``_beyond``."""
        bounds = rule.bounds(0, self._masks.reach)
        low, high = bounds or (0, None)
        by_characters = begun.by_characters(rule.string.characters_on(self._tokens)) if bounds else [(0, begun)]
        for already, nodes in by_characters:
            most = None if high is None else high + already
            self._part(Part(frame, nodes, text.end, _NONE.nodes, low + already, most), frame)
            leaving = self._tables.table(self._masks.component(frame), frame.state, nodes).leaving
            if bounds is not None:
                leaving = self._leaving(frame, leaving, (low + already, most))
            yield from self._beyond(frame, leaving, text)

    def _leaving(self, frame: Frame, leaving: LeavingNodes, bounds: tuple[int, int | None]) -> LeavingNodes:
        """The part of a table where the string of a frame ends, with characters within bounds on the way."""
        rule, (low, high) = self._network.rules[frame.component], bounds
        assert isinstance(rule, LengthRule)
        count = rule.string.characters_on(self._tokens)
        within = []
        for state, left in leaving:
            nodes = rule.string.ends(left).nodes
            kept = nodes[count[nodes] >= low]
            kept = kept if high is None else kept[count[kept] <= high]
            if len(kept):
                within.append((state, self._tables.nodes.of(kept)))
        return tuple(within)

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

    def _read_competing(self, frame: Frame, competing: StayingNodes) -> None:
        """Find the tokens that end in these nodes, and those that leave the component there."""
        network = self._network
        for node, state in zip(competing.nodes.tolist(), competing.states.tolist(), strict=True):
            here = network.frame(frame.component, state, frame.entered, frame.below)
            longer = self._text.plus(self._tokens.path_to(node))
            if not node or not network.is_productive(here, longer):
                continue
            nodes = np.array([node], np.int32)
            self._note(nodes, (here,), longer)
            if network.leaves(frame.component, state):
                self._follow(self._tables.nodes.of(nodes), self._onwards(here, longer), longer)


class _MaskWalk(TokenWalk):
    def __init__(self, masks: NetworkMasks, frames: Frames, text: Text):
        self.mask = MaskBuilder(masks.tokens)
        super().__init__(masks, frames, text)

    def _part(self, part: Part, wary: Frame) -> None:
        self._masks.add(part, self.mask)

    def _note(self, nodes: Ints, frames: Frames, text: Text) -> None:
        self.mask.add_nodes(nodes)


_numbers = itertools.count()


class KeptMask(NamedTuple):
    """A mask, (words,) int32, read-only, and its number: no two masks of one process have the same."""

    words: Words
    number: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.words.nbytes + 1024


class NetworkMasks:
    """A network and a vocabulary; thread safe."""

    def __init__(self, network: Network, tables: ComponentTables, token_bytes: Sequence[bytes | None]):
        self.network, self.tables, self._token_bytes = network, tables, token_bytes
        self.tokens = tables.tokens
        self.reach = len(self.tokens.trie.levels)  # no token is longer
        self.competing = CompetingNodes(network, tables)
        self._masks: ByteCache[KeptMask] = ByteCache(_MASK_BYTES)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most, the tables and the network aside."""
        return _MASK_BYTES

    def of(self, frames: Frames, text: bytes | bytearray) -> Words:
        """(words,) int32: the tokens that may come after all of a text, which is in these frames."""
        return self.kept(frames, text).words

    def kept(self, frames: Frames, text: bytes | bytearray) -> KeptMask:
        """The kept mask after a text; see ``of``."""
        at = Text(text, len(text))
        key = self._key(frames, at)
        known = self._masks.get(key)
        if known is None:
            mask = _MaskWalk(self, frames, at).mask
            for token_id in np.unique(np.concatenate([self.competing.with_names(frame, at) for frame in frames])):
                if not self.network.read(frames, self._token_bytes[token_id] or b"", at):
                    mask.forbid_token(int(token_id))
            known = KeptMask(mask.words(), next(_numbers))
            self._masks.put(key, known)
        return known

    def _key(self, frames: Frames, text: Text) -> Hashable:
        return tuple(self.network.place(frame, text, self.reach) if frame.has_begun else frame for frame in frames)

    def component(self, frame: Frame) -> Component:
        """The component of a frame."""
        return self.network.components[frame.component]

    def add(self, part: Part, mask: MaskBuilder) -> None:
        """Allow the tokens of a part."""
        component, state = self.component(part.frame), part.frame.state
        table = self.tables.table(component, state, part.begun)
        if part.high is None and not len(part.without):
            table.add_to(mask)
            return
        words = table.mask(self.tokens)
        if part.high is not None:
            string = self._string(part.frame).string
            characters = string.characters_on(self.tokens)
            at_most = self.tables.at_most(component, state, characters, string.owed, part.begun)
            if at_most is not None and part.high < len(at_most):
                words = words & at_most[part.high]
            else:
                nodes, states = (
                    self.tables.stay(component, state)
                    if part.begun is None
                    else self.tables.below(component, state, part.begun)
                )
                words = words & self.tokens.mask_of(nodes[characters[nodes] + string.owed[states] <= part.high])
        mask.add_words(words & ~self.tokens.mask_of(part.without))

    def reached(self, part: Part, reached: Reached) -> Reached:
        """The nodes of a part among those in a state of its component."""
        nodes = reached.nodes
        if part.high is not None:
            string = self._string(part.frame).string
            nodes = nodes[string.characters_on(self.tokens)[nodes] + string.owed[reached.state] <= part.high]
        if len(part.without):
            nodes = nodes[~np.isin(nodes, part.without)]
        return reached if len(nodes) == len(reached.nodes) else Reached.of(self.tokens, reached.state, nodes)

    def _string(self, frame: Frame) -> LengthRule:
        rule = self.network.rules[frame.component]
        assert isinstance(rule, LengthRule)
        return rule


def _is_doubtful(frame: Frame) -> bool:
    """Whether something has begun that could be equal to what is entered, but is not at hand."""
    return any(UNKNOWN in entered.keys for _, entered in frame.opened())
