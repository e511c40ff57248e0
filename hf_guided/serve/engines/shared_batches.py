"""The engine whose answers share batches, in transformers' continuous batching.

Three threads take part. A *dispatcher* makes the row of each answer, and queues it in the manager; it also watches the
manager, and replaces one that has died. The manager's thread generates. A one-by-one engine runs the jobs that cannot
share a batch, while the manager is paused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, Queue
from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from ...errors import GenerationError, UnsupportedModel
from ...guide import Guide, calls_of
from ...hf.compat import continuous_batching_reason
from ...hf.continuous_batching.compat import put_first
from ...hf.decode.block_rule import rope_reason
from ...hf.decode.forced_text import ForcedText
from ...hf.decode.processors import Scoring
from ..job import Event, Job, first_row
from .jobs import Engine, RunningJob, max_positions
from .one_by_one import OneByOne
from .sampler import BatchSampler, SharedAnswer, all_processors, answer_seeds

log = logging.getLogger("hf_guided.serve")

_WATCH_S = 0.2  # how often the dispatcher looks whether the manager is alive


class SharedBatches(Engine):
    """Generates many answers of a decoder at once; see ``Engine``.

    Raises:
        UnsupportedModel: continuous batching cannot run the model.
        MemoryError: there is no room for a cache.
    """

    def __init__(self, model: Any, guide: Guide):
        if reason := continuous_batching_reason(model):
            raise UnsupportedModel(reason)
        super().__init__(model, "hf-guided-dispatcher")
        self._guide = guide
        self._sampler = BatchSampler(guide.vocabulary.padded_size, self.stats)
        self._answers: dict[str, SharedAnswer] = {}  # answers in the manager, by request id
        self._lifecycle = threading.RLock()  # around a restart, and around a pause
        self._manager: BatchManager | None = BatchManager(model, self._sampler, self._deliver)
        self._cache_tokens = self._manager.cache_tokens
        self.alone = OneByOne(model, guide, self._paused)  # its stats are apart from those of shared batches
        self._thread.start()

    def submit(self, job: Job, emit: Callable[[Event], None]) -> RunningJob:
        """See ``Engine``."""
        if job.model_inputs or rope_reason(self._model, 0, 0, len(job.prompt) + job.max_new_tokens - 1):
            return self.alone.submit(job, emit)
        return super().submit(job, emit)

    def alive(self) -> bool:
        """See ``Engine``; False while no new manager could be started."""
        return super().alive() and self._manager is not None

    def end_jobs(self) -> None:
        """See ``Engine``."""
        super().end_jobs()
        self.alone.end_jobs()

    def close(self) -> None:
        """See ``Engine``."""
        super().close()
        self.alone.close()
        if self._manager is not None:
            self._manager.stop()
            self._manager = None

    # The dispatcher.

    def _run(self) -> None:
        while True:
            running = None
            try:
                running = self._queue.get(timeout=_WATCH_S)
                if running is None:
                    return
            except Empty:
                if self._manager is None:  # the next job tries to start one
                    continue
            try:
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
            forced_text = ForcedText(
                vocabulary,
                calls_of(self._guide).continuation,
                stops,
                retokenize=False,
                may_stop=True,
                weighs_all=job.log_mass,
            )
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
        request_id = answer.running.id_of(answer.number)
        self._answers[request_id] = answer
        if not answer.is_open:  # closed before its id was known
            self._ended(answer.running, answer.number)
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
            if self._manager is not None:
                error = self._manager.error
                log.error("the generation thread has died; it is started again", exc_info=error)
                dead, self._manager = self._manager, None
                self.restarts += 1
                for answer in list(self._answers.values()):
                    answer.fail(_died(error))
                dead.stop()
            self._manager = BatchManager(self._model, self._sampler, self._deliver)

    # Any thread.

    def _ended(self, running: RunningJob, answer: int) -> None:
        """The manager drops an answer that has ended early."""
        super()._ended(running, answer)
        request_id = running.id_of(answer)
        if self._answers.pop(request_id, None) is not None and (manager := self._manager) is not None:
            manager.cancel(request_id)

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
                    self._answers.pop(output.request_id, None)
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


def _died(reason: Any) -> GenerationError:
    return GenerationError(f"the generation thread has died: {reason or 'no reason is known'}; send the request again")


# A block of the cache is shared by prompts that begin alike only if it is full, so blocks are short.
_PAGE = 32
# On a CPU the cache has room for the first of these numbers of answers of full length that fits into memory, or for
# more short ones; longer contexts than _CONTEXT are not counted. One forward pass takes at most _PREFILL tokens.
_ANSWERS, _CONTEXT, _PREFILL = (32, 8, 2, 1), 8192, 512


class BatchManager:
    """transformers' manager of continuous batching: sized, attached, watched and paused.

    A dead one cannot be started again. It calls ``deliver`` with each output, on its thread.
    """

    def __init__(self, model: Any, sampler: BatchSampler, deliver: Callable[[Any], None]):
        self._model = model
        self._attention = model.config._attn_implementation
        self._manager = self._sized(sampler)
        self._manager.output_router.output_queue = _Outputs(deliver)
        self._paged_attention = model.config._attn_implementation
        self._manager.start()

    @property
    def running(self) -> bool:
        """Whether the manager's thread is alive."""
        return bool(self._manager.is_running())

    @property
    def error(self) -> Exception | None:
        """The error that has ended its thread, if there was one."""
        error: Exception | None = self._manager.background_thread_status.fatal_error
        return error

    @property
    def cache_tokens(self) -> int:
        """The most tokens that its cache holds for one answer, prompt included."""
        cache = self._manager.batch_processor.cache
        # Kinds of layers take whole sectors each, so some room may be left over in the last sector of every kind.
        lost = (len(cache.cache_allocators) - 1) * cache.tokens_per_sector
        return int(cache.num_blocks * _PAGE - lost)

    def add(self, request_id: str, answer: Any) -> bool:
        """Queue an answer; False if the manager takes none, because its thread has died."""
        job = answer.job
        taken = self._manager.add_request(
            list(job.prompt),
            request_id=request_id,
            max_new_tokens=job.max_new_tokens,
            streaming=True,
            eos_token_id=list(job.stop_token_ids),
            answer=answer,
        )
        return taken is not None

    def cancel(self, request_id: str) -> None:
        """Forget an answer at the next step; no output comes for it."""
        self._manager.cancel_request(request_id)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The loop stands still, and the model has its own attention.

        Raises:
            RuntimeError: its thread is dead.
        """
        with self._manager.pause():
            self._switch(self._attention)
            try:
                yield
            finally:
                self._switch(self._paged_attention)

    def stop(self) -> None:
        """End the thread and wait for it; the model gets its own attention back."""
        self._manager.stop(block=True, hard_stop=True)
        self._manager.destroy()

    def _switch(self, attention: str) -> None:
        if self._model.config._attn_implementation != attention:
            self._model.set_attn_implementation(attention)

    def _sized(self, sampler: BatchSampler) -> Any:
        """A manager with its cache.

        Raises:
            MemoryError: not even the smallest cache fits.
        """
        sizes: tuple[int | None, ...] = (None,) if self._model.device.type == "cuda" else _ANSWERS
        for size in sizes:
            # Greedy and without processors of its own: ours does it all.
            config = GenerationConfig(eos_token_id=self._model.generation_config.eos_token_id)
            manager = self._model.init_continuous_batching(
                generation_config=config, continuous_batching_config=_config(self._model, size)
            )
            manager.logit_processor.clear()
            put_first(manager, sampler)
            try:
                manager.warmup()  # makes the cache; there are no graphs to capture
                return manager
            except MemoryError:
                manager.destroy()
                self._switch(self._attention)
                if size == sizes[-1]:
                    raise
        raise AssertionError("there is at least one size")


class _Outputs(Queue[Any]):
    """The manager's queue of outputs: each is delivered at once, and nothing is kept."""

    def __init__(self, deliver: Callable[[Any], None]):
        super().__init__()
        self._deliver = deliver

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Deliver an output."""
        self._deliver(item)


def _config(model: Any, answers: int | None) -> ContinuousBatchingConfig:
    """The manager's config: without graphs and asynchronous batches, because every step runs Python for each answer.

    The cache has room for this number of answers of full length; None takes the free memory of the device.
    """
    room: dict[str, int] = {}
    if answers is not None:
        context = min(max_positions(model) or _CONTEXT, _CONTEXT)
        room = {
            "num_blocks": answers * (-(-context // _PAGE) + 1),
            "max_batch_tokens": _PREFILL,
            "max_requests_per_batch": _PREFILL,
        }
    return ContinuousBatchingConfig(page_size=_PAGE, use_cuda_graph=False, use_async_batching=False, **room)
