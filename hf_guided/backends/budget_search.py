"""Budgets for Lark grammars, known only by the tokens an engine allows: a path to the end is searched and kept.

While much more budget is left than the path takes, no token is masked. Near the end only the path's next token is
allowed, and tokens after which the path, whole or without its first token, still leads to the end. If no path is found
the text is not bounded, and the budget is not guaranteed.

There are two ways to search, one after the other:

1. The cheapest continuation first: bytes that close something cost least, then separators, digits, letters. Of several
   paths, the search extends the one that deviates least from the cheapest continuation. It reads a mask at each step.
2. New states first: from each state, characters and literals of the grammar are tried, without a mask. A state that
   takes the same ones as an earlier state is probably that state again, and is extended after the others.

Both count their work, never the time: they find the same path on every machine. They may miss a path, and their path
need not be the shortest; but the engine accepted every token of it.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..automaton.after_fork import Shared
from ..automaton.token_trie import TokenTrie, token_trie
from ..constraints.values import Grammar
from ..errors import CompileLimitExceeded, UnwritableConstraint
from ..options import LATER_SEARCH_WORK, SEARCH_WORK
from ..vocabulary.bitmask import allocate_bitmask
from .base import BudgetedEngine, CompiledConstraint, Engine

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_CHEAP = ((b"\"'`)]}>", 0.0), (b",:;", 0.3), (b"0123456789", 0.5), (b"abcdefghijklmnopqrstuvwxyz", 0.7))
_OTHER, _SPACE = 1.5, 3.0
_STEP = 0.02  # the cost of every move
_NEXT_BEST = 0.5  # the cost of the second choice instead of the first, of the third ...
_BRANCHES, _SAME_COST = 12, 4  # tokens that are tried after a mask, and those among them of one cost, at most
_FORCED = 4096  # bytes that are taken at once where there is no choice; also the longest text that is shortened

# Work, in units of about a microsecond: a mask takes longer the more tokens it allows.
_MASK_WORK = 500  # work of one mask, however few tokens it allows
_TOKENS_PER_WORK = 32  # number of allowed tokens that add 1 to the work of a mask
_ACCEPT_WORK = 30  # work of one token that is given to an engine

_ASCII = ("\n", *map(chr, range(0x20, 0x7F)))
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERALS = 64  # maximum number of literals of a grammar that a search tries
_MOVES, _LONG = 160, 64  # literals and characters that are tried at one state, and bytes of one, at most
_PATIENCE = 8  # tokens until the next search, where one found nothing; twice as many after each further one
_MARGIN = 16  # tokens that one token is assumed to add to a path, at most
_CANDIDATES = 64  # tokens near the end of a budget that are tried as detours from the path, about

_Move = tuple[float, list[int]]  # its cost, and its tokens


def with_budget(compiled: CompiledConstraint) -> CompiledConstraint:
    """The same constraint with engines that keep budgets; unchanged where they do, or where none is searched for."""
    constraint = compiled.constraint
    if compiled.keeps_budget or compiled.keeps_masks or not isinstance(constraint, Grammar):
        return compiled
    search = CompletionSearch(compiled.vocabulary, _literals(constraint.text))
    return replace(compiled, new_engine=lambda: _BudgetEngine(search, compiled.new_engine()), keeps_budget=True)


def _literals(grammar: str) -> list[str]:
    """The quoted texts of a grammar, and its characters; one that is not read exactly only helps a search less."""
    literals: list[str] = []
    for quoted in _QUOTED.findall(grammar):
        with suppress(ValueError):  # not an escape of JSON; or half of a character, which has no bytes
            literals.append(json.loads(quoted).encode().decode())
    return [*literals[:_LITERALS], *(letter for letter in _ASCII if letter in grammar or letter in "\n 0aA")]


class CompletionSearch(Shared):
    """Searches in one grammar, for all its engines; thread safe. Nothing is prepared before the first search.

    ``literals`` are texts and characters that the grammar may demand.
    """

    def __init__(self, vocabulary: Vocabulary, literals: Sequence[str] = _ASCII):
        self.vocabulary, self._literals = vocabulary, tuple(literals)
        self._from_start: list[list[int] | None] = []  # the path from the start, when it has been searched
        super().__init__()

    @cached_property
    def _moves(self) -> list[tuple[str, list[int]]]:
        texts = [text for text in dict.fromkeys(self._literals) if 0 < len(text.encode()) <= _LONG]
        return list(islice(self._written(texts), _MOVES))

    def _written(self, texts: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
        for text in texts:
            with suppress(UnwritableConstraint):
                yield text, self.vocabulary.encode_bytes(text.encode())

    def path_from(self, engine: Engine, num_taken: int) -> list[int] | None:
        """The tokens that ``find`` finds for an engine after this many tokens; the search from the start runs once."""
        if num_taken:
            return self.find(engine, LATER_SEARCH_WORK)
        with self._lock:
            if not self._from_start:
                self._from_start.append(self.find(engine, SEARCH_WORK))
            return self._from_start[0]

    def find(self, engine: Engine, work: int) -> list[int] | None:
        """The tokens from a state, which is not moved, to the end; None if two searches of this ``work`` find none."""
        if engine.is_completed():
            return []
        path = self._search(engine, work, self._cheapest)
        if path is None:
            seen: set[bytes] = set()
            path = self._search(engine, work, lambda here, _: self._unlike(here, seen))
        return path

    def _search(
        self, engine: Engine, work: int, moves: Callable[[Engine, int], tuple[int, list[_Move]]]
    ) -> list[int] | None:
        """One search of ``find``; ``moves`` gives a state's moves, after a number of forced tokens, and their work."""
        queue: list[tuple[float, int, Engine, list[int]]] = [(0.0, 0, engine, [])]
        made = 0
        while queue and work > 0:
            cost, _, here, path = heapq.heappop(queue)
            try:
                here, forced = self._forced(here)
                path = path + forced
                if here.is_completed():
                    return self._shortened(engine, path)
                spent, found = moves(here, len(forced))
                work -= spent + _ACCEPT_WORK * len(forced)
                for added, tokens in found:
                    work -= _ACCEPT_WORK * len(tokens)
                    ahead = here.fork()
                    if all(map(ahead.accept, tokens)):
                        if ahead.is_completed():
                            return self._shortened(engine, [*path, *tokens])
                        made += 1
                        heapq.heappush(queue, (cost + added, made, ahead, [*path, *tokens]))
            except CompileLimitExceeded:
                continue  # this path is too complex for the engine; others may not be
        return None

    def _cheapest(self, here: Engine, num_forced: int) -> tuple[int, list[_Move]]:
        """The cheapest of the allowed tokens, but not only of one cost."""
        step = _STEP * (1 + num_forced)
        token_ids, groups = self.allowed(here)
        few: list[int] = []
        first = 0
        while first < len(groups) and len(few) < _BRANCHES:
            after = int(np.searchsorted(groups, groups[first], "right"))
            few += token_ids[first : min(after, first + _SAME_COST)].tolist()
            first = after
        moves: list[_Move] = [(step + _NEXT_BEST * rank, [token_id]) for rank, token_id in enumerate(few[:_BRANCHES])]
        return _MASK_WORK + len(token_ids) // _TOKENS_PER_WORK, moves

    def _unlike(self, here: Engine, seen: set[bytes]) -> tuple[int, list[_Move]]:
        """The texts that a state takes; of digits, small or capital letters in a row, the first."""
        takes = [here.validate(tokens) == len(tokens) for _, tokens in self._moves]
        repeated = bytes(takes) in seen
        seen.add(bytes(takes))
        moves: list[_Move] = []
        last = 0
        for (text, tokens), taken in zip(self._moves, takes, strict=True):
            kind = text.isdigit() + 2 * text.islower() + 4 * text.isupper() if taken and len(text) == 1 else 0
            if taken and (kind == 0 or kind != last):
                moves.append((repeated, tokens))
            last = kind
        return _ACCEPT_WORK * sum(len(tokens) for _, tokens in self._moves), moves

    def allowed(self, engine: Engine) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(tokens,) the text tokens that an engine allows, cheapest first, and (tokens,) the numbers of their costs."""
        tokens = token_trie(self.vocabulary)
        token_ids, groups = _order(tokens)
        bitmask = allocate_bitmask(1, tokens.size)
        engine.fill(bitmask, 0)
        bits = np.unpackbits(bitmask[0].numpy().view(np.uint8), bitorder="little")
        indices = np.flatnonzero(bits[token_ids])
        return token_ids[indices], groups[indices]

    def _forced(self, engine: Engine) -> tuple[Engine, list[int]]:
        ahead, taken = engine.fork(), []
        with suppress(UnwritableConstraint):
            for token_id in self.vocabulary.encode_bytes(ahead.jump_forward_bytes()[:_FORCED]):
                if not ahead.accept(token_id):
                    break
                taken.append(token_id)
        return ahead, taken

    def _shortened(self, engine: Engine, path: list[int]) -> list[int]:
        text = self.vocabulary.decode_bytes(path)
        shorter = self.vocabulary.encode_bytes(text) if len(text) <= _FORCED else path
        return shorter if len(shorter) < len(path) and _leads_to_end(engine, shorter) else path


_orders: WeakKeyDictionary[TokenTrie, tuple[NDArray[np.int64], NDArray[np.int64]]] = WeakKeyDictionary()


def _order(tokens: TokenTrie) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(tokens,) the text tokens, cheapest first, and (tokens,) the numbers of their costs; kept for each trie."""
    if tokens not in _orders:
        by_byte = np.full(256, _OTHER)
        by_byte[list(b" \t\r\n")] = _SPACE
        for characters, cost in _CHEAP:
            by_byte[list(characters)] = cost
        costs = np.full(tokens.size, np.inf)
        costs[tokens.token_ids] = 1 + np.repeat(tokens.along(by_byte), np.diff(tokens.token_start))
        token_ids = np.argsort(costs, kind="stable")[: np.count_nonzero(np.isfinite(costs))]
        _orders[tokens] = token_ids, np.unique(costs[token_ids], return_inverse=True)[1].reshape(-1)
    return _orders[tokens]


