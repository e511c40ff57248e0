"""Mask options of one call, in one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ..constraints.argument_checks import FLAG, OVERLAP, TOKEN_IDS, check_each
from ..errors import InvalidArgument, reading, shown
from ..options import Overlap
from .reasoning import Reasoning

OnViolation = Literal["close", "raise"]


class SessionArguments(TypedDict, total=False):
    """The fields of ``SessionOptions`` as keyword arguments, for type checkers."""

    backend: str
    stop_token_ids: Sequence[int] | None
    on_violation: OnViolation
    max_new_tokens: int | None
    overlap: Overlap | None
    reasoning: Reasoning | None
    trace: bool
    log_mass: bool


@dataclass(frozen=True)
class SessionOptions:
    """Options of ``Guide.session`` and of the classes that hold a session; described in ``Guide.logits_processor``.

    Raises:
        InvalidArgument: another ``on_violation``, or a ``max_new_tokens`` that is not an int of 1 or more.
    """

    backend: str = "auto"
    stop_token_ids: Sequence[int] | None = None
    on_violation: OnViolation = "close"
    max_new_tokens: int | None = None
    overlap: Overlap | None = None
    reasoning: Reasoning | None = None
    trace: bool = False
    log_mass: bool = False

    @reading("options")
    def __post_init__(self) -> None:
        if self.on_violation not in ("close", "raise"):
            raise InvalidArgument(f"expected on_violation='close' or 'raise', got {shown(self.on_violation)}")
        check_each(
            {"stop_token_ids": self.stop_token_ids, "overlap": self.overlap, "log_mass": self.log_mass},
            {"stop_token_ids": TOKEN_IDS, "overlap": OVERLAP, "log_mass": FLAG},
        )
        most: Any = self.max_new_tokens
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidArgument(f"max_new_tokens: expected an int of 1 or more, or None, got {shown(most)}")
