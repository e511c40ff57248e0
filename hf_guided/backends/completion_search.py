"""Searches a path to the end of a text, for grammars that are known only by the tokens an engine allows next.

Two searches, one after the other:

1. The cheapest continuation first: bytes that close something cost least, then separators, digits, letters. Of several
   paths, the search extends the one that deviates least from the cheapest continuation. It reads a mask at each step.
2. The newest state first: from each state, characters and literals of the grammar are tried, without a mask. A
   state that takes the same ones as an earlier state is probably that state again, and is extended after the others.

Both count their work, never the time: they find the same path on every machine. They may miss a path, and their path
need not be the shortest; but the engine accepted every token of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
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
_FORCED = 4096  # bytes that are taken at once where there is no choice; also the longest text that is shortened

# Work, in units of about a microsecond: a mask takes longer the more tokens it allows.
_MASK_WORK = 500  # work of one mask, however few tokens it allows
_TOKENS_PER_WORK = 32  # number of allowed tokens that add 1 to the work of a mask
_ACCEPT_WORK = 30  # work of one token that is given to an engine
_MOVES, _LONG = 160, 64  # literals and characters that are tried at one state, and bytes of one, at most

ASCII = ("\n", *map(chr, range(0x20, 0x7F)))


class _Order(NamedTuple):
    """The tokens of a vocabulary by their costs.

    Args:
        token_ids: (tokens,) those that are text, cheapest first.
        groups: (tokens,) numbers of their costs, ascending.
    """

    token_ids: NDArray[np.int64]
    groups: NDArray[np.int64]


_orders: WeakKeyDictionary[TokenTrie, _Order] = WeakKeyDictionary()


def _order(tokens: TokenTrie) -> _Order:
    """The order of a vocabulary, sorted once for all its searches."""
    order = _orders.get(tokens)
    if order is None:
        by_byte = np.full(256, _OTHER)
        by_byte[list(b" \t\r\n")] = _SPACE
        for characters, cost in _CHEAP:
            by_byte[list(characters)] = cost
        costs = np.full(tokens.size, np.inf)
        costs[tokens.token_ids] = 1 + np.repeat(tokens.along(by_byte), np.diff(tokens.token_start))
        token_ids = np.argsort(costs, kind="stable")[: np.count_nonzero(np.isfinite(costs))]
        groups = np.unique(costs[token_ids], return_inverse=True)[1].reshape(-1)
        order = _orders[tokens] = _Order(token_ids, groups)
    return order


class _Work:
    """Counts down the work of one search.

    Args:
        left: work that may be done.
    """

    def __init__(self, left: int):
        self.left = left

    def spend(self, work: int) -> None:
        self.left -= work


class CompletionSearch:
    """Searches for one vocabulary; thread safe.

    Args:
        vocabulary: the tokens.
        tokens: their trie.
        marks: texts that end something in this grammar, where the cost of the letters does not show it.
        literals: texts that the grammar may demand, and characters.
    """

    def __init__(
        self, vocabulary: Vocabulary, tokens: TokenTrie, marks: Sequence[str] = (), literals: Sequence[str] = ASCII
    ):
        self._vocabulary, self.tokens, self._size = vocabulary, tokens, tokens.size
        self._order = _order(tokens)
        self._marks: list[list[int]] = []
        with suppress(UnwritableConstraint):  # then no text of the grammar can be written, and that is said elsewhere
            self._marks = [vocabulary.encode_bytes(mark.encode()) for mark in marks]
        self._moves: list[tuple[str, list[int]]] = []  # what the second search tries, and their tokens
        for text in dict.fromkeys((*marks, *literals)):
            if 0 < len(data := text.encode()) <= _LONG and len(self._moves) < _MOVES:
                with suppress(UnwritableConstraint):
                    self._moves.append((text, vocabulary.encode_bytes(data)))

    def allowed(self, engine: Engine) -> NDArray[np.int64]:
        """(tokens,) the text tokens that an engine allows, cheapest first."""
        return self._order.token_ids[self._allowed(engine)]

    def _allowed(self, engine: Engine) -> NDArray[np.int64]:
        """(tokens,) the indices of the allowed tokens in the order."""
        bitmask = allocate_bitmask(1, self._size)
        engine.fill(bitmask, 0)
        bits = np.unpackbits(bitmask[0].numpy().view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[self._order.token_ids])

    def find(self, engine: Engine, work: int) -> list[int] | None:
        """The tokens of a path to the end; None if none was found.

        Args:
            engine: where to begin; not moved.
            work: work of each search; one more mask or token, at most, is done.
        """
        if engine.is_completed():
            return []
        path = self._best_first(engine, _Work(work), ())
        if path is None and self._marks:
            # Most texts of a tag close without marks: where a mark is only text, it makes the path longer.
            path = self._best_first(engine, _Work(work), self._marks)
        return self._newest_first(engine, _Work(work)) if path is None else path

    def _best_first(self, engine: Engine, work: _Work, marks: Sequence[list[int]]) -> list[int] | None:
        """As ``find``, trying these marks wherever they are allowed, each once along a path."""
        queue: list[tuple[float, int, Engine, list[int], frozenset[int]]] = [(0.0, 0, engine, [], frozenset())]
        made = 0
        while queue and work.left > 0:
            cost, _, here, path, used = heapq.heappop(queue)
            try:
                here, forced = self._forced(here, work)
                path, cost = path + forced, cost + _STEP * (1 + len(forced))
                if here.is_completed():
                    return self._shortened(engine, path)
                for index in set(range(len(marks))) - used:
                    work.spend(_ACCEPT_WORK * len(marks[index]))
                    ahead = here.fork()
                    if all(map(ahead.accept, marks[index])):
                        made += 1
                        heapq.heappush(queue, (cost - _MARK, made, ahead, path + marks[index], used | {index}))
                for rank, token_id in enumerate(self._branches(here, work)):
                    work.spend(_ACCEPT_WORK)
                    ahead = here.fork()
                    if ahead.accept(token_id):
                        made += 1
                        if ahead.is_completed():
                            return self._shortened(engine, [*path, token_id])
                        heapq.heappush(queue, (cost + _NEXT_BEST * rank, made, ahead, [*path, token_id], used))
            except CompileLimitExceeded:
                continue  # this path is too complex for the engine; others may not be
        return None

    def _newest_first(self, engine: Engine, work: _Work) -> list[int] | None:
        """As ``find``, by characters and literals: first the paths along which fewest states have been seen before."""
        queue: list[tuple[int, int, Engine, list[int]]] = [(0, 0, engine, [])]
        seen: set[bytes] = set()
        made = 0
        while queue and work.left > 0:
            repeated, _, here, path = heapq.heappop(queue)
            try:
                here, forced = self._forced(here, work)
                path = path + forced
                if here.is_completed():
                    return self._shortened(engine, path)
                work.spend(_ACCEPT_WORK * sum(len(tokens) for _, tokens in self._moves))
                takes = [here.validate(tokens) == len(tokens) for _, tokens in self._moves]
                repeated += bytes(takes) in seen
                seen.add(bytes(takes))
                for tokens in _unlike(self._moves, takes):
                    work.spend(_ACCEPT_WORK * len(tokens))
                    ahead = here.fork()
                    if all(map(ahead.accept, tokens)):
                        made += 1
                        if ahead.is_completed():
                            return self._shortened(engine, [*path, *tokens])
                        heapq.heappush(queue, (repeated, made, ahead, [*path, *tokens]))
            except CompileLimitExceeded:
                continue
        return None

    def _branches(self, engine: Engine, work: _Work) -> list[int]:
        """Some of the tokens that may come: the cheapest, but not only such as are all alike."""
        indices = self._allowed(engine)
        work.spend(_MASK_WORK + len(indices) // _TOKENS_PER_WORK)
        groups = self._order.groups[indices]
        few: list[int] = []
        first = 0
        while first < len(groups) and len(few) < _BRANCHES:
            after = int(np.searchsorted(groups, groups[first], "right"))
            few += self._order.token_ids[indices[first : min(after, first + _SAME_COST)]].tolist()
            first = after
        return few[:_BRANCHES]

    def _forced(self, engine: Engine, work: _Work) -> tuple[Engine, list[int]]:
        """The engine after its forced tokens, and those tokens."""
        ahead, taken = engine.fork(), []
        try:
            tokens = self._vocabulary.encode_bytes(ahead.jump_forward_bytes()[:_FORCED])
        except UnwritableConstraint:
            return ahead, []
        for token_id in tokens:
            work.spend(_ACCEPT_WORK)
            if not ahead.accept(token_id):
                break
            taken.append(token_id)
        return ahead, taken

    def _shortened(self, engine: Engine, path: list[int]) -> list[int]:
        """The same text in longer tokens, if the engine takes them."""
        text = self._vocabulary.decode_bytes(path)
        shorter = self._vocabulary.encode_bytes(text) if len(text) <= _FORCED else path
        return shorter if len(shorter) < len(path) and leads_to_end(engine, shorter) else path


def _unlike(moves: Sequence[tuple[str, list[int]]], takes: Sequence[bool]) -> Iterator[list[int]]:
    """The tokens that are taken; of digits, small or capital letters in a row, those of the first."""
    last: int | None = None
    for (text, tokens), taken in zip(moves, takes, strict=True):
        kind = text.isdigit() + 2 * text.islower() + 4 * text.isupper() if taken and len(text) == 1 else 0
        if taken and (kind == 0 or kind != last):
            yield tokens
        last = kind


def leads_to_end(engine: Engine, path: list[int]) -> bool:
    """Whether the text is complete after these tokens."""
    ahead = engine.fork()
    try:
        return all(map(ahead.accept, path)) and ahead.is_completed()
    except CompileLimitExceeded:
        return False
