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

__all__ = [
    "AssistantDraft",
    "Draft",
    "DraftChain",
    "DraftLength",
    "DraftRequest",
    "DraftSource",
    "GrammarDraft",
    "PromptLookup",
    "Warp",
    "compact_twin",
    "draft_source",
]
