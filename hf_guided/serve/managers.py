"""Runs generations: transformers' managers, with answers that are read as they grow, that can be stopped, and joined.

Without continuous batching one thread generates, one answer after another. With it requests share batches, each with
its own constraint. Requests without a constraint are left to transformers, apart from the log.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from transformers import StoppingCriteria
from transformers.cli.serving.utils import (
    GenerateManager,
    GenerationState,
    InferenceThread,
    _GenerationCancelled,
    _StreamError,
)

from ..guide import Guide
from .answer_parser import Message
from .batching import BatchingManager
from .error_responses import logged, shuts_down
from .guided_model import AnsweringProcessor, AnswerStreamer
from .metrics import Metrics


class GuidedState(GenerationState):  # type: ignore[misc]  # transformers is untyped here
    """Creates our managers where transformers would create its own.

    Args:
        guide_of: the guide of a model.
        metrics: counts every guided generation.
        continuous_batching: whether requests share batches.
    """

    def __init__(self, guide_of: Callable[[Any], Guide], metrics: Metrics, *, continuous_batching: bool):
        super().__init__(continuous_batching=continuous_batching)
        self._cb_manager: Any = None
        self._guide_of = guide_of
        self._metrics = metrics

    def get_manager(self, model_id: str, use_cb: bool = False) -> Any:
        """The manager of a model, made when it is first requested."""
        if use_cb and self._cb_manager is None:
            self._cb_manager, self._cb_model_id = BatchingManager(self._guide_of, self._metrics), model_id
        elif not use_cb and model_id not in self._generate_managers:
            self._generate_managers[model_id] = OneByOneManager()
        return super().get_manager(model_id, use_cb)

    def end_requests(self) -> None:
        """End every request that runs or waits with an error, and refuse new ones; on the event loop."""
        for manager in self._generate_managers.values():
            manager.end_requests()
        if self._cb_manager is not None:
            self._cb_manager.end_requests()

    def shutdown(self) -> None:
        """Stop the running generations, and wait for their threads."""
        super().shutdown()
        for manager in self._generate_managers.values():
            manager.stop()
        self._generate_managers.clear()


class OneByOneManager(GenerateManager):  # type: ignore[misc]  # transformers is untyped here
    """One generation after another, on one thread."""

    def __init__(self) -> None:
        self._thread = _Thread()  # instead of transformers' own thread, which cannot be ended
        self._under_way: set[Callable[[], None]] = set()  # functions that cancel them
        self._shuts_down = False

    def generate_streaming(
        self, model: Any, processor: Any, inputs: Any, gen_config: Any, request_id: str, response_parser: Any = None
    ) -> tuple[asyncio.Queue[Any], Any]:
        """See transformers'."""
        if not isinstance(processor, AnsweringProcessor):
            watched = _Watched(model, threading.Event(), request_id, self._cancellable)
            return super().generate_streaming(watched, processor, inputs, gen_config, request_id, response_parser)  # type: ignore[no-any-return]
        queue: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(item: Any) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, item)

        streamer = AnswerStreamer(model.request.reader(_prompt(inputs)), put)

        def run() -> None:
            try:
                with self._cancellable(streamer.cancel), logged(request_id):
                    model.generate(**inputs, streamer=streamer, generation_config=gen_config, tokenizer=processor)
            except _GenerationCancelled:
                put(None)
            except Exception as error:
                put(_StreamError(str(error)))

        self.submit(run)
        return queue, streamer

    async def generate_non_streaming(
        self, model: Any, processor: Any, inputs: Any, gen_config: Any, request_id: str
    ) -> tuple[str, int, Any]:
        """See transformers'."""
        cancelled = threading.Event()
        if not isinstance(processor, AnsweringProcessor):
            with self._cancellable(cancelled.set):
                watched = _Watched(model, cancelled)
                return await super().generate_non_streaming(watched, processor, inputs, gen_config, request_id)  # type: ignore[no-any-return]
        message = Message()
        streamer = AnswerStreamer(model.request.reader(_prompt(inputs)), message.add)

        generate = {**inputs, "streamer": streamer, "generation_config": gen_config, "tokenizer": processor}
        with self._cancellable(streamer.cancel):
            sequences = await self.async_submit(model.generate, **generate)
        processor.message = message.as_dict()
        input_len = inputs["input_ids"].shape[-1]
        return "", input_len, sequences[0, input_len:]

    def end_requests(self) -> None:
        """End the running and the waiting generations with an error."""
        self._shuts_down = True
        for cancel in list(self._under_way):
            cancel()

    def stop(self) -> None:
        """End all generations, and wait for the thread."""
        self.end_requests()
        self._thread.stop()

    @contextmanager
    def _cancellable(self, cancel: Callable[[], None]) -> Iterator[None]:
        """Around a generation: it is cancelled when the server stops, and when its client has gone."""
        self._under_way.add(cancel)
        try:
            if self._shuts_down:
                raise shuts_down()
            yield
        except asyncio.CancelledError:
            cancel()
            raise
        except _GenerationCancelled:
            if self._shuts_down:
                raise shuts_down() from None
            raise
        finally:
            self._under_way.discard(cancel)


class _Thread(InferenceThread):  # type: ignore[misc]  # transformers is untyped here
    """Runs jobs one after another, until it is stopped."""

    def _run(self) -> None:
        with suppress(SystemExit):
            super()._run()

    def stop(self) -> None:
        """Finish the waiting jobs, and end."""
        self.submit(sys.exit)
        self._thread.join()


class _Watched:
    """A model whose generate() can be stopped, and logs its errors.

    Args:
        model: a transformers model.
        cancelled: stops it at the next token.
        request_id: the id in the log; None where the caller logs.
        cancellable: around the generation, with the function that cancels it; None where the caller does that.
    """

    def __init__(
        self,
        model: Any,
        cancelled: threading.Event,
        request_id: str | None = None,
        cancellable: Callable[[Callable[[], None]], AbstractContextManager[None]] | None = None,
    ):
        self._model, self._cancelled, self._request_id = model, cancelled, request_id
        self._cancellable = cancellable or (lambda _: nullcontext())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """See ``model.generate``."""
        log = nullcontext() if self._request_id is None else logged(self._request_id)
        with self._cancellable(self._cancelled.set), log:
            return self._model.generate(*args, **kwargs, stopping_criteria=[_Leave(self._cancelled)])


class _Leave(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    """Ends a generate() call from another thread."""

    def __init__(self, cancelled: threading.Event):
        self._cancelled = cancelled

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """(rows,) bool: no row has ended.

        Raises:
            _GenerationCancelled: it was cancelled.
        """
        if self._cancelled.is_set():
            raise _GenerationCancelled
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _prompt(inputs: Any) -> list[int]:
    return list(inputs["input_ids"][0].tolist())
