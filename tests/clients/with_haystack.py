"""haystack's chat generator: tools beside a response format, and tools that are not strict, as its own are."""

import openai
from checks import LIMITS, PROMPT, SHORT, STREAM, URL, WAYS, Person, Weather, check, error_of, weather
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

tool = Tool("weather", "Looks up the weather.", Weather.model_json_schema(), weather)
generator = OpenAIChatGenerator(Secret.from_token("none"), "demo", api_base_url=URL, max_retries=0)


def form(stream):
    """The format; in streams haystack takes no class."""
    schema = {"name": "person", "schema": Person.model_json_schema()}
    return {"type": "json_schema", "json_schema": schema} if stream else Person


def ask(stream, messages=(), **asked):
    """The reply to the prompt."""
    callback = {"streaming_callback": lambda chunk: None} if stream else {}
    messages = [ChatMessage.from_user(PROMPT), *messages]
    strict = asked.pop("strict", None)
    tools = {} if strict is None else {"tools": [tool], "tools_strict": strict}
    [reply] = generator.run(
        messages, **callback, **tools, generation_kwargs={"temperature": 0, "parallel_tool_calls": False, **asked}
    )["replies"]
    return reply


@check(choice=("auto", "required"), **WAYS)
def tools_beside_a_format(choice, stream, effort):
    asked = {"response_format": form(stream), "strict": True, "reasoning_effort": effort}
    reply = ask(stream, **asked, tool_choice=choice)
    assert choice == "auto" or reply.tool_calls
    if not stream:  # it keeps no usage of streams, and no thinking
        usage = reply.meta["usage"]["completion_tokens_details"]
        assert bool(usage["reasoning_tokens"]) == (effort != "none")
    if reply.tool_calls:
        results = [ChatMessage.from_tool(tool.invoke(**call.arguments), call) for call in reply.tool_calls]
        reply = ask(stream, [reply, *results], **asked, tool_choice="none")
    return Person.model_validate_json(reply.text, strict=True).model_dump()


@check(**STREAM)
def tools_that_are_not_strict(stream):
    calls = [
        call
        for seed in range(10)
        for call in ask(stream, strict=False, tool_choice="required", temperature=1.5, seed=seed).tool_calls
    ]
    assert len(calls) >= 10 and all(Weather.model_validate(call.arguments, strict=True) for call in calls)
    return [sum(call.arguments.keys() > {"unit", "days"} for call in calls), len(calls)]


@check(**LIMITS)
def a_token_limit(stream, tokens):
    def reason():
        return ask(stream, response_format=form(stream), max_tokens=tokens).meta["finish_reason"]

    if tokens == SHORT and not stream:
        error_of(openai.LengthFinishReasonError, reason)
    else:
        assert reason() == ("length" if tokens == SHORT else "stop")
