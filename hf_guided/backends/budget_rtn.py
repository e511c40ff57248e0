"""Budgets for engines that know nothing of the way to the end: a network goes along, and takes over near it.

Beside the engine a network of frames (automaton/pushdown.py) of the same constraint knows what it takes to finish from
anywhere. It reads the text late: while more tokens are left than any tokens since could have added to what was needed
then, nothing is looked at and nothing masked. From there on the engine's mask loses the tokens behind which what is
left would not do.

The network may take more spellings than the engine does (white space, escapes), and need not take all of them. Where it
loses the text, and for grammars, which have no network, a way is searched (budget_search.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..automaton.budget_masks import BUDGET_BYTES
from ..automaton.limits import WorkMeter
from ..automaton.pushdown import Places, Pushdown
from ..automaton.rtn import Frame, FrameBuilder, network
from ..automaton.token_trie import token_trie
from ..constraints.values import Choice, JsonObject, JsonSchema, Regex, StructuralTag
from ..errors import CompileLimitExceeded, UnwritableConstraint
from ..regex import Node, UnsupportedRegex, alt, parse_fullmatch, text
from ..schema.normalize import Normalizer
from ..schema.to_nfa import NotRegular
from ..schema.to_rtn import Positions
from .base import CompiledConstraint
from .budget_search import SearchedEngine
from .completion_search import WaySearch, leads_to_end
from .layer import Layer
from .structural_tag import closing_marks

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

# Takes members in any order, of which a network would have to count all: it is held to the order of their declaration.
_NARROWED = frozenset({"lm_format_enforcer"})


def with_routes(compiled: CompiledConstraint) -> CompiledConstraint:
    """The same constraint with engines that keep budgets and memory for it; as it is if no way to the end was found."""
    if compiled.keeps_budget:
        return replace(compiled, nbytes=compiled.nbytes + BUDGET_BYTES)
    vocabulary = compiled.vocabulary
    marks = closing_marks(compiled.constraint.tag) if isinstance(compiled.constraint, StructuralTag) else ()
    search = WaySearch(vocabulary, token_trie(vocabulary), marks)
    routes = _routes(compiled)
    if routes is not None:
        return replace(
            compiled,
            new_engine=lambda: RoutedEngine(routes, SearchedEngine(search, compiled.new_engine())),
            nbytes=compiled.nbytes + routes.nbytes + search.nbytes,
            keeps_budget=True,
        )
    first = SearchedEngine(search, compiled.new_engine())
    if first.min_tokens_to_finish() is None:
        return compiled
    return replace(
        compiled,
        new_engine=lambda: first.anew(compiled.new_engine()),
        nbytes=compiled.nbytes + search.nbytes,
        keeps_budget=True,
    )


def _routes(compiled: CompiledConstraint) -> Routes | None:
    """A network that goes along with the engine; None if there is none, or its shortest text is not the engine's."""
    meter = WorkMeter()
    try:
        frames = _frames(compiled, meter)
        if frames is None:
            return None
        pushdown = Pushdown(frames, token_trie(compiled.vocabulary), compiled.vocabulary, meter)
        shortest = pushdown.shortest()
        if shortest is None or not leads_to_end(compiled.new_engine(), compiled.vocabulary.encode_bytes(shortest)):
            return None
    except (NotRegular, UnsupportedRegex, CompileLimitExceeded, UnwritableConstraint):
        return None
    return Routes(pushdown, compiled.vocabulary, compiled.backend in _NARROWED)


def _frames(compiled: CompiledConstraint, meter: WorkMeter) -> list[Frame] | None:
    constraint = compiled.constraint
    if isinstance(constraint, JsonObject):
        constraint = constraint.as_schema()
    if isinstance(constraint, JsonSchema):
        n = Normalizer.of(constraint)
        style = constraint.style._replace(spelling=compiled.spelling or "any")
        positions = Positions(n, style, closed=constraint.extra == "forbid")
        return network(positions.root, positions.lower, meter)
    if isinstance(constraint, Regex):
        node = parse_fullmatch(constraint.pattern)
    elif isinstance(constraint, Choice):
        node = alt(*map(text, constraint.options))
    else:
        return None

    def build(node: Node, builder: FrameBuilder) -> tuple[int, int]:
        start = builder.state()
        return start, builder.regex(node, start)

    return network(node, build, meter)


class Routes:
    """What the engines of one constraint share; thread safe.

    Args:
        pushdown: the network.
        vocabulary: the tokens.
        narrows: whether masks always leave out what the network does not take.
    """

    def __init__(self, pushdown: Pushdown, vocabulary: Vocabulary, narrows: bool):
        self.pushdown, self.vocabulary, self.narrows = pushdown, vocabulary, narrows
        self.worst_step = pushdown.worst_step

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        return self.pushdown.nbytes


class RoutedEngine(Layer):
    """One position of an engine, and where the network stands.

    Args:
        routes: shared by all engines of the constraint.
        engine: at the start; what it knows of the way is asked where the network knows nothing.
    """

    engine: SearchedEngine

    def __init__(self, routes: Routes, engine: SearchedEngine):
        super().__init__(engine)
        self._routes = routes
        self._read: list[tuple[int, Places]] = [(0, routes.pushdown.start)]  # so many tokens led there

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        super().rollback(num_tokens)
        while self._read[-1][0] > len(self.taken):
            self._read.pop()

    def fork(self) -> RoutedEngine:
        """See ``Engine.fork``."""
        twin = RoutedEngine(self._routes, self.engine.fork())
        twin.taken, twin._read = self.taken.copy(), self._read.copy()
        return twin

    def min_tokens_to_finish(self) -> int | None:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        places = self._places()
        return places[0].needed + 1 if places else self.engine.min_tokens_to_finish()

    def fill_within(self, bitmask: Tensor, row: int, tokens_left: int) -> None:
        """See ``BudgetedEngine.fill_within``."""
        if self._is_far(tokens_left) or (self._places() and self._is_far(tokens_left)):
            self.engine.fill(bitmask, row)
            return
        places = self._places()
        if not places:
            self.engine.fill_within(bitmask, row, tokens_left)
            return
        self.engine.fill(bitmask, row)
        after = self._routes.pushdown.after(places)
        fitting = len(after.token_ids)
        if places[0].needed < tokens_left:
            fitting = int(np.searchsorted(after.needed, tokens_left - 1))
        if fitting == len(after.token_ids) and not self._routes.narrows:
            return
        words = self._routes.pushdown.tokens.mask(after.token_ids[:fitting])
        row_words = bitmask[row].numpy()[: len(words)]
        row_words &= words
        if not row_words.any() and not self.is_completed():
            self.engine.fill_within(bitmask, row, tokens_left)  # the engine takes another way

    def _is_far(self, tokens_left: int) -> bool:
        """Whether no token could make the text need more than is left, by what was known when it was last read."""
        count, places = self._read[-1]
        if self._routes.narrows or not places:
            return False
        most = max(place.apart for place in places)
        return tokens_left > most + 1 + self._routes.worst_step * (len(self.taken) - count + 1)

    def _places(self) -> Places:
        """Where the text stands now, the place that needs least first."""
        count, places = self._read[-1]
        if places and count < len(self.taken):
            places = self._routes.pushdown.read(places, self._routes.vocabulary.decode_bytes(self.taken[count:]))
            self._read.append((len(self.taken), places))
        return places
