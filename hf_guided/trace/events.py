"""What a generate() call did, token by token, as plain data; recorder.py writes it, display/ draws it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

# "chosen": by the model, greedily or as a sample. "drafted": proposed, and confirmed by the model. "forced": appended,
# because the grammar left no choice; the model was not asked.
Kind: TypeAlias = Literal["chosen", "drafted", "forced"]

Activity: TypeAlias = Literal["forward", "fill", "wait", "compile"]


@dataclass(frozen=True)
class Alternative:
    """A token that might have come.

    Args:
        token_id: which.
        probability: of the model in front of the mask, 0 to 1.
        allowed: whether the mask let it be.
    """

    token_id: int
    probability: float
    allowed: bool


@dataclass(frozen=True)
class Look:
    """What stood to choose at one place of a row.

    Probabilities are the softmax of the scores in front of the mask: behind the processors that stand there, in front
    of the warpers (temperature, top-k ...).

    Args:
        allowed: how many tokens the mask let be; all of the logits' width in a free row.
        removed: probability of the tokens that the mask forbade, all together, 0 to 1.
        best: the most probable tokens, and the most probable of those allowed; the most probable first.
    """

    allowed: int
    removed: float
    best: tuple[Alternative, ...]

    @property
    def overruled(self) -> bool:
        """Whether the mask forbade the token that the model held most probable."""
        return bool(self.best) and not self.best[0].allowed


@dataclass(frozen=True)
class TokenRecord:
    """A token of output, and how it came to be.

    Args:
        token_id: which.
        kind: chosen, drafted or forced.
        look: what else stood to choose; None where nothing was asked.
        before: its probability in front of the mask, 0 to 1; None where it is not known.
        after: likewise behind the mask, that is, among the allowed tokens alone.
        span: which of the spans is the forward pass that its scores came from; None where there was none.
    """

    token_id: int
    kind: Kind
    look: Look | None = None
    before: float | None = None
    after: float | None = None
    span: int | None = None


@dataclass(frozen=True)
class Span:
    """A stretch of time that something took.

    Args:
        what: a forward pass (on a GPU until it is queued, not until it is done), masks being filled, the loop waiting
            for them, or for the constraints to be compiled.
        start_ns: of ``time.perf_counter_ns``.
        end_ns: likewise.
        on_worker: whether it was on the thread that works ahead, not on that of the loop.
        rows: the rows that took part, where that is told.
    """

    what: Activity
    start_ns: int
    end_ns: int
    on_worker: bool = False
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowRecord:
    """One row of output.

    Args:
        tokens: up to and with the stop token.
        spans: of the whole call, all rows together, as they ended.
        forwards: forward passes that the row took part in, the prompt's included; None where the loop is transformers'.
    """

    tokens: tuple[TokenRecord, ...]
    spans: tuple[Span, ...]
    forwards: int | None

    @property
    def forced(self) -> int:
        """How many tokens were forced."""
        return sum(token.kind == "forced" for token in self.tokens)

    @property
    def removed(self) -> float:
        """Probability that masks removed, summed over the tokens that were asked for."""
        return sum(token.look.removed for token in self.tokens if token.look is not None)
