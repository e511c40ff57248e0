"""The one job of a session that may be under way ahead of being asked for, and what it was begun for.

Until a job has ended, the rows, the tracker and the slots are its own. ``settle`` has them back; a job that somebody
gave up waiting for (Ctrl-C) keeps what it has, and the session goes on with new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from .background_worker import Pending, submit
from .masks import Masks
from .tracker import StepAhead, TokenIds


@dataclass(eq=False)
class Foreseen:
    """Ids that may be asked for.

    Args:
        input_ids: as they were shown.
        version: of ``input_ids`` then, if it counts what is written into it.
        ids: the same on the host, once they have arrived there.
        step: the tracker's step to them, if they are one.
    """

    input_ids: Tensor
    version: int | None
    ids: TokenIds | None = None
    step: StepAhead | None = None

    def is_for(self, input_ids: Tensor) -> bool:
        """Whether these are the ids that were foreseen."""
        if self.ids is None or self.ids.shape != input_ids.shape:
            return False
        if input_ids is self.input_ids and input_ids.device.type != "cpu" and self.version is not None:
            return input_ids._version == self.version  # brought to the host, they would wait for the forward pass
        return np.array_equal(self.ids, input_ids.cpu().numpy())


class Ahead:
    """Begins a job, and says what became of it. Used by one thread.

    Args:
        on_waited: told the nanoseconds that the session has waited for a job.
    """

    def __init__(self, on_waited: Callable[[int], None]):
        self._on_waited = on_waited
        self.pending: Pending[Any] | None = None  # the job that may be under way
        self._foreseen: Foreseen | None = None  # what it is for, if it is for ids that may be asked for

    def begin(self, job: Callable[[], Any], foreseen: Foreseen | None = None) -> Pending[Any]:
        """Begin a job on the worker, after ``settle``.

        Args:
            job: called once.
            foreseen: what its masks are for; None where who begins it asks for its result.
        """
        # Kept before it is begun: an interruption in between must not leave rows to a job that nobody knows of.
        self._foreseen = foreseen
        self.pending = pending = Pending(job, self._on_waited)
        submit(pending)
        return pending

    def masks_for(self, input_ids: Tensor) -> Pending[Masks | None] | None:
        """The job that was begun for these ids, ended; None if there is none, and then it has yet to be settled."""
        pending, foreseen = self.pending, self._foreseen
        if pending is None or foreseen is None or pending.left:
            return None
        pending.wait()
        if not foreseen.is_for(input_ids):
            return None
        self.forget()
        return pending

    def settle(self) -> bool:
        """Wait for the job, and undo what was foreseen.

        Returns:
            False if somebody gave up on the job and it still runs: it keeps what it has, until ``forget`` says that
            others are there.
        """
        pending, foreseen = self.pending, self._foreseen
        if pending is None:
            return True
        if foreseen is not None:
            pending.cancel()
        if not pending.left:
            pending.wait()
        if not pending.done():  # it may go on for as long as it likes, with what it has
            return False
        if foreseen is not None and foreseen.step is not None:
            foreseen.step.undo()
        self.forget()
        return True

    def forget(self) -> None:
        """Nothing is under way any more that the session has a part in."""
        self.pending = self._foreseen = None
