"""Tables of the bodies of JSON strings: in all components the same, but for the state after the closing quote.

So the whole vocabulary is walked once for each spelling of strings, and not once for each component.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..regex import ANYTHING, concat, json_spelling, json_spellings, text
from .byte_dfa import ByteDfa
from .component_walk import ComponentWalk, Table, joined
from .limits import WorkMeter
from .nfa import regex_dfa
from .rtn import Component
from .token_trie import NodeSets

_QUOTE = ord('"')


class StringTables:
    """The tables of strings' bodies for a vocabulary; thread safe."""

    def __init__(self, sets: NodeSets):
        self._sets = sets
        self._alone: dict[ByteDfa, Table] = {}

    def table(self, walk: ComponentWalk, state: int) -> Table | None:
        """The table of a state, from the root; None if it is no body of a string, or the vocabulary is too small."""
        for form, closed in string_dfas():
            after = walk.after_copy(state, _by_byte(form), form.start, _QUOTE)
            if after:
                if closed not in self._alone:
                    alone = ComponentWalk(Component.without_calls(closed), self._sets)
                    self._alone[closed] = alone.table(closed.start, np.zeros(1, np.int32))
                return self._put_in(self._alone[closed], walk, after)
        return None

    def _put_in(self, alone: Table, walk: ComponentWalk, after: int) -> Table | None:
        """The table of a string with another state after it, which may have moves by bytes itself."""
        if alone.words is None:
            return None
        ended = [left for _, left in alone.leaving]  # one set, or none where a quote always ends the token
        leaving = dict.fromkeys([after], ended[0]) if ended and walk.leaves[after] else {}
        if not ended or not walk.dfa.table[after].any():
            return Table(alone.nodes, alone.words, tuple(leaving.items()))
        beyond = walk.table(after, ended[0].nodes)
        words = alone.words | beyond.mask(self._sets.tokens)
        return Table(alone.nodes, words, joined(self._sets, leaving, beyond.leaving))


@lru_cache(maxsize=1)
def string_dfas() -> tuple[tuple[ByteDfa, ByteDfa], ...]:
    """Contents of strings with all spellings of each character, and with the one that ``json.dumps`` writes.

    They begin where each of their characters ends. Each has a second one beside it, with the closing quote.
    """
    contents = [spell(ANYTHING) for spell in (json_spellings, json_spelling)]
    return tuple(
        (regex_dfa(content, WorkMeter()), regex_dfa(concat(content, text('"')), WorkMeter())) for content in contents
    )


@lru_cache(maxsize=2)
def _by_byte(form: ByteDfa) -> NDArray[np.int32]:
    return np.ascontiguousarray(form.table[:, form.byte_class], np.int32)
