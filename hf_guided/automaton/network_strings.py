"""Where a network reads a string whose characters are counted: how many may follow, and which tokens fit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .component_tables import ComponentTables
from .component_walk import Leaving, Words
from .counted_string import CountedString
from .frame import Frame, Text
from .length_rule import LengthRule
from .network import Network
from .token_nodes import Ints

Bounds = tuple[int, int | None]  # characters at least, and at most


class NetworkStrings:
    """The strings of a network, and a vocabulary.

    Args:
        network: what reads the text.
        tables: of the vocabulary.
    """

    def __init__(self, network: Network, tables: ComponentTables):
        self._network, self._tables, self._tokens = network, tables, tables.tokens
        self._reach = len(tables.tokens.trie.levels)  # no token is longer

    def begun(self, frame: Frame) -> LengthRule | None:
        """The rule of the string that has begun in a frame's own component."""
        rule = self._network.rules.get(frame.component)
        if not isinstance(rule, LengthRule) or frame.entered is None or not frame.entered.has_begun:
            return None
        return rule

    def begun_here(self, frame: Frame, text: Text) -> LengthRule | None:
        """The rule of a string of which nothing but the quote is written, if nothing else has begun."""
        rule = self.begun(frame)
        if rule is None or frame.entered is None or frame.entered.begin != text.end:
            return None
        return None if any(under.has_begun for under in frame.below) else rule

    def bounds(self, frame: Frame, text: Text) -> Bounds | None:
        """How many characters a string may go on for; None where that does not restrict any token."""
        rule = self.begun(frame)
        if rule is None or frame.entered is None:
            return None
        written = text.since(frame.entered.begin)
        assert written is not None
        return self.left(rule, rule.string.characters(written))

    def left(self, rule: LengthRule, count: int) -> Bounds | None:
        """As ``bounds``, for a string of ``count`` characters."""
        high = None if rule.high is None else rule.high - count
        if high is not None and rule.is_far(high, self._reach):
            high = None
        low = max(0, rule.low - count)
        return None if not low and high is None else (low, high)

    def inside(self, frame: Frame, high: int) -> Words:
        """(words,) int32: the tokens that stay in the string of a frame, and have at most ``high`` characters."""
        string, component = self._of(frame), self._network.components[frame.component]
        characters = string.characters_on(self._tokens)
        at_most = self._tables.at_most(component, frame.state, characters, string.owed)
        if at_most is not None and high < len(at_most):
            words: Words = at_most[high] & self._tables.table(component, frame.state).mask(self._tokens)
            return words
        nodes, states = self._tables.stay(component, frame.state)
        return self._tokens.mask_of(nodes[characters[nodes] + string.owed[states] <= high])

    def leaving(self, frame: Frame, leaving: Leaving, bounds: Bounds, already: int = 0) -> Leaving:
        """The part of a table where the string of a frame ends after some characters.

        Args:
            frame: in the string.
            leaving: see ``Table``.
            bounds: how many characters at least and at most.
            already: how many there are on the way down the trie before the string goes on.
        """
        string, (low, high) = self._of(frame), bounds
        count = string.characters_on(self._tokens)
        within = []
        for state, left in leaving:
            nodes = string.ends(left).nodes
            kept = nodes[count[nodes] >= low + already]
            kept = kept if high is None else kept[count[kept] <= high + already]
            if len(kept):
                within.append((state, self._tables.nodes.of(kept)))
        return tuple(within)

    def may_end(self, rule: LengthRule, nodes: Ints) -> NDArray[np.bool_]:
        """(n,) whether a string may end at some nodes (n,) of the trie, ascending: nothing but one byte ends it."""
        return np.isin(nodes, rule.string.ends(self._tables.nodes.of(nodes)).nodes)

    def _of(self, frame: Frame) -> CountedString:
        rule = self._network.rules[frame.component]
        assert isinstance(rule, LengthRule)
        return rule.string