def _leads_to_end(engine: Engine, path: Sequence[int]) -> bool:
    ahead = engine.fork()
    try:
        return all(map(ahead.accept, path)) and ahead.is_completed()
    except CompileLimitExceeded:
        return False


class _Result(NamedTuple):
    position: int  # the number of tokens taken
    path: list[int] | None  # the tokens from there to the end; None if none was found
    detours: dict[int, list[int]]  # paths after other tokens that are allowed there
    wait: int = 0  # tokens until the next search, where none was found


class _BudgetEngine(BudgetedEngine):
    """One state of an engine, the tokens on the way to it, and the last search for an end from there or before."""

    def __init__(
        self, search: CompletionSearch, engine: Engine, taken: Sequence[int] = (), last: _Result | None = None
    ):
        self.engine = engine
        self._search, self._taken, self._last = search, list(taken), last

    def accept(self, token_id: int) -> bool:
        accepted = self.engine.accept(token_id)
        if accepted:
            self._taken.append(token_id)
        return accepted

    def validate(self, token_ids: Sequence[int]) -> int:
        return self.engine.validate(token_ids)

    def rollback(self, num_tokens: int) -> None:
        self.engine.rollback(num_tokens)
        del self._taken[len(self._taken) - num_tokens :]
        if self._last is not None and self._last.position > len(self._taken):
            self._last = None

    def fork(self) -> _BudgetEngine:
        return _BudgetEngine(self._search, self.engine.fork(), self._taken, self._last)

    def is_completed(self) -> bool:
        return self.engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        return self.engine.jump_forward_bytes()

    def min_tokens_to_finish(self) -> int | None:
        path = self._path()
        return None if path is None else len(path) + 1

    def fill(self, bitmask: Tensor, row: int, tokens_left: int | None = None) -> None:
        self.engine.fill(bitmask, row)
        if tokens_left is None:
            return
        if (last := self._last) is not None and last.path is not None:
            since = len(self._taken) - last.position
            if tokens_left > len(last.path) + 1 + _MARGIN * (since + 1):
                return  # this budget certainly forbids no token here
        path = self._path()
        if path is None or not len(path) < tokens_left <= len(path) + 1 + _MARGIN:
            return
        detours = dict(self._detours(path, tokens_left - 2))
        if path:
            detours[path[0]] = path[1:]
        self._last = _Result(len(self._taken), path, detours)
        words = token_trie(self._search.vocabulary).mask(np.fromiter(detours, np.int64, len(detours)))
        bitmask[row].numpy()[: len(words)] &= words

    def _path(self) -> list[int] | None:
        """A path from here: the rest of the last one, if the text followed it, or a new one."""
        if self.engine.is_completed():
            return []
        position, wait = len(self._taken), _PATIENCE
        if (last := self._last) is not None and last.path is None:
            if position < last.position + last.wait:
                return None  # a search takes long where it finds nothing
            wait = 2 * last.wait
        elif last is not None and last.path is not None:
            since = self._taken[last.position :]
            path = [since[0], *last.detours[since[0]]] if since and since[0] in last.detours else last.path
            if path[: len(since)] == since:
                return path[len(since) :]
        found = self._search.path_from(self.engine, position)
        self._last = _Result(position, found, {}, wait)
        return found

    def _detours(self, path: list[int], room: int) -> Iterator[tuple[int, list[int]]]:
        """Tokens after which the path, or the path without its first token, leads to the end within ``room`` more."""
        rests = [rest for rest in (path, path[1:]) if len(rest) <= room]
        allowed, _ = self._search.allowed(self.engine)
        # Some of the cheapest, and some from everywhere.
        chosen = [*allowed[: _CANDIDATES // 2], *allowed[:: max(1, 2 * len(allowed) // _CANDIDATES)]]
        for token_id in dict.fromkeys(map(int, chosen)):
            rest = next((rest for rest in rests if _leads_to_end(self.engine, [token_id, *rest])), None)
            if rest is not None:
                yield token_id, rest
