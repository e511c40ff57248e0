"""The engines of one vocabulary, each made when it is first needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..constraints.values import Constraint, StructuralTag
from . import registry
from .base import Backend
from .tag_tokens import special_tokens

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_MAX_MARKED = 4  # sets of special tokens as text; as a rule a model has one format for calls


class EngineSet(Mapping[str, Backend]):
    """The registry's backends for one vocabulary, each made when first requested."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._made: dict[str, Backend] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> Backend:
        with self._lock:
            if name not in self._made:
                self._made[name] = registry.create(name, self.vocabulary)
            return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(registry.available())

    def __len__(self) -> int:
        return len(registry.available())


class MarkedEngines:
    """Engines over vocabularies where the special tokens of a tag's marks are text. Thread safe.

    Args:
        engines: over the plain vocabulary.
    """

    def __init__(self, engines: EngineSet) -> None:
        self._engines = engines
        self._marked: OrderedDict[frozenset[int], EngineSet] = OrderedDict()
        self._lock = threading.Lock()

    def for_constraint(self, constraint: Constraint) -> EngineSet:
        """The engines for this constraint."""
        if not isinstance(constraint, StructuralTag):
            return self._engines
        vocabulary = self._engines.vocabulary
        special = special_tokens(constraint.tag, vocabulary)
        marks = {token_id: name for token_id, name in special.items() if token_id not in vocabulary.stop_token_ids}
        if not marks:
            return self._engines
        with self._lock:
            key = frozenset(marks)
            if key not in self._marked:
                self._marked[key] = EngineSet(vocabulary.with_text(marks))
                while len(self._marked) > _MAX_MARKED:
                    self._marked.popitem(last=False)
            self._marked.move_to_end(key)
            return self._marked[key]
