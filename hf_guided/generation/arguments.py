"""The arguments of ``hg.generate`` and its siblings: their names and types, the options of one call, unknown names.

``**arguments: Unpack[GenerateArguments]`` makes every keyword real: a misspelled one is a type error, and
``check_arguments`` refuses it at run time, before anything is compiled. The first class mirrors transformers'
``GenerationConfig``, the second the parameters of ``model.generate``; a test compares both with the installed
transformers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from transformers import GenerationConfig, GenerationMixin
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.utils import TransformersKwargs

from ..constraints.argument_advice import Call, advice
from ..constraints.argument_checks import CALL, FLAG, Rule, check
from ..errors import BatchSizeError, UnknownArgument
from ..guide import Guide
from ..hf.compat import RENAMED_CACHES, layers
from ..hf.decode.call import DecodeOptions
from ..session.logprobs import num_top
from ..session.options import OnViolation, SessionOptions
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
    log_mass: bool
    seed: int | Sequence[int] | None
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    documents: Sequence[Any] | None
    show_tools: bool
    describe: bool


_CONTINUOUS = Rule(
    "True, False or a ContinuousBatchingConfig",
    lambda value: FLAG.holds(value) or isinstance(value, ContinuousBatchingConfig),
)


@dataclass(frozen=True)
class GenerateOptions:
    """The keyword arguments of ``hg.generate`` that are its own, with their defaults; described there.

    Raises:
        InvalidArgument: a value that the argument cannot have.
    """

    stream: bool = False
    guide: Guide | None = None
    backend: str = "auto"
    prefix: str | Sequence[str | None] | None = None
    on_violation: OnViolation = "close"
    batch_size: int = 8
    retries: int = 0
    jump_forward: bool = True
    draft: Any = "auto"
    continuous_batching: bool | ContinuousBatchingConfig = False
    stats: bool | Callable[[SessionStats], None] = False
    progress: bool | None = None
    reasoning: Reasoning | None = None
    trace: bool = False
    logprobs: bool | int = False
    log_mass: bool = False
    seed: int | Sequence[int] | None = None
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Any] | None = None
    show_tools: bool = True
    describe: bool = False

    def __post_init__(self) -> None:
        for name, rule in CALL.items():
            value = getattr(self, name)
            if value is not None or name != "progress":
                check(name, value, rule)
        check("continuous_batching", self.continuous_batching, _CONTINUOUS)

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> tuple[GenerateOptions, dict[str, Any]]:
        """The options among the keyword arguments of a call, and the other arguments."""
        own = {field.name for field in fields(cls)} & arguments.keys()
        others = {name: value for name, value in arguments.items() if name not in own}
        return cls(**{name: arguments[name] for name in own}), others

    @property
    def top_logprobs(self) -> int | None:
        """Number of alternatives recorded beside the log probability of each token; None records nothing."""
        return num_top(self.logprobs)

    def session(self, stop_token_ids: Sequence[int], max_new_tokens: int) -> SessionOptions:
        """The options of a batch's masks."""
        return SessionOptions(
            self.backend,
            stop_token_ids,
            self.on_violation,
            max_new_tokens,
            reasoning=self.reasoning,
            trace=self.trace,
            log_mass=self.log_mass,
        )

    def decode(self, *, streamer: Any, seeds: Sequence[int] | None) -> DecodeOptions:
        """The options of a batch's fast loop, once ``draft`` is decided."""
        return DecodeOptions(
            self.jump_forward,
            draft=self.draft,
            streamer=streamer,
            seeds=seeds,
            top_logprobs=self.top_logprobs,
        )


# generate() takes these without having them in its signature.
_BESIDE = ("assistant_tokenizer", "debug_io", "mm_encoder_outputs", "tokenizer", "trust_remote_code")


def check_arguments(model: Any, generate_kwargs: Mapping[str, Any], own: Iterable[str], call: Call) -> None:
    """Refuse arguments that neither this library nor generate() takes; ``own`` are the caller's, for suggestions.

    Raises:
        UnknownArgument: a name that neither the caller, nor ``GenerationConfig``, nor the model knows; or one for the
            input, which comes from the prompts.
    """
    for name in ("inputs", "input_ids", "attention_mask"):
        if generate_kwargs.get(name) is not None:
            raise UnknownArgument(
                f"{name}: the model's input is made from {call.prompts}; leave it out, or call model.generate with "
                "guide.logits_processor(...) or guide.decoder(...)",
                name=name,
                suggestion=call.prompts,
            )
    known = _taken(model, generate_kwargs)
    unknown = [name for name in generate_kwargs if name not in known]
    if not unknown:
        return
    for name in unknown:
        text, suggestion = advice(name, call, {*own, *known}) or ("leave it out", None)
        if suggestion is None and (generate_kwargs[name] is None or not _refuses_unknown(model, generate_kwargs)):
            continue  # generate() ignores None; a generate() of another library may take names of its own
        raise UnknownArgument(
            f"unknown argument {name}: neither an argument of this call, nor a generation setting, nor an input of "
            f"{type(model).__name__}; {text}",
            name=name,
            suggestion=suggestion,
        )


def _taken(model: Any, generate_kwargs: Mapping[str, Any]) -> set[str]:
    """The arguments that generate() takes, by the rules of its own check (``_validate_model_kwargs``)."""
    configs = GenerationConfig(), model.generation_config, generate_kwargs.get("generation_config")
    settings = [vars(config) for config in configs if isinstance(config, GenerationConfig)]
    known = {name for each in settings for name in each if not name.startswith("_")}
    known |= {*_BESIDE, *TransformersKwargs.__optional_keys__}
    sources: list[Callable[..., Any] | None] = [generate_kwargs.get("custom_generate")]
    for part in layers(model):
        sources += [getattr(part, name, None) for name in ("generate", "prepare_inputs_for_generation", "forward")]
        base = getattr(part, getattr(part, "base_model_prefix", "") or "model", None)
        for holder in (part, base):
            sources.append(getattr(getattr(holder, "encoder", None), "forward", None))
            known |= {
                f"decoder_{name}" for name in parameters(getattr(getattr(holder, "decoder", None), "forward", None))
            }
        if model.config.is_encoder_decoder:
            known.add("decoder_input_ids")
    known = known.union(*map(parameters, sources))
    return known | RENAMED_CACHES if known & RENAMED_CACHES else known


def parameters(function: Any) -> set[str]:
    """Names of the parameters of a function, without ``*args`` and ``**kwargs``; empty for what is no function."""
    if not callable(function):
        return set()
    try:
        declared = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return set()
    return {p.name for p in declared if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _refuses_unknown(model: Any, generate_kwargs: Mapping[str, Any]) -> bool:
    """Whether generate() is transformers' own, which raises for names that it does not know."""
    return (
        getattr(model.generate, "__func__", None) is GenerationMixin.generate
        and getattr(model._validate_model_kwargs, "__func__", None) is GenerationMixin._validate_model_kwargs
        and not isinstance(generate_kwargs.get("custom_generate"), str)
    )


def one_each(what: str, value: Any, prompts: int, *, several: bool) -> list[Any]:
    """Spread a value over the prompts, or check that with ``several`` there is one for each; else BatchSizeError."""
    if not several:
        return [value] * prompts
    if len(value) != prompts:
        raise BatchSizeError(
            f"expected one {what} for all prompts or one for each of {prompts}, got {len(value)}; None stands for none"
        )
    return list(value)
