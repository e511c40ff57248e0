"""Guesses of what comes next, for the model to judge many at once: see base.py; one source per file."""

from .asked import draft_source
from .assistant import AssistantDraft
from .base import Asked, Draft, DraftSource, Warp
from .grammar import GrammarDraft, compact_twin
from .length import DraftLength
from .prompt_lookup import PromptLookup
from .several import Several

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
