"""The loop for the prompts of a call: one of this package, transformers' own, or a continuous batching manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers.generation.configuration_utils import ContinuousBatchingConfig

from ..errors import InvalidArgument
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from .chat_prompts import Prompt
from .continuous import ContinuousRun
from .options import GenerateOptions


@dataclass(frozen=True)
class Route:
    """Which loop runs, and how.

    Args:
        fast: whether a loop of this package runs, not transformers' own.
        continuous: runs all prompts in one manager; None: they run batch by batch.
        step: prompts per call.
    """

    fast: bool
    continuous: ContinuousRun | None
    step: int


def choose_route(
    settings: GenerationSettings,
    options: GenerateOptions,
    num_prompts: int = 1,
    continuous: ContinuousRun | None = None,
) -> tuple[Route, GenerateOptions]:
    """Choose the loop; also return the options with the final ``draft``.

    Args:
        settings: of ``model.generate``.
        options: of the call.
        num_prompts: the number of prompts.
        continuous: the manager of the call; None if it has none.

    Raises:
        InvalidArgument: a ``draft`` for a loop that takes none.
    """
    # For log probabilities transformers' own loops would keep the logits of all tokens until the end.
    wants_fast = options.jump_forward or options.top_logprobs is not None
    fast = wants_fast and settings.takes_decoder and continuous is None
    drafts = options.jump_forward and fast
    draft = options.draft
    if draft == "auto":
        draft = "prompt_lookup" if drafts and not settings.get("do_sample") else None
    if draft is not None and not drafts:
        raise InvalidArgument(
            "draft: drafts are for greedy decoding and sampling with jump_forward=True, without continuous_batching or "
            "generate()'s own streamer, stop_strings or assistant_model; leave it out, or use guide.decoder(draft=...)"
        )
    step = 1 if settings.one_at_a_time else options.batch_size if continuous is None else max(num_prompts, 1)
    return Route(fast, continuous, step), replace(options, draft=draft)


def continuous_batching(
    model: Any,
    guide: Guide,
    prompts: Sequence[Prompt],
    generate_kwargs: Mapping[str, Any],
    options: GenerateOptions,
) -> ContinuousRun | None:
    """The run of all prompts in one manager; None unless the options request it.

    Raises:
        InvalidArgument: prompts or options that a manager does not take.
    """
    if not options.continuous_batching:
        return None
    if any(prompt.media for prompt in prompts):
        raise InvalidArgument(
            "continuous_batching: its manager takes text alone, not images, video or audio; leave it out"
        )
    if options.trace:
        raise InvalidArgument("trace: nothing is written down in continuous_batching; leave one of them out")
    if options.reasoning is not None:
        raise InvalidArgument("reasoning: continuous_batching guides answers without thinking; leave one of them out")
    if options.on_violation != "close":
        raise InvalidArgument("on_violation: continuous_batching ends such rows, whose result says so; leave it out")
    config = options.continuous_batching
    given = config if isinstance(config, ContinuousBatchingConfig) else None
    return ContinuousRun(
        model,
        guide,
        generate_kwargs,
        given,
        options.batch_size,
        options.top_logprobs is not None,
    )
