"""The fields of the three routes that generate: how tokens are chosen, where an answer ends, what constrains it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from transformers import GenerationConfig

from ...constraints.coerce import KINDS, TEXT_FORMAT, from_response_format
from ...constraints.tool_calls import ToolCalls
from ...constraints.tool_choice import read_choice, read_tool
from ...constraints.values import Constraint, Grammar, JsonSchema, Regex, StructuralTag, laid_out
from ..error_responses import expected, naming, refused
from ..job import FILTERS, Call, Kind, Sampling
from ..options import ServeLimits, ServeOptions
from .fields import ANY, Count, List, Number, Part, TokenId, Values, as_list, json_object, problem

_MOST_BIAS = 100
_CHANGE_TOKENS = (*FILTERS, "seed")  # a request that gives one is sampled
_USUAL = (*FILTERS, "repetition_penalty")  # a generation config may say these


@dataclass(frozen=True)
class Defaults:
    """The settings of the model and of the server's options, where a request says nothing.

    Args:
        options: of the server.
        vocab_size: the width of the model's logits; token ids are below it.
        generation_config: of the model.
        takes_images: whether messages may have images.
        template_variables: that the chat template reads, without those of transformers itself; None: not known.
        takes_any_arguments: whether the chat template writes the arguments of a call as they are if they are any text.
    """

    options: ServeOptions
    vocab_size: int
    generation_config: Any = None
    takes_images: bool = False
    template_variables: frozenset[str] | None = None
    takes_any_arguments: bool = False

    @property
    def limits(self) -> ServeLimits:
        """The limits of a request."""
        return self.options.limits

    @cached_property
    def sampling(self) -> Sampling:
        """The settings of a request that samples and leaves them out."""
        given: dict[str, Any] = {name: getattr(self.generation_config, name, None) for name in _USUAL}
        # 0 says nothing: not a temperature, and all tokens as top_k.
        return replace(Sampling(temperature=1.0), **{name: value for name, value in given.items() if value})

    @property
    def samples(self) -> bool:
        """Whether a request that gives no field of sampling is sampled; not if the config says ``do_sample=False``."""
        return getattr(self.generation_config, "do_sample", None) is not False


def _text_or_object(value: Any) -> Any:
    if not isinstance(value, (str, dict)):
        raise problem("expected an object, or its JSON text, got {value}", value)
    return value


def fields_with(accepted: Values, names: str) -> dict[str, Values]:
    """Fields of ``Part.other_fields`` that accept the same values."""
    return dict.fromkeys(names.split(), accepted)


Document = Annotated[Any, BeforeValidator(_text_or_object)]
Temperature = Annotated[Number, Field(ge=0, le=100)]
Share = Annotated[Number, Field(ge=0, le=1)]
TopK = Annotated[int, Field(ge=-1, lt=2**31)]
Repetition = Annotated[Number, Field(ge=0.01, le=10)]  # far lower, and scores divided by it are infinite
Penalty = Annotated[Number, Field(ge=-2, le=2)]
LogprobCount = Annotated[int, Field(ge=0, lt=2**31)]


class GenerationConfigFields(Part):
    """``generation_config``, as `transformers serve` takes it; its other settings may only have their defaults."""

    other_fields = {
        **{name: () if value is None else (value,) for name, value in GenerationConfig().to_dict().items()},
        "transformers_version": ANY,
    }
    do_sample: bool | None = None
    max_new_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    repetition_penalty: Repetition | None = None


class StructuredOutputs(Part):
    """vLLM's ``structured_outputs``."""

    other_fields = {
        "disable_fallback": (False,),
        "disable_any_whitespace": (False,),
        "disable_additional_properties": (False, True),  # schemas that say nothing about them are closed here
        "whitespace_pattern": (),
    }
    json_: Document = Field(None, alias="json")
    regex: str | None = None
    choice: List[str] = []
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Document = None


