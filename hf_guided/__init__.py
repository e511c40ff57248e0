"""Structured generation for Hugging Face transformers that holds in every generation mode.

Names whose modules import torch or transformers are resolved at first use (PEP 562), so that ``import hf_guided`` and a
command line's ``--help`` take milliseconds. Type checkers read the imports under TYPE_CHECKING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .constraints.tool_calls import ToolAnswer, ToolCall, ToolCalls
from .constraints.tool_notation import ToolFormat
from .constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
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
from .generation.description import describe
from .options import CompilerOptions
from .schema.audit import Audit
from .session.stats import SessionStats
from .trace.trace import Trace

if TYPE_CHECKING:
    from .generation.api import Model, agenerate, generate
    from .generation.partial import Partial
    from .generation.pipeline import register
    from .generation.sample import sample
    from .generation.samples import Samples
    from .generation.score import ChoiceScores, OptionScore, score
    from .guide import Guide
    from .session.logprobs import TokenLogprob, TopLogprobs
    from .session.reasoning import Reasoning
    from .session.result import GuidedResult

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
    "Samples",
    "SessionStats",
    "StopTokenError",
    "StructuralTag",
    "TokenLogprob",
    "TokenRejected",
    "TokenizerError",
    "ToolAnswer",
    "ToolCall",
    "ToolCalls",
    "ToolFormat",
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
    "sample",
    "score",
]

if not TYPE_CHECKING:  # a type checker that sees __getattr__ would accept every misspelt name as Any
    _LAZY = {  # name -> module that defines it
        "ChoiceScores": "generation.score",
        "Guide": "guide",
        "GuidedResult": "session.result",
        "Model": "generation.api",
        "OptionScore": "generation.score",
        "Partial": "generation.partial",
        "Reasoning": "session.reasoning",
        "Samples": "generation.samples",
        "TokenLogprob": "session.logprobs",
        "TopLogprobs": "session.logprobs",
        "agenerate": "generation.api",
        "generate": "generation.api",
        "register": "generation.pipeline",
        "sample": "generation.sample",
        "score": "generation.score",
    }
    _SUBMODULES = frozenset({"backends", "demo", "hf", "serve", "vocabulary"})

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
