"""Makes a source of drafts from a caller's ``draft=`` argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.base import CompiledConstraint
from ...constraints.values import Constraint
from ...errors import InvalidArgument, reading, shown
from ...vocabulary.retokenize import Continuation
from .assistant import AssistantDraft
from .base import DraftSource
from .chain import DraftChain
from .grammar import GrammarDraft, compact_twin
from .prompt_lookup import PromptLookup


@reading("draft")
def draft_source(
    draft: Any,
    continuation: Continuation,
    *,
    vocab_size: int,
    compile: Callable[[Constraint], CompiledConstraint],
) -> DraftSource | None:
    """The source for ``draft``; None for None.

    Args:
        draft: "grammar", "prompt_lookup", a model, a DraftSource, or a list of these.
        continuation: tokenizes text after other tokens.
        vocab_size: columns of the logits.
        compile: for sources that use a grammar of their own.

    Raises:
        InvalidArgument: another value.
        UnsupportedModel: see ``AssistantDraft``.
    """
    if draft is None or isinstance(draft, DraftSource):
        return draft
    if isinstance(draft, (list, tuple)):
        sources = (draft_source(part, continuation, vocab_size=vocab_size, compile=compile) for part in draft)
        return DraftChain([source for source in sources if source is not None])
    if draft == "prompt_lookup":
        return PromptLookup()
    if draft == "grammar":

        def twin_of(compiled: CompiledConstraint) -> CompiledConstraint | None:
            twin = compact_twin(compiled.constraint)
            return None if twin is None else compile(twin)

        return GrammarDraft(twin_of, continuation)
    if hasattr(draft, "generation_config"):
        return AssistantDraft(draft, vocab_size=vocab_size)
    raise InvalidArgument(
        'draft: expected "grammar", "prompt_lookup", a model, a DraftSource, or a list of these, '
        f"got {shown(draft)} of type {type(draft).__name__}"
    )
