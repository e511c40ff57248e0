"""Backends by name: ours, and those that other packages declare in the entry-point group ``hf_guided.backends``.

An entry point names a class (or any callable) that takes a Vocabulary and returns a ``Backend``. Nothing of an
engine is imported before it is requested by name.

The name "auto" means the native engine, which is ready in about a millisecond and knows the shortest path to the end;
for Lark grammars it means llguidance, whose greedy terminals are their meaning.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from ..automaton import core  # noqa: F401  # where it cannot be loaded nothing works: it is no engine that is missing
from ..constraints.values import Constraint, Grammar, StructuralTag
from ..errors import BackendUnavailable, InvalidConstraint, shown
from .base import Backend
from .tag_marks import literals

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

GROUP = "hf_guided.backends"
AUTO = "auto"
_MAX_MARKED = 4  # sets of special tokens as text; as a rule a model has one format for calls

# Known without package metadata: reading that takes milliseconds, and a plain checkout on PYTHONPATH has none.
BUILT_IN = {
    "llguidance": "hf_guided.backends.llguidance:LLGuidanceBackend",
    "xgrammar": "hf_guided.backends.xgrammar:XGrammarBackend",
    "lm_format_enforcer": "hf_guided.backends.lm_format_enforcer:LMFormatEnforcerBackend",
    "native": "hf_guided.backends.network:NetworkBackend",
    "outlines": "hf_guided.backends.outlines:OutlinesBackend",
}
_INSTALL = {
    "llguidance": "pip install llguidance",
    "xgrammar": "pip install xgrammar",
    "lm_format_enforcer": "pip install hf-guided[lmfe]",
    "outlines": "pip install outlines-core",
}


def available() -> tuple[str, ...]:
    """Names of all backends that ``create`` knows: the built-in ones first, then those of other packages, sorted."""
    return tuple(_points())


def create(name: str, vocabulary: Vocabulary) -> Backend:
    """Build a backend, which keeps the vocabulary; raises InvalidConstraint (no such name) or BackendUnavailable."""
    points = {name: EntryPoint(name, BUILT_IN[name], GROUP)} if name in BUILT_IN else _points()
    if name not in points:
        raise InvalidConstraint(f"unknown backend {shown(name)}; known are: {', '.join(points)}")
    try:
        backend: Backend = points[name].load()(vocabulary)
    except ImportError as error:
        step = _INSTALL.get(name, f"install the package that provides {points[name].value!r}")
        raise BackendUnavailable(f"backend {shown(name)} cannot be imported ({error}); {step}") from error
    return backend


def _points() -> dict[str, EntryPoint]:
    points = {name: EntryPoint(name, value, GROUP) for name, value in BUILT_IN.items()}
    # Ours win over a foreign package that takes one of our names: "llguidance" always means our adapter.
    for point in sorted(entry_points(group=GROUP)):
        points.setdefault(point.name, point)
    return points


class EngineSet(dict[str, Backend]):
    """The backends for one vocabulary, each made when first requested. Thread safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self._lock = threading.Lock()
        self._marked = lru_cache(_MAX_MARKED)(lambda marks: EngineSet(vocabulary.with_text(dict(marks))))

    def __missing__(self, name: str) -> Backend:
        with self._lock:
            if name not in self:
                self[name] = create(name, self.vocabulary)
        return super().__getitem__(name)

    def for_constraint(self, constraint: Constraint) -> EngineSet:
        """The engines for a constraint: over a vocabulary where the special tokens of a tag's marks are text."""
        if not isinstance(constraint, StructuralTag):
            return self
        special = self.vocabulary.special_in(literals(constraint.tag))
        marks = frozenset(mark for mark in special.items() if mark[0] not in self.vocabulary.stop_token_ids)
        return self._marked(marks) if marks else self


def chosen(constraint: Constraint, backend: str) -> str:
    """The name of the backend; ``backend`` is "auto", or a name."""
    if backend != AUTO:
        return backend
    return "llguidance" if isinstance(constraint, Grammar) and constraint.syntax == "lark" else "native"
