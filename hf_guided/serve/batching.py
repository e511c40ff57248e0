"""Requests that share batches: transformers' continuous batching, each request with its own constraint and sampling.

The manager is made for the first request, with a processor for each sampling setting that a request may have; a request
without a setting gets a value that changes nothing. A greedy request keeps only the best token.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import threading
import weakref
from collections.abc import Callable
from queue import Queue
from typing import Any

from transformers import ContinuousBatchingConfig
from transformers.cli.serving.utils import CBGenerateManager, _StreamError

from ..errors import GenerationError
from ..guide import Guide
from ..hf.continuous_batching.compat import first_processor
from ..hf.generation_settings import GenerationSettings
from .answer_parser import AnswerReader, Message, Part
from .error_responses import RequestRefused, logged, shuts_down
from .guided_model import AnsweringProcessor, AnswerStreamer, GuidedModel
from .metrics import Metrics, Outcome

# Settings that a shared batch cannot have for one request alone, with the values that change nothing.
_UNSHARED = {
    "num_beams": (None, 1),
    "repetition_penalty": (None, 1.0),
    "sequence_bias": (None,),
    "stop_strings": (None,),
    "bad_words_ids": (None,),
    "min_p": (None,),
    "typical_p": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
}

# On a CPU the cache has room for _REQUESTS requests of _CONTEXT tokens, or for more short ones; one forward pass takes
# at most _PREFILL tokens.
_REQUESTS, _CONTEXT, _PAGE, _PREFILL = 32, 8192, 256, 512


class BatchingManager(CBGenerateManager):  # type: ignore[misc]  # transformers is untyped here
    """transformers' server calls it for each request.

    Args:
        guide_of: the guide of a model.
        metrics: counts every guided generation.
    """

    def __init__(self, guide_of: Callable[[Any], Guide], metrics: Metrics):
        super().__init__()
        self._cb: Any = None
        self._guide_of = guide_of
        self._metrics = metrics
        self._numbers = itertools.count()
        self._vocab_size = 0
        self._shuts_down = threading.Event()
        self._answers: weakref.WeakSet[_Answer] = weakref.WeakSet()  # the manager holds those that are not finished

    def init_cb(self, model: Any, gen_config: Any) -> None:
        """As transformers' method; the manager is attached before it starts, with no request's settings as defaults."""
        _check(gen_config)
        if self._cb is not None:
            return
        config = copy.deepcopy(model.generation_config)
        # Values that do change something: otherwise transformers makes no processors for these settings.
        config.update(do_sample=True, temperature=0.5, top_k=5, top_p=0.5, use_cache=False)
        guide = model.request.guide if isinstance(model, GuidedModel) else self._guide_of(model)
        manager = guide.attach(
            model.init_continuous_batching(generation_config=config, continuous_batching_config=_config(model))
        )
        self._metrics.follow(first_processor(manager).stats)
        self._vocab_size = guide.vocabulary.padded_size
        self._cb = manager
        manager.output_router.output_queue = _Unread()
        manager.start()

    def generate_streaming(
        self, model: Any, processor: Any, inputs: Any, gen_config: Any, request_id: str, response_parser: Any = None
    ) -> tuple[asyncio.Queue[Any], Any]:
        """As transformers' method."""
        request_id = self._own_id(request_id)
        if not isinstance(processor, AnsweringProcessor):
            return CBGenerateManager.generate_streaming(  # type: ignore[no-any-return]
                self._for(model, gen_config), model, processor, inputs, gen_config, request_id, response_parser
            )
        queue: asyncio.Queue[Any] = asyncio.Queue()

        def fail(error: Exception) -> None:
            queue.put_nowait(_StreamError(str(error)))

        return queue, self._add(model, inputs, gen_config, request_id, queue.put_nowait, fail, streaming=True)

    async def generate_non_streaming(
        self, model: Any, processor: Any, inputs: Any, gen_config: Any, request_id: str
    ) -> tuple[str, int, Any]:
        """As transformers' method."""
        request_id = self._own_id(request_id)
        if not isinstance(processor, AnsweringProcessor):
            return await CBGenerateManager.generate_non_streaming(  # type: ignore[no-any-return]
                self._for(model, gen_config), model, processor, inputs, gen_config, request_id
            )
        message, done = Message(), asyncio.get_running_loop().create_future()

        def emit(part: Part | None) -> None:
            message.add(part)
            if part is None and not done.done():
                done.set_result(None)

        def fail(error: Exception) -> None:
            if not done.done():
                done.set_exception(error)

        streamer = self._add(model, inputs, gen_config, request_id, emit, fail, streaming=False)
        try:
            await done
        except asyncio.CancelledError:
            streamer.cancel()
            raise
        processor.message = message.as_dict()
        return "", len(inputs["input_ids"]), range(streamer.total_tokens)

    def end_requests(self) -> None:
        """End the guided requests with an error; on the event loop."""
        self._shuts_down.set()
        for answer in list(self._answers):
            answer.abort(shuts_down())

    def stop(self) -> None:
        """End all requests, and wait for the thread."""
        if self._cb is not None:
            self._cb.stop(block=True, hard_stop=True)

    def _add(
        self,
        model: GuidedModel,
        inputs: Any,
        gen_config: Any,
        request_id: str,
        emit: Callable[[Part | None], None],
        fail: Callable[[Exception], None],
        *,
        streaming: bool,
    ) -> AnswerStreamer:
        """Queue a guided request; its parts, or its failure, come on the event loop."""
        self._check_alive(request_id)
        if self._shuts_down.is_set():
            raise shuts_down()
        settings = GenerationSettings(model, {"generation_config": gen_config})
        reader = model.request.reader(inputs["input_ids"])
        answer = _Answer(self._cb, request_id, settings, reader, emit, fail, self._metrics)
        answer.begin()
        self._answers.add(answer)
        try:
            self._cb.register_result_handler(request_id, answer.take)
            self._for(model, gen_config)._cb.add_request(
                inputs["input_ids"],
                request_id=request_id,
                max_new_tokens=settings.given_max_new_tokens,
                streaming=streaming,
                eos_token_id=list(settings.stop_token_ids()),
                response_format=model.request.constraint,
            )
        except BaseException:
            answer.end("failed")
            raise
        return answer.streamer

    def _own_id(self, request_id: str) -> str:
        """A unique id: a client may send the same id twice, and answers are matched by it."""
        return f"{request_id}#{next(self._numbers)}"

    def _for(self, model: Any, gen_config: Any) -> BatchingManager:
        """This manager for one request, with the request's sampling settings."""
        settings = GenerationSettings(model, {"generation_config": gen_config})
        sampling = {
            "temperature": float(settings.get("temperature") or 1.0),
            "top_k": int(settings.get("top_k") or self._vocab_size),
            "top_p": float(settings.get("top_p") or 1.0),
        }
        if not settings.get("do_sample"):
            sampling = {"temperature": 1.0, "top_k": 1, "top_p": 1.0}
        twin = copy.copy(self)
        twin._cb = _Sampling(self._cb, sampling)
        return twin


