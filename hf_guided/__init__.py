"""Structured generation for Hugging Face transformers that holds in every generation mode.

Names whose modules import torch or transformers are resolved at first use (PEP 562), so that ``import hf_guided`` and a
command line's ``--help`` take milliseconds. Type checkers read their imports under TYPE_CHECKING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .choice_scores import ChoiceScores, OptionScore
from .constraints import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from .description import describe
from .display.trace import Trace
from .errors import (
    BackendError,
    BackendUnavailable,
    BatchSizeError,
    BitmaskShapeError,
    BudgetTooSmall,
    CompileLimitExceeded,
    ConstraintError,
    EmptyIntersection,
    GenerationError,
    HFGuidedError,
    InternalError,
    InvalidArgument,
    InvalidConstraint,
    Loss,
    NoValue,
    PromptError,
    StopTokenError,
    TokenizerError,
    TokenRejected,
    UnknownArgument,
    UnsupportedConstraint,
    UnsupportedModel,
    UnsupportedTokenizer,
    UnwritableConstraint,
    UsageError,
    VocabularySizeError,
)
from .logprobs import TokenLogprob, TopLogprobs
from .options import CompilerOptions
from .schema.audit import Audit
from .stats import SessionStats
from .tool_calls import ToolAnswer, ToolCall, ToolCalls

if TYPE_CHECKING:
    from .async_generation import agenerate
    from .generation import generate
    from .guide import Guide
    from .hf.register import register
    from .model import Model
    from .partial import Partial
    from .reasoning import Reasoning
    from .result import GuidedResult
    from .scoring import score

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "BackendError",
    "BackendUnavailable",
    "BatchSizeError",
    "BitmaskShapeError",
    "BudgetTooSmall",
    "Choice",
    "ChoiceScores",
    "CompileLimitExceeded",
    "CompilerOptions",
    "Constraint",
    "ConstraintError",
    "EmptyIntersection",
    "GenerationError",
    "Grammar",
    "Guide",
    "GuidedResult",
    "HFGuidedError",
    "InternalError",
    "InvalidArgument",
    "InvalidConstraint",
    "JsonObject",
    "JsonSchema",
    "Loss",
    "Model",
    "NoValue",
    "OptionScore",
    "Partial",
    "PromptError",
    "Reasoning",
    "Regex",
    "SessionStats",
    "StopTokenError",
    "StructuralTag",
    "TokenLogprob",
    "TokenRejected",
    "TokenizerError",
    "ToolAnswer",
    "ToolCall",
    "ToolCalls",
    "TopLogprobs",
    "Trace",
    "UnknownArgument",
    "UnsupportedConstraint",
    "UnsupportedModel",
    "UnsupportedTokenizer",
    "UnwritableConstraint",
    "UsageError",
    "VocabularySizeError",
    "agenerate",
    "describe",
    "generate",
    "register",
    "score",
]

if not TYPE_CHECKING:  # a checker that sees __getattr__ takes every misspelt name for Any
    _LAZY = {  # name -> module that defines it
        "Guide": "guide",
        "GuidedResult": "result",
        "Model": "model",
        "Partial": "partial",
        "Reasoning": "reasoning",
        "agenerate": "async_generation",
        "generate": "generation",
        "register": "hf.register",
        "score": "scoring",
    }
    _SUBMODULES = frozenset({"backends", "bitmask", "demo", "drafts", "hf", "serve", "vocabulary"})

    def __getattr__(name):
        from importlib import import_module

        if name in _LAZY:
            value = getattr(import_module(f".{_LAZY[name]}", __name__), name)
        elif name in _SUBMODULES:
            value = import_module(f".{name}", __name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*__all__, *_SUBMODULES, *(name for name in globals() if name.startswith("__"))})
