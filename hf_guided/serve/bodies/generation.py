"""The fields of the three routes that generate, and what they have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..limits import ServeLimits
from .constraint_fields import ConstraintFields
from .defaults import Defaults
from .parts import ANY, Count, Part
from .refusals import refused
from .sampling import SamplingFields

# None of them changes an answer here.
NO_EFFECT = {
    "metadata": ANY,
    "prompt_cache_key": ANY,
    "prompt_cache_options": ANY,
    "prompt_cache_retention": ANY,
    "safety_identifier": ANY,
    "service_tier": ANY,
    "session_id": ANY,
    "user": ANY,
}
_OPENAI = {"store": (False,), "moderation": ()}
_VLLM = {
    "allowed_token_ids": (),
    "bad_words": ([],),
    "cache_salt": (),
    "ec_transfer_params": (),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "kv_transfer_params": (),
    "length_penalty": (1.0, 1),
    "logits_processors": (),
    "logprob_token_ids": (),
    "min_tokens": (0,),
    "priority": (0,),
    "prompt_logprobs": (),
    "repetition_detection": (),
    "request_id": (),
    "return_mm_kwargs": (True,),
    "return_token_ids": (False,),
    "return_token_offsets": (False,),
    "return_tokens_as_token_ids": (False,),
    "routed_experts_prompt_start": (0,),
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "stream_interval": (1,),
    "thinking_token_budget": (-1,),
    "truncate_prompt_tokens": (),
    "truncation_side": (),
    "use_beam_search": (False,),
    "vllm_xargs": (),
    "watermarking": (False,),
}
_SGLANG = {
    "bootstrap_host": (),
    "bootstrap_port": (),
    "bootstrap_room": (),
    "custom_labels": (),
    "custom_logit_processor": (),
    "custom_params": (),
    "data_parallel_rank": (),
    "disagg_prefill_dp_rank": (),
    "extra_key": (),
    "images_config": (),
    "lora_path": (),
    "ngram_corpus_id": (),
    "no_stop_trim": (False,),
    "return_cached_tokens_details": (False,),
    "return_hidden_states": (False,),
    "return_meta_info": (False,),
    "return_prompt_token_ids": (False,),
    "return_routed_experts": (False,),
    "rid": (),
    "routed_dp_rank": (),
    "routed_experts_start_len": (0,),
    "session_params": (),
    "stop_regex": (),
}


class GenerationFields(SamplingFields, ConstraintFields):
    """The fields of every request that is answered by tokens."""

    other_fields = {**_OPENAI, **_VLLM, **_SGLANG, **NO_EFFECT}
    model: str | None = None
    stream: bool = False


class StreamOptions(Part):
    """What a stream of chat completions or completions has besides the answer."""

    other_fields = {"include_obfuscation": (False,), "continuous_usage_stats": (False,)}
    include_usage: bool = False


class CompletionFields(GenerationFields):
    """The fields that chat completions and completions share."""

    response_format: dict[str, Any] | None = None
    n: Count = 1
    best_of: Count | None = None
    max_tokens: Count | None = None
    stream_options: StreamOptions | None = None


LogprobCount = Annotated[int, Field(ge=0, lt=2**31)]


def check_model(name: str | None, defaults: Defaults) -> None:
    """Refuse another model than the one that is served; a request may leave its name out.

    Raises:
        RequestRefused: 404, as OpenAI answers.
    """
    if name is not None and name not in defaults.names:
        known = " or ".join(map(repr, defaults.names))
        raise refused(
            "model", f"this server has only {known}; ask for it, or leave the field out", "model_not_found", 404
        )


def read_numbers(body: CompletionFields, limits: ServeLimits) -> tuple[int, int]:
    """How many answers to a prompt are given, and how many are generated.

    Raises:
        RequestRefused: too many, or fewer are generated than given, or the best are to be chosen in a stream.
    """
    best_of = body.n if body.best_of is None else body.best_of
    for name, number in (("n", body.n), ("best_of", best_of)):
        if number > limits.max_answers:
            raise refused(name, f"expected {limits.max_answers} at most, got {number}")
    if best_of < body.n:
        raise refused("best_of", f"expected at least as many as n, which is {body.n}, got {best_of}")
    if best_of > body.n and body.stream:
        raise refused("best_of", "the best answers are known at their end; leave out stream, or best_of")
    return body.n, best_of


def read_usage(body: CompletionFields) -> bool:
    """Whether a stream ends with the usage.

    Raises:
        RequestRefused: options of a stream, without a stream.
    """
    if body.stream_options is not None and not body.stream:
        raise refused("stream_options", "expected it only with stream, which is false")
    return body.stream_options is not None and body.stream_options.include_usage


def check_logprobs(param: str, number: int, limits: ServeLimits) -> None:
    """Refuse more alternatives than the limit."""
    if number > limits.max_logprobs:
        raise refused(param, f"expected {limits.max_logprobs} at most, got {number}")
