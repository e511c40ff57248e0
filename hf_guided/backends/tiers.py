"""Which constraints are worth a second compile: ready at once with one engine, faster with the other a moment later.

llguidance is ready in milliseconds; the automaton takes longer, and then each mask is a look-up. So "auto" answers the
first request of a regular constraint with the one, and builds the other meanwhile, for the requests to come. A row
that has begun keeps its engine.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex
from ..errors import BackendError, ConstraintError
from .base import Backend, CompiledConstraint
from .router import AUTO, NATIVE, Route

_MAY_BE_REGULAR = (JsonSchema, JsonObject, Regex, Choice)


def has_second_tier(constraint: Constraint, asked: str, first: Route) -> bool:
    """Whether the native engine may be the better one for later requests.

    Args:
        constraint: what was compiled.
        asked: "auto", or the name of a backend.
        first: what answered the first request.
    """
    return asked == AUTO and first.backend != NATIVE and not first.losses and isinstance(constraint, _MAY_BE_REGULAR)


def second_tier(
    constraint: Constraint, first: Route, backends: Mapping[str, Backend]
) -> tuple[CompiledConstraint, Route] | None:
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
    return compiled, Route(NATIVE, reason, ((NATIVE, ()), *first.considered), spelling=compiled.spelling)
