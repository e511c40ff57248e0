"""Backends by name: ours, and those that other packages declare in the entry-point group ``hf_guided.backends``.

An entry point names a class (or any callable) that takes a Vocabulary and returns a ``Backend``. Nothing of an
engine is imported before it is requested by name.

The name "auto" means the native engine, which is ready in about a millisecond and knows the shortest path to the end;
for Lark grammars it means llguidance, whose greedy terminals are their meaning. ``grammar_text`` is what other servers
enforce as a backend does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, cast

from ..automaton import core  # noqa: F401  # where it cannot be loaded nothing works: it is no engine that is missing
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, Grammar, JsonSchema, StructuralTag
from ..errors import BackendUnavailable, InvalidConstraint, Loss, UnsupportedConstraint, shown
from .base import Backend, CompiledConstraint
from .tag_marks import literals

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

GROUP = "hf_guided.backends"
AUTO = "auto"
_NAMED = 5  # keywords in the first line of a message; all of them are listed below it
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


def reason(backend: str, losses: Sequence[Loss]) -> str:
    """Why this backend was taken, for the audit; ``backend`` is as the caller passed it."""
    enforced = f"would not enforce {_counted(losses)}" if losses else "enforces all of it"
    return enforced if backend == AUTO else f"chosen by name; {enforced}"


def refusal(constraint: Constraint, backend: str, losses: Sequence[Loss]) -> UnsupportedConstraint:
    """The error for a constraint that is not enforced whole; ``backend`` is as the caller passed it."""
    who = "no backend enforces" if backend == AUTO else f"{backend} does not enforce"
    subject = f"{who} all of this {constraint.kind}"
    has_parts = {(loss.pointer, loss.keyword) for loss in losses} != {("", constraint.kind)}
    steps = [f"change or remove {'it' if len(losses) == 1 else 'them'}" if has_parts else "change it"]
    if isinstance(constraint, JsonSchema):
        if constraint.max_depth is None and backend == AUTO and [loss.keyword for loss in losses] == ["indent"]:
            steps.insert(0, "pass hg.JsonSchema(..., max_depth=...)")  # no layout is known without a depth
        elif constraint.on_unsupported == "error":
            steps.append(
                'wrap it: hg.JsonSchema(..., on_unsupported="validate") checks the finished text, '
                'on_unsupported="warn" only warns'
            )
    if backend != AUTO:
        steps.append('choose another backend: backend="auto" enforces most')
    if has_parts:
        pointers = [f"{loss.pointer or '/'} ({loss.keyword})" for loss in losses[:_NAMED]]
        more = [f"{len(losses) - _NAMED} more"] if len(losses) > _NAMED else []
        subject += f": {_counted(losses)} would not be enforced: {', '.join([*pointers, *more])}"
    return UnsupportedConstraint(f"{subject}; {', or '.join(steps)}", tuple(losses))


def _counted(losses: Sequence[Loss]) -> str:
    return "1 keyword" if len(losses) == 1 else f"{len(losses)} keywords"


def grammar_text(compiled: CompiledConstraint, vocabulary: Vocabulary) -> str:
    """The grammar that xgrammar (EBNF) or llguidance (Lark) has compiled, for servers that decode with them.

    Raises UnsupportedConstraint where the text would have another meaning in another process: in the vocabulary of the
    tokenizer special tokens are no text.
    """
    if compiled.backend == "llguidance" and compiled.vocabulary is not vocabulary:
        reason = "llguidance takes special tokens for text only in hf-guided"
        loss = Loss("", compiled.constraint.kind, reason)
        raise UnsupportedConstraint("this grammar writes special tokens", (loss,))
    engine = compiled.new_engine()
    return str(cast(Any, getattr(engine, "engine", engine)).grammar_text())  # without what keeps its budgets


def not_shared(constraint: Constraint, backend: str, error: UnsupportedConstraint) -> UnsupportedConstraint:
    """The error of a compile, with the next steps of someone whose server decodes with this library."""
    what = str(error).partition("\n")[0].partition("; ")[0]
    steps = "change the constraint"
    if isinstance(constraint, (Grammar, StructuralTag, ToolCalls)):
        other = "xgrammar" if backend == "llguidance" else "llguidance"
        if backend == "llguidance" or isinstance(constraint, Grammar):  # xgrammar alone takes tags
            steps += f', or pass backend="{other}" if the server can decode with {other}'
    else:
        steps += (
            ', or wrap a schema: hg.JsonSchema(..., on_unsupported="validate") leaves it to Guide.read to check the '
            "finished text"
        )
    return UnsupportedConstraint(f"{what}; {steps}", error.losses)
