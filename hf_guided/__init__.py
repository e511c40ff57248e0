"""Structured generation for Hugging Face transformers that holds in every generation mode."""

from .async_generation import agenerate
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
    VocabularySizeError,
)
from .generation import generate
from .guide import Guide
from .hf.register import register
from .logprobs import TokenLogprob, TopLogprobs
from .model import Model
from .options import CompilerOptions
from .partial import Partial
from .reasoning import Reasoning
from .result import GuidedResult
from .schema.audit import Audit
from .scoring import score
from .stats import SessionStats
from .tool_calls import ToolAnswer, ToolCall, ToolCalls

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
    "VocabularySizeError",
    "agenerate",
    "describe",
    "generate",
    "register",
    "score",
]
