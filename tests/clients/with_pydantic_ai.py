"""pydantic-ai agents with an output_type: by tools, by the native response_format, beside tools."""

from checks import PROMPT, URL, WAYS, Person, check, weather
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

APIS = {"api": (OpenAIChatModel, OpenAIResponsesModel)}
provider = OpenAIProvider(base_url=URL, api_key="none")


@check(**APIS, output=(Person, ToolOutput(Person), NativeOutput(Person), list[Person], str))
def an_output(api, output):
    result = Agent(api("demo", provider=provider, settings={"temperature": 0}), output_type=output, retries=0).run_sync(
        PROMPT
    )
    found = result.output if output == list[Person] else [result.output]
    assert all(isinstance(one, str if output is str else Person) for one in found)


@check(**APIS, choice=("auto", "required"), **WAYS)
def tools_beside_a_native_output(api, choice, stream, effort):
    def settings(run):
        first = choice if run.run_step == 1 else "auto"
        return {"temperature": 0, "openai_reasoning_effort": effort, "parallel_tool_calls": False, "tool_choice": first}

    form = {"output_type": NativeOutput(Person), "tools": [weather], "model_settings": settings}
    agent = Agent(api("demo", provider=provider), retries=0, **form)
    if stream:
        result = agent.run_stream_sync(PROMPT)
        outputs = list(result.stream_output(debounce_by=None))
    else:
        result = agent.run_sync(PROMPT)
        outputs = [result.output]
    assert isinstance(outputs[-1], Person)
    kinds = [part.part_kind for message in result.all_messages() for part in message.parts]
    assert choice == "auto" or "tool-return" in kinds
    assert ("thinking" in kinds) == (effort != "none")
    return [len(outputs), kinds]
