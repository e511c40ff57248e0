"""The body of /v1/completions."""

from __future__ import annotations

from typing import Any

from ..call import Call, Prompt
from ..limits import ServeLimits
from .constraint_fields import read_constraint
from .defaults import Defaults
from .generation import (
    CompletionFields,
    LogprobCount,
    check_logprobs,
    check_model,
    read_numbers,
    read_usage,
)
from .parts import read
from .refusals import expected, refused
from .sampling import read_max_tokens, read_sampling, read_stop

_DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionBody(CompletionFields):
    """What a completion may hold."""

    other_fields = {"suffix": (), "add_special_tokens": (True,), "prompt_embeds": ()}
    prompt: Any
    echo: bool = False
    logprobs: LogprobCount | None = None


def read_completion(body: object, defaults: Defaults, limits: ServeLimits) -> Call:
    """What a completion asks for.

    Args:
        body: any JSON.
        defaults: what the model and the server say where it says nothing.
        limits: of a request.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    completion = read(CompletionBody, body)
    assert isinstance(body, dict)
    check_model(completion.model, defaults)
    constraint, param = read_constraint(body, defaults, limits)
    numbers = read_numbers(completion, limits)
    stop, stop_token_ids = read_stop(completion, defaults, limits)
    if completion.logprobs is not None:
        check_logprobs("logprobs", completion.logprobs, limits)
        if completion.echo:
            raise refused("echo", "log probabilities of prompts are not supported; leave out echo, or logprobs")
    max_tokens = read_max_tokens(
        {
            "max_tokens": completion.max_tokens,
            "generation_config.max_new_tokens": completion.generation_config.max_new_tokens,
        },
        limits,
    )
    return Call(
        kind="completion",
        prompts=_prompts(completion.prompt, defaults.vocab_size, limits.max_prompts),
        constraint=constraint,
        param=param,
        sampling=read_sampling(completion, defaults, limits, several=numbers[1] > 1),
        max_new_tokens=min(_DEFAULT_MAX_TOKENS, limits.max_answer_tokens or _DEFAULT_MAX_TOKENS)
        if max_tokens is None
        else max_tokens,
        num_answers=numbers[0],
        best_of=numbers[1],
        stop=stop,
        stop_token_ids=stop_token_ids,
        logprobs=completion.logprobs,
        echo=completion.echo,
        stream=completion.stream,
        include_usage=read_usage(completion),
    )


def _prompts(given: Any, vocab_size: int, most: int) -> tuple[Prompt, ...]:
    """One prompt or several, each a text or token ids."""
    if isinstance(given, str):
        return (_prompt(given, "prompt", vocab_size),)
    if not isinstance(given, list) or not given:
        raise expected("prompt", "a text, token ids, or a list of these", given)
    if type(given[0]) is int:
        return (_prompt(given, "prompt", vocab_size),)
    if len(given) > most:
        raise refused("prompt", f"expected {most} prompts at most, got {len(given)}")
    return tuple(_prompt(prompt, f"prompt.{i}", vocab_size) for i, prompt in enumerate(given))


def _prompt(given: Any, path: str, vocab_size: int) -> Prompt:
    if isinstance(given, str) and given:
        return given
    if not isinstance(given, list) or not given:
        raise expected(path, "a text, or token ids, at least one", given)
    for i, token in enumerate(given):
        if type(token) is not int or not 0 <= token < vocab_size:
            raise expected(f"{path}.{i}", f"a token id below {vocab_size}", token)
    return tuple(given)
