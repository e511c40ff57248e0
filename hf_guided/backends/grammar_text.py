"""Compiled grammars as text, for servers that decode with the same libraries.

vLLM and SGLang take a grammar with a request and compile it with xgrammar or llguidance. Given the grammar that these
have compiled here, they enforce what ``Guide.audit`` reports of that backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, Grammar, StructuralTag
from ..errors import Loss, UnsupportedConstraint
from .base import CompiledConstraint

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary


def grammar_text(compiled: CompiledConstraint, vocabulary: Vocabulary) -> str:
    """The grammar that xgrammar (EBNF) or llguidance (Lark) has compiled.

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
