"""LiteLLM's completion against an OpenAI-style server: response_format, tools, streams."""

import json
import os
import sys
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it downloads a list of prices

import litellm  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402

CHAT = [{"role": "user", "content": "Daria Pinto is 50 years old."}]


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    kind: Literal["staff", "guest"]


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["unit", "days"],
        },
    },
}
server = {
    "model": "openai/demo",
    "api_base": f"{sys.argv[1]}/v1",
    "api_key": "none",
    "messages": CHAT,
    "num_retries": 0,
    "temperature": 0,
}
seen = {}

[choice] = litellm.completion(**server, response_format=Person).choices
seen["a class"] = Person.model_validate_json(choice.message.content, strict=True).model_dump()
schema = {
    "type": "json_schema",
    "json_schema": {"name": "person", "schema": Person.model_json_schema(), "strict": True},
}
[choice] = litellm.completion(**server, response_format=schema).choices
seen["a schema"] = Person.model_validate_json(choice.message.content, strict=True).model_dump()
[choice] = litellm.completion(**server, response_format={"type": "json_object"}).choices
if choice.finish_reason == "stop":
    assert isinstance(json.loads(choice.message.content), dict)
seen["json_object"] = choice.finish_reason

[choice] = litellm.completion(**server, tools=[WEATHER], tool_choice="required").choices
assert choice.finish_reason == "tool_calls"
arguments = [json.loads(call.function.arguments) for call in choice.message.tool_calls]
assert arguments and all(1 <= one["days"] <= 9 and one["unit"] in ("C", "F") for one in arguments)
seen["tools"] = arguments

chunks = list(litellm.completion(**server, response_format=Person, stream=True))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
seen["stream"] = Person.model_validate_json(text, strict=True).model_dump()
rebuilt = litellm.stream_chunk_builder(
    list(litellm.completion(**server, tools=[WEATHER], tool_choice="required", stream=True)), messages=CHAT
)
assert all(json.loads(call.function.arguments) for call in rebuilt.choices[0].message.tool_calls)
seen["stream of tools"] = len(rebuilt.choices[0].message.tool_calls)

response = litellm.responses(
    model="openai/demo", api_base=f"{sys.argv[1]}/v1", api_key="none", input=CHAT[0]["content"], text_format=Person
)
text = "".join(part.text for item in response.output if item.type == "message" for part in item.content)
seen["responses"] = Person.model_validate_json(text, strict=True).model_dump()
print(json.dumps(seen))
