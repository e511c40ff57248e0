"""A loop of ours over a model that several processes hold: one runs it, the others the forward passes it asks for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...session.tensor_parallel import Ranks, portable, random_state, set_random_state
from .cache_slots import CacheSlots

log = logging.getLogger(__name__)

_DONE, _FAILED = "done", "failed"


class LeadingSlots(CacheSlots):
    """Those of the first process: each call is told to the others before it is made, and made there too.

    Args:
        ranks: the processes.
        arguments: of ``CacheSlots``.
    """

    def __init__(self, ranks: Ranks, *arguments: Any):
        super().__init__(*arguments)
        self._ranks = ranks

    def prefill(self, start: Sequence[Sequence[int]] = ()) -> Tensor:
        """See ``CacheSlots.prefill``."""
        self._ranks.broadcast("prefill", start)
        return super().prefill(start)

    def run(self, blocks: Sequence[Sequence[int]], keep: int = 1) -> Tensor:
        """See ``CacheSlots.run``."""
        self._ranks.broadcast("run", blocks, keep)
        return super().run(blocks, keep)

    def forget(self, numbers: Sequence[int]) -> None:
        """See ``CacheSlots.forget``."""
        self._ranks.broadcast("forget", numbers)
        super().forget(numbers)


def lead(ranks: Ranks, slots: CacheSlots, loop: Callable[[], list[list[int]]]) -> list[list[int]]:
    """Run a loop in the first process.

    Args:
        ranks: the processes.
        slots: what the loop runs the model with.
        loop: returns the token ids of each row.
    """
    try:
        rows = loop()
    except BaseException as error:
        ranks.broadcast(_FAILED, portable(error))
        raise
    ranks.broadcast(_DONE, rows, random_state(slots.device))
    return rows


def follow(ranks: Ranks, slots: CacheSlots) -> list[list[int]]:
    """Make the first process's calls in another one, until its loop is over.

    A call that fails here most likely fails there too: the model and what it is given are the same. So the first
    process's word is waited for, and both are ready for the next generate(). Where it has not failed it waits in that
    call, until torch's own limit of time. Memory may end in one process alone, which raises at once.

    Returns:
        The token ids of each row, as there.

    Raises:
        Exception: what the loop raised there, or a call that went well there raised here.
    """
    failed: Exception | None = None
    while True:
        what, *arguments = ranks.receive()
        if what == _DONE:
            rows, state = arguments
            set_random_state(state, slots.device)
            return list(rows)
        if what == _FAILED:
            raise arguments[0] from failed
        if failed is not None:
            raise failed
        try:
            getattr(slots, what)(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.exception("a forward pass has failed in this process; waiting for what the first one says of it")
            failed = error
