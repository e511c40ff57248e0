"""Tables of the bodies of JSON strings: in all components the same, but for the state after the closing quote.

So the whole vocabulary is walked once for each spelling of strings, and not once for each component.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..regex import ANYTHING, json_spelling, json_spellings
from .byte_dfa import ByteDfa
from .component_walk import ComponentWalk, Table, joined
from .limits import WorkMeter
from .nfa import regex_dfa
from .rtn import Component
from .token_nodes import NodeSets

_QUOTE = ord('"')


class StringTables:
    """Those of a vocabulary; thread safe.

    Args:
        sets: of nodes of the vocabulary.
    """

    def __init__(self, sets: NodeSets):
        self._sets = sets
        self._alone: dict[ByteDfa, Table] = {}

    def table(self, walk: ComponentWalk, state: int) -> Table | None:
        """The table of a state, from the root of the trie; None where it is no body of a string.

        None too where the vocabulary is so small that nothing is saved.

        Args:
            walk: the component.
            state: of the component.
        """
        for form in string_dfas():
            after = walk.after_copy(state, _by_byte(form), form.start, _QUOTE)
            if after:
                alone = self._table_of(form)
                return None if alone.words is None else self._put_in(alone, walk, after)
        return None

    def _put_in(self, alone: Table, walk: ComponentWalk, after: int) -> Table:
        """The table of a string with another state after it, which may have moves by bytes itself."""
        words = alone.words
        ended = [left for _, left in alone.leaving]  # one set, or none where a quote always ends the token
        leaving = dict.fromkeys([after], ended[0]) if ended and walk.leaves[after] else {}
        if not ended or not walk.dfa.table[after].any():
            return Table(alone.nodes, words, tuple(leaving.items()))
        assert words is not None
        beyond = walk.table(after, ended[0].nodes)
        return Table(alone.nodes, words | beyond.mask(self._sets.tokens), joined(self._sets, leaving, beyond.leaving))

    def _table_of(self, form: ByteDfa) -> Table:
        """The table of the body of a string alone."""
        table = self._alone.get(form)
        if table is None:
            walk = ComponentWalk(Component.without_calls(_with_quote(form)), self._sets)
            table = self._alone[form] = walk.table(walk.dfa.start, np.zeros(1, np.int32))
        return table


@lru_cache(maxsize=1)
def string_dfas() -> tuple[ByteDfa, ...]:
    """Contents of strings with all spellings of each character, and with the one that ``json.dumps`` writes.

    They begin where each of their characters ends.
    """
    return tuple(regex_dfa(spell(ANYTHING), WorkMeter()) for spell in (json_spellings, json_spelling))


@lru_cache(maxsize=2)
def _by_byte(form: ByteDfa) -> NDArray[np.int32]:
    """(states, 256) where each byte leads."""
    return np.ascontiguousarray(form.table[:, form.byte_class], np.int32)


def _with_quote(form: ByteDfa) -> ByteDfa:
    """The texts of an automaton that ends where it begins, with a quote after each."""
    table = np.zeros((form.states + 1, 256), np.int64)
    table[:-1] = _by_byte(form)
    table[form.start, _QUOTE] = form.states
    accepting = np.arange(form.states + 1) == form.states
    return ByteDfa(table, np.arange(256, dtype=np.uint8), accepting, form.start)
