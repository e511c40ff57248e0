"""What a job's sampling is in transformers: a generation config, further processors, and seeds."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from transformers import GenerationConfig, LogitsProcessorList

from ...hf.compat import input_device
from ...hf.continuous_batching.compat import effective_config
from ...hf.seeds import BITS, as_int64
from ..job import Job, Sampling
from .penalties import LogitBias, OccurrencePenalties

# Modes that generate() would take from a model's own generation config. A job has none of them.
_ONE_TOKEN_AT_A_TIME = {
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0.0,
    "return_dict_in_generate": False,
    "output_scores": False,
    "output_logits": False,
}

# With a temperature below this, scores divided by it may be infinite; the most likely token has all of the probability.
_COLDEST = 1e-5


def samples(sampling: Sampling) -> bool:
    """Whether tokens are drawn; otherwise the most likely ones are taken."""
    return sampling.temperature >= _COLDEST


def generation_config(model: Any, job: Job) -> GenerationConfig:
    """The generation config for a job: the model's own, with the job's sampling and stop tokens."""
    sampling = job.sampling
    config = copy.deepcopy(model.generation_config)
    for name in ("prompt_lookup_num_tokens", "stop_strings", "max_length", "min_p"):
        setattr(config, name, None)
    # Values that change nothing are written down too: generate() fills None from the model's own config.
    filters: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 50}  # those that greedy decoding expects
    if samples(sampling):
        filters = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k or 0}
        if sampling.min_p or model.generation_config.min_p:
            filters["min_p"] = sampling.min_p
    config.update(
        **_ONE_TOKEN_AT_A_TIME,
        **filters,
        do_sample=samples(sampling),
        repetition_penalty=sampling.repetition_penalty,
        max_new_tokens=job.max_new_tokens,
        eos_token_id=list(job.stop_token_ids),
    )
    if config.pad_token_id is None:
        config.pad_token_id = job.stop_token_ids[0]
    return config


def own_processors(job: Job, prompt_length: int) -> LogitsProcessorList:
    """The processors of a job that transformers does not have.

    Args:
        job: the job.
        prompt_length: tokens before the answer in the ids that the processors get.
    """
    sampling, processors = job.sampling, LogitsProcessorList()
    if sampling.presence_penalty or sampling.frequency_penalty:
        processors.append(OccurrencePenalties(prompt_length, sampling.presence_penalty, sampling.frequency_penalty))
    if sampling.logit_bias:
        processors.append(LogitBias(sampling.logit_bias))
    return processors


def all_processors(model: Any, job: Job) -> LogitsProcessorList:
    """The processors that generate() would call for a job of a decoder, in order, without the mask."""
    config = effective_config(model, {"generation_config": generation_config(model, job)})
    device, length = input_device(model), len(job.prompt)
    model._prepare_special_tokens(config, True, device=device)  # the processors read the stop tokens as a tensor
    return model._get_logits_processor(
        config, input_ids_seq_length=length, logits_processor=own_processors(job, length), device=device
    )


def answer_seeds(job: Job, answers: Iterable[int]) -> list[int] | None:
    """The seeds of some answers of a job, as signed 64-bit ints; None if it has no seed or is greedy."""
    if job.sampling.seed is None or not samples(job.sampling):
        return None
    return [as_int64((job.sampling.seed + answer) % (1 << BITS)) for answer in answers]
