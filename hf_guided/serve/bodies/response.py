"""The body of /v1/responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from ..call import Call, Chat
from ..limits import ServeLimits
from .chat import shown_tools
from .constraint_fields import read_constraint
from .defaults import Defaults
from .generation import GenerationFields, LogprobCount, check_logprobs, check_model
from .parts import Count, List, Part, problem, read
from .refusals import refused
from .response_items import Items, render_items
from .sampling import read_max_tokens, read_sampling, read_stop
from .thinking import Effort, read_thinking
from .tools import NestedTool, Tool, for_answer, for_template

_MOST_METADATA = 16  # OpenAI's limit
_LOGPROBS = "message.output_text.logprobs"
# What an answer repeats; the rest of ``Response`` describes what was done.
_REPEATED = (
    "instructions max_output_tokens metadata parallel_tool_calls prompt_cache_key reasoning safety_identifier "
    "temperature text tool_choice top_logprobs top_p truncation user"
).split()


def _few_texts(value: Any) -> Any:
    if (
        not isinstance(value, dict)
        or len(value) > _MOST_METADATA
        or not all(isinstance(v, str) for v in value.values())
    ):
        raise problem(f"expected an object of {_MOST_METADATA} texts at most, got {{value}}", value=value)
    return value


class Reasoning(Part):
    """How much the model is to think."""

    other_fields = {
        "context": ("auto",),
        "generate_summary": ("auto",),
        "mode": ("standard",),
        "summary": ("auto",),  # answers have the thinking itself
    }
    effort: Effort | None = None


class TextConfig(Part):
    """The format of the text."""

    other_fields = {"verbosity": ("medium",)}
    format: dict[str, Any] | None = None


class ResponseStreamOptions(Part):
    """Nothing that changes a stream."""

    other_fields = {"include_obfuscation": (False,), "include_usage": (True,)}


class ResponseBody(GenerationFields):
    """What a response may hold."""

    other_fields = {
        "access_programs": (),
        "background": (False,),
        "background_options": (),
        "context_management": ([],),
        "conversation": (),
        "enable_response_messages": (False,),
        "image": (),
        "max_tool_calls": (),
        "mm_processor_kwargs": (),
        "previous_input_messages": (),
        "previous_response": (),
        "previous_response_id": (),
        "prompt": (),
        "truncation": ("disabled",),
    }
    input: Items
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: TextConfig = TextConfig()
    tools: List[Tool] = []
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    reasoning: Reasoning = Reasoning()
    top_logprobs: LogprobCount | None = None
    include: List[Literal["message.output_text.logprobs"]] = []
    stream_options: ResponseStreamOptions | None = None
    chat_template_kwargs: dict[str, Any] = {}
    # Answers repeat them, so they have to be what an answer may hold.
    metadata: Annotated[dict[str, str], BeforeValidator(_few_texts)] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def read_response(body: object, defaults: Defaults, limits: ServeLimits) -> Call:
    """What a response is to answer.

    Args:
        body: any JSON.
        defaults: what the model and the server say where it says nothing.
        limits: of a request.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    response = read(ResponseBody, body)
    assert isinstance(body, dict)
    check_model(response.model, defaults)
    constraint, param = read_constraint({**body, "tools": [*map(for_template, response.tools)]}, defaults, limits)
    stop, stop_token_ids = read_stop(response, defaults, limits)
    if response.stream_options is not None and not response.stream:
        raise refused("stream_options", "expected it only with stream, which is false")
    variables, think = read_thinking(
        response.chat_template_kwargs, response.reasoning.effort, defaults, "reasoning.effort"
    )
    check_logprobs("top_logprobs", response.top_logprobs or 0, limits)
    return Call(
        kind="response",
        prompts=(
            Chat(
                messages=render_items(response.input, response.instructions, defaults.takes_images),
                tools=shown_tools(constraint, response.tool_choice),
                template_variables=variables,
            ),
        ),
        constraint=constraint,
        param=param,
        sampling=read_sampling(response, defaults, limits, several=False),
        max_new_tokens=read_max_tokens(
            {
                "max_output_tokens": response.max_output_tokens,
                "generation_config.max_new_tokens": response.generation_config.max_new_tokens,
            },
            limits,
        ),
        stop=stop,
        stop_token_ids=stop_token_ids,
        logprobs=response.top_logprobs or 0 if response.top_logprobs or _LOGPROBS in response.include else None,
        stream=response.stream,
        think=think,
        body=_repeated(body, response.tools),
    )


def _repeated(body: dict[str, Any], tools: Sequence[NestedTool]) -> dict[str, Any]:
    given = {name: body[name] for name in _REPEATED if body.get(name) is not None}
    return {**given, "tools": [for_answer(tool) for tool in tools]}
