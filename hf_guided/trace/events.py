"""Plain data about a generate() call, token by token: the parts of a ``Trace``. recorder.py writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

# "chosen": by the model, greedily or by sampling. "drafted": proposed, and confirmed by the model. "forced": appended,
# because the grammar allowed only one continuation; the model did not choose.
Kind: TypeAlias = Literal["chosen", "drafted", "forced"]

Activity: TypeAlias = Literal["forward", "fill", "wait", "compile"]


@dataclass(frozen=True)
class Alternative:
    """A token that the model might have chosen.

    Args:
        token_id: the token.
        probability: of the model before the mask, 0 to 1.
        allowed: whether the mask allowed it.
    """

    token_id: int
    probability: float
    allowed: bool


@dataclass(frozen=True)
class LimitStep:
    """A position at which a limit forbade tokens that the format allows.

    Args:
        log_mass: natural logarithm of the share of probability that the limit left, of all that the format allows; from
            the scores before the mask, at temperature 1; 0.0 or less.
        preferred: the most probable token that the format allows.
        overruled: whether the limit forbade it.
        thinking: whether the limit is that of the thinking (``Reasoning.max_tokens``); else it is the token limit.
    """

    log_mass: float
    preferred: int
    overruled: bool
    thinking: bool = False


@dataclass(frozen=True)
class Look:
    """The alternatives at one position of a row.

    Probabilities are the softmax of the scores before the mask: after the processors that come before it, and before
    the warpers (temperature, top-k ...).

    Args:
        allowed: how many tokens the mask allowed; in a free row all of the logits' width.
        removed: total probability of the tokens that the mask forbade, 0 to 1.
        best: the most probable tokens, and the most probable of those allowed; the most probable first.
        limit: what a limit did here; None where none forbade anything that the format allows.
    """

    allowed: int
    removed: float
    best: tuple[Alternative, ...]
    limit: LimitStep | None = None

    @property
    def overruled(self) -> bool:
        """Whether the mask forbade the most probable token."""
        return bool(self.best) and not self.best[0].allowed


@dataclass(frozen=True)
class TokenRecord:
    """A token of output, and how it was chosen.

    Args:
        token_id: the token.
        kind: chosen, drafted or forced.
        look: the alternatives; None if the model did not choose.
        before: its probability before the mask, 0 to 1; None if it is unknown.
        after: its probability after the mask, that is, among the allowed tokens alone; None if it is unknown.
        span: index of the forward pass that computed its scores; None if there was none.
        log_mass: with ``log_mass=True``, the natural logarithm of the probability that the format left; else None.
    """

    token_id: int
    kind: Kind
    look: Look | None = None
    before: float | None = None
    after: float | None = None
    span: int | None = None
    log_mass: float | None = None


@dataclass(frozen=True)
class Span:
    """A time interval with its activity.

    Args:
        what: a forward pass (on a GPU until it is queued, not until it is done), filling masks, waiting for them, or
            waiting for compilation.
        start_ns: of ``time.perf_counter_ns``.
        end_ns: of ``time.perf_counter_ns``.
        on_worker: whether it was on the background worker, not on the loop's thread.
        rows: the rows that took part, if they are known.
    """

    what: Activity
    start_ns: int
    end_ns: int
    on_worker: bool = False
    rows: tuple[int, ...] = ()


class TokenText(NamedTuple):
    """The text of a token.

    Args:
        data: its bytes; None if it is not text.
        name: its name in messages.
    """

    data: bytes | None
    name: str