class _Unread(Queue[Any]):
    """The manager's queue for outputs without a handler: those that were under way when their client left.

    Every request of a server has a handler, so nothing reads this queue, and it would keep such outputs for ever.
    """

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Drop it."""


class _Answer:
    """The answer to one guided request, from its outputs to its parts; counted once when it ends.

    Args:
        manager: generates it.
        request_id: of the request.
        settings: what it is generated with.
        reader: makes parts of its tokens.
        emit: gets each part, and None after the last one.
        fail: gets the error, if there is one.
        metrics: counts it.
    """

    def __init__(
        self,
        manager: Any,
        request_id: str,
        settings: GenerationSettings,
        reader: AnswerReader,
        emit: Callable[[Part | None], None],
        fail: Callable[[Exception], None],
        metrics: Metrics,
    ):
        self.streamer = AnswerStreamer(reader, emit, self._cancel)
        self._manager = manager
        self._request_id = request_id
        self._max_new_tokens, self._stops = settings.given_max_new_tokens, settings.stop_token_ids()
        self._fail = fail
        self._metrics = metrics
        self._num_taken = 0
        self._ended = False

    def begin(self) -> None:
        """Count it; ``end`` has to follow."""
        self._metrics.begun()

    def end(self, outcome: Outcome) -> None:
        """Count how it has ended; only the first call counts."""
        if not self._ended:
            self._ended = True
            self._metrics.ended(outcome)

    def take(self, output: Any) -> None:
        """The manager's output so far."""
        if self._ended:
            return
        try:
            with logged(self._request_id):
                self._take(output)
        except Exception as error:
            self.end("failed")
            self._fail(error)

    def abort(self, error: Exception) -> None:
        """End it with an error, if it has not ended."""
        if not self._ended:
            self._cancel()
            self._fail(error)

    def _take(self, output: Any) -> None:
        tokens = output.generated_tokens
        new, self._num_taken = tokens[self._num_taken :], len(tokens)
        self.streamer.take(new)
        if output.error is not None:
            raise GenerationError(output.error)
        if output.is_finished():
            ended_at_the_last = len(tokens) == self._max_new_tokens and tokens[-1] in self._stops
            self.streamer.close(ended_at_the_last=ended_at_the_last)
            self.end("finished")

    def _cancel(self) -> None:
        self._manager.cancel_request(self._request_id)  # the manager sends no output for it
        self._manager.output_router.result_handlers.pop(self._request_id, None)
        self.end("cancelled")


class _Sampling:
    """A manager that adds these settings to its requests."""

    def __init__(self, manager: Any, sampling: dict[str, Any]):
        self._manager = manager
        self._sampling = sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def add_request(self, *args: Any, **kwargs: Any) -> Any:
        """As the manager's method."""
        return self._manager.add_request(*args, **kwargs, **self._sampling)


def _config(model: Any) -> ContinuousBatchingConfig:
    """Cache room for the batches: all that is free on a GPU; a bounded part of the memory on a CPU."""
    room: dict[str, int] = {}
    if model.device.type != "cuda":
        context = min(getattr(model.config, "max_position_embeddings", None) or _CONTEXT, _CONTEXT)
        room = {
            "page_size": _PAGE,
            "num_blocks": _REQUESTS * (-(-context // _PAGE) + 1),
            "max_batch_tokens": _PREFILL,
            "max_requests_per_batch": _PREFILL,
        }
    return ContinuousBatchingConfig(per_request_processors=True, **room)


def _check(gen_config: Any) -> None:
    """Refuse settings that would be silently ignored."""
    ignored = [name for name, nothing in _UNSHARED.items() if getattr(gen_config, name, None) not in nothing]
    if ignored:
        raise RequestRefused(
            f"{', '.join(ignored)}: expected nothing of this while requests share batches; leave it out, or start the "
            "server without --continuous-batching",
            code="unsupported_in_batches",
        )
