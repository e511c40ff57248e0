"""The engine whose answers share batches, in transformers' continuous batching.

Three threads take part. A *dispatcher* makes the row of each answer, and queues it in the manager; it also watches the
manager, and replaces one that has died. The manager's thread generates. A one-by-one engine runs the jobs that cannot
share a batch, while the manager is paused.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Any

from ...errors import GenerationError, UnsupportedModel
from ...guide import Guide
from ...hf.compat import continuous_batching_reason
from ...hf.decode.block_rule import rope_reason
from ...hf.decode.forced_text import ForcedText
from ...hf.decode.processors import Scoring
from ...session.stats import SessionStats
from ..error_responses import shuts_down
from ..job import Event, Job
from .batch_manager import BatchManager
from .batch_sampler import BatchSampler
from .first_row import first_row
from .limits import check_prompt, max_positions
from .live_jobs import LiveJobs
from .one_by_one import OneByOne
from .running import RunningJob
from .sampling import all_processors, answer_seeds
from .shared_answer import SharedAnswer

log = logging.getLogger("hf_guided.serve")

_WATCH_S = 0.2  # how often the dispatcher looks whether the manager is alive


class SharedBatches:
    """Generates many answers at once; see ``Engine``.

    Args:
        model: a decoder of transformers.
        guide: for it.
        on_restart: called with the reason after a dead manager was replaced, on a thread of the engine.

    Raises:
        UnsupportedModel: continuous batching cannot run the model.
        MemoryError: there is no room for a cache.
    """

    def __init__(self, model: Any, guide: Guide, on_restart: Callable[[Exception | None], None] | None = None):
        if reason := _unsupported(model, guide):
            raise UnsupportedModel(reason)
        self.restarts = 0
        self._on_restart = on_restart
        self._model, self._guide = model, guide
        self._sampler = BatchSampler(guide.vocabulary.padded_size)
        self._live = LiveJobs(self._closed)
        self._numbers = itertools.count()
        self._answers: dict[str, SharedAnswer] = {}  # those in the manager, by request id
        self._request_ids: dict[tuple[RunningJob, int], str] = {}
        self._lifecycle = threading.RLock()  # around a restart, and around a pause
        self._manager: BatchManager | None = BatchManager(model, self._sampler, self._deliver)
        self._cache_tokens = self._manager.cache_tokens
        self._alone = OneByOne(model, guide, self._paused)
        self._queue: Queue[RunningJob | None] = Queue()
        self._thread = threading.Thread(target=self._run, name="hf-guided-dispatcher", daemon=True)
        self._thread.start()

    @property
    def stats(self) -> SessionStats:
        """The work of the shared batches; that of jobs that ran alone is in ``alone_stats``."""
        return self._sampler.stats

    @property
    def alone_stats(self) -> SessionStats:
        """The work of the jobs that ran alone."""
        return self._alone.stats

    @property
    def max_tokens(self) -> int | None:
        """See ``Engine``."""
        limits = [limit for limit in (max_positions(self._model), self._cache_tokens) if limit is not None]
        return min(limits, default=None)

    def submit(self, job: Job, emit: Callable[[Event], None]) -> RunningJob:
        """See ``Engine``; also raises what ``check_prompt`` raises."""
        if self._live.closed:
            raise shuts_down()
        if job.model_inputs or rope_reason(self._model, 0, 0, len(job.prompt) + job.max_new_tokens - 1):
            return self._alone.submit(job, emit)
        check_prompt(self._model, job, self._cache_tokens)
        running = self._live.begin(job, emit)
        self._queue.put(running)
        return running

    def alive(self) -> bool:
        """See ``Engine``; False while no new manager could be started."""
        return self._thread.is_alive() and not self._live.closed and self._manager is not None

    def end_jobs(self) -> None:
        """See ``Engine``."""
        self._live.end_all(shuts_down())
        self._alone.end_jobs()

    def close(self) -> None:
        """See ``Engine``."""
        self.end_jobs()
        self._queue.put(None)
        self._thread.join()
        self._alone.close()
        if self._manager is not None:
            self._manager.stop()
            self._manager = None

    # The dispatcher.

    def _run(self) -> None:
        while True:
            try:
                running = self._queue.get(timeout=_WATCH_S)
            except Empty:
                running = None
            else:
                if running is None:
                    return
            try:
                if running is not None or self._manager is not None:
                    self._ensure_running()
                if running is not None:
                    self._dispatch(running)
            except Exception as error:
                log.exception("a job could not be started")
                if running is not None:
                    running.fail(error)

    def _dispatch(self, running: RunningJob) -> None:
        job, vocabulary = running.job, self._guide.vocabulary
        stops = vocabulary.stops_with_logits(job.stop_token_ids)
        row, budget = first_row(job, stops, job.prompt)
        scoring = Scoring(all_processors(self._model, job))
        forced_text = None  # as in the fast loop: processors that read the output are called for every token
        if not scoring.wants_batch:
            forced_text = ForcedText(vocabulary, self._guide.continuation, stops, retokenize=False, may_stop=True)
        seeds = answer_seeds(job, range(job.num_answers))
        for number in sorted(running.open_answers):
            answer = SharedAnswer(
                running,
                number,
                row=row.fork(),
                budget=budget,
                scoring=scoring,
                forced_text=forced_text,
                seed=None if seeds is None else seeds[number],
                vocabulary=vocabulary,
            )
            self._add(answer)

    def _add(self, answer: SharedAnswer) -> None:
        request_id = f"{answer.job.request_id}#{next(self._numbers)}"
        self._request_ids[answer.running, answer.number] = request_id
        self._answers[request_id] = answer
        if not answer.is_open:  # closed before its id was known
            self._closed(answer.running, answer.number)
            return
        assert self._manager is not None
        if not self._manager.add(request_id, answer):
            self._ensure_running()  # ends this answer too
        elif not answer.is_open:
            self._manager.cancel(request_id)

    def _ensure_running(self) -> None:
        """Replace a manager that has died, and end its answers with an error."""
        with self._lifecycle:
            if self._manager is not None and self._manager.running:
                return
            error = None
            if self._manager is not None:
                error = self._manager.error
                log.error("the generation thread has died; it is started again", exc_info=error)
                dead, self._manager = self._manager, None
                self.restarts += 1
                for answer in list(self._answers.values()):
                    answer.fail(_died(error))
                dead.stop()
            self._manager = BatchManager(self._model, self._sampler, self._deliver)
            if self._on_restart is not None:
                self._on_restart(error)

    # Any thread.

    def _closed(self, running: RunningJob, answer: int) -> None:
        """An answer has ended early: the manager drops it."""
        request_id = self._forget(running, answer)
        if request_id is not None and (manager := self._manager) is not None:
            manager.cancel(request_id)

    def _forget(self, running: RunningJob, answer: int) -> str | None:
        """The id under which the manager had this answer; None if it is forgotten already."""
        request_id = self._request_ids.pop((running, answer), None)
        if request_id is not None:
            self._answers.pop(request_id, None)
        return request_id

    def _deliver(self, output: Any) -> None:
        """Take an output of the manager, on its thread; no error may leave this method."""
        answer = self._answers.get(output.request_id)
        if answer is None:
            return
        try:
            if output.status.name == "FAILED":
                answer.fail(_died(output.error))
            else:
                if output.is_finished():
                    self._forget(answer.running, answer.number)
                answer.deliver(output)
        except Exception as error:
            answer.fail(error)

    # The thread of jobs that run alone.

    @contextmanager
    def _paused(self) -> Iterator[None]:
        with self._lifecycle:
            self._ensure_running()
            assert self._manager is not None
            with self._manager.paused():
                yield


def _unsupported(model: Any, guide: Guide) -> str:
    """Why continuous batching cannot run a model; empty if it can."""
    if model.config.is_encoder_decoder:
        return "continuous batching: expected a decoder, got an encoder-decoder"
    if guide.ranks is not None:
        return "continuous batching cannot keep the processes of one model in step (tensor parallel)"
    return continuous_batching_reason(model)


def _died(reason: Any) -> GenerationError:
    return GenerationError(f"the generation thread has died: {reason or 'no reason is known'}; send the request again")
