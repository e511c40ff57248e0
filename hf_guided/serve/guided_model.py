"""Stand-ins for a model, whose generate() keeps one answer inside one constraint, and for its processor.

transformers' server calls ``model.generate(streamer=..., generation_config=..., **inputs)`` on a thread of its own,
and takes the answer apart with ``processor.parse_response``. So the model is replaced by one with another ``generate``,
and the processor by one with another ``parse_response``.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.cli.serving.utils import _GenerationCancelled

from ..constraints.values import Constraint
from ..errors import GenerationError
from ..generation.guided_call import GuidedCall
from ..guide import Guide
from ..hf.decode.options import DecodeOptions
from ..hf.generation_settings import GenerationSettings
from ..session.options import SessionOptions
from ..session.requests import Request
from .answer_parser import AnswerReader, Part
from .metrics import Metrics


@dataclass(frozen=True)
class GuidedRequest:
    """One HTTP request's constraint, compiled and checked against its settings.

    Args:
        guide: of the model.
        request: the constraint, tool calls with their format, and the thinking that precedes it.
        constraint: the same constraint.
    """

    guide: Guide
    request: Request
    constraint: Constraint

    def reader(self, prompt: list[int]) -> AnswerReader:
        """Takes apart the answer to this prompt."""
        assert self.request.compiled is not None, "only requests with a constraint are guided"
        vocabulary, gate = self.request.compiled.result().vocabulary, self.request.gate
        return AnswerReader(
            vocabulary, self.constraint, None if gate is None else gate.for_vocabulary(vocabulary), prompt
        )


class GuidedModel:
    """The model, with another ``generate``.

    Args:
        model: a transformers model.
        request: the constraint of its next answer.
        metrics: counts how the generation ends.
    """

    def __init__(self, model: Any, request: GuidedRequest, metrics: Metrics):
        self.model = model
        self.request = request
        self.metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    @property  # type: ignore[misc]  # object's can be written
    def __class__(self) -> type:  # transformers' server recognises what a model takes by the name of its class
        return type(self.model)

    def generate(self, *, streamer: AnswerStreamer, tokenizer: Any = None, **kwargs: Any) -> Any:
        """As ``model.generate`` for one prompt, inside the constraint.

        Args:
            streamer: gets the tokens; its ``close`` is called only if the answer ends without an error.
            tokenizer: for stop strings.
            **kwargs: for ``model.generate``.

        Returns:
            (rows, length) int64: the prompt and the answer.

        Raises:
            GenerationError: the answer has left its constraint: by a limit of the engine, or by another processor.
        """
        settings = GenerationSettings(self.model, kwargs)
        call = self._call(settings, streamer)
        if not settings.takes_decoder:
            kwargs["streamer"] = streamer
            if settings.needs_tokenizer:
                kwargs["tokenizer"] = tokenizer
        with self.metrics.generation(call.stats, _GenerationCancelled):
            output = call.run(self.model, **kwargs)
            if not isinstance(output, Tensor):
                return output
            start = 1 if self.model.config.is_encoder_decoder else kwargs["input_ids"].shape[1]
            prompt, answer = output[0, :start].tolist(), output[0, start:].tolist()
            reader = call.reader(0, prompt, settings.get("pad_token_id"))
            result = call.ended(0, reader.read(answer), beams=settings.get("num_beams") or 1)
            if result.finish_reason == "dead_end":
                raise GenerationError(f"the answer left its constraint: {result.error or 'no token went on'}")
        # The server reports every answer of the full length as cut, even if it ended with exactly that token.
        ended_at_the_last = len(answer) == settings.given_max_new_tokens and answer[-1] in settings.stop_token_ids()
        streamer.close(ended_at_the_last=ended_at_the_last)
        return output[:, :-1] if ended_at_the_last else output

    def _call(self, settings: GenerationSettings, streamer: AnswerStreamer) -> GuidedCall:
        """The call that these settings allow: with the fast loop, or with transformers' own."""
        loop = None
        if settings.takes_decoder:
            draft = None if settings.get("do_sample") else "prompt_lookup"
            loop = DecodeOptions(draft=draft, streamer=streamer)
        options = SessionOptions(stop_token_ids=settings.stop_token_ids(), max_new_tokens=settings.given_max_new_tokens)
        return GuidedCall(self.request.guide, [self.request.request], options, loop)


class AnswerStreamer:
    """Emits an answer's parts as its tokens come.

    Args:
        reader: makes parts of tokens.
        emit: gets each part, and None after the last one.
        on_cancel: called when the client has cancelled the answer.
    """

    def __init__(
        self,
        reader: AnswerReader,
        emit: Callable[[Part | None], None],
        on_cancel: Callable[[], None] = lambda: None,
    ):
        self._reader = reader
        self._emit = emit
        self._on_cancel = on_cancel
        self._in_prompt = True
        self._cancelled = threading.Event()
        self.total_tokens = 0  # the server reports an answer as cut when it has the most tokens allowed

    def put(self, value: Tensor) -> None:
        """First the prompt's tokens, then the new tokens of each step.

        Raises:
            _GenerationCancelled: the client has cancelled the answer.
        """
        if self._cancelled.is_set():
            raise _GenerationCancelled
        if self._in_prompt:
            self._in_prompt = False
        else:
            self.take(value.tolist())

    def take(self, token_ids: list[int]) -> None:
        """Tokens of the answer."""
        self.total_tokens += len(token_ids)
        for part in self._reader.feed(token_ids):
            self._emit(part)

    def end(self) -> None:
        """The loop calls this when it ends, for any reason; see ``close``."""

    def close(self, *, ended_at_the_last: bool) -> None:
        """The answer is complete; ``ended_at_the_last`` if its stop token is the last token that it could have."""
        self.total_tokens -= ended_at_the_last
        for part in self._reader.finish():
            self._emit(part)
        self._emit(None)

    def cancel(self) -> None:
        """End the generation at the next token."""
        self._cancelled.set()
        self._on_cancel()


class AnsweringProcessor:
    """The processor, with a ``parse_response`` that returns a message which was parsed as its tokens came.

    Args:
        processor: the model's processor or tokenizer.
    """

    # transformers only asks whether there is a template; the parser made of this one gets nothing to parse.
    response_template = {"start_anchor_pattern": r"\Z", "fields": {"content": {"content": "text"}}}

    def __init__(self, processor: Any):
        self._processor = processor
        self.message: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    @property  # type: ignore[misc]  # object's can be written
    def __class__(self) -> type:  # transformers recognises a model's modalities by the class of its processor
        return type(self._processor)

    @property
    def tokenizer(self) -> AnsweringProcessor:
        """Where transformers looks for ``response_template`` and ``parse_response``."""
        return self

    def parse_response(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The message; see ``Message.as_dict``."""
        return copy.deepcopy(self.message)
