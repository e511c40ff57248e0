"""From logits to scores: generate()'s processors around the masks, for rows of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from transformers import generation

from ...session.transfers import to_device

_WARPERS = tuple(getattr(generation, name) for name in dir(generation) if name.endswith("LogitsWarper"))
_BLIND = (*_WARPERS, generation.InfNanRemoveLogitsProcessor, generation.LogitNormalization)  # to the tokens so far
_STATEFUL = (  # they remember earlier calls
    generation.SynthIDTextWatermarkLogitsProcessor,
    generation.UnbatchedClassifierFreeGuidanceLogitsProcessor,
)


def before_warpers(processors: Sequence[Any]) -> int:
    """The index at which generate() inserts a caller's processors: after its own, before the warpers."""
    return next((i for i, processor in enumerate(processors) if isinstance(processor, _WARPERS)), len(processors))


class Scoring:
    """Processes the scores of one step.

    The masks have the place of a caller's processors: before the warpers (temperature, top-k ...).

    Args:
        processors: of this generate() call, in order.
    """

    def __init__(self, processors: Sequence[Any]):
        first = before_warpers(processors)
        # Before the masks, and after them.
        self.before = list(processors[:first])
        self.after = list(processors[first:])
        # Whether some read the tokens so far: they may also count rows, and need all of them, of one length, at once.
        self.wants_batch = not all(isinstance(processor, _BLIND) for processor in processors)
        # Whether scores after draft tokens are harmless: a processor with a memory would remember rejected tokens.
        self.takes_drafts = not any(map(_may_remember, processors))

    def __call__(self, ids: Sequence[Sequence[int]], scores: Tensor, mask: Callable[[Tensor], Tensor]) -> Tensor:
        """Processed scores.

        Args:
            ids: for each position the token ids before it.
            scores: (positions, vocab) float32.
            mask: applies the masks.

        Returns:
            (positions, vocab) float32.
        """
        return self.warp(ids, mask(_processed(self.before, ids, scores)))

    def warp(self, ids: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
        """Only the processors after the masks; see ``__call__`` for arguments and result."""
        return _processed(self.after, ids, scores)


def _may_remember(processor: Any) -> bool:
    if getattr(processor, "keeps_no_state", False):
        return False
    return isinstance(processor, _STATEFUL) or not type(processor).__module__.startswith("transformers.")


def _processed(processors: Sequence[Any], ids: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
    if not processors:
        return scores
    if all(isinstance(processor, _BLIND) for processor in processors):
        groups = {0: list(range(len(ids)))}
    else:
        groups = {}
        for position, before in enumerate(ids):
            groups.setdefault(len(before), []).append(position)
    if len(groups) == 1:
        (length,) = groups
        return _called(processors, [before[:length] for before in ids], scores.clone())  # they may write into it
    processed: Tensor | None = None
    for length, positions in groups.items():
        rows = to_device(positions, scores.device)
        part = _called(processors, [ids[position][:length] for position in positions], scores[rows])
        if processed is None:
            processed = part.new_empty(scores.shape)  # a processor may change the dtype
        processed[rows] = part
    return scores if processed is None else processed


def _called(processors: Sequence[Any], ids: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
    """Scores (positions, vocab) after all processors, for token ids of one length."""
    same_length = to_device(ids, scores.device)
    for processor in processors:
        scores = processor(same_length, scores)
    return scores
