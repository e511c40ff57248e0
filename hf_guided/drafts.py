"""``hf_guided.hf.drafts`` under the name that callers import."""

from .hf.drafts import (
    AssistantDraft,
    Draft,
    DraftChain,
    DraftLength,
    DraftRequest,
    DraftSource,
    GrammarDraft,
    PromptLookup,
    Warp,
    compact_twin,
    draft_source,
)

Asked, Several = DraftRequest, DraftChain  # the old names

__all__ = [
    "Asked",
    "AssistantDraft",
    "Draft",
    "DraftChain",
    "DraftLength",
    "DraftRequest",
    "DraftSource",
    "GrammarDraft",
    "PromptLookup",
    "Several",
    "Warp",
    "compact_twin",
    "draft_source",
]
