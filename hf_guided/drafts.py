"""Sources of draft tokens, from ``hf_guided.hf.drafts``, under the name that callers import."""

from .hf.drafts.assistant import AssistantDraft
from .hf.drafts.base import Draft, DraftLength, DraftRequest, DraftSource, Warp
from .hf.drafts.grammar import GrammarDraft, compact_twin
from .hf.drafts.sources import DraftChain, PromptLookup, draft_source

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
