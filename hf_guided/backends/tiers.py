"""Decides which constraints get a second compile: one engine is ready at once, the other gives faster masks later.

The network and llguidance are ready in milliseconds; the automaton takes longer, and then each mask is a look-up. So
"auto" answers the first request of a regular constraint with one of them. The second request shows that there will be
more: the automaton is built meanwhile, for the later ones. A row that has begun keeps its engine.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex
from ..errors import BackendError, ConstraintError
from .base import Backend, CompiledConstraint
from .router import AUTO, NATIVE, BackendChoice

_MAY_BE_REGULAR = (JsonSchema, JsonObject, Regex, Choice)


def has_second_tier(constraint: Constraint, backend: str, first: BackendChoice) -> bool:
    """Whether the native engine may be the better one for later requests.

    Args:
        constraint: what was compiled.
        backend: "auto", or the name of a backend.
        first: what answered the first request.
    """
    return backend == AUTO and first.backend != NATIVE and not first.losses and isinstance(constraint, _MAY_BE_REGULAR)


def second_tier(
    constraint: Constraint, first: BackendChoice, backends: Mapping[str, Backend]
) -> tuple[CompiledConstraint, BackendChoice] | None:
    """The constraint compiled by the native engine, or None where that is not to be had.

    Args:
        constraint: what to compile.
        first: what answered the first request.
        backends: by name.
    """
    try:
        native = backends.get(NATIVE)
        if native is None or native.losses(constraint):
            return None
        compiled = native.compile(constraint)
    except (ConstraintError, BackendError):
        return None  # too large, or not regular: the first one stays
    reason = f"enforces all of it, and each mask is a look-up; {first.backend} answered until it was ready"
    return compiled, BackendChoice(NATIVE, reason, ((NATIVE, ()), *first.considered), spelling=compiled.spelling)
