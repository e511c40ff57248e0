"""Our loops over a model that several processes hold: rank zero runs the loop, the others replay its forward passes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...session.tensor_parallel import Ranks, portable, random_state, set_random_state
from ..listening import TokenListener
from .cache_slots import CacheSlots
from .call import GenerateCall

log = logging.getLogger(__name__)

_DONE, _FAILED = "done", "failed"


def run_on_all_ranks(
    call: GenerateCall, loop: Callable[[CacheSlots], list[list[int]]], listener: TokenListener | None, *, blocks: bool
) -> tuple[list[list[int]], Any]:
    """Run a loop, which returns the token ids of each row; where several processes hold the model, in rank zero.

    In the other processes the listener gets all tokens of a row at once.

    Returns:
        The token ids of each row; the model's cache.
    """
    ranks = Ranks.of(call.model)
    if ranks is None:
        slots = CacheSlots(call, blocks=blocks)
        return loop(slots), slots.cache
    ranks.agreed(call.input_ids.tolist, repr)
    if not ranks.first:
        slots = CacheSlots(call, blocks=blocks)
        rows = _replay(ranks, slots)
        if listener is not None:
            for i, token_ids in enumerate(rows):
                listener.on_tokens(i, token_ids[call.prompt_length :])
        return rows, slots.cache
    slots = _RankZeroSlots(ranks, call, blocks=blocks)
    try:
        rows = loop(slots)
    except BaseException as error:
        ranks.broadcast(_FAILED, portable(error))
        raise
    ranks.broadcast(_DONE, rows, random_state(slots.device))
    return rows, slots.cache


class _RankZeroSlots(CacheSlots):
    """The slots of rank zero: each call is broadcast to the other processes, which make it too."""

    def __init__(self, ranks: Ranks, call: GenerateCall, *, blocks: bool):
        super().__init__(call, blocks=blocks)
        self._ranks = ranks

    def prefill(self, start: Sequence[Sequence[int]] = (), keep: int = 1) -> Tensor:
        """See ``CacheSlots.prefill``."""
        self._ranks.broadcast("prefill", start, keep)
        return super().prefill(start, keep)

    def run(self, blocks: Sequence[Sequence[int]], keep: int = 1) -> Tensor:
        """See ``CacheSlots.run``."""
        self._ranks.broadcast("run", blocks, keep)
        return super().run(blocks, keep)

    def forget(self, numbers: Sequence[int]) -> None:
        """See ``CacheSlots.forget``."""
        self._ranks.broadcast("forget", numbers)
        super().forget(numbers)

    def close_holes(self, num_new: int) -> None:
        """See ``CacheSlots.close_holes``."""
        self._ranks.broadcast("close_holes", num_new)
        super().close_holes(num_new)


def _replay(ranks: Ranks, slots: CacheSlots) -> list[list[int]]:
    """Make rank zero's calls in another process, until its loop ends.

    A call that fails here most likely fails in rank zero too: model and arguments are the same. So this process waits
    for rank zero's message, and both can run the next generate(). If rank zero did not fail, it waits in that call
    until torch's time limit. Running out of memory may happen in one process alone, and raises at once.

    Returns:
        The token ids of each row, as in rank zero.

    Raises:
        Exception: the loop's error in rank zero, or the error of a call that failed only here.
    """
    failed: Exception | None = None
    while True:
        method, *arguments = ranks.receive()
        if method == _DONE:
            rows, state = arguments
            set_random_state(state, slots.device)
            return list(rows)
        if method == _FAILED:
            raise arguments[0] from failed
        if failed is not None:
            raise failed
        try:
            getattr(slots, method)(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.exception("a forward pass failed in this process; waiting for rank zero's result")
            failed = error
