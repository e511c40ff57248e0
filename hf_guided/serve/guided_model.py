"""A stand-in for a model, whose generate() keeps one answer inside one constraint; and one for its processor.

transformers' server calls ``model.generate(streamer=..., generation_config=..., **inputs)`` on a thread of its own,
and takes the answer apart with ``processor.parse_response``. So a model that differs in ``generate`` alone, and a
processor that differs in that, are all it takes.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.cli.serving.utils import _GenerationCancelled

from ..backends.base import CompiledConstraint
from ..constraints.values import Constraint
from ..errors import GenerationError
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..hf.guided_call import guided_call
from ..session.reasoning import Opening, Reasoning
from ..session.result import RowReader
from .answer_parser import AnswerReader, Part
from .metrics import Metrics


@dataclass(frozen=True)
class Asked:
    """One request's constraint, compiled and found to fit the request.

    Args:
        guide: of the model.
        constraint: what the request asks, tool calls with their format.
        compiled: the same.
        reasoning: how the model thinks in front of it; None if it does not.
    """

    guide: Guide
    constraint: Constraint
    compiled: CompiledConstraint
    reasoning: Reasoning | None

    def reader(self, prompt: list[int]) -> AnswerReader:
        """What takes an answer behind this prompt apart."""
        vocabulary, gate = self.compiled.vocabulary, self.guide.gate(self.reasoning)
        return AnswerReader(
            vocabulary, self.constraint, None if gate is None else gate.for_vocabulary(vocabulary), prompt
        )


class SteeredModel:
    """The model, but for ``generate``.

    Args:
        model: a transformers model.
        asked: what its next answer has to keep to.
        metrics: told how that went.
    """

    def __init__(self, model: Any, asked: Asked, metrics: Metrics):
        self.model = model
        self.asked = asked
        self.metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["model"], name)

    @property  # type: ignore[misc]  # object's can be written
    def __class__(self) -> type:  # transformers' server tells what a model takes by the name of its class
        return type(self.model)

    def generate(self, *, streamer: AnswerStreamer, tokenizer: Any = None, **kwargs: Any) -> Any:
        """As ``model.generate`` for one prompt, inside the constraint.

        Args:
            streamer: gets the tokens; its ``close`` is called if the answer has come to a good end, and only then.
            tokenizer: for stop strings.
            **kwargs: for ``model.generate``.

        Returns:
            (rows, length) int64: the prompt and the answer.

        Raises:
            GenerationError: the answer has left its constraint; a limit of the engine, or another processor, did that.
        """
        asked, guide = self.asked, self.asked.guide
        settings = GenerationSettings(self.model, kwargs)
        stops, most = settings.stop_token_ids(), settings.given_max_new_tokens
        session: dict[str, Any] = {"stop_token_ids": stops, "max_new_tokens": most, "reasoning": asked.reasoning}
        seam: Any
        if settings.takes_decoder:
            draft = None if settings.get("do_sample") else "prompt_lookup"
            seam = guide.decoder(asked.constraint, streamer=streamer, draft=draft, **session)
        else:
            seam = guide.logits_processor(asked.constraint, **session)
            if settings.needs_tokenizer:
                kwargs["tokenizer"] = tokenizer
            kwargs["streamer"] = streamer
        with self.metrics.generation(seam.stats, _GenerationCancelled):
            output = guided_call(self.model, seam, **kwargs)
            if not isinstance(output, Tensor):
                return output
            start = 1 if self.model.config.is_encoder_decoder else kwargs["input_ids"].shape[1]
            answer = output[0, start:].tolist()
            gate = guide.gate(asked.reasoning)
            result = RowReader(
                guide.vocabulary,
                compiled=asked.compiled,
                stop_token_ids=stops,
                pad_token_id=settings.get("pad_token_id"),
                gate=gate,
                opening=Opening.ALL if gate is None else gate.opening(output[0, :start].tolist()),
            ).read(answer)
            if result.finish_reason == "dead_end":
                raise GenerationError(f"the answer left its constraint: {result.error or 'no token went on'}")
        # The server calls every answer of the full length cut, and does not look whether it had come to its end there.
        at_the_last = len(answer) == most and answer[-1] in stops
        streamer.close(ended_at_the_last=at_the_last)
        return output[:, :-1] if at_the_last else output


class AnswerStreamer:
    """Gives an answer's parts away as its tokens come.

    Args:
        reader: takes them apart.
        emit: gets each part, and None behind the last one.
        on_cancel: called when nobody wants the answer any more.
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
        self.total_tokens = 0  # the server calls an answer cut when it has as many as it may

    def put(self, value: Tensor) -> None:
        """The prompt's tokens, then each time those that are new.

        Raises:
            _GenerationCancelled: nobody wants the answer any more.
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
        """What the loop says when it ends, for whatever reason."""

    def close(self, *, ended_at_the_last: bool) -> None:
        """The answer is complete; perhaps with the very last token that it might have."""
        self.total_tokens -= ended_at_the_last
        for part in self._reader.finish():
            self._emit(part)
        self._emit(None)

    def cancel(self) -> None:
        """Have the next token end the generation."""
        self._cancelled.set()
        self._on_cancel()


class AnsweringProcessor:
    """The processor, which knows already what the answer that it is to take apart says.

    Args:
        processor: the model's processor or tokenizer.
    """

    # That there is one is what transformers looks at. Its parser is made of it, and gets nothing to parse.
    response_template = {"start_anchor_pattern": r"\Z", "fields": {"content": {"content": "text"}}}

    def __init__(self, processor: Any):
        self._processor = processor
        self.message: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._processor, name)

    @property  # type: ignore[misc]  # object's can be written
    def __class__(self) -> type:  # what a model can read is told by the kind of its processor
        return type(self._processor)

    @property
    def tokenizer(self) -> AnsweringProcessor:
        """Where transformers looks for the two below."""
        return self

    def parse_response(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The message; see ``Message.as_dict``."""
        return copy.deepcopy(self.message)