class GenerationFields(Part):
    """The fields of every request that is answered by tokens: OpenAI's, and those that vLLM and SGLang have added."""

    other_fields = {
        # None of them changes an answer here.
        **fields_with(
            ANY,
            "metadata prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier service_tier "
            "session_id user",
        ),
        **fields_with(
            (),
            # OpenAI's
            "guided_decoding_backend guided_whitespace_pattern moderation "
            # vLLM's
            "allowed_token_ids cache_salt ec_transfer_params kv_transfer_params logits_processors logprob_token_ids "
            "prompt_logprobs repetition_detection request_id truncate_prompt_tokens truncation_side vllm_xargs "
            # SGLang's
            "bootstrap_host bootstrap_port bootstrap_room custom_labels custom_logit_processor custom_params "
            "data_parallel_rank disagg_prefill_dp_rank extra_key images_config lora_path ngram_corpus_id rid "
            "routed_dp_rank session_params stop_regex",
        ),
        **fields_with(
            (False,),
            "ignore_eos include_stop_str_in_output no_stop_trim return_cached_tokens_details return_hidden_states "
            "return_meta_info return_prompt_token_ids return_routed_experts return_token_ids return_token_offsets "
            "return_tokens_as_token_ids store use_beam_search watermarking",
        ),
        **fields_with((True,), "return_mm_kwargs skip_special_tokens spaces_between_special_tokens"),
        **fields_with((0,), "min_tokens priority routed_experts_prompt_start routed_experts_start_len"),
        "bad_words": ([],),
        "length_penalty": (1.0, 1),
        "stream_interval": (1,),
        "thinking_token_budget": (-1,),
    }
    model: str | None = None
    stream: bool = False

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    repetition_penalty: Repetition | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: dict[str, Any] = {}
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[List[str], BeforeValidator(lambda value: as_list(value, "a text, or a list of texts"))] = []
    stop_token_ids: List[TokenId] = []
    generation_config: Annotated[
        GenerationConfigFields, BeforeValidator(lambda value: json_object(value, "a JSON object, or its text"))
    ] = GenerationConfigFields()

    structured_outputs: StructuredOutputs | None = None
    guided_json: Document = None
    guided_regex: str | None = None
    guided_choice: List[str] = []
    guided_grammar: str | None = None
    regex: str | None = None
    json_schema: Document = None
    ebnf: str | None = None
    structural_tag: Document = None


class StreamOptions(Part):
    """Additions to a stream of chat completions or completions."""

    other_fields = {"include_obfuscation": (False,), "continuous_usage_stats": (False,)}
    include_usage: bool = False


class CompletionFields(GenerationFields):
    """The fields that chat completions and completions share."""

    response_format: dict[str, Any] | None = None
    n: Count = 1
    best_of: Count | None = None
    max_tokens: Count | None = None
    stream_options: StreamOptions | None = None


def read_call(
    kind: Kind, fields: GenerationFields, body: Mapping[str, Any], defaults: Defaults, length_fields: tuple[str, ...]
) -> Call:
    """Read the fields of all routes; the call has no prompt yet.

    Args:
        kind: of the answer's shape.
        fields: of the request, read.
        body: the same as JSON, with tools in the nested form.
        defaults: where it says nothing.
        length_fields: the route's own names for the most tokens of an answer.

    Raises:
        RequestRefused: a value that cannot be; 404 for another model.
    """
    check_model(fields.model, defaults)
    constraint, param = read_constraint(body, defaults)
    num_answers, best_of = _read_numbers(fields, defaults.limits) if isinstance(fields, CompletionFields) else (1, 1)
    _check_stop(fields, defaults)
    stream_options = getattr(fields, "stream_options", None)
    if stream_options is not None and not fields.stream:
        raise refused("stream_options", "expected it only with stream, which is false")
    lengths = {name: getattr(fields, name) for name in length_fields}
    lengths["generation_config.max_new_tokens"] = fields.generation_config.max_new_tokens
    return Call(
        kind=kind,
        prompts=(),
        constraint=constraint,
        param=param,
        sampling=_read_sampling(fields, defaults, several=best_of > 1),
        max_new_tokens=_read_max_tokens(lengths, defaults.limits.max_answer_tokens),
        num_answers=num_answers,
        best_of=best_of,
        stop=tuple(fields.stop),
        stop_token_ids=tuple(fields.stop_token_ids),
        stream=fields.stream,
        include_usage=getattr(stream_options, "include_usage", False),
    )


