"""Searches a path to the end of a text, for grammars that are known only by the tokens an engine allows next.

The cheapest continuation is tried first: bytes that close something cost least, then separators, digits, letters. Of
several paths, the search extends the one that deviates least from the cheapest continuation. The search is bounded, so
it may miss a path, and its path need not be the shortest; but the engine accepted every token of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..automaton.token_trie import TokenTrie
from ..errors import CompileLimitExceeded, UnwritableConstraint
from ..vocabulary.bitmask import allocate_bitmask
from .base import Engine

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_CHEAP = ((b"\"'`)]}>", 0.0), (b",:;", 0.3), (b"0123456789", 0.5), (b"abcdefghijklmnopqrstuvwxyz", 0.7))
_OTHER, _SPACE = 1.5, 3.0
_STEP = 0.02  # what continuing costs in any case
_NEXT_BEST = 0.5  # the cost of the second choice instead of the first, of the third ...
_MARK = 5.0  # the reward of a mark: the text that it ends could continue for ever
_BRANCHES = 12
_SAME_COST = 4  # of one cost
_TRIED = 20_000  # tokens given to engines in one search; counted, for time would find more on a fast machine
_FORCED = 4096  # bytes that are taken at once where there is no choice; also the longest text that is shortened


_costs_of: WeakKeyDictionary[TokenTrie, NDArray[np.float64]] = WeakKeyDictionary()


def _costs(tokens: TokenTrie) -> NDArray[np.float64]:
    """(size,) what each token costs; infinite where it is no text. The same for all searches of a vocabulary."""
    costs = _costs_of.get(tokens)
    if costs is None:
        by_byte = np.full(256, _OTHER)
        by_byte[list(b" \t\r\n")] = _SPACE
        for characters, cost in _CHEAP:
            by_byte[list(characters)] = cost
        costs = np.full(tokens.size, np.inf)
        costs[tokens.token_ids] = 1 + np.repeat(tokens.along(by_byte), np.diff(tokens.token_start))
        _costs_of[tokens] = costs
    return costs


class CompletionSearch:
    """Searches for one vocabulary; thread safe.

    Args:
        vocabulary: the tokens.
        tokens: their trie.
        marks: texts that end something in this grammar, where the cost of the letters does not show it.
    """

    def __init__(self, vocabulary: Vocabulary, tokens: TokenTrie, marks: Sequence[str] = ()):
        self._vocabulary, self.tokens, self._size = vocabulary, tokens, tokens.size
        self._cost = _costs(tokens)
        self._marks: list[list[int]] = []
        with suppress(UnwritableConstraint):  # then no text of the grammar can be written, and that is said elsewhere
            self._marks = [vocabulary.encode_bytes(mark.encode()) for mark in marks]

    def allowed(self, engine: Engine) -> NDArray[np.int64]:
        """(tokens,) the text tokens that an engine allows, cheapest first."""
        bitmask = allocate_bitmask(1, self._size)
        engine.fill(bitmask, 0)
        bits = np.unpackbits(bitmask[0].numpy().view(np.uint8), bitorder="little")
        token_ids = np.flatnonzero(bits[: self._size])
        token_ids = token_ids[np.isfinite(self._cost[token_ids])]
        ordered: NDArray[np.int64] = token_ids[np.argsort(self._cost[token_ids], kind="stable")]
        return ordered

    def find(self, engine: Engine, steps: int) -> list[int] | None:
        """The tokens of a path to the end; None if none was found.

        Args:
            engine: where to begin; not moved.
            steps: how many states to visit.
        """
        if engine.is_completed():
            return []
        if not self._marks:
            return self._best_first(engine, steps, ())
        # Most texts of a tag close without marks: where a mark is only text, it makes the path longer.
        return self._best_first(engine, steps, ()) or self._best_first(engine, steps, self._marks)

    def _best_first(self, engine: Engine, steps: int, marks: Sequence[list[int]]) -> list[int] | None:
        """As ``find``, trying these marks wherever they are allowed, each once along a path."""
        queue: list[tuple[float, int, Engine, list[int], frozenset[int]]] = [(0.0, 0, engine, [], frozenset())]
        made, tried = 0, 0
        while queue and steps and tried < _TRIED:
            steps -= 1
            cost, _, here, path, used = heapq.heappop(queue)
            try:
                here, forced = self._forced(here)
                path, cost, tried = path + forced, cost + _STEP * (1 + len(forced)), tried + len(forced)
                if here.is_completed():
                    return self._shortened(engine, path)
                for index in set(range(len(marks))) - used:
                    ahead, tried = here.fork(), tried + len(marks[index])
                    if all(map(ahead.accept, marks[index])):
                        made += 1
                        heapq.heappush(queue, (cost - _MARK, made, ahead, path + marks[index], used | {index}))
                for rank, token_id in enumerate(self._branches(here)):
                    ahead, tried = here.fork(), tried + 1
                    if ahead.accept(token_id):
                        made += 1
                        if ahead.is_completed():
                            return self._shortened(engine, [*path, token_id])
                        heapq.heappush(queue, (cost + _NEXT_BEST * rank, made, ahead, [*path, token_id], used))
            except CompileLimitExceeded:
                continue  # this path is too complex for the engine; others may not be
        return None

    def _branches(self, engine: Engine) -> list[int]:
        """Some of the tokens that may come: the cheapest, but not only such as are all alike."""
        tokens = self.allowed(engine)
        _, first, which = np.unique(self._cost[tokens], return_index=True, return_inverse=True)
        few: list[int] = tokens[np.arange(len(tokens)) - first[which.reshape(-1)] < _SAME_COST][:_BRANCHES].tolist()
        return few

    def _forced(self, engine: Engine) -> tuple[Engine, list[int]]:
        """The engine after its forced tokens, and those tokens."""
        ahead, taken = engine.fork(), []
        try:
            tokens = self._vocabulary.encode_bytes(ahead.jump_forward_bytes()[:_FORCED])
        except UnwritableConstraint:
            return ahead, []
        for token_id in tokens:
            if not ahead.accept(token_id):
                break
            taken.append(token_id)
        return ahead, taken

    def _shortened(self, engine: Engine, path: list[int]) -> list[int]:
        """The same text in longer tokens, if the engine takes them."""
        text = self._vocabulary.decode_bytes(path)
        shorter = self._vocabulary.encode_bytes(text) if len(text) <= _FORCED else path
        return shorter if len(shorter) < len(path) and leads_to_end(engine, shorter) else path


def leads_to_end(engine: Engine, path: list[int]) -> bool:
    """Whether the text is complete after these tokens."""
    ahead = engine.fork()
    try:
        return all(map(ahead.accept, path)) and ahead.is_completed()
    except CompileLimitExceeded:
        return False
