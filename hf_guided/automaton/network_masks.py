"""The tokens that may come after a text that a network reads.

Most tokens that fit stay in one component, or leave it near their end. For each state of a component it is known which
stay and where the others leave (component_tables.py). What the others do after that depends on the frames below, but
hardly on how they began: nodes of the trie are followed together from there, in the next component alike. Only where
something has begun they are followed byte by byte.

Where an item or a name may be one that is entered already, the tokens that could make it equal are read one by one
(network_suspects.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .component_tables import ComponentTables
from .component_walk import Leaving, Stay, Words
from .frame import Frame, Frames, Text
from .length_rule import LengthRule
from .lru_bytes import ByteCache
from .network import Network
from .network_strings import NetworkStrings
from .network_suspects import NONE, Suspects
from .registers import UNKNOWN
from .rtn import Component
from .token_nodes import Ints, Nodes
from .token_trie import MaskBuilder

_MASK_BYTES = 2 * 2**20  # of the masks kept


class _Mask(NamedTuple):
    words: Words

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.words.nbytes + 1024


class NetworkMasks:
    """A network and a vocabulary; thread safe.

    Args:
        network: what reads the text.
        tables: of the vocabulary.
        token_bytes: of each token.
    """

    def __init__(self, network: Network, tables: ComponentTables, token_bytes: Sequence[bytes | None]):
        self._network, self._tables, self._token_bytes = network, tables, token_bytes
        self._tokens = tables.tokens
        self._reach = len(self._tokens.trie.levels)  # no token is longer
        self._strings = NetworkStrings(network, tables)
        self._suspects = Suspects(network, tables, self._strings)
        self._masks: ByteCache[_Mask] = ByteCache(_MASK_BYTES)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most, the tables and the network aside."""
        return _MASK_BYTES

    def of(self, frames: Frames, text: bytes | bytearray) -> Words:
        """(words,) int32: the tokens that may come.

        Args:
            frames: after the text.
            text: all of it.
        """
        at = Text(text, len(text))
        key = self._key(frames, at)
        known = self._masks.get(key)
        if known is None:
            mask = MaskBuilder(self._tokens)
            for frame in self._network.everywhere(frames, at):
                self._from(frame, at, mask)
            for token_id in np.unique(np.concatenate([self._suspects.with_names(frame, at) for frame in frames])):
                if not self._network.read(frames, self._token_bytes[token_id] or b"", at):
                    mask.forbid_token(int(token_id))
            known = _Mask(mask.words())
            self._masks.put(key, known)
        return known.words

    def _key(self, frames: Frames, text: Text) -> Hashable:
        """What the next tokens depend on."""
        return tuple(self._network.place(frame, text, self._reach) if frame.has_begun else frame for frame in frames)

    def _from(self, frame: Frame, text: Text, mask: MaskBuilder) -> None:
        """Add the tokens that begin with a byte in this frame's component."""
        table = self._tables.table(self._component(frame), frame.state)
        leaving, bounds = table.leaving, self._strings.bounds(frame, text)
        if bounds is not None:
            leaving = self._strings.leaving(frame, leaving, bounds)
        high = None if bounds is None else bounds[1]
        suspects = self._suspects.of(frame, text) if frame.is_watched else NONE
        if len(suspects.nodes) or high is not None:
            inside = table.mask(self._tokens) if high is None else self._strings.inside(frame, high)
            mask.add_words(inside & ~self._tokens.mask_of(suspects.nodes))
            leaving = tuple((state, self._but(suspects.nodes, left)) for state, left in leaving)
            self._read_suspects(frame, text, suspects, mask)
        else:
            table.add_to(mask)
        doubtful: list[Ints] = []
        for left, onwards, beyond in self._beyond(frame, leaving, text):
            self._follow(left, onwards, beyond, mask, doubtful)
        for token_ids in doubtful:
            self._read_each(token_ids, frame, text, mask)

    def _beyond(self, frame: Frame, leaving: Leaving, text: Text) -> Iterator[tuple[Nodes, Frames, Text]]:
        """Where tokens go on that leave the frame's component.

        Args:
            frame: in which they began.
            leaving: the states in which they leave, and the nodes where they do.
            text: before them.

        Yields:
            The nodes, the frames there, and the text: where it ends is not the same for all nodes, so what began
            before is at hand for none.
        """
        beyond = Text(None, text.end + 1)
        for state, left in leaving:
            here = self._network.frame(frame.component, state, frame.entered, frame.below)
            onwards = tuple(place for place in self._network.everywhere([here], beyond) if place is not here)
            if onwards and len(left.nodes):
                yield left, onwards, beyond

    def _but(self, suspects: Ints, left: Nodes) -> Nodes:
        """The nodes that are none of a few others, ascending like these."""
        places = np.searchsorted(left.nodes, suspects)
        places = places[places < len(left.nodes)]
        dropped = places[np.isin(left.nodes[places], suspects)]
        return self._tables.nodes.of(np.delete(left.nodes, dropped)) if len(dropped) else left

    def _component(self, frame: Frame) -> Component:
        return self._network.components[frame.component]

    def _follow(self, begun: Nodes, frames: Frames, text: Text, mask: MaskBuilder, doubtful: list[Ints] | None) -> None:
        """Add the tokens below some nodes of the trie.

        Args:
            begun: the nodes.
            frames: there, and those that calls, marks and the ends of components lead to.
            text: up to there.
            mask: to add them to.
            doubtful: takes those that have to be read one by one; None where the whole text is at hand.
        """
        todo = [(begun, frames, text)]
        while todo:
            begun, frames, text = todo.pop()
            if doubtful is not None and any(place.has_begun and is_doubtful(place) for place in frames):
                doubtful.append(begun.longer_token_ids)
                continue
            busy = []
            for place in frames:
                if (string := self._strings.begun_here(place, text)) is not None:
                    todo += self._follow_string(begun, place, string, text, mask)
                elif place.has_begun:
                    busy.append(place)
                else:
                    table = self._tables.table(self._component(place), place.state, begun)
                    table.add_to(mask)
                    todo += self._beyond(place, table.leaving, text)
            for byte, below in begun.children if busy else ():
                longer = text.plus(bytes((byte,)))
                after = self._network.moved(busy, byte)
                after = tuple(frame for frame in after if self._network.is_alive(frame, longer))
                if after:
                    mask.add_nodes(below.nodes)
                    todo.append((below, tuple(self._network.everywhere(after, longer)), longer))

    def _follow_string(
        self, begun: Nodes, frame: Frame, rule: LengthRule, text: Text, mask: MaskBuilder
    ) -> Iterator[tuple[Nodes, Frames, Text]]:
        """Add the tokens of a string that begins at some nodes; how many characters are before them is known for each.

        Yields:
            Where they go on after the string: see ``_beyond``.
        """
        component, bounds = self._component(frame), self._strings.left(rule, 0)
        if bounds is None:
            table = self._tables.table(component, frame.state, begun)
            table.add_to(mask)
            yield from self._beyond(frame, table.leaving, text)
            return
        string, characters = rule.string, rule.string.characters_on(self._tokens)
        for already, nodes in begun.by_characters(characters):
            inside, states = (part[len(nodes.nodes) :] for part in self._tables.below(component, frame.state, nodes))
            if bounds[1] is not None:
                inside = inside[characters[inside] + string.owed[states] <= bounds[1] + already]
            mask.add_nodes(inside)
            leaving = self._tables.table(component, frame.state, nodes).leaving
            yield from self._beyond(frame, self._strings.leaving(frame, leaving, bounds, already), text)

    def _read_each(self, token_ids: Ints, frame: Frame, text: Text, mask: MaskBuilder) -> None:
        """Add those of some tokens that may come, read one by one."""
        for token_id in token_ids.tolist():
            if self._network.read((frame,), self._token_bytes[token_id] or b"", text):
                mask.add_token(token_id)

    def _read_suspects(self, frame: Frame, text: Text, suspects: Stay, mask: MaskBuilder) -> None:
        """Add the tokens that end in these nodes, and those that leave the component there."""
        network = self._network
        for node, state in zip(suspects.nodes.tolist(), suspects.states.tolist(), strict=True):
            here = network.frame(frame.component, state, frame.entered, frame.below)
            longer = text.plus(self._tokens.path_to(node))
            if not node or not network.is_alive(here, longer):
                continue
            nodes = np.array([node])
            mask.add_nodes(nodes)
            if network.leaves(frame.component, state):
                onwards = tuple(place for place in network.everywhere([here], longer) if place is not here)
                if onwards:
                    self._follow(self._tables.nodes.of(nodes), onwards, longer, mask, None)


def is_doubtful(frame: Frame) -> bool:
    """Whether something has begun that could be equal to what is entered, but is not at hand."""
    return any(
        place.entered is not None and place.entered.has_begun and UNKNOWN in place.entered.keys
        for place in frame.stack()
    )