def check_model(name: str | None, defaults: Defaults) -> None:
    """Refuse another model than the one that is served; a request may leave its name out.

    Raises:
        RequestRefused: 404, as OpenAI answers.
    """
    known = defaults.options.public_name
    if name is not None and name != known:
        raise refused(
            "model", f"this server has only {known!r}; ask for it, or leave the field out", "model_not_found", 404
        )


def check_most(param: str, number: int, most: int, what: str = "") -> None:
    """Refuse a number above a limit."""
    if number > most:
        raise refused(param, f"expected {most}{what} at most, which is the server's limit, got {number}")


# How tokens are chosen.


def _read_sampling(body: GenerationFields, defaults: Defaults, *, several: bool) -> Sampling:
    """Several answers to a prompt are to differ, so they are sampled."""
    config, usual = body.generation_config, defaults.sampling

    def given(name: str) -> Any:
        own = getattr(body, name)
        return getattr(config, name, None) if own is None else own

    samples = several or defaults.samples or any(given(name) is not None for name in _CHANGE_TOKENS)
    if config.do_sample is not None and body.temperature is None:
        samples = config.do_sample
    values = {name: getattr(usual, name) if given(name) is None else given(name) for name in _USUAL}
    if values["top_k"] is not None and not 0 < values["top_k"] < defaults.vocab_size:
        values["top_k"] = None
    sampling = Sampling(
        **values,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=_read_bias(body.logit_bias, defaults),
        seed=body.seed,
    )
    return sampling if samples and sampling.draws else replace(sampling, temperature=0.0)


