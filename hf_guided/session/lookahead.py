"""A session's lookahead: the one job that fills masks before they are requested, and the input ids it is for.

A running job owns the rows, the tracker and the buffers. ``settle`` takes them back. If a caller stopped waiting for a
job (Ctrl-C), the job keeps them, and the session continues with new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .background_worker import Pending, submit
from .masks import Masks
from .tracker import LookaheadStep, TokenIds


@dataclass(eq=False)
class ExpectedIds:
    """Input ids of a likely next call.

    Args:
        input_ids: the tensor that was announced.
        version: its version counter at that time, if it has one.
        ids: the same ids on the host, once they have arrived.
        step: the tracker's step to them, if there is one.
    """

    input_ids: Tensor
    version: int | None
    ids: TokenIds | None = None
    step: LookaheadStep | None = None

    def is_for(self, input_ids: Tensor) -> bool:
        """Whether these are the announced ids."""
        if self.ids is None or self.ids.shape != input_ids.shape:
            return False
        if input_ids is self.input_ids and input_ids.device.type != "cpu" and self.version is not None:
            return input_ids._version == self.version  # a copy to the host would wait for the forward pass
        return np.array_equal(self.ids, input_ids.cpu().numpy())


class Lookahead:
    """Starts a job, and keeps track of it. Used by one thread.

    Args:
        on_waited: called with the nanoseconds that the session waited for a job.
    """

    def __init__(self, on_waited: Callable[[int], None]):
        self._on_waited = on_waited
        self.pending: Pending[Any] | None = None  # the job that may be running
        self._expected: ExpectedIds | None = None  # the ids it is for; None for a job without ids

    def begin(self, job: Callable[[], Any], expected: ExpectedIds | None = None) -> Pending[Any]:
        """Start a job on the worker, after ``settle``.

        Args:
            job: called once.
            expected: the ids that its masks are for; None if the caller itself reads the result.
        """
        # Stored before it starts: after an interruption in between, the session must still know the running job.
        self._expected = expected
        self.pending = pending = Pending(job, self._on_waited)
        submit(pending)
        return pending

    def masks_for(self, input_ids: Tensor) -> Pending[Masks | None] | None:
        """The job that was started for these ids, ended; None if there is none, and then ``settle`` is still needed."""
        pending, expected = self.pending, self._expected
        if pending is None or expected is None or pending.left:
            return None
        pending.wait()
        if not expected.is_for(input_ids):
            return None
        self.forget()
        return pending

    def settle(self) -> bool:
        """Wait for the job, and undo its step.

        Returns:
            False if a caller stopped waiting for the job and it still runs: it keeps what it owns, and the session
            calls ``forget`` after it has created new objects.
        """
        pending, expected = self.pending, self._expected
        if pending is None:
            return True
        if expected is not None:
            pending.cancel()
        if not pending.left:
            pending.wait()
        if not pending.done():  # the job continues, and keeps what it owns
            return False
        if expected is not None and expected.step is not None:
            expected.step.undo()
        self.forget()
        return True

    def forget(self) -> None:
        """The session has no running job any more."""
        self.pending = self._expected = None
