"""lm-format-enforcer: pure Python, character by character; regular expressions, choices and simple JSON.

Its parsers are immutable values: one per prefix, which makes rollback and fork a matter of keeping a list. Its own
token walk stores every prefix for ever and turns an exception into "only EOS", so the walk is done here. Its JSON
numbers and strings are loose (``1.e5``, ``-0.5`` as an integer, raw tabs), which ``_StrictJson`` repairs.
Tokens that are not whole characters are never allowed: it works on text.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..bitmask import words
from ..constraints import Choice, Constraint, JsonSchema, Regex
from ..errors import BackendError, ConstraintError, InvalidConstraint, Loss, UnsupportedConstraint
from ..schema.prepare import prepare
from ..schema.python_regex import UnsupportedRegex, fullmatch_pattern, literal
from .base import CompiledConstraint
from .json_subset import JsonSubset, Schema

if TYPE_CHECKING:
    from ..vocabulary import Vocabulary

_UNESCAPED = r'[^"\\\x00-\x1f]'


class LMFormatEnforcerBackend:
    """The adapter; its trees over the vocabulary are built when first needed (seconds for 131k tokens)."""

    name = "lm_format_enforcer"

    def __init__(self, vocabulary: Vocabulary):
        import lmformatenforcer

        self.vocabulary = vocabulary
        self._lib = lmformatenforcer

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        """What is not on the list of things it is proven to enforce; see ``Backend.losses``."""
        try:
            if isinstance(constraint, JsonSchema):
                return self._reduced(constraint)[1]
            _pattern(constraint)
        except UnsupportedConstraint as error:
            return error.losses
        except ConstraintError:
            pass  # malformed, not unsupported: compile says so
        return ()
