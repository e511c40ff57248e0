"""Sources of draft tokens."""

from .assistant import AssistantDraft
from .base import Draft, DraftLength, DraftRequest, DraftSource, Warp
from .grammar import GrammarDraft, compact_twin
from .sources import DraftChain, PromptLookup, draft_source

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
