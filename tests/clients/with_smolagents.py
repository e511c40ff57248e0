"""smolagents' model for OpenAI-style servers, and its agents: response_format, tools, streams."""

import json
import sys
from typing import Literal

from pydantic import BaseModel, Field
from smolagents import ChatMessage, CodeAgent, MessageRole, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import CODEAGENT_RESPONSE_FORMAT

CHAT = [ChatMessage(role=MessageRole.USER, content="Daria Pinto is 50 years old.")]


class Person(BaseModel):
    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=150)
    kind: Literal["staff", "guest"]


@tool
def weather(days: int) -> str:
    """Tell the weather.

    Args:
        days: how many days ahead.
    """
    return f"sun for {days} days"


FINAL = {"pre_messages": "Answer.", "post_messages": "Now."}
model = OpenAIModel("demo", api_base=f"{sys.argv[1]}/v1", api_key="none", max_tokens=200, temperature=0)
seen = {}

answer = model.generate(CHAT)
assert isinstance(answer.content, str) and answer.token_usage.output_tokens
seen["text"] = answer.content

schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
answer = model.generate(CHAT, response_format=schema)
seen["a schema"] = Person.model_validate_json(answer.content, strict=True).model_dump()

answer = model.generate(CHAT, tools_to_call_from=[weather])
assert answer.tool_calls and all(call.function.name == "weather" for call in answer.tool_calls)
assert all(isinstance(json.loads(call.function.arguments)["days"], int) for call in answer.tool_calls)
seen["tools"] = len(answer.tool_calls)

deltas = list(model.generate_stream(CHAT, response_format=schema))
text = "".join(delta.content or "" for delta in deltas)
seen["stream"] = Person.model_validate_json(text, strict=True).model_dump()

answer = model.generate(CHAT, stop_sequences=["e"], response_format=schema)
assert "e" not in answer.content
seen["stop"] = answer.content

# The demo model reads 512 tokens: agents get shorter instructions than their own.
agent = ToolCallingAgent(tools=[weather], model=model, max_steps=1, verbosity_level=0)
agent.prompt_templates["system_prompt"] = "Call a tool."
agent.prompt_templates["final_answer"] = FINAL
agent.run("What is the weather?")
assert agent.memory.steps[1].error is None, agent.memory.steps[1].error
seen["agent with tools"] = [call.name for call in agent.memory.steps[1].tool_calls]

answer = model.generate(CHAT, response_format=CODEAGENT_RESPONSE_FORMAT)
assert json.loads(answer.content).keys() == {"thought", "code"}
agent = CodeAgent(tools=[], model=model, max_steps=1, verbosity_level=0, use_structured_outputs_internally=True)
agent.prompt_templates["system_prompt"] = "Write code."
agent.prompt_templates["final_answer"] = FINAL
agent.run("What is 1 + 1?")
assert agent.memory.steps[1].model_output_message.content.startswith("{")
seen["agent that writes code"] = agent.memory.steps[1].model_output_message.content
print(json.dumps(seen))
