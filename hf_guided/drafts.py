"""``hf_guided.hf.drafts`` under the name that callers import."""

from .hf.drafts import (
    Asked,
    AssistantDraft,
    Draft,
    DraftLength,
    DraftSource,
    GrammarDraft,
    PromptLookup,
    Several,
    Warp,
    compact_twin,
    draft_source,
)

__all__ = [
    "Asked",
    "AssistantDraft",
    "Draft",
    "DraftLength",
    "DraftSource",
    "GrammarDraft",
    "PromptLookup",
    "Several",
    "Warp",
    "compact_twin",
    "draft_source",
]
