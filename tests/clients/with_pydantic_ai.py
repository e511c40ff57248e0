"""pydantic-ai agents with an output_type: by tools, by the native response_format, in a stream."""

import json
import sys
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

PROMPT = "Daria Pinto is 50 years old."


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    kind: Literal["staff", "guest"]


def age_of(name: Literal["Daria", "Elif"]) -> int:
    """Looks up an age."""
    return len(name)


provider = OpenAIProvider(base_url=f"{sys.argv[1]}/v1", api_key="none")
seen = {}
for make in (OpenAIChatModel, OpenAIResponsesModel):
    model = make("demo", provider=provider, settings={"temperature": 0})
    kind = type(model).__name__
    for output in (Person, ToolOutput(Person), NativeOutput(Person)):
        result = Agent(model, output_type=output, retries=0).run_sync(PROMPT)
        assert isinstance(result.output, Person)
        seen[f"{kind}, {type(output).__name__}"] = result.output.model_dump()
    result = Agent(model, output_type=list[Person], retries=0).run_sync(PROMPT)
    assert all(isinstance(one, Person) for one in result.output)
    seen[f"{kind}, list"] = len(result.output)

    agent = Agent(model, output_type=NativeOutput(Person), tools=[age_of], retries=0)
    result = agent.run_sync(PROMPT)  # the model calls, or answers in the format
    assert isinstance(result.output, Person)
    seen[f"{kind}, a tool beside a format"] = len(result.all_messages())

    with_text = Agent(model, retries=0).run_sync(PROMPT)
    assert isinstance(with_text.output, str)

    agent = Agent(model, output_type=NativeOutput(Person), retries=0)
    stream = agent.run_stream_sync(PROMPT)
    outputs = list(stream.stream_output(debounce_by=None))
    assert outputs and isinstance(outputs[-1], Person)
    seen[f"{kind}, stream"] = len(outputs)
print(json.dumps(seen))
