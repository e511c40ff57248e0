"""openai-agents with tools and an output_type: chats and responses, whole and in a stream, with a call or without."""

import asyncio
import json
import sys
from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

PROMPT = "Daria Pinto is 50 years old."


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)


@function_tool
def age_of(name: Literal["Daria", "Elif"]) -> int:
    """Looks up an age."""
    return len(name)


async def main() -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none")
    seen = {}
    for make in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        model = make("demo", client)
        for choice in (None, "required"):  # after a call, the agent lets the model choose
            settings = ModelSettings(temperature=0, tool_choice=choice, parallel_tool_calls=False)
            agent = Agent(name="a", model=model, tools=[age_of], output_type=Person, model_settings=settings)
            result = await Runner.run(agent, PROMPT, max_turns=5)
            streamed = Runner.run_streamed(agent, PROMPT, max_turns=5)
            events = [event.type async for event in streamed.stream_events()]
            assert isinstance(result.final_output, Person) and isinstance(streamed.final_output, Person)
            kinds = [type(item).__name__ for item in result.new_items]
            assert kinds[0] == ("MessageOutputItem" if choice is None else "ToolCallItem")
            seen[f"{make.__name__}, {choice}"] = kinds
            seen[f"{make.__name__}, {choice}, stream"] = len(events)
    print(json.dumps(seen))


asyncio.run(main())
