"""From logits to scores: generate()'s processors around the masks, for rows of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import generation

_WARPERS = tuple(getattr(generation, name) for name in dir(generation) if name.endswith("LogitsWarper"))
_BLIND = (*_WARPERS, generation.InfNanRemoveLogitsProcessor, generation.LogitNormalization)  # to the tokens so far
_REMEMBERING = (  # what they were called with before
    generation.SynthIDTextWatermarkLogitsProcessor,
    generation.UnbatchedClassifierFreeGuidanceLogitsProcessor,
)


def before_warpers(processors: Sequence[Any]) -> int:
    """Where generate() puts processors given by its caller: behind its own, in front of the warpers."""
    return next((i for i, one in enumerate(processors) if isinstance(one, _WARPERS)), len(processors))


class Scoring:
    """Processes the scores of one step.

    The masks stand where those of a caller stand: in front of the warpers (temperature, top-k ...).

    Args:
        processors: of this generate() call, in order.
    """

    def __init__(self, processors: Sequence[Any]):
        first = before_warpers(processors)
        # In front of the masks, and behind them.
        self.before = list(processors[:first])
        self.after = list(processors[first:])
        # Whether some look at the tokens so far: they may also count rows, and want all, of one length, at once.
        self.wants_batch = not all(isinstance(one, _BLIND) for one in processors)
        # Whether scores behind guessed tokens are no harm: who remembers calls would remember what never came.
        self.takes_guesses = not any(map(_may_remember, processors))

    def __call__(self, ids: Sequence[Sequence[int]], scores: Tensor, mask: Callable[[Tensor], Tensor]) -> Tensor:
        """Processed scores.

        Args:
            ids: for each line the token ids in front of it.
            scores: (lines, vocab) float32.
            mask: writes the masks.

        Returns:
            (lines, vocab) float32.
        """
        return self.warp(ids, mask(_processed(self.before, ids, scores)))

    def warp(self, ids: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
        """Only what comes behind the masks; arguments and result as above."""
        return _processed(self.after, ids, scores)


def _may_remember(processor: Any) -> bool:
    return isinstance(processor, _REMEMBERING) or not type(processor).__module__.startswith("transformers.")


def _processed(processors: Sequence[Any], ids: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
    if not processors:
        return scores
    if all(isinstance(one, _BLIND) for one in processors):
        groups = {0: list(range(len(ids)))}
    else:
        groups = {}
        for line, before in enumerate(ids):
            groups.setdefault(len(before), []).append(line)
    processed: Tensor | None = None
    for length, lines in groups.items():
        same_length = torch.tensor([ids[line][:length] for line in lines], device=scores.device, dtype=torch.long)
        some = scores[lines]
        for processor in processors:
            some = processor(same_length, some)
        if processed is None:
            processed = some.new_empty(scores.shape)  # of whatever type comes out
        processed[lines] = some
    return scores if processed is None else processed
