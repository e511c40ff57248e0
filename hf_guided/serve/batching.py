"""Requests side by side: transformers' continuous batching, each request with its own constraint and sampling.

The manager is made when the first request comes, with a processor for everything that a request may say of sampling;
what a request does not say stands for "as it is". A greedy request is one of which the best token alone is kept.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import Callable
from typing import Any

from transformers import ContinuousBatchingConfig
from transformers.cli.serving.utils import CBGenerateManager, _StreamError

from ..errors import GenerationError
from ..guide import Guide
from ..hf.continuous_batching.compat import first_processor
from ..hf.generation_settings import GenerationSettings
from .answer_parser import Message, Part
from .error_responses import RequestRefused, logged
from .guided_model import AnsweringProcessor, AnswerStreamer, SteeredModel
from .metrics import Metrics, Outcome

# Of a generation config, with what they are where nothing is asked: what batches cannot do for one request alone.
_ALONE = {
    "num_beams": (None, 1),
    "repetition_penalty": (None, 1.0),
    "sequence_bias": (None,),
    "stop_strings": (None,),
    "bad_words_ids": (None,),
    "min_p": (None,),
    "typical_p": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
}

# On a CPU: for so many requests of so many tokens at once, more of shorter ones; in one forward pass so many tokens.
_REQUESTS, _CONTEXT, _PAGE, _PREFILL = 32, 8192, 256, 512


class BatchingManager(CBGenerateManager):  # type: ignore[misc]  # transformers is untyped here
    """What transformers' server calls for each request.

    Args:
        guide_of: the guide of a model.
        metrics: told of every guided generation.
    """

    def __init__(self, guide_of: Callable[[Any], Guide], metrics: Metrics):
        super().__init__()
        self._cb: Any = None
        self._guide_of = guide_of
        self._metrics = metrics
        self._numbers = itertools.count()
        self._vocab_size = 0

    def init_cb(self, model: Any, gen_config: Any) -> None:
        """See transformers'. The manager is attached before it starts, and no request's settings become everybody's."""
        _check(gen_config)
        if self._cb is not None:
            return
        config = copy.deepcopy(model.generation_config)
        # Any values but those that mean nothing: for these there would be no processors.
        config.update(do_sample=True, temperature=0.5, top_k=5, top_p=0.5, use_cache=False)
        guide = model.asked.guide if isinstance(model, SteeredModel) else self._guide_of(model)
        manager = guide.attach(
            model.init_continuous_batching(generation_config=config, continuous_batching_config=_config(model))
        )
        self._metrics.follow(first_processor(manager).stats)
        self._vocab_size = guide.vocabulary.padded_size
        self._cb = manager
        manager.start()

    def generate_streaming(
        self, model: Any, processor: Any, inputs: Any, gen_config: Any, request_id: str, response_parser: Any = None
    ) -> tuple[asyncio.Queue[Any], Any]:
        """See transformers'."""
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
        """See transformers'."""
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

    def stop(self) -> None:
        """End all requests, and wait for the thread."""
        if self._cb is not None:
            self._cb.stop(block=True, hard_stop=True)

    def _add(
        self,
        model: SteeredModel,
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
        manager, metrics = self._cb, self._metrics
        settings = GenerationSettings(model, {"generation_config": gen_config})
        stops, most = settings.stop_token_ids(), settings.given_max_new_tokens
        seen, ended = 0, False

        def end(outcome: Outcome) -> None:
            nonlocal ended
            if not ended:
                ended = True
                metrics.ended(outcome)

        def cancel() -> None:
            manager.cancel_request(request_id)  # of which no output comes
            manager.output_router.result_handlers.pop(request_id, None)
            end("cancelled")

        streamer = AnswerStreamer(model.asked.reader(inputs["input_ids"]), emit, cancel)

        def take(output: Any) -> None:
            nonlocal seen
            if ended:
                return
            try:
                with logged(request_id):
                    tokens = output.generated_tokens
                    new, seen = tokens[seen:], len(tokens)
                    streamer.take(new)
                    if output.error is not None:
                        raise GenerationError(output.error)
                    if output.is_finished():
                        streamer.close(ended_at_the_last=len(tokens) == most and tokens[-1] in stops)
                        end("finished")
            except Exception as error:
                end("failed")
                fail(error)

        metrics.begun()
        try:
            manager.register_result_handler(request_id, take)
            self._for(model, gen_config)._cb.add_request(
                inputs["input_ids"],
                request_id=request_id,
                max_new_tokens=most,
                streaming=streaming,
                eos_token_id=list(stops),
                response_format=model.asked.constraint,
            )
        except BaseException:
            end("failed")
            raise
        return streamer

    def _own_id(self, request_id: str) -> str:
        """A client may send the same id twice; answers are told apart by it."""
        return f"{request_id}#{next(self._numbers)}"

    def _for(self, model: Any, gen_config: Any) -> BatchingManager:
        """This manager for one request, whose sampling goes along with it."""
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


class _Sampling:
    """A manager whose requests bring these settings."""

    def __init__(self, manager: Any, sampling: dict[str, Any]):
        self._manager = manager
        self._sampling = sampling

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def add_request(self, *args: Any, **kwargs: Any) -> Any:
        """See the manager's."""
        return self._manager.add_request(*args, **kwargs, **self._sampling)


def _config(model: Any) -> ContinuousBatchingConfig:
    """Room for the batches: what is free on a GPU; on a CPU, of whose memory others want some, a bounded part."""
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
    """Refuse what would be left out in silence."""
    asked = [name for name, nothing in _ALONE.items() if getattr(gen_config, name, None) not in nothing]
    if asked:
        raise RequestRefused(
            f"{', '.join(asked)}: expected nothing of this while requests share batches; leave it out, or start the "
            "server without --continuous-batching",
            code="unsupported_in_batches",
        )
