"""What one call wants of its masks, as one object: made where the call comes in, and handed down whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..constraints.argument_checks import OVERLAP, TOKEN_IDS, check_each
from ..errors import InvalidArgument
from ..options import LoopOptions, Overlap
from .reasoning import Reasoning

OnViolation = Literal["close", "raise"]


@dataclass(frozen=True)
class SessionOptions:
    """Options of ``Guide.session`` and of all that holds a session; described in ``Guide.logits_processor``.

    Args:
        backend: of all constraints.
        stop_token_ids: tokens that end a row; None means the vocabulary's.
        on_violation: "close" ends a row that left its grammar, "raise" raises TokenRejected.
        max_new_tokens: every row closes its text within so many tokens, the stop token counted, if its engine keeps
            budgets; None sets no such limit.
        overlap: whether masks are filled on another thread, ahead of being needed; "auto": only while they take longer
            than handing them over does; None asks the environment. The result is the same.
        reasoning: what rows write before they answer.
        trace: whether to record what could be chosen at every position.

    Raises:
        InvalidArgument: another ``on_violation``, or a ``max_new_tokens`` that is no int of 1 or more.
    """

    backend: str = "auto"
    stop_token_ids: Sequence[int] | None = None
    on_violation: OnViolation = "close"
    max_new_tokens: int | None = None
    overlap: Overlap | None = None
    reasoning: Reasoning | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        if self.on_violation not in ("close", "raise"):
            raise InvalidArgument(f"expected on_violation='close' or 'raise', got {self.on_violation!r}")
        check_each(
            {"stop_token_ids": self.stop_token_ids, "overlap": self.overlap},
            {"stop_token_ids": TOKEN_IDS, "overlap": OVERLAP},
        )
        most: Any = self.max_new_tokens
        if most is not None and (type(most) is not int or most < 1):
            raise InvalidArgument(f"max_new_tokens: expected an int of 1 or more, or None, got {most!r}")

    @property
    def overlap_or_default(self) -> Overlap:
        """``overlap``, or what the environment says."""
        return LoopOptions.from_env().overlap if self.overlap is None else self.overlap
