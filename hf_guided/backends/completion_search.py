"""A way to the end of a text, found by trying: for grammars of which nothing is known but what an engine allows next.

The cheapest continuation is tried first: bytes that close something cost least, then separators, digits, letters. Of
several ways begun, the one goes on that has left the cheapest continuation least. The search is bounded, so a way may
be missed, and one found need not be the shortest; but its every token was accepted, so it can be kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

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
_STEP = 0.02  # what going on costs in any case
_NEXT_BEST = 0.5  # what it costs to take the second where the first would do, and the third ...
_MARK = 5.0  # what a mark is worth: what it ends could go on for ever
_BRANCHES = 12
_ALIKE = 4  # of one cost
_TRIED = 20_000  # tokens given to engines in one search; counted, for time would find more on a fast machine
_FORCED = 4096  # bytes that are taken at once where there is no choice; also the longest text that is shortened


class WaySearch:
    """Searches for one vocabulary; thread safe.

    Args:
        vocabulary: the tokens.
        tokens: their trie.
        marks: texts that end something in this grammar, where letters alone would not tell that they do.
    """

    def __init__(self, vocabulary: Vocabulary, tokens: TokenTrie, marks: Sequence[str] = ()):
        self._vocabulary, self.tokens, self._size = vocabulary, tokens, tokens.size
        by_byte = np.full(256, _OTHER)
        by_byte[list(b" \t\r\n")] = _SPACE
        for some, cost in _CHEAP:
            by_byte[list(some)] = cost
        sums = tokens.along(by_byte)
        self._cost = np.full(tokens.size, np.inf)
        counts = np.diff(tokens.token_start)
        self._cost[tokens.token_ids] = 1 + np.repeat(sums, counts)
        self._marks: list[list[int]] = []
        with suppress(UnwritableConstraint):  # then no text of the grammar can be written, and that is said elsewhere
            self._marks = [vocabulary.encode_bytes(mark.encode()) for mark in marks]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held beside the trie."""
        return self._cost.nbytes

    def allowed(self, engine: Engine) -> NDArray[np.int64]:
        """(tokens,) the text tokens that an engine allows, cheapest first."""
        bitmask = allocate_bitmask(1, self._size)
        engine.fill(bitmask, 0)
        bits = np.unpackbits(bitmask[0].numpy().view(np.uint8), bitorder="little")
        found = np.flatnonzero(bits[: self._size])
        found = found[np.isfinite(self._cost[found])]
        ordered: NDArray[np.int64] = found[np.argsort(self._cost[found], kind="stable")]
        return ordered

    def find(self, engine: Engine, steps: int) -> list[int] | None:
        """The tokens of a way to the end; None if none was found.

        Args:
            engine: where to begin; not moved.
            steps: how many places to look at.
        """
        if engine.is_completed():
            return []
        if not self._marks:
            return self._best_first(engine, steps, ())
        # Most texts of a tag close without: where a mark is but text, a way would get longer by it.
        return self._best_first(engine, steps, ()) or self._best_first(engine, steps, self._marks)

    def _best_first(self, engine: Engine, steps: int, marks: Sequence[list[int]]) -> list[int] | None:
        """As ``find``, trying these marks wherever they are allowed, each once along a way."""
        queue: list[tuple[float, int, Engine, list[int], frozenset[int]]] = [(0.0, 0, engine, [], frozenset())]
        made, tried = 0, 0
        while queue and steps and tried < _TRIED:
            steps -= 1
            cost, _, here, way, used = heapq.heappop(queue)
            try:
                here, forced = self._forced(here)
                way, cost, tried = way + forced, cost + _STEP * (1 + len(forced)), tried + len(forced)
                if here.is_completed():
                    return self._shortened(engine, way)
                for index in set(range(len(marks))) - used:
                    ahead, tried = here.fork(), tried + len(marks[index])
                    if all(map(ahead.accept, marks[index])):
                        made += 1
                        heapq.heappush(queue, (cost - _MARK, made, ahead, way + marks[index], used | {index}))
                for rank, token_id in enumerate(self._branches(here)):
                    ahead, tried = here.fork(), tried + 1
                    if ahead.accept(token_id):
                        made += 1
                        if ahead.is_completed():
                            return self._shortened(engine, [*way, token_id])
                        heapq.heappush(queue, (cost + _NEXT_BEST * rank, made, ahead, [*way, token_id], used))
            except CompileLimitExceeded:
                continue  # this way is too complex for the engine; others may not be
        return None

    def _branches(self, engine: Engine) -> list[int]:
        """Some of the tokens that may come: the cheapest, but not only such as are all alike."""
        tokens = self.allowed(engine)
        _, first, which = np.unique(self._cost[tokens], return_index=True, return_inverse=True)
        few: list[int] = tokens[np.arange(len(tokens)) - first[which.reshape(-1)] < _ALIKE][:_BRANCHES].tolist()
        return few

    def _forced(self, engine: Engine) -> tuple[Engine, list[int]]:
        """The engine behind what it leaves no choice about."""
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

    def _shortened(self, engine: Engine, way: list[int]) -> list[int]:
        """The same text in longer tokens, if the engine takes them."""
        text = self._vocabulary.decode_bytes(way)
        shorter = self._vocabulary.encode_bytes(text) if len(text) <= _FORCED else way
        return shorter if len(shorter) < len(way) and leads_to_end(engine, shorter) else way


def leads_to_end(engine: Engine, way: list[int]) -> bool:
    """Whether the text is complete behind these tokens."""
    ahead = engine.fork()
    try:
        return all(map(ahead.accept, way)) and ahead.is_completed()
    except CompileLimitExceeded:
        return False
