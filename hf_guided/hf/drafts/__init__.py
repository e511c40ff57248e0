"""Guesses of what comes next, for the model to judge many at once: see base.py; one source per file."""

from .assistant import AssistantDraft
from .base import Asked, Draft, DraftSource, Warp
from .chain import Several
from .factory import draft_source
from .grammar import GrammarDraft, compact_twin
from .length import DraftLength
from .prompt_lookup import PromptLookup

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
