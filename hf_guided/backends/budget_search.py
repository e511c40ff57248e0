"""Budgets for grammars of which nothing is known but what an engine allows: a way to the end is searched, and kept.

While much more is left than the way takes, nothing is masked. Near the end only the way's next token is allowed, and
others behind which the way, whole or without its first token, still leads to the end. If no way is found the text is
not bounded: nothing is promised then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from .base import Engine
from .completion_search import WaySearch, leads_to_end
from .layer import Layer

_FIRST_STEPS = 300  # of the search at the start of a text
_STEPS = 60  # of those later on
_PATIENCE = 8  # tokens until the next search, where one found nothing; twice as many after each further one
_MARGIN = 16  # tokens that one token is thought to add to a way, at most
_CANDIDATES = 64


class _Way(NamedTuple):
    """Known at one place: a way from there, and ways behind other tokens that may come there."""

    place: int  # so many tokens were taken
    tokens: list[int]
    behind: dict[int, list[int]]


class _Failure(NamedTuple):
    """A search that found nothing."""

    place: int  # so many tokens were taken
    wait: int  # tokens until the next search


class SearchedEngine(Layer):
    """One position of an engine, and a way to its end.

    Args:
        search: shared by all engines of the constraint.
        engine: see ``Layer``.
        taken: see ``Layer``.
        way: what another engine of the constraint knows of these tokens, or of their beginning.
        failure: where another searched in vain, so as above.
    """

    def __init__(
        self,
        search: WaySearch,
        engine: Engine,
        taken: Sequence[int] = (),
        way: _Way | None = None,
        failure: _Failure | None = None,
    ):
        super().__init__(engine, taken)
        self._search, self._way, self._failure = search, way, failure

    def anew(self, engine: Engine) -> SearchedEngine:
        """One at the start of the text, where this one stands too: it need not search again.

        Args:
            engine: at the start of the grammar.
        """
        assert not self.taken
        return SearchedEngine(self._search, engine, way=self._way, failure=self._failure)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        super().rollback(num_tokens)
        if self._way is not None and self._way.place > len(self.taken):
            self._way = None
        if self._failure is not None and self._failure.place > len(self.taken):
            self._failure = None

    def fork(self) -> SearchedEngine:
        """See ``Engine.fork``."""
        return SearchedEngine(self._search, self.engine.fork(), self.taken, self._way, self._failure)

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        way = self._known()
        return None if way is None else len(way) + 1

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        self.engine.fill(bitmask, row)
        if self._way is not None:
            since = len(self.taken) - self._way.place
            if tokens_left > len(self._way.tokens) + 1 + _MARGIN * (since + 1):
                return
        way = self._known()
        if way is None or not len(way) < tokens_left <= len(way) + 1 + _MARGIN:
            return
        behind = self._others(way, tokens_left - 2)
        if way:
            behind[way[0]] = way[1:]
        self._way = _Way(len(self.taken), way, behind)
        words = self._search.tokens.mask(np.fromiter(behind, np.int64, len(behind)))
        bitmask[row].numpy()[: len(words)] &= words

    def _known(self) -> list[int] | None:
        """A way from here: what is left of the last one, if the text went along it, or a new one."""
        if self.engine.is_completed():
            return []
        if self._way is not None:
            place, tokens, behind = self._way
            since = self.taken[place:]
            if since and since[0] in behind:
                tokens = [since[0], *behind[since[0]]]
            if tokens[: len(since)] == since:
                return tokens[len(since) :]
        place, failure = len(self.taken), self._failure
        if failure is not None and place < failure.place + failure.wait:
            return None  # a search takes long where it finds nothing
        found = self._search.find(self.engine, _STEPS if self.taken else _FIRST_STEPS)
        if found is None:
            self._way, self._failure = None, _Failure(place, _PATIENCE if failure is None else 2 * failure.wait)
        else:
            self._way, self._failure = _Way(place, found, {}), None
        return found

    def _others(self, way: list[int], room: int) -> dict[int, list[int]]:
        """Tokens behind which the way, or the way without its first token, leads to the end within ``room`` more."""
        rests = [rest for rest in (way, way[1:]) if len(rest) <= room]
        allowed = self._search.allowed(self.engine)
        # Some of the cheapest, and some from everywhere.
        chosen = [*allowed[: _CANDIDATES // 2], *allowed[:: max(1, 2 * len(allowed) // _CANDIDATES)]]
        found: dict[int, list[int]] = {}
        for token_id in dict.fromkeys(map(int, chosen)):
            for rest in rests:
                if leads_to_end(self.engine, [token_id, *rest]):
                    found[token_id] = rest
                    break
        return found
