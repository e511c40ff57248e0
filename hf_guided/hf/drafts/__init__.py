"""Draft tokens, which the model verifies many at once: see base.py; one source per file."""

from .assistant import AssistantDraft
from .base import Draft, DraftRequest, DraftSource, Warp
from .chain import DraftChain
from .factory import draft_source
from .grammar import GrammarDraft, compact_twin
from .length import DraftLength
from .prompt_lookup import PromptLookup

__all__ = [
    "DraftRequest",
    "AssistantDraft",
    "Draft",
    "DraftLength",
    "DraftSource",
    "GrammarDraft",
    "PromptLookup",
    "DraftChain",
    "Warp",
    "compact_twin",
    "draft_source",
]
