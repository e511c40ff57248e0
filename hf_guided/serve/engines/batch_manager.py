"""transformers' manager of continuous batching, as the server uses it: sized, attached, watched and paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from ...hf.continuous_batching.compat import put_first
from .batch_sampler import BatchSampler
from .limits import max_positions

# A block of the cache is shared by prompts that begin alike only if it is full, so blocks are short.
_PAGE = 32
# On a CPU the cache has room for the first of these numbers of answers of full length that fits into memory, or for
# more short ones; longer contexts than _CONTEXT are not counted. One forward pass takes at most _PREFILL tokens.
_ANSWERS, _CONTEXT, _PREFILL = (32, 8, 2, 1), 8192, 512


class BatchManager:
    """One running manager; a dead one cannot be started again.

    Args:
        model: a decoder of transformers.
        sampler: chooses the tokens.
        deliver: gets each output of the manager, on its thread.
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
        """Whether its thread is alive."""
        return bool(self._manager.is_running())

    @property
    def error(self) -> Exception | None:
        """What has ended its thread, if it was an error."""
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

    Args:
        model: the model.
        answers: of full length, for which the cache has room; None takes the free memory of the device.
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
