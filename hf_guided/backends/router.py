"""Which backend serves a constraint, and the error where it does not enforce all of it.

"auto" takes the native engine, which is ready in about a millisecond and knows the shortest path to the end; for Lark
grammars it takes llguidance, whose greedy terminals are their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..constraints.values import Constraint, Grammar, JsonSchema
from ..errors import Loss, UnsupportedConstraint

AUTO = "auto"

_NAMED = 5  # keywords in the first line of a message; all of them are listed below it


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
