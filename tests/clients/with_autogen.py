"""autogen's assistant: tools beside an output type, and tools that are not strict, as its own are."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient
from checks import PROMPT, STREAM, URL, WAYS, Person, Weather, check, weather

INFO = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True, "family": "unknown"}


def client(**asked):
    return OpenAIChatCompletionClient(
        model="demo", base_url=URL, api_key="none", max_retries=0, model_info=INFO, parallel_tool_calls=False, **asked
    )


def tool(strict):
    return FunctionTool(weather, "Looks up the weather.", strict=strict)


async def create(stream, model, **asked):
    """What the model answers to the prompt."""
    messages = [UserMessage(content=PROMPT, source="user")]
    if not stream:
        return await model.create(messages, **asked)
    return [part async for part in model.create_stream(messages, **asked)][-1]


@check(**WAYS)
async def tools_beside_an_output_type(stream, effort):
    agent = AssistantAgent(
        "a",
        client(temperature=0, reasoning_effort=effort),
        tools=[tool(strict=True)],
        output_content_type=Person,
        model_client_stream=stream,
    )
    result = await agent.run(task=PROMPT)
    assert isinstance(result.messages[-1].content, Person)
    kinds = [type(message).__name__ for message in result.messages]
    assert ("ThoughtEvent" in kinds) == (effort != "none")
    return kinds


@check(**WAYS)
async def a_call_beside_an_output_type(stream, effort):
    model = client(temperature=0, reasoning_effort=effort)
    result = await create(stream, model, tools=[tool(strict=True)], json_output=Person, tool_choice="required")
    return [Weather.model_validate_json(call.arguments, strict=True).model_dump() for call in result.content]


@check(**STREAM)
async def tools_that_are_not_strict(stream):
    calls = []
    for seed in range(10):
        model = client(temperature=1.5, seed=seed)
        calls += (await create(stream, model, tools=[tool(strict=False)], tool_choice="required")).content
    assert len(calls) >= 10 and all(Weather.model_validate_json(call.arguments, strict=True) for call in calls)
    return len(calls)
