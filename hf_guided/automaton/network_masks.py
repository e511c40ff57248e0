"""The tokens that may come after a text that a network reads.

Most tokens that fit stay in one component, or leave it near their end. For each state of a component it is known which
stay and where the others leave (component_tables.py). What the others do after that depends on the frames below, but
hardly on how they began: nodes of the trie are followed together from there, in the next component alike. Only where
something has begun they are followed byte by byte.

Where an item or a name may be one that is entered already, the tokens that could make it equal are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .component_tables import ComponentTables
from .component_walk import Leaving, Stay, Table, Words
from .counted_string import CountedString
from .frame import Frame, Frames, Text
from .length_rule import LengthRule
from .lru_bytes import ByteCache
from .mask_builder import MaskBuilder
from .network import Network
from .registers import UNKNOWN, Different
from .rtn import Component
from .token_nodes import Ints, Nodes
from .written_values import CHARACTER_BYTES, characters, string_begun

_NONE = Stay(np.empty(0, np.int32), np.empty(0, np.int32))
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
        key = tuple(self._network.place(frame, at, self._reach) if frame.has_begun else frame for frame in frames)
        known = self._masks.get(key)
        if known is None:
            mask = MaskBuilder(self._tokens)
            for frame in self._network.everywhere(frames, at):
                self._from(frame, at, mask)
            known = _Mask(mask.words())
            self._masks.put(key, known)
        return known.words

    def _from(self, frame: Frame, text: Text, mask: MaskBuilder) -> None:
        """Add the tokens that begin with a byte in this frame's component."""
        table = self._tables.table(self._component(frame), frame.state)
        leaving = table.leaving
        bounds = self._bounds(frame, text)
        if bounds is not None:
            leaving = self._leaving_within(self._string(frame), leaving, bounds)
        suspects = self._suspects(frame, text) if frame.is_watched else _NONE
        if len(suspects.nodes) or (bounds is not None and bounds[1] is not None):
            inside = self._inside(frame, table, bounds) & ~self._tokens.mask_of(suspects.nodes)
            mask.add_words(inside)
            leaving = tuple((state, self._but(suspects.nodes, left)) for state, left in leaving)
            self._read_suspects(frame, text, suspects, mask)
        else:
            table.add_to(mask)
        doubtful: list[Ints] = []
        for left, onwards, beyond in self._beyond(frame, leaving, text):
            self._follow(left, onwards, beyond, mask, doubtful)
        for token_ids in doubtful:
            self._read_each(token_ids, frame, text, mask)

    def _inside(self, frame: Frame, table: Table, bounds: tuple[int, int | None] | None) -> Words:
        """The tokens that stay in the frame's component."""
        high = None if bounds is None else bounds[1]
        if high is None:
            return table.mask(self._tokens)
        string = self._string(frame)
        characters = string.characters_on(self._tokens)
        component = self._component(frame)
        at_most = self._tables.at_most(component, frame.state, characters, string.owed)
        if high < len(at_most):
            words: Words = at_most[high]
            return words
        nodes, states = self._tables.stay(component, frame.state)
        return self._tokens.mask_of(nodes[characters[nodes] + string.owed[states] <= high])

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

    def _stay(self, frame: Frame) -> Stay:
        return self._tables.stay(self._component(frame), frame.state)

    def _bounds(self, frame: Frame, text: Text) -> tuple[int, int | None] | None:
        """How many characters a string may go on for; None where that does not restrict any token."""
        rule = self._network.rules.get(frame.component)
        if not isinstance(rule, LengthRule) or frame.entered is None or not frame.entered.has_begun:
            return None
        written = text.since(frame.entered.begin)
        assert written is not None
        return self._left(rule, rule.string.characters(written))

    def _string(self, frame: Frame) -> CountedString:
        rule = self._network.rules[frame.component]
        assert isinstance(rule, LengthRule)
        return rule.string

    def _left(self, rule: LengthRule, count: int) -> tuple[int, int | None] | None:
        """As ``_bounds``, for a string of ``count`` characters."""
        high = None if rule.high is None else rule.high - count
        if high is not None and rule.is_far(high, self._reach):
            high = None
        low = max(0, rule.low - count)
        return None if not low and high is None else (low, high)

    def _leaving_within(
        self, string: CountedString, leaving: Leaving, bounds: tuple[int, int | None], already: int = 0
    ) -> Leaving:
        """The part of a table where strings end after some characters.

        Args:
            string: which ends there.
            leaving: see ``Table``.
            bounds: how many characters at least and at most.
            already: how many there are on the way down the trie before the string goes on.
        """
        low, high = bounds
        count = string.characters_on(self._tokens)
        within = []
        for state, left in leaving:
            nodes = left.before(string.closing).nodes  # nothing else ends a string
            kept = nodes[count[nodes] >= low + already]
            kept = kept if high is None else kept[count[kept] <= high + already]
            if len(kept):
                within.append((state, self._tables.nodes.of(kept)))
        return tuple(within)

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
            if doubtful is not None and any(place.has_begun and _is_doubtful(place) for place in frames):
                doubtful.append(begun.longer_token_ids)
                continue
            busy = []
            for place in frames:
                if (string := self._string_begun(place, text)) is not None:
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

    def _string_begun(self, frame: Frame, text: Text) -> LengthRule | None:
        """The rule of a string of which nothing but the quote is written, if nothing else has begun."""
        rule, entered = self._network.rules.get(frame.component), frame.entered
        if not isinstance(rule, LengthRule) or entered is None or not entered.has_begun or entered.begin != text.end:
            return None
        return None if any(under.has_begun for under in frame.below) else rule

    def _follow_string(
        self, begun: Nodes, frame: Frame, rule: LengthRule, text: Text, mask: MaskBuilder
    ) -> Iterator[tuple[Nodes, Frames, Text]]:
        """Add the tokens of a string that begins at some nodes; how many characters are before them is known for each.

        Yields:
            Where they go on after the string: see ``_beyond``.
        """
        component, bounds = self._component(frame), self._left(rule, 0)
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
            yield from self._beyond(frame, self._leaving_within(string, leaving, bounds, already), text)

    def _read_each(self, token_ids: Ints, frame: Frame, text: Text, mask: MaskBuilder) -> None:
        """Add those of some tokens that may come, read one by one."""
        for token_id in token_ids.tolist():
            if self._network.read((frame,), self._token_bytes[token_id] or b"", text):
                mask.add_token(token_id)

    def _suspects(self, frame: Frame, text: Text) -> Stay:
        """The nodes where something that has begun may be equal to what is entered already, ascending."""
        suspects: list[Ints] = []
        reached: Stay | None = None
        for owner in frame.stack():
            if not owner.is_watched:
                break
            if owner.entered is None or not owner.entered.has_begun:
                continue
            rule = self._network.rules[owner.component]
            written = text.since(owner.entered.begin)
            assert written is not None
            if isinstance(rule, LengthRule):
                if rule.string.in_json and self._bounds(frame, text) is not None and _is_inside_character(written):
                    return self._stay(frame)
                if self._bounds(frame, text) is not None and not rule.string.has_one_spelling:
                    reached = self._stay(frame)
                continue
            assert isinstance(rule, Different)
            begun = rule.begun(written)
            contested = rule.contested(owner.entered, self._network.search)
            similar = [key for key in contested if key.startswith(begun.key)]
            if not similar:
                continue
            if begun.is_whole and begun.in_string:
                endings = {key[len(begun.key) :] for key in similar}
            elif (string := string_begun(written)) is not None:
                # The item is another one as soon as this string is in none of these.
                endings = {ending for key in similar for ending in self._endings(key, string)}
            else:
                return self._bounded(frame, owner, text)
            suspects += map(self._along, endings)
            if not rule.one_spelling:
                reached = self._stay(frame)
        if reached is not None:
            suspects.append(self._tokens.after_escape)
        if not suspects:
            return _NONE
        nodes = np.unique(np.concatenate(suspects))
        if reached is not None:
            places = np.searchsorted(reached.nodes, nodes)
            places, nodes = places[places < len(reached.nodes)], nodes[places < len(reached.nodes)]
            return _part(reached, places[reached.nodes[places] == nodes])
        states = self._tables.states_at(self._component(frame), frame.state, nodes)
        return _part(Stay(nodes, states), states != 0)

    def _endings(self, key: bytes, string: bytes) -> Iterator[bytes]:
        """What comes in a key after each beginning of a string, as far as a token may go on."""
        end = key.find(string) + len(string)
        while end >= len(string):
            yield key[end : end + self._reach]
            end = key.find(string, end - len(string) + 1) + len(string)

    def _bounded(self, frame: Frame, owner: Frame, text: Text) -> Stay:
        """The nodes from which what has begun has not ways without number to its end, or that leave the component."""
        nodes, states = self._stay(frame)
        graph = self._network.graph
        unbounded = graph.unbounded_begun if owner is frame else graph.unbounded
        suspect = ~unbounded(frame.component)[states]
        leaves = self._tables.leaves(self._component(frame))[states]
        rule = self._network.rules.get(frame.component)
        if isinstance(rule, LengthRule) and frame.entered is not None and frame.entered.has_begun:
            # Nothing else ends a string.
            leaves &= np.isin(nodes, self._tables.nodes.of(nodes[leaves]).before(rule.string.closing).nodes)
            _, high = self._bounds(frame, text) or (0, None)
            if high is not None:
                if not rule.string.has_one_spelling:
                    return Stay(nodes, states)
                count = rule.string.characters_on(self._tokens)[nodes] + rule.string.owed[states]
                suspect = (suspect | leaves | ~rule.leave_choice(count, high)) & (count <= high)
                return _part(Stay(nodes, states), suspect)
        return _part(Stay(nodes, states), suspect | leaves)

    def _along(self, path: bytes) -> Ints:
        """The nodes on a way down the trie, the root first."""
        child, letters = self._tokens.children, self._tokens.letters
        nodes = [0]
        for byte in path:
            at = letters.find(byte, child[nodes[-1]], child[nodes[-1] + 1])
            if at < 0:
                break
            nodes.append(at)
        return np.array(nodes)

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


def _part(stay: Stay, kept: NDArray[Any]) -> Stay:
    return Stay(stay.nodes[kept], stay.states[kept])


def _is_inside_character(written: bytes) -> bool:
    """Whether a string has only begun to write its last character with an escape."""
    return b"\\" in written[-CHARACTER_BYTES:] and characters(written + b"a") == characters(written)


def _is_doubtful(frame: Frame) -> bool:
    """Whether something has begun that could be equal to what is entered, but is not at hand."""
    return any(
        place.entered is not None and place.entered.has_begun and UNKNOWN in place.entered.keys
        for place in frame.stack()
    )
