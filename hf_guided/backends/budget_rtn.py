"""Budgets for engines that do not know the path to the end: an RTN follows the text, and restricts masks near the end.

An RTN of the same constraint (automaton/pushdown.py) knows the tokens needed to finish from every configuration. It
reads the text lazily: while the tokens since the last reading cannot have used up the budget, it neither reads nor
masks. After that, the engine's mask loses the tokens after which the rest of the budget would not suffice.

The RTN may accept more spellings than the engine (white space, escapes), or fewer. Where it loses the text, and for
grammars, which have no RTN, a path is searched (budget_search.py).
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..automaton.budget_masks import BUDGET_BYTES
from ..automaton.limits import WorkMeter
from ..automaton.nfa import language_dfa
from ..automaton.pushdown import Configurations, Pushdown
from ..automaton.rtn import Component, build_rtn
from ..automaton.token_trie import token_trie
from ..constraints.values import Choice, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from ..errors import CompileLimitExceeded, UnsupportedConstraint, UnwritableConstraint
from ..regex import UnsupportedRegex, alt, parse_fullmatch, text
from ..schema.normalize import Normalizer
from ..schema.to_nfa import NotRegular
from ..schema.to_rtn import Positions
from .base import CompiledConstraint
from .budget_search import SearchBudgetEngine
from .completion_search import ASCII, CompletionSearch, leads_to_end
from .layer import Layer
from .tag_marks import closing_marks
from .tag_rtn import TagRtn

if TYPE_CHECKING:
    from torch import Tensor

    from ..vocabulary.tokens import Vocabulary

# Accepts members in any order, which an RTN would have to count: it is restricted to the order of their declaration.
_NARROWED = frozenset({"lm_format_enforcer"})
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LITERALS = 64  # maximum number of literals that a search tries


def with_budget(compiled: CompiledConstraint) -> CompiledConstraint:
    """The same constraint with engines that keep budgets, and their memory; unchanged if no path was found."""
    if compiled.keeps_budget:
        return _larger(compiled, BUDGET_BYTES) if compiled.backend == "automaton" else compiled
    vocabulary = compiled.vocabulary
    marks = closing_marks(compiled.constraint.tag) if isinstance(compiled.constraint, StructuralTag) else ()
    literals = _literals(compiled.constraint.text) if isinstance(compiled.constraint, Grammar) else ASCII
    search = CompletionSearch(vocabulary, token_trie(vocabulary), marks, literals)
    rtn = _budget_rtn(compiled)
    if rtn is not None:
        return replace(
            _larger(compiled, rtn.nbytes),
            new_engine=lambda: RtnBudgetEngine(rtn, SearchBudgetEngine(search, compiled.new_engine())),
            keeps_budget=True,
        )
    first = SearchBudgetEngine(search, compiled.new_engine())
    if first.min_tokens_to_finish() is None:
        return compiled
    return replace(
        compiled,
        new_engine=lambda: first.restarted(compiled.new_engine()),
        keeps_budget=True,
    )


def _literals(grammar: str) -> list[str]:
    """The quoted texts of a grammar, and its characters; one that is not read exactly only helps a search less."""
    literals: list[str] = []
    for quoted in _QUOTED.findall(grammar):
        with suppress(ValueError):  # not an escape of JSON; or half of a character, which has no bytes
            literals.append(json.loads(quoted).encode().decode())
    return [*literals[:_LITERALS], *(letter for letter in ASCII if letter in grammar or letter in "\n 0aA")]


def _larger(compiled: CompiledConstraint, nbytes: int) -> CompiledConstraint:
    """The same, where so much more is held from the beginning."""
    at_once = compiled.at_once_bytes
    return replace(
        compiled, nbytes=compiled.nbytes + nbytes, at_once_bytes=None if at_once is None else at_once + nbytes
    )


def _budget_rtn(compiled: CompiledConstraint) -> BudgetRtn | None:
    """The RTN of a constraint; None if there is none, or the engine does not accept its shortest text."""
    meter = WorkMeter()
    try:
        components = _components(compiled, meter)
        if components is None:
            return None
        pushdown = Pushdown(components, token_trie(compiled.vocabulary), compiled.vocabulary, meter)
        shortest = pushdown.shortest()
        if shortest is None or not leads_to_end(compiled.new_engine(), compiled.vocabulary.encode_bytes(shortest)):
            return None
    except (NotRegular, UnsupportedConstraint, UnsupportedRegex, CompileLimitExceeded, UnwritableConstraint):
        return None
    return BudgetRtn(pushdown, compiled.vocabulary, compiled.backend in _NARROWED)


def _components(compiled: CompiledConstraint, meter: WorkMeter) -> list[Component] | None:
    constraint = compiled.constraint
    if isinstance(constraint, JsonObject):
        constraint = constraint.as_schema()
    if isinstance(constraint, JsonSchema):
        n = Normalizer.of(constraint)
        style = constraint.style._replace(spelling=compiled.spelling or "any")
        positions = Positions(n, style, closed=constraint.extra == "forbid")
        return list(build_rtn(positions.root, positions.build, meter).values())
    if isinstance(constraint, StructuralTag):
        return TagRtn(constraint.tag, compiled.spelling or "any").components(meter)
    if isinstance(constraint, Regex):
        node = parse_fullmatch(constraint.pattern)
    elif isinstance(constraint, Choice):
        node = alt(*map(text, constraint.options))
    else:
        return None
    return [Component.without_calls(language_dfa(node, meter))]


class BudgetRtn:
    """The part that the engines of one constraint share; thread safe.

    Args:
        pushdown: the RTN and the vocabulary.
        vocabulary: the tokens.
        narrows: whether masks always leave out tokens that the RTN does not accept.
    """

    def __init__(self, pushdown: Pushdown, vocabulary: Vocabulary, narrows: bool):
        self.pushdown, self.vocabulary, self.narrows = pushdown, vocabulary, narrows

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self.pushdown.nbytes


class RtnBudgetEngine(Layer):
    """One state of an engine, and the configurations of the RTN.

    Args:
        rtn: shared by all engines of the constraint.
        engine: at the start; it supplies the path where the RTN has lost the text.
    """

    engine: SearchBudgetEngine

    def __init__(self, rtn: BudgetRtn, engine: SearchBudgetEngine):
        super().__init__(engine)
        self._rtn = rtn
        self._read: list[tuple[int, Configurations]] = [(0, rtn.pushdown.start)]  # tokens read, state after them

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        super().rollback(num_tokens)
        while self._read[-1][0] > len(self.taken):
            self._read.pop()

    def fork(self) -> RtnBudgetEngine:
        """See ``Engine.fork``."""
        twin = RtnBudgetEngine(self._rtn, self.engine.fork())
        twin.taken, twin._read = self.taken.copy(), self._read.copy()
        return twin

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        configurations = self._configurations()
        return configurations[0].needed + 1 if configurations else self.engine.min_tokens_to_finish()

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        if self.is_far(tokens_left):
            self.engine.fill(bitmask, row)
            return
        configurations = self._configurations()
        if not configurations:
            self.engine.fill_within(bitmask, row, tokens_left)
            return
        self.engine.fill(bitmask, row)
        after = self._rtn.pushdown.after(configurations)
        fitting = len(after.token_ids)
        if configurations[0].needed < tokens_left:
            fitting = int(np.searchsorted(after.needed, tokens_left - 1))
        if fitting == len(after.token_ids) and not self._rtn.narrows:
            return
        words = self._rtn.pushdown.tokens.mask(after.token_ids[:fitting])
        row_words = bitmask[row].numpy()[: len(words)]
        row_words &= words
        if not row_words.any() and not self.is_completed():
            self.engine.fill_within(bitmask, row, tokens_left)  # the engine takes another path

    def is_far(self, tokens_left: int) -> bool:
        """See ``Layer.is_far``."""
        return self._was_far(tokens_left) or bool(self._configurations() and self._was_far(tokens_left))

    def _was_far(self, tokens_left: int) -> bool:
        """Whether no token could exceed the budget, by the count when the text was last read."""
        count, configurations = self._read[-1]
        if self._rtn.narrows or not configurations:
            return False
        most = max(configuration.apart for configuration in configurations)
        return self._rtn.pushdown.max_budget_growth.is_at_most(
            (tokens_left - most - 2) // (len(self.taken) - count + 1)
        )

    def _configurations(self) -> Configurations:
        """The configurations of the text now, the one that needs fewest tokens first."""
        count, configurations = self._read[-1]
        if configurations and count < len(self.taken):
            configurations = self._rtn.pushdown.read(
                configurations, self._rtn.vocabulary.decode_bytes(self.taken[count:])
            )
            self._read.append((len(self.taken), configurations))
        return configurations
