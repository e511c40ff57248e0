"""The jobs that an engine has taken and not finished."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..error_responses import shuts_down
from ..job import Event, Job
from .running import RunningJob


class LiveJobs:
    """Thread safe.

    Args:
        on_closed: called once with each answer that has ended for any reason.
    """

    def __init__(self, on_closed: Callable[[RunningJob, int], None] = lambda running, answer: None):
        self.closed = False  # whether new jobs are refused
        self._on_closed = on_closed
        self._jobs: set[RunningJob] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._jobs)

    def begin(self, job: Job, emit: Callable[[Event], None]) -> RunningJob:
        """A new job, which is kept until its last answer has ended.

        Raises:
            RequestRefused: the engine shuts down.
        """
        running = RunningJob(job, emit, self._ended)
        with self._lock:
            if self.closed:
                raise shuts_down()
            self._jobs.add(running)
        return running

    def end_all(self, error: Exception) -> None:
        """End all jobs with an error, and refuse new ones."""
        with self._lock:
            self.closed = True
            jobs = list(self._jobs)
        for running in jobs:
            running.fail(error)

    def _ended(self, running: RunningJob, answer: int) -> None:
        if not running.open_answers:
            with self._lock:
                self._jobs.discard(running)
        self._on_closed(running, answer)
