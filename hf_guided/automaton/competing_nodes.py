"""Where a network reads items or names that have to be different: the tokens that could make them equal.

These are read one by one. Any other token leaves the open item different from all that are there already, or leaves it
infinitely many ways to become so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .component_tables import ComponentTables
from .component_walk import Stay
from .frame import Frame, Text
from .network import Network
from .registers import Different, ItemRule, LengthRule
from .token_nodes import Ints
from .written_values import CHARACTER_BYTES, characters

_NO_TOKENS = np.empty(0, np.int64)
NONE = Stay(np.empty(0, np.int32), np.empty(0, np.int32))


class CompetingNodes:
    """The items and names of a network, and a vocabulary."""

    def __init__(self, network: Network, tables: ComponentTables):
        self._network, self._tables, self._tokens = network, tables, tables.tokens
        self._reach = len(tables.tokens.trie.levels)  # no token is longer

    def of(self, frame: Frame, text: Text) -> Stay:
        """The nodes where something that has begun may be equal to what is entered already, ascending."""
        competing: list[Ints] = []
        reached: Stay | None = None
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
            return NONE
        nodes = np.unique(np.concatenate(competing))
        if reached is not None:
            places = np.searchsorted(reached.nodes, nodes)
            places, nodes = places[places < len(reached.nodes)], nodes[places < len(reached.nodes)]
            return _part(reached, places[reached.nodes[places] == nodes])
        states = self._tables.states_at(self._network.components[frame.component], frame.state, nodes)
        return _part(Stay(nodes, states), states != 0)

    def with_names(self, frame: Frame, text: Text) -> NDArray[np.int64]:
        """(tokens,) those that write a name which may be in an object of an item already: they have to be read too."""
        for owner, entered in frame.opened() if frame.is_watched else ():
            if isinstance(self._network.rules[owner.component], ItemRule):
                written = text.since(entered.begin)
                if written is not None and b"{" in written:
                    return self._tokens.with_names
        return _NO_TOKENS

    def _bounded(self, frame: Frame, owner: Frame, text: Text) -> Stay:
        """The nodes from which only few ways lead to the end of the open item, or that leave the component."""
        nodes, states = self._stay(frame)
        bounds = self._network.bounds(frame, text, self._reach)
        if bounds is not None and bounds[1] is not None:  # how many ways there are depends on the room
            return Stay(nodes, states)
        graph = self._network.graph
        unbounded = graph.unbounded_begun if owner is frame else graph.unbounded
        leaves = self._tables.leaves(self._network.components[frame.component])[states]
        if (rule := self._network.open_string(frame)) is not None:  # nothing but one byte ends it
            ends = rule.string.ends(self._tables.nodes.of(nodes[leaves])).nodes
            leaves[leaves] = np.isin(nodes[leaves], ends)
        return _part(Stay(nodes, states), leaves | ~unbounded(frame.component)[states])

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

    def _stay(self, frame: Frame) -> Stay:
        return self._tables.stay(self._network.components[frame.component], frame.state)


def _part(stay: Stay, kept: NDArray[Any]) -> Stay:
    return Stay(stay.nodes[kept], stay.states[kept])


def _is_inside_character(written: bytes) -> bool:
    """Whether a string has only begun to write its last character with an escape."""
    return b"\\" in written[-CHARACTER_BYTES:] and characters(written + b"a") == characters(written)
