"""Constraints that are not enforced whole: the words of the audit and the errors.

Other servers decode with xgrammar or llguidance: ``grammar_text`` is what they enforce, or refuses what they would not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, Grammar, JsonSchema, StructuralTag
from ..errors import Loss, UnsupportedConstraint
from .base import CompiledConstraint
from .registry import AUTO

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_NAMED = 5  # keywords in the first line of a message; all of them are listed below it


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
        pointers = [loss.place for loss in losses[:_NAMED]]
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
