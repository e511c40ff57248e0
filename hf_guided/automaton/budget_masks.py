"""Masks that keep a budget: of a state's tokens those after which few enough tokens are needed.

While more tokens are left than any state could need, that is the state's own mask. Below that, the vocabulary is walked
once from each state, and its tokens are sorted by the number of tokens needed after them: a mask is then the beginning
of a list.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .budget import NEVER, TokenBudget
from .lru_bytes import ByteCache
from .token_masks import TokenMasks, Words
from .token_walk import TokenWalk

BUDGET_BYTES = 8 * 2**20  # of one constraint; a dozen states in which every token of 131k is allowed


class _Ordered(NamedTuple):
    token_ids: NDArray[np.int32]
    needed: NDArray[np.int32]  # after each; ascending

    @property
    def nbytes(self) -> int:
        return self.token_ids.nbytes + self.needed.nbytes


class BudgetMasks:
    """Masks by state and tokens left; thread safe.

    Args:
        walk: the automaton and the vocabulary.
        masks: those without a budget.
        budget: the tokens needed to finish from each state.
        max_bytes: bound on the ordered tokens kept.
    """

    def __init__(self, walk: TokenWalk, masks: TokenMasks, budget: TokenBudget, max_bytes: int = BUDGET_BYTES):
        self._walk, self._masks, self._needed = walk, masks, budget.needed
        self._most = int(budget.needed[budget.needed < NEVER].max(initial=0))
        self._kept: ByteCache[_Ordered] = ByteCache(max_bytes)  # by state

    def of(self, state: int, tokens_left: int) -> Words:
        """(words,) int32: tokens after which the text can be finished in ``tokens_left - 1`` more.

        All that may come in this state, read-only, if there is room for all of them, or it needs more than is left
        already; stop tokens are 0.
        """
        if tokens_left > self._most or tokens_left < self._needed[state]:
            return self._masks.of(state)
        ordered = self._ordered(state)
        fitting = int(np.searchsorted(ordered.needed, tokens_left))
        fitting_words: Words = self._walk.tokens.mask(ordered.token_ids[:fitting]).copy()
        return fitting_words

    def _ordered(self, state: int) -> _Ordered:
        ordered = self._kept.get(state)
        if ordered is not None:
            return ordered
        nodes, states = self._walk.nodes(state)
        order = np.argsort(self._needed[states], kind="stable")
        order = order[self._needed[states[order]] < NEVER]
        token_ids, counts = self._walk.tokens.tokens_at(nodes[order])
        ordered = _Ordered(token_ids.astype(np.int32), np.repeat(self._needed[states[order]], counts).astype(np.int32))
        self._kept.put(state, ordered)
        return ordered
