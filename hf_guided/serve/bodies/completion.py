"""The body of /v1/completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..error_responses import expected, refused
from ..job import Call, Prompt
from .fields import read
from .generation import CompletionFields, Defaults, LogprobCount, check_most, check_tokens, read_call

_DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionBody(CompletionFields):
    """The fields of a completion."""

    other_fields = {"suffix": (), "add_special_tokens": (True,), "prompt_embeds": ()}
    prompt: Any
    echo: bool = False
    logprobs: LogprobCount | None = None


def read_completion(body: object, defaults: Defaults) -> Call:
    """Read a completion, any JSON.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    completion = read(CompletionBody, body)
    assert isinstance(body, dict)
    call = read_call("completion", completion, body, defaults, ("max_tokens",))
    if completion.logprobs is not None:
        check_most("logprobs", completion.logprobs, defaults.limits.max_logprobs)
        if completion.echo:
            raise refused("echo", "log probabilities of prompts are not supported; leave out echo, or logprobs")
    most = defaults.limits.max_answer_tokens or _DEFAULT_MAX_TOKENS
    return replace(
        call,
        prompts=_prompts(completion.prompt, defaults),
        max_new_tokens=call.max_new_tokens or min(_DEFAULT_MAX_TOKENS, most),
        logprobs=completion.logprobs,
        echo=completion.echo,
    )


def _prompts(given: Any, defaults: Defaults) -> tuple[Prompt, ...]:
    """Read one prompt or several, each a text or token ids."""
    if isinstance(given, str):
        return (_prompt(given, "prompt", defaults),)
    if not isinstance(given, list) or not given:
        raise expected("prompt", "a text, token ids, or a list of these", given)
    if type(given[0]) is int:
        return (_prompt(given, "prompt", defaults),)
    check_most("prompt", len(given), defaults.limits.max_prompts, " prompts")
    return tuple(_prompt(prompt, f"prompt.{i}", defaults) for i, prompt in enumerate(given))


def _prompt(given: Any, path: str, defaults: Defaults) -> Prompt:
    if isinstance(given, str) and given:
        return given
    if not isinstance(given, list) or not given:
        raise expected(path, "a text, or token ids, at least one", given)
    check_tokens(path, given, defaults)
    return tuple(given)
