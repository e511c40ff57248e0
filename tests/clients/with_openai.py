"""OpenAI's own client: parsed answers, tools, streams, responses. Runs by itself: ``python with_openai.py URL``."""

import json
import sys
from typing import Literal

import openai
from pydantic import BaseModel, Field

PROMPT = "Our gardener Daria Pinto is 50 years old, reachable at daria@laurel.example."
CHAT = [{"role": "user", "content": PROMPT}]


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    kind: Literal["staff", "guest"]


class Weather(BaseModel):
    """Looks up the weather."""

    unit: Literal["C", "F"]
    days: int = Field(ge=1, le=9)


client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
tool = openai.pydantic_function_tool(Weather)
seen = {}

[choice] = client.chat.completions.parse(model="demo", messages=CHAT, response_format=Person).choices
assert isinstance(choice.message.parsed, Person) and choice.finish_reason == "stop"
seen["parse"] = choice.message.parsed.model_dump()

[choice] = client.chat.completions.parse(model="demo", messages=CHAT, tools=[tool], tool_choice="required").choices
assert choice.finish_reason == "tool_calls"
assert all(isinstance(call.function.parsed_arguments, Weather) for call in choice.message.tool_calls)
seen["tools, parsed"] = [call.function.parsed_arguments.model_dump() for call in choice.message.tool_calls]

named = {"type": "function", "function": {"name": "Weather"}}
[choice] = client.chat.completions.create(
    model="demo", messages=CHAT, tools=[tool], tool_choice=named, parallel_tool_calls=False
).choices
[call] = choice.message.tool_calls
Weather.model_validate_json(call.function.arguments)
answered = [*CHAT, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
[choice] = client.chat.completions.create(model="demo", messages=answered, tools=[tool], tool_choice="none").choices
assert isinstance(choice.message.content, str) and not choice.message.tool_calls
seen["tools, the second turn"] = choice.finish_reason

with client.chat.completions.stream(
    model="demo", messages=CHAT, response_format=Person, stream_options={"include_usage": True}
) as stream:
    events = [event.type for event in stream]
    final = stream.get_final_completion()
assert isinstance(final.choices[0].message.parsed, Person) and events.count("content.delta") > 1
assert final.usage.completion_tokens > 0
seen["stream"] = {kind: events.count(kind) for kind in sorted(set(events))}

with client.chat.completions.stream(model="demo", messages=CHAT, tools=[tool], tool_choice="required") as stream:
    final = stream.get_final_completion()
assert all(isinstance(call.function.parsed_arguments, Weather) for call in final.choices[0].message.tool_calls)
seen["stream of tools"] = len(final.choices[0].message.tool_calls)

response = client.responses.parse(model="demo", input=PROMPT, text_format=Person)
assert isinstance(response.output_parsed, Person) and response.status == "completed"
seen["responses.parse"] = response.output_parsed.model_dump()

with client.responses.stream(model="demo", input=PROMPT, text_format=Person) as stream:
    kinds = [event.type for event in stream]
    assert isinstance(stream.get_final_response().output_parsed, Person)
assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
seen["responses.stream"] = len(kinds)

flat = {"type": "function", "name": "Weather", "parameters": Weather.model_json_schema(), "strict": True}
response = client.responses.create(model="demo", input=PROMPT, tools=[flat], tool_choice="required")
calls = [item for item in response.output if item.type == "function_call"]
assert calls and all(Weather.model_validate_json(call.arguments) for call in calls)
seen["responses, tools"] = len(calls)

assert [model.id for model in client.models.list()] == ["demo"]
assert client.models.retrieve("demo").id == "demo"
try:
    client.chat.completions.create(model="demo", messages=CHAT, response_format={"type": "json_schema"})
except openai.BadRequestError as error:
    seen["a bad request"] = error.code
else:
    raise AssertionError("a response_format without a schema")
print(json.dumps(seen))
