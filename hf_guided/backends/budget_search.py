"""Budgets for grammars that are known only by the tokens an engine allows: a path to the end is searched and kept.

While much more budget is left than the path takes, no token is masked. Near the end only the path's next token is
allowed, and tokens after which the path, whole or without its first token, still leads to the end. If no path is found
the text is not bounded, and the budget is not guaranteed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..automaton.after_fork import renew_in_child
from ..automaton.token_trie import token_trie
from ..constraints.values import Grammar, StructuralTag
from ..options import LATER_SEARCH_WORK, SEARCH_WORK
from .base import BudgetedEngine, CompiledConstraint, Engine
from .completion_search import ASCII, CompletionSearch, leads_to_end
from .tag_marks import closing_marks

if TYPE_CHECKING:
    from torch import Tensor

_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERALS = 64  # of a grammar, that a search tries at most
_PATIENCE = 8  # tokens until the next search, where one found nothing; twice as many after each further one
_MARGIN = 16  # tokens that one token is assumed to add to a path, at most
_CANDIDATES = 64


class _Completion(NamedTuple):
    """Known at one position: a path from there, and paths after other tokens that are allowed there."""

    position: int  # the number of tokens taken
    tokens: list[int]
    after_token: dict[int, list[int]]


class _Failure(NamedTuple):
    """A search that found nothing."""

    position: int  # the number of tokens taken
    wait: int  # tokens until the next search


def with_budget(compiled: CompiledConstraint) -> CompiledConstraint:
    """The same constraint with engines that keep budgets; unchanged where they do, or where none is searched for."""
    keeps_it = compiled.keeps_budget or compiled.keeps_masks
    if keeps_it or not isinstance(compiled.constraint, (Grammar, StructuralTag)):
        return compiled
    ends = _Ends(compiled)
    return replace(compiled, new_engine=lambda: SearchBudgetEngine(ends, compiled.new_engine()), keeps_budget=True)


class _Ends:
    """What the engines of one constraint share: the search, and what it finds at the start; thread safe.

    Nothing is searched before it is asked for: calls without a budget never do.

    Args:
        compiled: the constraint.
    """

    def __init__(self, compiled: CompiledConstraint):
        self._compiled, self._lock = compiled, threading.Lock()
        self._at_start: list[int] | None = None
        self._is_searched = False
        renew_in_child(self)

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._lock = threading.Lock()

    @cached_property
    def search(self) -> CompletionSearch:
        """For paths to the end."""
        constraint, vocabulary = self._compiled.constraint, self._compiled.vocabulary
        marks = closing_marks(constraint.tag) if isinstance(constraint, StructuralTag) else ()
        literals = _literals(constraint.text) if isinstance(constraint, Grammar) else ASCII
        return CompletionSearch(vocabulary, token_trie(vocabulary), marks, literals)

    def find(self, engine: Engine, num_taken: int) -> list[int] | None:
        """A path from where an engine is; from the start it is searched once."""
        if num_taken:
            return self.search.find(engine, LATER_SEARCH_WORK)
        with self._lock:
            if not self._is_searched:
                self._at_start = self.search.find(engine, SEARCH_WORK)
                self._is_searched = True
            return self._at_start


def _literals(grammar: str) -> list[str]:
    """The quoted texts of a grammar, and its characters; one that is not read exactly only helps a search less."""
    literals: list[str] = []
    for quoted in _QUOTED.findall(grammar):
        with suppress(ValueError):  # not an escape of JSON; or half of a character, which has no bytes
            literals.append(json.loads(quoted).encode().decode())
    return [*literals[:_LITERALS], *(letter for letter in ASCII if letter in grammar or letter in "\n 0aA")]


class SearchBudgetEngine(BudgetedEngine):
    """One state of an engine, and a path to its end.

    Args:
        ends: shared by all engines of the constraint.
        engine: at the start of the grammar, or after ``taken``.
        taken: the tokens accepted so far.
        completion: the path that another engine of the constraint knows after these tokens, or after their beginning.
        failure: the failed search of such an engine.
    """

    def __init__(
        self,
        ends: _Ends,
        engine: Engine,
        taken: Sequence[int] = (),
        completion: _Completion | None = None,
        failure: _Failure | None = None,
    ):
        self.engine, self.taken = engine, list(taken)
        self._ends, self._completion, self._failure = ends, completion, failure

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        accepted = self.engine.accept(token_id)
        if accepted:
            self.taken.append(token_id)
        return accepted

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        return self.engine.validate(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        self.engine.rollback(num_tokens)
        del self.taken[len(self.taken) - num_tokens :]
        if self._completion is not None and self._completion.position > len(self.taken):
            self._completion = None
        if self._failure is not None and self._failure.position > len(self.taken):
            self._failure = None

    def fork(self) -> SearchBudgetEngine:
        """See ``Engine.fork``."""
        return SearchBudgetEngine(self._ends, self.engine.fork(), self.taken, self._completion, self._failure)

    def fill(self, bitmask: Tensor, row: int) -> None:
        """See ``Engine.fill``."""
        self.engine.fill(bitmask, row)

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        return self.engine.is_completed()

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        return self.engine.jump_forward_bytes()

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        completion = self._known()
        return None if completion is None else len(completion) + 1

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        self.engine.fill(bitmask, row)
        if self._is_far(tokens_left):
            return
        completion = self._known()
        if completion is None or not len(completion) < tokens_left <= len(completion) + 1 + _MARGIN:
            return
        after_token = self._others(completion, tokens_left - 2)
        if completion:
            after_token[completion[0]] = completion[1:]
        self._completion = _Completion(len(self.taken), completion, after_token)
        words = self._ends.search.tokens.mask(np.fromiter(after_token, np.int64, len(after_token)))
        bitmask[row].numpy()[: len(words)] &= words

    def _is_far(self, tokens_left: int) -> bool:
        """Whether this budget certainly forbids no token here."""
        if self._completion is None:
            return False
        since = len(self.taken) - self._completion.position
        return tokens_left > len(self._completion.tokens) + 1 + _MARGIN * (since + 1)

    def _known(self) -> list[int] | None:
        """A path from here: the rest of the last one, if the text followed it, or a new one."""
        if self.engine.is_completed():
            return []
        if self._completion is not None:
            position, tokens, after_token = self._completion
            since = self.taken[position:]
            if since and since[0] in after_token:
                tokens = [since[0], *after_token[since[0]]]
            if tokens[: len(since)] == since:
                return tokens[len(since) :]
        position, failure = len(self.taken), self._failure
        if failure is not None and position < failure.position + failure.wait:
            return None  # a search takes long where it finds nothing
        result = self._ends.find(self.engine, position)
        if result is None:
            self._completion, self._failure = (
                None,
                _Failure(position, _PATIENCE if failure is None else 2 * failure.wait),
            )
        else:
            self._completion, self._failure = _Completion(position, result, {}), None
        return result

    def _others(self, completion: list[int], room: int) -> dict[int, list[int]]:
        """Tokens after which the path, or the path without its first token, leads to the end within ``room`` more."""
        rests = [rest for rest in (completion, completion[1:]) if len(rest) <= room]
        allowed = self._ends.search.allowed(self.engine)
        # Some of the cheapest, and some from everywhere.
        chosen = [*allowed[: _CANDIDATES // 2], *allowed[:: max(1, 2 * len(allowed) // _CANDIDATES)]]
        after_token: dict[int, list[int]] = {}
        for token_id in dict.fromkeys(map(int, chosen)):
            for rest in rests:
                if leads_to_end(self.engine, [token_id, *rest]):
                    after_token[token_id] = rest
                    break
        return after_token
