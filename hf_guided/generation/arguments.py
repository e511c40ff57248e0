"""The keyword arguments of ``hg.generate`` and its siblings, as type checkers and editors read them.

``**arguments: Unpack[GenerateArguments]`` makes every keyword real: a misspelled one is a type error. At run time
``unknown_arguments.py`` refuses it. The first class mirrors transformers' ``GenerationConfig``, the second the
parameters of ``model.generate``; a test compares both with the installed transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    from ..guide import Guide
    from ..session.options import OnViolation
    from ..session.reasoning import Reasoning
    from ..session.stats import SessionStats


class GenerationConfigArguments(TypedDict, total=False):
    """The settings of transformers' ``GenerationConfig``; None leaves a setting to the generation config."""

    # length
    max_length: int | None
    max_new_tokens: int | None
    min_length: int | None
    min_new_tokens: int | None
    early_stopping: bool | Literal["never"] | None
    max_time: float | None
    stop_strings: str | list[str] | None
    # strategy
    do_sample: bool | None
    num_beams: int | None
    num_beam_groups: int | None
    use_mtp: bool | None
    penalty_alpha: float | None
    dola_layers: str | list[int] | None
    low_memory: bool | None
    # cache and compilation
    use_cache: bool | None
    cache_implementation: str | None
    cache_config: Any
    max_cache_len: int | None
    prefill_chunk_size: int | None
    compile_config: Any
    disable_compile: bool | None
    # logits
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    top_h: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    diversity_penalty: float | None
    repetition_penalty: float | None
    encoder_repetition_penalty: float | None
    length_penalty: float | None
    no_repeat_ngram_size: int | None
    encoder_no_repeat_ngram_size: int | None
    bad_words_ids: list[list[int]] | None
    force_words_ids: Any
    constraints: Any
    renormalize_logits: bool | None
    forced_bos_token_id: int | None
    forced_eos_token_id: int | list[int] | None
    remove_invalid_values: bool | None
    exponential_decay_length_penalty: tuple[int, float] | None
    suppress_tokens: list[int] | None
    begin_suppress_tokens: list[int] | None
    sequence_bias: Mapping[tuple[int, ...], float] | list[list[Any]] | None
    token_healing: bool | None
    guidance_scale: float | None
    watermarking_config: Any
    # output
    num_return_sequences: int | None
    output_attentions: bool | None
    output_hidden_states: bool | None
    output_scores: bool | None
    output_logits: bool | None
    return_dict_in_generate: bool | None
    # special tokens
    pad_token_id: int | None
    bos_token_id: int | None
    eos_token_id: int | list[int] | None
    decoder_start_token_id: int | list[int] | None
    # assisted generation
    is_assistant: bool | None
    num_assistant_tokens: int | None
    num_assistant_tokens_schedule: Literal["heuristic", "heuristic_transient", "constant"] | None
    assistant_confidence_threshold: float | None
    assistant_early_exit: int | None
    assistant_ensemble_weight: float | None
    assistant_lookbehind: int | None
    target_lookbehind: int | None
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int | None
    speculation_type: str | None


class ModelArguments(GenerationConfigArguments, total=False):
    """The other arguments of ``model.generate``, and common model inputs.

    A model input that is not listed here reaches the model too; for a type checker it goes into a ``dict[str, Any]``
    that is unpacked in the call.
    """

    generation_config: Any
    logits_processor: Any
    stopping_criteria: Any
    prefix_allowed_tokens_fn: Callable[[int, Any], list[int]] | None
    synced_gpus: bool | None
    assistant_model: Any
    assistant_tokenizer: Any
    streamer: Any
    negative_prompt_ids: Any
    negative_prompt_attention_mask: Any
    custom_generate: Any
    trust_remote_code: bool | None
    # model inputs
    cache: Any
    decoder_attention_mask: Any
    decoder_input_ids: Any
    decoder_inputs_embeds: Any
    encoder_outputs: Any
    image_grid_thw: Any
    image_sizes: Any
    input_features: Any
    input_values: Any
    inputs_embeds: Any
    past_key_values: Any
    pixel_attention_mask: Any
    pixel_values: Any
    pixel_values_videos: Any
    position_ids: Any
    token_type_ids: Any
    video_grid_thw: Any


class GenerateArguments(ModelArguments, total=False):
    """The keyword arguments of ``hg.generate``, without ``stream``."""

    guide: Guide | None
    backend: str
    prefix: str | Sequence[str | None] | None
    on_violation: OnViolation
    batch_size: int
    retries: int
    jump_forward: bool
    draft: Any
    continuous_batching: bool | ContinuousBatchingConfig
    stats: bool | Callable[[SessionStats], None]
    progress: bool | None
    reasoning: Reasoning | None
    trace: bool
    logprobs: bool | int
    seed: int | Sequence[int] | None
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    documents: Sequence[Any] | None
    show_tools: bool
    describe: bool
