"""The fields that say how tokens are chosen, and where an answer ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from transformers import GenerationConfig

from ...constraints.json_text import loads
from ...errors import InvalidConstraint
from ..job import Sampling
from ..limits import ServeLimits
from .defaults import Defaults
from .parts import ANY, Count, List, Number, Part, TokenId, listed, problem
from .refusals import expected, refused

_GREEDY = 1e-5  # below it, probabilities are 0 and 1 but for rounding
_MOST_BIAS = 100
_CHANGE_TOKENS = ("temperature", "top_p", "top_k", "min_p", "seed")  # a request that gives one is sampled

Temperature = Annotated[Number, Field(ge=0, le=100)]
Share = Annotated[Number, Field(ge=0, le=1)]
TopK = Annotated[int, Field(ge=-1, lt=2**31)]
Repetition = Annotated[Number, Field(ge=0.01, le=10)]  # far lower, and scores divided by it are infinite
Penalty = Annotated[Number, Field(ge=-2, le=2)]


def _json_object(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return loads(value, "it")
    except InvalidConstraint:
        raise problem("expected a JSON object, or its text, got {value}", value=value) from None


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


class SamplingFields(Part):
    """The fields of all three routes that generate."""

    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: TopK | None = None
    min_p: Share | None = None
    repetition_penalty: Repetition | None = None
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: dict[str, Any] = {}
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: Annotated[List[str], listed("a text, or a list of texts")] = []
    stop_token_ids: List[TokenId] = []
    generation_config: Annotated[GenerationConfigFields, BeforeValidator(_json_object)] = GenerationConfigFields()


def read_sampling(body: SamplingFields, defaults: Defaults, limits: ServeLimits, *, several: bool) -> Sampling:
    """How the tokens of a request are chosen.

    Args:
        body: of the request.
        defaults: where it says nothing.
        limits: of a request.
        several: whether it wants several answers to a prompt, which are to differ.

    Raises:
        RequestRefused: a value that cannot be.
    """
    config = body.generation_config

    def given(name: str) -> Any:
        own = getattr(body, name)
        return getattr(config, name, None) if own is None else own

    values = {name: given(name) for name in (*_CHANGE_TOKENS, "repetition_penalty")}
    samples = several or defaults.samples or any(values[name] is not None for name in _CHANGE_TOKENS)
    if config.do_sample is not None and body.temperature is None:
        samples = config.do_sample
    usual = defaults.sampling
    temperature, top_p, min_p, repetition_penalty = (
        getattr(usual, name) if values[name] is None else values[name]
        for name in ("temperature", "top_p", "min_p", "repetition_penalty")
    )
    top_k = usual.top_k if values["top_k"] is None else values["top_k"]
    return Sampling(
        temperature=temperature if samples and temperature >= _GREEDY else 0.0,
        top_p=top_p,
        top_k=top_k if top_k is not None and 0 < top_k < defaults.vocab_size else None,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        logit_bias=_read_bias(body.logit_bias, defaults.vocab_size, limits.max_logit_bias),
        seed=body.seed,
    )


def _read_bias(given: Mapping[str, Any], vocab_size: int, most: int) -> dict[int, float]:
    if len(given) > most:
        raise refused("logit_bias", f"expected {most} entries at most, got {len(given)}")
    bias: dict[int, float] = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10 and int(key) < vocab_size):
            raise expected("logit_bias", f"token ids below {vocab_size} as keys", key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_MOST_BIAS <= value <= _MOST_BIAS:
            raise expected(f"logit_bias.{key}", f"a number from -{_MOST_BIAS} to {_MOST_BIAS}", value)
        bias[int(key)] = float(value)
    return bias


def read_stop(body: SamplingFields, defaults: Defaults, limits: ServeLimits) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The texts, and the tokens, that end an answer.

    Raises:
        RequestRefused: too many, too long, empty, or not in the vocabulary.
    """
    for name in ("stop", "stop_token_ids"):
        number = len(getattr(body, name))
        if number > limits.max_stop_strings:
            raise refused(name, f"expected {limits.max_stop_strings} at most, got {number}")
    for i, text in enumerate(body.stop):
        if not 0 < len(text) <= limits.max_stop_chars:
            raise refused(f"stop.{i}", f"expected 1 to {limits.max_stop_chars} characters, got {len(text)}")
    for i, token in enumerate(body.stop_token_ids):
        if token >= defaults.vocab_size:
            raise expected(f"stop_token_ids.{i}", f"a token id below {defaults.vocab_size}", token)
    return tuple(body.stop), tuple(body.stop_token_ids)


def read_max_tokens(given: Mapping[str, int | None], limits: ServeLimits) -> int | None:
    """The tokens that an answer may have.

    Args:
        given: by the fields that may say it.
        limits: of a request.

    Returns:
        None where no field says it.

    Raises:
        RequestRefused: two fields say different numbers, or it is above the limit.
    """
    said = {name: number for name, number in given.items() if number is not None}
    if len(set(said.values())) > 1:
        raise refused(next(iter(said)), f"expected one number of tokens, got {' and '.join(said)} with different ones")
    most = limits.max_answer_tokens
    for name, number in said.items():
        if most is not None and number > most:
            raise refused(name, f"expected {most} at most, which is the server's limit, got {number}")
        return number
    return None
