"""A stand-in for a model, whose generate() keeps one answer inside one constraint.

transformers' server calls ``model.generate(streamer=..., generation_config=..., **inputs)`` on a thread of its own,
and reads the answer from what comes back, or from the streamer. So a model that differs in ``generate`` alone is all
it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers.cli.serving.utils import _GenerationCancelled

from ..backends.base import CompiledConstraint
from ..constraints import Constraint
from ..errors import GenerationError
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..hf.guided_call import guided_call
from ..result import RowReader
from .metrics import Metrics
from .tool_formats import config_of_no_type


@dataclass(frozen=True)
class Asked:
    """One request's constraint, compiled and found to fit the request.

    Args:
        guide: of the model.
        constraint: what the request asks.
        compiled: the same.
        response_template: what the answer is taken apart by; None: it is text, whatever it contains.
    """

    guide: Guide
    constraint: Constraint
    compiled: CompiledConstraint
    response_template: dict[str, Any] | None


class SteeredModel:
    """The model, but for ``generate``; and for its type, where nothing is to be read into an answer.

    Args:
        model: a transformers model.
        asked: what its next answer has to keep to.
        metrics: told how that went.
    """

    def __init__(self, model: Any, asked: Asked, metrics: Metrics):
        self._model = model
        self._asked = asked
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    @property  # type: ignore[misc]  # object's can be written
    def __class__(self) -> type:  # transformers' server tells what a model takes by the name of its class
        return type(self._model)

    @property
    def config(self) -> Any:
        """The model's config, without its type if the answer is text: a template would be chosen by it."""
        return self._model.config if self._asked.response_template else config_of_no_type(self._model.config)

    def generate(self, *, streamer: Any = None, tokenizer: Any = None, **kwargs: Any) -> Any:
        """As ``model.generate`` for one prompt, inside the constraint.

        Args:
            streamer: gets the tokens; it is told of the end only if the answer has come to a good one.
            tokenizer: for stop strings.
            **kwargs: for ``model.generate``.

        Returns:
            (rows, length) int64: the prompt and the answer.

        Raises:
            GenerationError: the answer has left its constraint; a limit of the engine, or another processor, did that.
        """
        asked, guide = self._asked, self._asked.guide
        settings = GenerationSettings(self._model, kwargs)
        stops, most = settings.stop_token_ids(), settings.given_max_new_tokens
        held = None if streamer is None else _Held(streamer, stops, most)
        session: dict[str, Any] = {"stop_token_ids": stops, "max_new_tokens": most}
        seam: Any
        if settings.takes_decoder:
            draft = None if settings.get("do_sample") else "prompt_lookup"
            seam = guide.decoder(asked.constraint, streamer=held, draft=draft, **session)
        else:
            seam = guide.logits_processor(asked.constraint, **session)
            if settings.needs_tokenizer:
                kwargs["tokenizer"] = tokenizer
            if held is not None:
                kwargs["streamer"] = held
        with self._metrics.generation(seam.stats, _GenerationCancelled):
            output = guided_call(self._model, seam, **kwargs)
            if not isinstance(output, Tensor):
                return output
            start = 1 if self._model.config.is_encoder_decoder else kwargs["input_ids"].shape[1]
            answer = output[0, start:].tolist()
            result = RowReader(
                guide.vocabulary,
                compiled=asked.compiled,
                stop_token_ids=stops,
                pad_token_id=settings.get("pad_token_id"),
            ).read(answer)
            if result.finish_reason == "dead_end":
                raise GenerationError(f"the answer left its constraint: {result.error or 'no token went on'}")
        if held is not None:
            held.close()
        # The server calls every answer of the full length cut, and does not look whether it had come to its end there.
        return output[:, :-1] if len(answer) == most and answer[-1] in stops else output


class _Held:
    """A streamer that hears of no end before the answer was judged, nor of a stop token in the very last place.

    Args:
        streamer: transformers' own.
        stop_token_ids: what ends the answer.
        most: how many tokens the answer may have.
    """

    def __init__(self, streamer: Any, stop_token_ids: tuple[int, ...], most: int | None):
        self._streamer = streamer
        self._stops = stop_token_ids
        self._left = most
        self._in_prompt = True

    def put(self, value: Tensor) -> None:
        """The prompt's tokens, then each time those that are new."""
        if not self._in_prompt and self._left is not None:
            self._left -= len(value)
            if self._left == 0 and int(value[-1]) in self._stops:
                value = value[:-1]
        self._in_prompt = False
        self._streamer.put(value)

    def end(self) -> None:
        """What the loop says when it ends, for whatever reason."""

    def close(self) -> None:
        """The answer is complete."""
        self._streamer.end()
