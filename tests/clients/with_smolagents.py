"""smolagents' model for OpenAI-style servers, and its agents: response_format, tools, streams."""

import json

from checks import PROMPT, STREAM, URL, Person, check
from smolagents import ChatMessage, CodeAgent, MessageRole, OpenAIModel, ToolCallingAgent, tool
from smolagents.models import CODEAGENT_RESPONSE_FORMAT

CHAT = [ChatMessage(role=MessageRole.USER, content=PROMPT)]
FORM = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
model = OpenAIModel("demo", api_base=URL, api_key="none", max_tokens=200, temperature=0)


@tool
def weather(days: int) -> str:
    """Tell the weather.

    Args:
        days: how many days ahead.
    """
    return f"sun for {days} days"


@check()
def text():
    answer = model.generate(CHAT)
    assert isinstance(answer.content, str) and answer.token_usage.output_tokens


@check(**STREAM)
def a_format(stream):
    if stream:
        text = "".join(delta.content or "" for delta in model.generate_stream(CHAT, response_format=FORM))
    else:
        text = model.generate(CHAT, response_format=FORM).content
    return Person.model_validate_json(text, strict=True).model_dump()


@check()
def a_format_and_a_stop_sequence():
    assert "e" not in model.generate(CHAT, stop_sequences=["e"], response_format=FORM).content


@check()
def tools():
    calls = model.generate(CHAT, tools_to_call_from=[weather]).tool_calls
    assert calls and all(call.function.name == "weather" for call in calls)
    assert all(isinstance(json.loads(call.function.arguments)["days"], int) for call in calls)
    return len(calls)


@check()
def an_agent_with_tools():
    agent = ToolCallingAgent(tools=[weather], model=model, max_steps=1, verbosity_level=0)
    agent.run("What is the weather?")
    step = agent.memory.steps[1]
    assert step.error is None, step.error
    return [call.name for call in step.tool_calls]


@check()
def an_agent_that_writes_code():
    answer = model.generate(CHAT, response_format=CODEAGENT_RESPONSE_FORMAT)
    assert json.loads(answer.content).keys() == {"thought", "code"}
    agent = CodeAgent(tools=[], model=model, max_steps=1, verbosity_level=0, use_structured_outputs_internally=True)
    agent.run("What is 1 + 1?")
    return agent.memory.steps[1].model_output_message.content
