"""Budgets for Lark grammars, known only by the tokens an engine allows: a path to the end is searched and kept.

While much more budget is left than the path takes, no token is masked. Near the end only the path's next token is
allowed, and tokens after which the path, whole or without its first token, still leads to the end. If no path is found
the text is not bounded, and the budget is not guaranteed.

The search tries literals, special tokens and characters of the grammar in each state. A state that takes the same ones
as an earlier state is probably that state again, and is extended after the others. Its work is counted, never the time:
it finds the same path on every machine. It may miss a path, and its path need not be the shortest; but the engine
accepted every token of it.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..automaton.after_fork import Shared
from ..constraints.values import Grammar
from ..errors import CompileLimitExceeded, UnwritableConstraint
from ..options import LATER_SEARCH_WORK, SEARCH_WORK
from ..vocabulary.bitmask import allocate_bitmask
from .base import BudgetedEngine, CompiledConstraint, Engine

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

_FORCED = 4096  # bytes that are taken at once where there is no choice; also the longest text that is shortened
_TOKEN_WORK = 30  # work of one token that is given to an engine, in units of about a microsecond
_CLOSING = "\"'`)]}>"  # these are tried first
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_MOVES, _LONG = 160, 64  # literals and characters that are tried at one state, and bytes of one, at most
_PATIENCE = 8  # tokens until the next search, where one found nothing; twice as many after each further one
_MARGIN = 16  # tokens that one token is assumed to add to a path, at most
_CANDIDATES = 64  # tokens near the end of a budget that are tried as detours from the path, about


def with_budget(compiled: CompiledConstraint) -> CompiledConstraint:
    """The same constraint with engines that keep budgets; unchanged where they do, or where none is searched for."""
    constraint = compiled.constraint
    if compiled.keeps_budget or not (isinstance(constraint, Grammar) and constraint.syntax == "lark"):
        return compiled
    search = CompletionSearch(compiled.vocabulary, constraint.text)
    return replace(compiled, new_engine=lambda: _BudgetEngine(search, compiled.new_engine()), keeps_budget=True)


class CompletionSearch(Shared):
    """Searches in one grammar, for all its engines; thread safe. Nothing is prepared before the first search."""

    def __init__(self, vocabulary: Vocabulary, grammar: str):
        self.vocabulary, self._grammar = vocabulary, grammar
        self._from_start: list[list[int] | None] = []  # the path from the start, when it has been searched
        super().__init__()

    @cached_property
    def _moves(self) -> list[tuple[str, list[int]]]:
        """The texts that are tried, and their tokens; a literal that is not read exactly only helps a search less."""
        texts: list[str] = []
        for quoted in _QUOTED.findall(self._grammar):
            with suppress(ValueError):  # not an escape of JSON; or half of a character, which has no bytes
                texts.append(json.loads(quoted).encode().decode())
        texts = [*_CLOSING, *texts, *sorted({*self._grammar, *"\n 0aA"})]
        moves: dict[str, list[int]] = {}
        if self.vocabulary.marks is not None:  # special tokens, which are text in this grammar
            moves |= {name.decode(): [token_id] for token_id, name in self.vocabulary.marks[1].items()}
        for text in texts:
            if 0 < len(text.encode()) <= _LONG and text not in moves:
                with suppress(UnwritableConstraint):
                    moves[text] = self.vocabulary.encode_bytes(text.encode())
        return list(moves.items())[:_MOVES]

    def path_from(self, engine: Engine, num_taken: int) -> list[int] | None:
        """The tokens that ``find`` finds for an engine after this many tokens; the search from the start runs once."""
        if num_taken:
            return self.find(engine, LATER_SEARCH_WORK)
        with self._lock:
            if not self._from_start:
                self._from_start.append(self.find(engine, SEARCH_WORK))
            return self._from_start[0]

    def find(self, engine: Engine, work: int) -> list[int] | None:
        """The tokens from a state, which is not moved, to the end; None if this ``work`` finds none."""
        queue: list[tuple[int, int, int, Engine, list[int]]] = [(0, 0, 0, engine, [])]
        seen: set[bytes] = set()
        made = 0
        while queue and work > 0:
            cost, depth, _, here, path = heapq.heappop(queue)
            try:
                here, forced = self._forced(here)
                path = path + forced
                if here.is_completed():
                    return self._shortened(engine, path)
                takes = [here.validate(tokens) == len(tokens) for _, tokens in self._moves]
                work -= _TOKEN_WORK * (len(forced) + sum(len(tokens) for _, tokens in self._moves))
                cost += bytes(takes) in seen
                seen.add(bytes(takes))
                for tokens in self._unlike(takes):
                    work -= _TOKEN_WORK * len(tokens)
                    ahead = here.fork()
                    if all(map(ahead.accept, tokens)):
                        if ahead.is_completed():
                            return self._shortened(engine, [*path, *tokens])
                        made += 1
                        heapq.heappush(queue, (cost, depth - 1, made, ahead, [*path, *tokens]))
            except CompileLimitExceeded:
                continue  # this path is too complex for the engine; others may not be
        return None

    def _unlike(self, takes: list[bool]) -> Iterator[list[int]]:
        """The tokens of the texts that a state takes; of digits, small or capital letters in a row, the first."""
        last = 0
        for (text, tokens), taken in zip(self._moves, takes, strict=True):
            kind = text.isdigit() + 2 * text.islower() + 4 * text.isupper() if taken and len(text) == 1 else 0
            if taken and (kind == 0 or kind != last):
                yield tokens
            last = kind

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
        words = self._search.vocabulary.bitmask_of(list(detours))
        bitmask[row].numpy()[: len(words)] &= words

    def is_near_limit(self, tokens_left: int) -> bool:
        if self.engine.is_completed():  # there the path is empty, and ``fill`` keeps none where much is left
            return tokens_left <= 1 + _MARGIN
        if (last := self._last) is None:
            return True
        since = len(self._taken) - last.position
        return last.path is not None and tokens_left <= len(last.path) + 1 + _MARGIN * (since + 1)

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
        bitmask = allocate_bitmask(1, self._search.vocabulary.padded_size)
        self.engine.fill(bitmask, 0)
        allowed = self._search.vocabulary.text_words & bitmask[0].numpy()
        tokens = np.flatnonzero(np.unpackbits(allowed.view(np.uint8), bitorder="little"))
        for token_id in map(int, tokens[:: max(1, len(tokens) // _CANDIDATES)]):
            rest = next((rest for rest in rests if _leads_to_end(self.engine, [token_id, *rest])), None)
            if rest is not None:
                yield token_id, rest
