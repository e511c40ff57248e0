"""The body of /v1/chat/completions."""

from __future__ import annotations

from typing import Any

from ...constraints.tool_calls import ToolCalls
from ..call import Call, Chat
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
from .messages import Messages, render_messages
from .parts import Count, List, read
from .refusals import refused
from .sampling import read_max_tokens, read_sampling, read_stop
from .thinking import Effort, read_thinking
from .tools import Tool, for_template


class ChatBody(CompletionFields):
    """What a chat may hold."""

    other_fields = {
        # OpenAI's
        "audio": (),
        "function_call": (),
        "functions": ([],),
        "modalities": (["text"],),
        "prediction": (),
        "verbosity": ("medium",),
        "web_search_options": (),
        # vLLM's and SGLang's
        "add_generation_prompt": (True,),
        "add_special_tokens": (False,),
        "chat_template": (),
        "chat_template_content_format": ("auto",),
        "continue_final_message": (False,),
        "documents": ([],),
        "echo": (False,),
        "include_reasoning": (True,),
        "input_ids": (),
        "max_dynamic_patch": (),
        "media_io_kwargs": (),
        "min_dynamic_patch": (),
        "mm_processor_kwargs": (),
        "reasoning": (),
        "return_prompt_text": (False,),
        "separate_reasoning": (True,),
        "stream_reasoning": (True,),
        "task": (),
        "use_audio_in_video": (False,),
    }
    messages: Messages
    tools: List[Tool] = []
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: LogprobCount | None = None
    reasoning_effort: Effort | None = None
    chat_template_kwargs: dict[str, Any] = {}


def read_chat(body: object, defaults: Defaults, limits: ServeLimits) -> Call:
    """What a chat asks for.

    Args:
        body: any JSON.
        defaults: what the model and the server say where it says nothing.
        limits: of a request.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    chat = read(ChatBody, body)
    assert isinstance(body, dict)
    check_model(chat.model, defaults)
    constraint, param = read_constraint({**body, "tools": [*map(for_template, chat.tools)]}, defaults, limits)
    numbers = read_numbers(chat, limits)
    stop, stop_token_ids = read_stop(chat, defaults, limits)
    variables, think = read_thinking(chat.chat_template_kwargs, chat.reasoning_effort, defaults)
    return Call(
        kind="chat",
        prompts=(
            Chat(
                messages=render_messages(chat.messages, defaults.takes_images),
                tools=shown_tools(constraint, chat.tool_choice),
                template_variables=variables,
            ),
        ),
        constraint=constraint,
        param=param,
        sampling=read_sampling(chat, defaults, limits, several=numbers[1] > 1),
        max_new_tokens=read_max_tokens(
            {
                "max_completion_tokens": chat.max_completion_tokens,
                "max_tokens": chat.max_tokens,
                "generation_config.max_new_tokens": chat.generation_config.max_new_tokens,
            },
            limits,
        ),
        num_answers=numbers[0],
        best_of=numbers[1],
        stop=stop,
        stop_token_ids=stop_token_ids,
        logprobs=_logprobs(chat, limits),
        stream=chat.stream,
        include_usage=read_usage(chat),
        think=think,
    )


def shown_tools(constraint: Any, tool_choice: Any) -> tuple[dict[str, Any], ...] | None:
    """The tools that the prompt shows: none that must not be called."""
    if not isinstance(constraint, ToolCalls) or tool_choice == "none":
        return None
    return tuple(constraint.tools)


def _logprobs(chat: ChatBody, limits: ServeLimits) -> int | None:
    if chat.top_logprobs and not chat.logprobs:
        raise refused("top_logprobs", "expected it only with logprobs, which is false")
    check_logprobs("top_logprobs", chat.top_logprobs or 0, limits)
    return chat.top_logprobs or 0 if chat.logprobs else None
