"""Chooses the tokens of all answers in a manager's batch, each by its own job's sampling and constraint.

It is the manager's only logits processor. The manager takes the largest score, so this class adds noise where tokens
are drawn: the largest of log p + Gumbel noise is a sample of p. Seeded noise depends on seed, position and token alone,
as in the fast loop, which gives the same tokens.

No error leaves this class: it would end the generation thread, and with it all answers. An answer that causes one ends
alone; so does an answer whose constraint cannot be continued.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import GenerationError
from ...hf.continuous_batching.compat import ContinuousBatchingLogitsProcessor, new_tokens
from ...hf.seeds import gumbel
from ...session.apply import apply_bitmask
from ...session.stats import SessionStats
from ...vocabulary.bitmask import allocate_bitmask
from .shared_answer import SharedAnswer


class BatchSampler(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Called on the manager's generation thread, never inside a CUDA graph.

    Args:
        width: columns of the logits.
    """

    supported_kwargs: ClassVar[dict[str, type]] = {"answer": SharedAnswer}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, width: int):
        self.stats = SessionStats()
        self._width = width
        self._batch: list[SharedAnswer] = []
        self._bitmask = allocate_bitmask(0, width)  # (rows, words)
        self._masked: set[int] = set()  # the rows of the batch that have a mask

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """The tensor of arguments, (1,) int32, is not used."""

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Take the tokens of the last batch, and fill the masks of the next one.

        Args:
            requests_with_new_token: transformers' ``FutureRequestState``, one for each row of logits.

        Returns:
            (rows,) int32, not used.
        """
        start = time.perf_counter_ns()
        states = [future.state for future in requests_with_new_token]
        self._batch = [state.logit_processor_kwargs["answer"] for state in states]
        if len(self._bitmask) < len(states):
            self._bitmask = allocate_bitmask(len(states), self._width)
        self._masked.clear()
        for row, (state, answer) in enumerate(zip(states, self._batch, strict=True)):
            try:
                answer.take(new_tokens(state, answer.num_generated))
                mask = answer.mask() if answer.is_open else None
                if mask is not None:
                    self._bitmask[row] = mask
                    self._masked.add(row)
            except Exception as error:
                answer.fail(error)
        self.stats.calls += 1
        self.stats.forwards += 1
        self.stats.tokens += len(states)
        self.stats.masked_rows += len(self._masked)
        self.stats.fill_ns += time.perf_counter_ns() - start
        return torch.zeros(len(states), dtype=torch.int32, device="cpu")

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """Scores whose largest one is the chosen token of each row.

        Args:
            scores: (>= rows, vocab) float32: the logits; read only.
            tensor_arg: not used.
        """
        start = time.perf_counter_ns()
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for row, answer in enumerate(self._batch):
            if answer.is_open:
                groups[answer.batch_key].append(row)
        chosen = scores.clone()  # they may be the model's own
        for rows in groups.values():
            try:
                chosen[rows] = self._scored(scores[rows], rows)
            except Exception as error:
                for row in rows:
                    self._batch[row].fail(error)
        self.stats.apply_ns += time.perf_counter_ns() - start
        return chosen

    def _scored(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """(rows, vocab) scores for rows with the same settings."""
        answers = [self._batch[row] for row in rows]
        ids = [answer.ids for answer in answers]
        scores = answers[0].scoring(ids, logits, lambda unmasked: self._apply_masks(unmasked, rows))
        final = scores + _noise(answers, scores) if answers[0].samples else scores
        recorded = [i for i, answer in enumerate(answers) if answer.job.top_logprobs is not None]
        if recorded:
            token_ids = final[recorded].argmax(-1).tolist()
            for i, token_id in zip(recorded, token_ids, strict=True):
                try:
                    answers[i].record(logits[i : i + 1], scores[i : i + 1], token_id)
                except Exception as error:
                    answers[i].fail(error)
        return final

    def _apply_masks(self, scores: Tensor, rows: Sequence[int]) -> Tensor:
        governed = [i for i, row in enumerate(rows) if row in self._masked]
        if not governed:
            return scores
        masked, alive = apply_bitmask(scores, self._bitmask[list(rows)], governed)
        for i, ok in zip(governed, alive, strict=True):
            if not ok:
                reason = "none of the tokens that the constraint allows has a finite score"
                self._batch[rows[i]].fail(GenerationError(reason))
        return masked


def _noise(answers: Sequence[SharedAnswer], scores: Tensor) -> Tensor:
    """(rows, vocab) float32 Gumbel noise, from the seeds of the answers that have one."""
    tiny = torch.finfo(torch.float32).tiny
    seeded = [i for i, answer in enumerate(answers) if answer.seed is not None]
    noise = torch.empty_like(scores)
    if len(seeded) < len(answers):
        noise = -noise.exponential_().clamp_(min=tiny).log_()
    if seeded:
        seeds = torch.tensor([answers[i].seed for i in seeded], device=scores.device)
        positions = torch.tensor([answers[i].num_generated for i in seeded], device=scores.device)
        noise[seeded] = gumbel(seeds, positions, torch.arange(scores.shape[-1], device=scores.device)).to(noise.dtype)
    return noise
