"""langchain's ChatOpenAI: with_structured_output in its methods, bound tools, streams."""

import json
import sys
from typing import Literal

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

PROMPT = "Daria Pinto is 50 years old."


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    kind: Literal["staff", "guest"]


@tool
def weather(unit: Literal["C", "F"], days: int) -> str:
    """Looks up the weather."""
    return "sunny"


model = ChatOpenAI(model="demo", base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0, temperature=0)
seen = {}
for method in ("json_schema", "function_calling"):
    structured = model.with_structured_output(Person, method=method)
    person = structured.invoke(PROMPT)
    assert isinstance(person, Person)
    seen[method] = person.model_dump()
    streamed = list(structured.stream(PROMPT))
    assert isinstance(streamed[-1], Person)
    as_dict = model.with_structured_output(Person.model_json_schema(), method=method).invoke(PROMPT)
    assert isinstance(as_dict["age"], int)
    raw = model.with_structured_output(Person, method=method, include_raw=True).invoke(PROMPT)
    assert raw["parsing_error"] is None and isinstance(raw["parsed"], Person)
strict = model.with_structured_output(Person, method="json_schema", strict=True).invoke(PROMPT)
assert isinstance(strict, Person)

message = model.bind_tools([weather], tool_choice="weather").invoke(PROMPT)
assert message.tool_calls and all(call["name"] == "weather" for call in message.tool_calls)
assert all(call["args"]["unit"] in ("C", "F") and type(call["args"]["days"]) is int for call in message.tool_calls)
assert not message.invalid_tool_calls
seen["tools"] = [call["args"] for call in message.tool_calls]

chunks = list(model.stream(PROMPT))
assert len(chunks) > 1 and "".join(chunk.text for chunk in chunks)
seen["stream"] = len(chunks)
whole = None
for chunk in model.bind_tools([weather], tool_choice="any").stream(PROMPT):
    whole = chunk if whole is None else whole + chunk
assert whole.tool_calls and not whole.invalid_tool_calls
seen["stream of tools"] = len(whole.tool_calls)

responses = ChatOpenAI(
    model="demo", base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0, use_responses_api=True
)
person = responses.with_structured_output(Person, method="json_schema").invoke(PROMPT)
assert isinstance(person, Person)
seen["responses"] = person.model_dump()
print(json.dumps(seen))
