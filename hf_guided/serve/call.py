"""What one HTTP request asks for, read from its body and checked; nothing of it has touched the model yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..constraints.values import Constraint
from .job import Sampling

Kind = Literal["chat", "completion", "response"]
# A prompt that a template renders, a text, or token ids as they are.
Prompt: TypeAlias = "Chat | str | tuple[int, ...]"


@dataclass(frozen=True)
class Chat:
    """Messages for the model's own chat template.

    Args:
        messages: as transformers' templates read them: role and content, tool calls, tool answers; content is a text or
            a list of parts.
        tools: that the template shows; None shows none.
        template_variables: ``enable_thinking`` and the like; never a template, nor an argument of
            ``apply_chat_template``.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One request.

    Args:
        kind: of the answer's shape.
        prompts: one, or several for /v1/completions.
        constraint: of every answer; None is free.
        param: the field of the body that holds the constraint, for errors.
        sampling: how tokens are chosen.
        max_new_tokens: of an answer, thinking included; None: as the server's limit and the model's context allow.
        num_answers: to each prompt (``n``).
        best_of: how many answers are generated for each prompt, of which the ``num_answers`` with the highest mean log
            probability are given.
        stop: texts that end an answer and are not part of it.
        stop_token_ids: further tokens that end an answer.
        logprobs: report log probabilities, with this many alternatives; None reports none.
        echo: begin each answer's text with its prompt (/v1/completions).
        stream: answer in server-sent events.
        include_usage: with ``stream``: a last chunk with the usage.
        think: True or False where the request says it (``reasoning_effort``, ``enable_thinking``); None leaves it to
            the server.
        body: fields that an answer of /v1/responses repeats.
    """

    kind: Kind
    prompts: tuple[Prompt, ...]
    constraint: Constraint | None = None
    param: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int | None = None
    num_answers: int = 1
    best_of: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    logprobs: int | None = None
    echo: bool = False
    stream: bool = False
    include_usage: bool = False
    think: bool | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
