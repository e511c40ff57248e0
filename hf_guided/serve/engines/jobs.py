"""The common part of both engines: checks that the model can run a job, and keeps it while it runs.

A job that the model cannot run is refused before it comes near other jobs: in a shared batch, and on a GPU, an error of
the forward pass ends all of them.
"""

from __future__ import annotations

import itertools
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from queue import SimpleQueue
from typing import Any

from ...errors import GenerationError
from ...hf.compat import logits_width
from ...session.stats import SessionStats
from ..error_responses import RequestRefused, shuts_down
from ..job import Ended, Event, Job

log = logging.getLogger("hf_guided.serve")
_serials = itertools.count()


class RunningJob:
    """Passes the events of open answers on, and drops all others; any thread may end an answer.

    Args:
        job: what is generated.
        emit: gets the events, one at a time. If it raises, its answer is cancelled.
        on_closed: called once with each answer that has ended for any reason, on the thread that ended it.
    """

    def __init__(self, job: Job, emit: Callable[[Event], None], on_closed: Callable[[RunningJob, int], None]):
        self.job = job
        self._serial = next(_serials)  # clients choose the ids of their requests, and may repeat them
        self._emit = emit
        self._on_closed = on_closed
        self._open = set(range(job.num_answers))
        self._lock = threading.RLock()  # a client may cancel its answer while it takes an event

    def id_of(self, answer: int) -> str:
        """The id of an answer, which no other has in this process."""
        return f"{self.job.request_id}#{self._serial}.{answer}"

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
        """End one answer, or all, at the next token; no further events come for it. May be repeated."""
        with self._lock:
            closed = set(self._open) if answer is None else self._open & {answer}
            self._open -= closed
        for number in closed:
            self._on_closed(self, number)


class Engine(ABC):
    """Generates the answers of jobs. Keeps those that are not finished, a queue, and a thread. Thread safe.

    Args:
        model: of transformers.
        name: of the thread, which the engine starts when it is complete.
    """

    def __init__(self, model: Any, name: str):
        self.stats = SessionStats()  # the work of all jobs so far
        self.restarts = 0  # how often a dead part of the engine was replaced
        self._model = model
        self._cache_tokens: int | None = None  # the most tokens that a cache holds for one answer
        self._closing = False  # whether new jobs are refused
        self._jobs: set[RunningJob] = set()  # each until its last answer has ended
        self._lock = threading.Lock()
        self._queue: SimpleQueue[RunningJob | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a prompt and its answer together; None: no limit is known."""
        limits = [limit for limit in (max_positions(self._model), self._cache_tokens) if limit is not None]
        return min(limits, default=None)

    def submit(self, job: Job, emit: Callable[[Event], None]) -> RunningJob:
        """Queue a job; never waits.

        Args:
            job: what to generate.
            emit: gets the events, on a thread of the engine or of ``end_jobs``; each answer's last event is ``Ended``,
                also after an error. If it raises, its answer is cancelled.

        Raises:
            RequestRefused: the model cannot run it (400: an empty prompt, too many tokens, an unknown token), or the
                engine shuts down (503).
        """
        check_prompt(self._model, job, self.max_tokens)
        running = RunningJob(job, emit, self._ended)
        with self._lock:
            if self._closing:
                raise shuts_down()
            self._jobs.add(running)
        self._queue.put(running)
        return running

    def alive(self) -> bool:
        """Whether the engine can answer."""
        return self._thread.is_alive() and not self._closing

    def end_jobs(self) -> None:
        """End all jobs with the error ``shuts_down()``, and refuse new ones."""
        with self._lock:
            self._closing = True
            jobs = list(self._jobs)
        for running in jobs:
            running.fail(shuts_down())

    def close(self) -> None:
        """End all jobs, and wait for the engine's threads."""
        self.end_jobs()
        self._queue.put(None)
        self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Generate what is in the queue, until None comes; on the thread."""

    def _ended(self, running: RunningJob, answer: int) -> None:
        """An answer has ended, for any reason; on any thread."""
        if not running.open_answers:
            with self._lock:
                self._jobs.discard(running)


def max_positions(model: Any) -> int | None:
    """The most tokens that a model was made for, prompt and answer together; None if its config names none."""
    config = model.config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def check_prompt(model: Any, job: Job, max_tokens: int | None) -> None:
    """Refuse a job that the model cannot run, or whose prompt and answer have more than ``max_tokens`` together.

    Raises:
        RequestRefused: the prompt is empty; prompt and answer are too long together; a token id that is not known.
    """
    prompt, answer = len(job.prompt), job.max_new_tokens
    if not prompt:
        raise RequestRefused("the prompt is empty: expected at least one token", code="empty_prompt")
    # The input of an encoder takes no positions of the decoder.
    total = max(prompt, answer) if model.config.is_encoder_decoder else prompt + answer
    if max_tokens is not None and total > max_tokens:
        raise RequestRefused(
            f"expected at most {max_tokens} tokens for the prompt and its answer together, got {prompt + answer}: "
            f"{prompt} of the prompt and {answer} of the answer; shorten the prompt, or lower max_tokens",
            code="context_length_exceeded",
        )
    width = logits_width(model)
    if not job.model_inputs:  # placeholders of images may have ids of their own
        _check_ids("the prompt", job.prompt, getattr(model.get_input_embeddings(), "num_embeddings", width))
    _check_ids("logit_bias", job.sampling.logit_bias, width)


def _check_ids(name: str, token_ids: Collection[int], size: int) -> None:
    for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
        if not 0 <= token_id < size:
            raise RequestRefused(
                f"{name}: expected token ids from 0 to {size - 1}, got {token_id}", code="unknown_token"
            )


def left_constraint(reason: str | None) -> GenerationError:
    """The error of an answer that its constraint could not continue, or that has left it."""
    return GenerationError(f"the answer left its constraint: {reason or 'no token continued it'}")
