"""Runs the prompts of a call in transformers' continuous batching.

The manager's logits are not accessible, so log probabilities take one more forward pass over each prompt and answer.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from ..constraints.values import Constraint
from ..errors import GenerationError, InvalidArgument, UnsupportedModel
from ..guide import Guide
from ..hf.compat import continuous_batching_reason
from ..hf.decode.scores import Scoring
from ..hf.generation_settings import GenerationSettings
from ..session.logprob_recorder import Position
from ..session.logprobs import TokenLogprob
from ..session.session import Session
from ..session.stats import SessionStats
from .prefix_logits import PrefixLogits
from .prompts import padded
from .threads import Cancellation


@dataclass(frozen=True)
class GuidedRequest:
    """One prompt, and the constraint of its answer.

    Args:
        input_ids: the prompt, followed by the prefix.
        constraint: of the answer; None for a free answer.
        prefix: the beginning of the answer that the prompt already contains.
        max_new_tokens: the maximum length of the answer.
    """

    input_ids: list[int]
    constraint: Constraint | None
    prefix: str | None
    max_new_tokens: int


@dataclass(frozen=True)
class Answer:
    """The manager's answer for a prompt.

    Args:
        token_ids: the output.
        logprobs: log probabilities with which they were sampled; empty unless they are recorded.
        dead_end: why the manager had to end it; None if it had not.
    """

    token_ids: list[int]
    logprobs: list[float]
    dead_end: str | None = None


@dataclass(frozen=True)
class ContinuousRun:
    """Runs requests in a manager of its own, one call after another.

    Args:
        model: a decoder.
        guide: for this model.
        generate_kwargs: for ``model.generate``.
        config: for the manager; None means transformers' default, but on a CPU a cache for a few rows.
        rows: the number of those rows.
        logprobs: whether the manager records log probabilities.

    Raises:
        InvalidArgument: arguments that the manager would ignore, or a manager that the model keeps.
        InvalidArgument: arguments that are not in a generation config.
        UnsupportedModel: an encoder-decoder, or an adapter with virtual tokens.
    """

    model: Any
    guide: Guide
    generate_kwargs: Mapping[str, Any]
    config: ContinuousBatchingConfig | None
    rows: int
    logprobs: bool = False

    def __post_init__(self) -> None:
        from ..hf.continuous_batching.compat import effective_config, kept_manager

        if reason := continuous_batching_reason(self.model):
            raise UnsupportedModel(reason)
        if self.model.config.is_encoder_decoder:
            raise UnsupportedModel("continuous_batching: expected a decoder, got an encoder-decoder; leave it out")
        settings = GenerationSettings(self.model, self.generate_kwargs)
        if not settings.takes_decoder or self.generate_kwargs.get("logits_processor"):
            raise InvalidArgument(
                "continuous_batching: expected greedy decoding or sampling without beams, stop_strings, a streamer, an "
                "assistant, or your own processors and criteria, which a manager does not support; leave them out"
            )
        effective_config(self.model, dict(self.generate_kwargs))
        if kept_manager(self.model) is not None:
            raise InvalidArgument(
                "continuous_batching: the model keeps a manager with other settings, which would be used; call "
                "model.destroy_cached_continuous_batching_manager() first, or add_request() of that manager"
            )

    def run(
        self,
        requests: Sequence[GuidedRequest],
        backend: str,
        stop_token_ids: Sequence[int],
        cancellation: Cancellation | None = None,
    ) -> tuple[list[list[Answer]], SessionStats]:
        """Generate.

        Args:
            requests: the prompts.
            backend: of all constraints.
            stop_token_ids: tokens that end an answer.
            cancellation: checked every twentieth of a second; stops the manager.

        Returns:
            For each prompt its answers; and the counters of all of them.

        Raises:
            GenerationError: the manager failed.
        """
        from ..hf.continuous_batching.compat import effective_config, first_processor

        config = effective_config(self.model, dict(self.generate_kwargs))
        manager = self.guide.attach(
            self.model.init_continuous_batching(
                generation_config=config, continuous_batching_config=self._batching_config(requests)
            ),
        )
        manager.start()
        done = False
        try:
            request_ids = [
                manager.add_request(
                    request.input_ids,
                    max_new_tokens=request.max_new_tokens,
                    eos_token_id=list(stop_token_ids),
                    response_format=request.constraint,
                    backend=backend,
                    prefix=request.prefix,
                )
                for request in requests
            ]
            copies = config.num_return_sequences or 1
            groups = [_with_children(request_id, copies) for request_id in request_ids]
            answers = _collect(manager, {answer_id for group in groups for answer_id in group}, cancellation)
            done = True
        finally:
            manager.stop(block=True, hard_stop=not done)
            manager.destroy()
        return [[answers[answer_id] for answer_id in group] for group in groups], first_processor(manager).stats

    def _batching_config(self, requests: Sequence[GuidedRequest]) -> ContinuousBatchingConfig:
        config = self.config or self._config_for(requests)
        if self.logprobs and not config.return_logprobs:
            config = copy.copy(config)
            config.return_logprobs = True
        return config

    def _config_for(self, requests: Sequence[GuidedRequest]) -> ContinuousBatchingConfig:
        """The default config; on a CPU with a small cache, where transformers would take most of the memory."""
        if self.model.device.type != "cpu":
            return ContinuousBatchingConfig()
        config = ContinuousBatchingConfig(page_size=64, max_batch_tokens=512, max_requests_per_batch=self.rows)
        longest = max(len(request.input_ids) + request.max_new_tokens for request in requests)
        config.num_blocks = self.rows * (longest // config.page_size + 2)
        return config


def _with_children(request_id: str, copies: int) -> list[str]:
    """The ids of a request and of its forks in the manager."""
    return [request_id, *(f"{request_id}__child#{i}" for i in range(copies - 1))]


def _collect(manager: Any, wanted: set[str], cancellation: Cancellation | None) -> dict[str, Answer]:
    """Wait for these requests, and return their answers by id."""
    answers: dict[str, Answer] = {}
    while wanted - answers.keys():
        if cancellation is not None:
            cancellation.check()
        # A time limit, so that a dead manager is noticed.
        output = manager.get_result(timeout=1 if cancellation is None else 0.05)
        if output is None:
            if not manager.is_running():
                raise GenerationError(f"the manager ended early: {manager.background_thread_status.fatal_error}")
        elif output.status.name == "FAILED":
            raise GenerationError(f"{output.request_id} failed: {output.error}")
        elif output.is_finished():
            answers[output.request_id] = Answer(output.generated_tokens, output.logprobs, output.error)
    return answers


_CHUNK = 64  # positions processed at a time: 128,000 logits in float32 are half a megabyte for each


def logprobs_of(
    model: Any,
    session: Session,
    prompt: Sequence[int],
    answers: Sequence[Sequence[int]],
    sampled: Sequence[Sequence[float]],
    *,
    top: int,
    pad_token_id: int,
    generate_kwargs: Mapping[str, Any],
) -> list[list[TokenLogprob]]:
    """The entries of each answer to one prompt, whose tokens were chosen in continuous batching.

    Args:
        model: a decoder.
        session: the constraint of the answers.
        prompt: token ids.
        answers: token ids of each.
        sampled: the log probabilities with which these tokens were sampled, as recorded by the manager.
        top: how many alternatives to list.
        pad_token_id: of the prompt's batch.
        generate_kwargs: for ``model.generate``; one row for each prompt.
    """
    inputs, text_ids = padded([prompt], pad_token_id, model), session.vocabulary.some_text(5)
    logits = PrefixLogits(model, inputs, pad_token_id, generate_kwargs, text_ids)
    supported = [
        processor
        for processor in logits.processors
        if getattr(processor, "supports_continuous_batching", None) is not False
    ]
    warp = Scoring(supported)
    recorder = session.logprob_recorder([prompt] * len(answers), top)
    for row, tokens in enumerate(answers):
        if not tokens:
            continue

        def scores(ends: Sequence[int], masked: Tensor, tokens: Sequence[int] = tokens) -> Tensor:
            return warp([[*prompt, *tokens[:end]] for end in ends], masked, lambda unchanged: unchanged)

        positions = [Position(row, token_id, end) for end, token_id in enumerate(tokens)]
        for number, raw in enumerate(logits.chunks(tokens, _CHUNK)):  # (up to _CHUNK, vocab)
            recorder.record(raw, positions[number * _CHUNK : (number + 1) * _CHUNK], scores)
    # The manager's values are exact; a second pass rounds differently, and top-k may cut at another token.
    return [
        [replace(entry, sampled_logprob=value) for entry, value in zip(entries, values, strict=True)]
        for entries, values in zip(recorder.entries, sampled, strict=True)
    ]
