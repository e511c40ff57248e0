"""Prompts that transformers' continuous batching runs together, from their tokens to those of their answers."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.generation.configuration_utils import ContinuousBatchingConfig

from ..constraints.values import Constraint
from ..errors import GenerationError, InvalidArgument, UnsupportedModel
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..session.stats import SessionStats
from .cancellation import Cancellation


@dataclass(frozen=True)
class Ask:
    """One prompt, and what is asked of its answer.

    Args:
        input_ids: the prompt, with the prefix behind it.
        constraint: None leaves it free.
        prefix: what of the answer the prompt already holds.
        max_new_tokens: how long the answer may become.
    """

    input_ids: list[int]
    constraint: Constraint | None
    prefix: str | None
    max_new_tokens: int


@dataclass(frozen=True)
class Answer:
    """What the manager gives for a prompt.

    Args:
        token_ids: the output.
        logprobs: log probabilities with which they were sampled; none unless they are recorded.
    """

    token_ids: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Together:
    """Runs prompts in a manager of their own, one call after another.

    Args:
        model: a decoder.
        guide: for this model.
        generate_kwargs: what ``model.generate`` would be given.
        config: for the manager; None leaves it to transformers, but on a CPU gives the cache room for a few rows.
        rows: how many there.
        logprobs: whether the manager records log probabilities.

    Raises:
        InvalidArgument: arguments that the manager would drop, or a manager that the model keeps.
        InvalidArgument: arguments that belong in no generation config.
        UnsupportedModel: an encoder-decoder.
    """

    model: Any
    guide: Guide
    generate_kwargs: Mapping[str, Any]
    config: ContinuousBatchingConfig | None
    rows: int
    logprobs: bool = False

    def __post_init__(self) -> None:
        from ..hf.continuous_batching.compat import effective_config, kept_manager

        if self.model.config.is_encoder_decoder:
            raise UnsupportedModel("continuous_batching: expected a decoder, got an encoder-decoder; leave it out")
        settings = GenerationSettings(self.model, self.generate_kwargs)
        if not settings.takes_decoder or self.generate_kwargs.get("logits_processor"):
            raise InvalidArgument(
                "continuous_batching: expected greedy decoding or sampling without beams, stop_strings, a streamer, an "
                "assistant, or processors and criteria of one's own, none of which a manager knows; leave one out"
            )
        effective_config(self.model, dict(self.generate_kwargs))
        if kept_manager(self.model) is not None:
            raise InvalidArgument(
                "continuous_batching: the model keeps a manager with settings of its own, which would be used; call "
                "model.destroy_cached_continuous_batching_manager() first, or add_request() of that manager"
            )

    def run(
        self,
        asks: Sequence[Ask],
        backend: str,
        stop_token_ids: Sequence[int],
        cancellation: Cancellation | None = None,
    ) -> tuple[list[list[Answer]], SessionStats]:
        """Generate.

        Args:
            asks: the prompts.
            backend: of all constraints.
            stop_token_ids: what ends an answer.
            cancellation: looked at every twentieth of a second; it stops the manager.

        Returns:
            For each prompt its answers; and what was spent on all of them.

        Raises:
            GenerationError: the manager failed.
        """
        from ..hf.continuous_batching.compat import effective_config, first_processor

        config = effective_config(self.model, dict(self.generate_kwargs))
        manager = self.guide.attach(
            self.model.init_continuous_batching(
                generation_config=config, continuous_batching_config=self._batching_config(asks)
            )
        )
        manager.start()
        done = False
        try:
            request_ids = [
                manager.add_request(
                    ask.input_ids,
                    max_new_tokens=ask.max_new_tokens,
                    eos_token_id=list(stop_token_ids),
                    response_format=ask.constraint,
                    backend=backend,
                    prefix=ask.prefix,
                )
                for ask in asks
            ]
            copies = config.num_return_sequences or 1
            answers = [_with_children(request_id, copies) for request_id in request_ids]
            found = _collect(manager, {answer for some in answers for answer in some}, cancellation)
            done = True
        finally:
            manager.stop(block=True, hard_stop=not done)
            manager.destroy()
        return [[found[answer] for answer in some] for some in answers], first_processor(manager).stats

    def _batching_config(self, asks: Sequence[Ask]) -> ContinuousBatchingConfig:
        config = self.config or self._config_for(asks)
        if self.logprobs and not config.return_logprobs:
            config = copy.copy(config)
            config.return_logprobs = True
        return config

    def _config_for(self, asks: Sequence[Ask]) -> ContinuousBatchingConfig:
        """Transformers takes most of the memory there is for the cache, which is right on a GPU."""
        if self.model.device.type != "cpu":
            return ContinuousBatchingConfig()
        config = ContinuousBatchingConfig(page_size=64, max_batch_tokens=512, max_requests_per_batch=self.rows)
        longest = max(len(ask.input_ids) + ask.max_new_tokens for ask in asks)
        config.num_blocks = self.rows * (longest // config.page_size + 2)
        return config


def _with_children(request_id: str, copies: int) -> list[str]:
    """The ids of a request and of those that the manager forks from it."""
    return [request_id, *(f"{request_id}__child#{i}" for i in range(copies - 1))]


def _collect(manager: Any, wanted: set[str], cancellation: Cancellation | None) -> dict[str, Answer]:
    """Wait for these requests; their answers."""
    found: dict[str, Answer] = {}
    while wanted - found.keys():
        if cancellation is not None:
            cancellation.check()
        # A limit, so that a manager that has died is noticed.
        output = manager.get_result(timeout=1 if cancellation is None else 0.05)
        if output is None:
            if not manager.is_running():
                raise GenerationError(f"the manager ended early: {manager.background_thread_status.fatal_error}")
        elif output.status.name == "FAILED":
            raise GenerationError(f"{output.request_id} failed: {output.error}")
        elif output.is_finished():
            found[output.request_id] = Answer(output.generated_tokens, output.logprobs)
    return found
