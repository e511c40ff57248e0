"""A job while it runs: which of its answers are still open, and the way of their events to the web side."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..job import Ended, Event, Job

log = logging.getLogger("hf_guided.serve")


class RunningJob:
    """Passes the events of open answers on, and drops all others; any thread may end an answer.

    Args:
        job: what is generated.
        emit: gets the events, one at a time. If it raises, its answer is cancelled.
        on_closed: called once with each answer that has ended for any reason, on the thread that ended it.
    """

    def __init__(self, job: Job, emit: Callable[[Event], None], on_closed: Callable[[RunningJob, int], None]):
        self.job = job
        self._emit = emit
        self._on_closed = on_closed
        self._open = set(range(job.num_answers))
        self._lock = threading.RLock()  # a client may cancel its answer while it takes an event

    @property
    def open_answers(self) -> frozenset[int]:
        """The answers that have not ended."""
        with self._lock:
            return frozenset(self._open)

    def is_open(self, answer: int) -> bool:
        """Whether an answer has not ended."""
        return answer in self._open

    def emit(self, event: Event) -> None:
        """Pass an event on, unless its answer has ended."""
        with self._lock:
            if event.answer not in self._open:
                return
            ends = isinstance(event, Ended)
            if ends:
                self._open.discard(event.answer)
            try:
                self._emit(event)
            except Exception:
                log.exception("request %s: its client could not take an event", self.job.request_id)
                ends = ends or event.answer in self._open
                self._open.discard(event.answer)
        if ends:
            self._on_closed(self, event.answer)

    def fail(self, error: Exception, answer: int | None = None) -> None:
        """End one answer, or all, with an error."""
        for number in self.open_answers if answer is None else (answer,):
            self.emit(Ended(number, error=error))

    def cancel(self, answer: int | None = None) -> None:
        """See ``Running``."""
        with self._lock:
            closed = set(self._open) if answer is None else self._open & {answer}
            self._open -= closed
        for number in closed:
            self._on_closed(self, number)
