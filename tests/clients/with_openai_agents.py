"""openai-agents: tools beside an output type, in chats and in responses."""

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from checks import PROMPT, URL, WAYS, Person, check, weather
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)


@check(api=(OpenAIChatCompletionsModel, OpenAIResponsesModel), choice=(None, "required"), **WAYS)
async def tools_beside_an_output_type(api, choice, stream, effort):
    settings = ModelSettings(
        temperature=0, tool_choice=choice, parallel_tool_calls=False, reasoning=Reasoning(effort=effort)
    )
    tools = [function_tool(weather)]
    agent = Agent(name="a", model=api("demo", client), tools=tools, output_type=Person, model_settings=settings)
    if stream:
        result = Runner.run_streamed(agent, PROMPT, max_turns=5)
        assert [event async for event in result.stream_events()]
    else:
        result = await Runner.run(agent, PROMPT, max_turns=5)
    kinds = [type(item).__name__ for item in result.new_items]
    assert isinstance(result.final_output, Person)
    assert choice is None or "ToolCallItem" in kinds  # after a call, the agent lets the model choose
    assert ("ReasoningItem" in kinds) == (effort != "none")
    return kinds
