"""The two protocols of grammar engines, and what compiling gives.

An adapter (backends/llguidance.py ...) translates its library into them:

- ``Engine``: one position in one grammar. It knows text tokens only. It never sees a stop token, never ends: that is
  the matcher's (backends/matcher.py).
- ``Backend``: reports its losses for a constraint, and compiles it into a ``CompiledConstraint``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError, HFGuidedError, Loss, cause
from .matcher import Matcher as Matcher  # a public name of this module too
from .matcher import Tokens

if TYPE_CHECKING:
    from torch import Tensor

    from ..automaton.lru_bytes import Growth
    from ..constraints.json_style import Spelling
    from ..constraints.values import Constraint
    from ..vocabulary.tokens import Vocabulary


class Engine(Protocol):
    """One position in one grammar, over text tokens.

    Any method may raise, and that ends its row alone. After CompileLimitExceeded, the engine cannot continue from here,
    but ``rollback`` to a state where it still could must work. After any other exception the engine's state counts as
    unknown: no method is called again.
    """

    def accept(self, token_id: int) -> bool:
        """Advance by a text token; on False nothing has changed."""

    def validate(self, token_ids: Sequence[int]) -> int:
        """The length of the longest acceptable prefix of these text tokens; never advances."""
        ahead = self.fork()
        return next((count for count, token_id in enumerate(token_ids) if not ahead.accept(token_id)), len(token_ids))

    def rollback(self, num_tokens: int) -> None:
        """Undo the last accepts; the caller guarantees there are that many."""

    def fork(self) -> Engine:
        """An independent copy, history included."""

    def fill(self, bitmask: Tensor, row: int) -> None:
        """Overwrite all words of ``bitmask[row]``; bits of stop and special tokens may hold anything."""

    def is_completed(self) -> bool:
        """Whether the text so far is complete."""

    def jump_forward_bytes(self) -> bytes:
        """The bytes every continuation starts with; empty where there is a choice, an end, or none are known."""
        return b""

    @property
    def stepper(self) -> Stepper | None:
        """Steps several engines of one constraint together; None: each engine steps alone."""
        return None


class BudgetedEngine(Engine, Protocol):
    """An engine that knows a path to the end, so it can close its text before a token budget ends; a base class."""

    def min_tokens_to_finish(self) -> int | None:
        """How many tokens, a stop token counted, are enough to finish from here; None if it found no path."""

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """Whether ``min_tokens_to_finish`` is at most this; need not count where much more is left."""
        needed = self.min_tokens_to_finish()
        return None if needed is None else needed <= tokens_left

    def fill(self, bitmask: Tensor, row: int, tokens_left: int | None = None) -> None:
        """Fill a row as ``Engine.fill`` does; a budget also forbids tokens after which no text ends within it.

        Where ``tokens_left`` is too small in any case, or no path was found, the budget forbids nothing.
        """

    def is_near_limit(self, tokens_left: int) -> bool:
        """Whether the budget may forbid a token here that is allowed without it; fast. Certain after ``fill``."""
        return True

    def unlimited_thinking(self, tokens_left: int | None) -> NDArray[np.int32] | None:
        """The mask of a row that thinks, if it had no limit: (words,) int32, read-only.

        None where the limits forbid nothing, and after the thinking.
        """
        return None


class MaskedEngine(BudgetedEngine, Protocol):
    """An engine that keeps its masks, so that filling a row is copying one; a base class."""

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        """Do what ``fill`` does to a row; only text tokens are allowed.

        Args:
            words: (words,) int32, written whole; as many as the vocabulary needs, or more.
            tokens_left: see ``fill``.

        Returns:
            ``is_completed``.
        """

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """Equal keys have the same mask, in all engines. None where it is made for the last tokens of a budget."""

    def fill(self, bitmask: Tensor, row: int, tokens_left: int | None = None) -> None:
        """See ``BudgetedEngine.fill``."""
        self.write_mask(bitmask[row].numpy(), tokens_left)

    def is_near_limit(self, tokens_left: int) -> bool:
        """See ``BudgetedEngine.is_near_limit``."""
        return self.mask_key(tokens_left) is None


class Stepper(Protocol):
    """Shared by the ``MaskedEngine``s of one constraint: steps them together."""

    def accept(self, engines: Sequence[Any], token_ids: Sequence[int]) -> list[bool]:
        """``Engine.accept`` of each; raises what one of them would, and then no engine has changed."""

    def mask_keys(self, engines: Sequence[Any], tokens_left: Sequence[int | None]) -> Sequence[Hashable | None]:
        """``MaskedEngine.mask_key`` of each; raises what one of them would."""


@runtime_checkable
class Backend(Protocol):
    """A grammar library, bound to a vocabulary. Built by the registry; compiles on any thread."""

    name: str

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Raises BackendUnavailable when the library is not installed."""

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        """The losses of this backend, at the pointers of the keywords themselves; cheap (milliseconds).

        Empty means that it enforces everything.
        """

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile; raises InvalidConstraint, UnsupportedConstraint or CompileLimitExceeded.

        What ``losses`` names is dropped only if the constraint says ``on_unsupported`` "warn" or "validate".
        """


def held_spelling(backend: object, constraint: Constraint) -> Spelling | None:
    """How a backend spells the JSON values of a constraint; None where there are none.

    A backend that writes the canonical spelling where a constraint requires it declares this with an attribute
    ``canonical_spelling = True``; the others write any.
    """
    if constraint.spelling == "canonical" and not getattr(backend, "canonical_spelling", False):
        return "any"
    return constraint.spelling


@dataclass(frozen=True, eq=False)
class CompiledConstraint:
    """A constraint ready to make matchers; immutable, shared by threads.

    Args:
        constraint: what was compiled.
        backend: name of the backend.
        vocabulary: the vocabulary it was compiled for.
        new_engine: makes an engine at the start of the grammar.
        nbytes: approximate memory held at most, in bytes, for the cache's bound.
        compile_seconds: time spent compiling.
        losses: the keywords that are not enforced (only with ``on_unsupported`` "warn" or "validate").
        keeps_budget: whether its engines are ``BudgetedEngine``.
        keeps_masks: whether they are ``MaskedEngine``.
        spelling: how JSON values are spelled, see ``held_spelling``.
        at_once_bytes: the memory held before a text is read, in bytes; None where that is ``nbytes``.
        growth: of the memory that is held beside; None where it never grows.
    """

    constraint: Constraint
    backend: str
    vocabulary: Vocabulary
    new_engine: Callable[[], Engine] = field(repr=False)
    nbytes: int
    compile_seconds: float = 0.0
    losses: tuple[Loss, ...] = ()
    keeps_budget: bool = False
    keeps_masks: bool = False
    spelling: Spelling | None = None
    at_once_bytes: int | None = field(default=None, repr=False)
    growth: Growth | None = field(default=None, repr=False)

    @property
    def held_bytes(self) -> int:
        """The memory held so far, in bytes."""
        at_once = self.nbytes if self.at_once_bytes is None else self.at_once_bytes
        return at_once if self.growth is None else at_once + self.growth.nbytes

    def matcher(self, stop_token_ids: Sequence[int] | None = None) -> Matcher:
        """A matcher at the start of the grammar.

        Args:
            stop_token_ids: tokens that end the row; None means the vocabulary's.

        Raises:
            StopTokenError: the model has logits for none of them.
            BackendError: the engine failed.
        """
        given = stop_token_ids
        ends = self.vocabulary.stop_token_ids if given is None else self.vocabulary.stops_with_logits(given)
        return Matcher(self, Tokens(self.vocabulary, ends), self.start())

    def start(self) -> Engine:
        """An engine at the start of the grammar; raises BackendError if the engine fails."""
        try:
            return self.new_engine()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> NoReturn:
        """Raise an exception of an engine as an error of this package."""
        if isinstance(error, HFGuidedError):
            raise error
        raise BackendError(f"the engine {self.backend} failed: {cause(error)}") from error