def _read_bias(given: Mapping[str, Any], defaults: Defaults) -> dict[int, float]:
    most, vocab_size = defaults.limits.max_logit_bias, defaults.vocab_size
    check_most("logit_bias", len(given), most, " entries")
    bias: dict[int, float] = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) < vocab_size):
            raise expected("logit_bias", f"token ids below {vocab_size} as keys", key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_MOST_BIAS <= value <= _MOST_BIAS:
            raise expected(f"logit_bias.{key}", f"a number from -{_MOST_BIAS} to {_MOST_BIAS}", value)
        bias[int(key)] = float(value)
    return bias


# Where answers end, and how many there are.


def _read_numbers(body: CompletionFields, limits: ServeLimits) -> tuple[int, int]:
    """The numbers of answers to a prompt that are given, and that are generated."""
    best_of = body.n if body.best_of is None else body.best_of
    check_most("n", body.n, limits.max_answers)
    check_most("best_of", best_of, limits.max_answers)
    if best_of < body.n:
        raise refused("best_of", f"expected at least as many as n, which is {body.n}, got {best_of}")
    if best_of > body.n and body.stream:
        raise refused("best_of", "the best answers are known at their end; leave out stream, or best_of")
    return body.n, best_of


def _check_stop(body: GenerationFields, defaults: Defaults) -> None:
    limits = defaults.limits
    check_most("stop", len(body.stop), limits.max_stop_strings)
    check_most("stop_token_ids", len(body.stop_token_ids), limits.max_stop_strings)
    for i, text in enumerate(body.stop):
        if not 0 < len(text) <= limits.max_stop_chars:
            raise refused(f"stop.{i}", f"expected 1 to {limits.max_stop_chars} characters, got {len(text)}")
    check_tokens("stop_token_ids", body.stop_token_ids, defaults)


def check_tokens(param: str, token_ids: list[Any], defaults: Defaults) -> None:
    """Refuse what is no token id of the model."""
    for i, token in enumerate(token_ids):
        if type(token) is not int or not 0 <= token < defaults.vocab_size:
            raise expected(f"{param}.{i}", f"a token id below {defaults.vocab_size}", token)


def _read_max_tokens(given: Mapping[str, int | None], most: int | None) -> int | None:
    """The tokens that an answer may have, of the fields that may say it; None where no field says it."""
    said = {name: number for name, number in given.items() if number is not None}
    if len(set(said.values())) > 1:
        raise refused(next(iter(said)), f"expected one number of tokens, got {' and '.join(said)} with different ones")
    for name, number in said.items():
        check_most(name, number, number if most is None else most)
        return number
    return None


# What constrains answers.

_MAKERS: dict[str, Callable[[Any], Constraint]] = {
    **{f"structured_outputs.{kind}": make for kind, make in KINDS.items()},
    **{f"guided_{kind}": KINDS[kind] for kind in ("json", "regex", "choice", "grammar")},
    "regex": Regex,
    "json_schema": JsonSchema,
    "ebnf": Grammar,
    "structural_tag": StructuralTag,
}
_FIELDS = {"response_format", "text", "tools", "tool_choice", "parallel_tool_calls"} | {
    name.partition(".")[0] for name in _MAKERS
}


def read_constraint(body: Mapping[str, Any], defaults: Defaults) -> tuple[Constraint | None, str | None]:
    """The constraint of a checked request, and its field: a format, or tools, beside which there may be a format.

    Raises:
        RequestRefused: malformed, too large, or more than one format.
    """
    options = defaults.options
    given = {name: value for name, value in body.items() if value is not None and name in _FIELDS}
    _check_size(given, options.limits.max_schema_bytes)
    found: dict[str, Constraint] = {}
    text_format = given.get("text", {}).get("format")
    for name, value in (("response_format", given.get("response_format")), (TEXT_FORMAT, text_format)):
        with naming(name):
            if value is not None and (constraint := from_response_format(value, name)) is not None:
                found[name] = constraint
    outputs = {f"structured_outputs.{name}": value for name, value in given.get("structured_outputs", {}).items()}
    for name, value in {**given, **outputs}.items():
        if name in _MAKERS and value is not None and (name, value) != ("structured_outputs.json_object", False):
            with naming(name):
                found[name] = _MAKERS[name](value)
    if len(found) > 1:
        message = f"expected one kind of constraint, got {' and '.join(found)}; leave one out"
        raise refused(next(iter(found)), message, "invalid_constraint")
    format, param = None, None
    for param, constraint in found.items():
        with naming(param):
            format = laid_out(constraint, options.whitespace, options.indent, options.spelling)
    tools, choice = given.get("tools") or [], given.get("tool_choice")
    # With tool_choice "none" only the format of the answer counts. A required call without tools is an error.
    if not (tools or choice not in (None, "auto")) or (choice == "none" and (format is not None or not tools)):
        return format, param
    choice, parallel = "auto" if choice is None else choice, given.get("parallel_tool_calls") is not False
    with naming("tools"):
        names = [read_tool(tool, index)["function"]["name"] for index, tool in enumerate(tools)]
    with naming("tool_choice"):
        read_choice(choice, names)
    with naming("tools"):
        calls = ToolCalls(tools, options.tool_format, choice, parallel, format)
        if options.enforce == "strict-only":
            calls = calls.with_any_object(calls.lenient)
        return calls, "tools"


def _check_size(given: Mapping[str, Any], most: int) -> None:
    size = len(json.dumps(given))
    if size > most:
        raise refused(
            max(given, key=lambda name: len(json.dumps(given[name]))),
            f"expected {most} bytes at most, as JSON, got {size}; ask for less, or raise --max-schema-bytes",
            "constraint_too_large",
        )
