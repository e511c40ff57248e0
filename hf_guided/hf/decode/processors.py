"""generate()'s logits processors and stopping criteria, for rows of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import generation
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from ...session.transfers import to_device

_WARPERS = tuple(getattr(generation, name) for name in dir(generation) if name.endswith("LogitsWarper"))
_BLIND = (*_WARPERS, generation.InfNanRemoveLogitsProcessor, generation.LogitNormalization)  # to the tokens so far
_STATEFUL = (  # processors that remember earlier calls
    generation.SynthIDTextWatermarkLogitsProcessor,
    generation.UnbatchedClassifierFreeGuidanceLogitsProcessor,
)


def before_warpers(processors: Sequence[Any]) -> int:
    """The index at which generate() inserts a caller's processors: after its own, before the warpers."""
    return next((i for i, processor in enumerate(processors) if isinstance(processor, _WARPERS)), len(processors))


class Scoring:
    """Processes the scores of one step.

    The masks have the place of a caller's processors: before the warpers (temperature, top-k ...).
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
        """Processed scores (positions, vocab) float32.

        ``ids`` has for each position the token ids before it; ``mask`` applies the masks.
        """
        return self.warp(ids, mask(self.unmasked(ids, scores)))

    def unmasked(self, ids: Sequence[Sequence[int]], scores: Tensor) -> Tensor:
        """Only the processors before the masks; see ``__call__`` for arguments and result."""
        return _processed(self.before, ids, scores)

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
    blind = all(isinstance(processor, _BLIND) for processor in processors)
    groups: dict[int, list[int]] = {}
    for position, before in enumerate(ids):
        groups.setdefault(0 if blind else len(before), []).append(position)
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


class RowStops:
    """When a row ends, token by token: looks up stop tokens and the maximum length; calls other criteria with one row.

    The criteria are those of one generate() call, and get ids on the device of its ``input_ids``.
    """

    def __init__(self, criteria: StoppingCriteriaList, device: torch.device):
        self.eos_token_ids: set[int] = set()
        self._max_length: float = float("inf")
        self._others: list[Any] = []  # processors that read the tokens
        self._device = device
        for criterion in criteria:
            if isinstance(criterion, EosTokenCriteria):
                self.eos_token_ids.update(criterion.eos_token_id.tolist())
            elif isinstance(criterion, MaxLengthCriteria):
                self._max_length = min(self._max_length, criterion.max_length)
            else:
                self._others.append(criterion)

    def room(self, token_ids: Sequence[int]) -> float:
        """How many more tokens the maximum length allows; infinity without one."""
        return self._max_length - len(token_ids)

    def __call__(self, token_ids: Sequence[int]) -> bool:
        """Whether a row ends with its last token, given prompt (padding included) and output so far."""
        ends = token_ids[-1] in self.eos_token_ids or len(token_ids) >= self._max_length
        if self._others:
            ids = torch.tensor([token_ids], device=self._device)
            for criterion in self._others:  # all of them: they may keep count
                ends = bool(torch.as_tensor(criterion(ids, None)).all()) or ends  # generate() takes a plain bool too
        return ends
