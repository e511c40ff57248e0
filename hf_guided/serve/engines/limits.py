"""What a model can run: lengths of prompts and answers, and the ids of tokens.

A job that it cannot run is refused before it comes near other jobs: in a shared batch, and on a GPU, an error of the
forward pass ends all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...hf.compat import logits_width
from ..error_responses import RequestRefused
from ..job import Job


def max_positions(model: Any) -> int | None:
    """The most tokens that a model was made for, prompt and answer together; None if its config names none."""
    config = model.config.get_text_config(decoder=True)
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) and positions > 0 else None


def check_prompt(model: Any, job: Job, cache_tokens: int | None = None) -> None:
    """Refuse a job that the model cannot run; see ``check_length`` for the arguments.

    Raises:
        RequestRefused: as ``check_length``; or a token id that the model does not know.
    """
    check_length(model, job, cache_tokens)
    width = logits_width(model)
    known = getattr(model.get_input_embeddings(), "num_embeddings", width)
    if not job.model_inputs:  # placeholders of images may have ids of their own
        _check_ids("the prompt", job.prompt, known)
    _check_ids("logit_bias", job.sampling.logit_bias, width)


def _check_ids(name: str, token_ids: Collection[int], size: int) -> None:
    for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
        if not 0 <= token_id < size:
            raise RequestRefused(
                f"{name}: expected token ids from 0 to {size - 1}, got {token_id}", code="unknown_token"
            )


def check_length(model: Any, job: Job, cache_tokens: int | None = None) -> None:
    """Refuse a job that does not fit.

    Args:
        model: that will run it.
        job: the job.
        cache_tokens: the most tokens that the engine's cache holds for one answer; None: no limit.

    Raises:
        RequestRefused: the prompt is empty; or prompt and answer are too long together.
    """
    prompt, answer = len(job.prompt), job.max_new_tokens
    if not prompt:
        raise RequestRefused("the prompt is empty: expected at least one token", code="empty_prompt")
    limits = [limit for limit in (max_positions(model), cache_tokens) if limit is not None]
    # The input of an encoder takes no positions of the decoder.
    total = max(prompt, answer) if model.config.is_encoder_decoder else prompt + answer
    if limits and total > min(limits):
        raise RequestRefused(
            f"expected at most {min(limits)} tokens for the prompt and its answer together, got {prompt + answer}: "
            f"{prompt} of the prompt and {answer} of the answer; shorten the prompt, or lower max_tokens",
            code="context_length_exceeded",
        )
