"""LiteLLM's completion against an OpenAI-style server: response_format, tools, streams, responses."""

import json

import litellm
from checks import CHAT, PROMPT, STREAM, URL, Person, Weather, check

SERVER = {"model": "openai/demo", "api_base": URL, "api_key": "none", "num_retries": 0, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": Weather.model_json_schema()}}
SCHEMA = {"name": "person", "schema": Person.model_json_schema(), "strict": True}


def chat(stream, **asked):
    """The choice of a chat completion."""
    found = litellm.completion(**SERVER, messages=CHAT, stream=stream, **asked)
    return (litellm.stream_chunk_builder(list(found), messages=CHAT) if stream else found).choices[0]


@check(**STREAM, form=(Person, {"type": "json_schema", "json_schema": SCHEMA}))
def a_format(stream, form):
    choice = chat(stream, response_format=form)
    assert choice.finish_reason == "stop"
    return Person.model_validate_json(choice.message.content, strict=True).model_dump()


@check(**STREAM)
def any_object(stream):
    choice = chat(stream, response_format={"type": "json_object"})
    assert choice.finish_reason != "stop" or isinstance(json.loads(choice.message.content), dict)
    return choice.finish_reason


@check(**STREAM)
def tools(stream):
    choice = chat(stream, tools=[TOOL], tool_choice="required")
    calls = [Weather.model_validate_json(call.function.arguments, strict=True) for call in choice.message.tool_calls]
    assert choice.finish_reason == "tool_calls" and calls
    return [call.model_dump() for call in calls]


@check()
def a_response():
    response = litellm.responses(**{**SERVER, "input": PROMPT, "text_format": Person})
    text = "".join(part.text for item in response.output if item.type == "message" for part in item.content)
    return Person.model_validate_json(text, strict=True).model_dump()
