"""OpenAI's own client: parsed answers, tools, streams, responses."""

import json

import openai
from checks import CHAT, EMAIL, LIMITS, PROMPT, SHORT, URL, WAYS, Person, Weather, check, error_of

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
tool = openai.pydantic_function_tool(Weather)


def chat(stream, messages=CHAT, **asked):
    """The choice of a chat completion, parsed."""
    asked |= {"model": "demo", "messages": messages, "temperature": 0}
    if not stream:
        return client.chat.completions.parse(**asked).choices[0]
    with client.chat.completions.stream(**asked) as events:
        return events.get_final_completion().choices[0]


@check(**WAYS)
def a_format(stream, effort):
    choice = chat(stream, response_format=Person, reasoning_effort=effort)
    assert isinstance(choice.message.parsed, Person) and choice.finish_reason == "stop"
    assert bool(getattr(choice.message, "reasoning_content", "")) == (effort != "none")
    return choice.message.parsed.model_dump()


@check(**WAYS, choice=("auto", "required", {"type": "function", "function": {"name": "Weather"}}))
def tools_beside_a_format(stream, effort, choice):
    asked = {"tools": [tool], "tool_choice": choice, "parallel_tool_calls": False, "reasoning_effort": effort}
    found = chat(stream, response_format=Person, **asked)
    calls = [call.function.parsed_arguments for call in found.message.tool_calls or []]
    assert all(isinstance(call, Weather) for call in calls)
    assert calls or (choice == "auto" and isinstance(found.message.parsed, Person))
    assert found.finish_reason == ("tool_calls" if calls else "stop")
    return [call.model_dump() for call in calls]


@check()
def the_turn_after_a_call():
    asked = {"model": "demo", "tools": [tool], "parallel_tool_calls": False}
    [choice] = client.chat.completions.create(messages=CHAT, tool_choice="required", **asked).choices
    [call] = choice.message.tool_calls
    answered = [*CHAT, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    [choice] = client.chat.completions.create(messages=answered, tool_choice="none", **asked).choices
    assert isinstance(choice.message.content, str) and not choice.message.tool_calls


@check(**LIMITS)
def a_token_limit(stream, tokens):
    def ask():
        return chat(stream, response_format=Person, max_tokens=tokens)

    if tokens == SHORT:
        [choice] = error_of(openai.LengthFinishReasonError, ask).completion.choices
        assert stream or choice.hf_guided["shortened"]  # its streams leave out what OpenAI does not have
        return Person.model_validate_json(choice.message.content).model_dump()
    assert ask().message.parsed.email == EMAIL


@check(**WAYS)
def a_response(stream, effort):
    asked = {"model": "demo", "input": PROMPT, "text_format": Person, "reasoning": {"effort": effort}}
    if stream:
        with client.responses.stream(**asked) as events:
            kinds = [event.type for event in events]
            response = events.get_final_response()
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    else:
        response = client.responses.parse(**asked)
    assert isinstance(response.output_parsed, Person) and response.status == "completed"
    assert (response.output[0].type == "reasoning") == (effort != "none")
    return response.output_parsed.model_dump()


@check(tokens=LIMITS["tokens"])
def a_token_limit_of_a_response(tokens):
    response = client.responses.parse(
        model="demo", input=PROMPT, text_format=Person, max_output_tokens=tokens, temperature=0
    )
    assert response.status == ("incomplete" if tokens == SHORT else "completed")
    assert (response.output_parsed.email == EMAIL) == (tokens != SHORT)


@check()
def a_response_with_tools():
    flat = {"type": "function", "name": "Weather", "parameters": Weather.model_json_schema(), "strict": True}
    response = client.responses.create(model="demo", input=PROMPT, tools=[flat], tool_choice="required")
    calls = [item for item in response.output if item.type == "function_call"]
    assert calls and all(Weather.model_validate_json(call.arguments) for call in calls)
    return len(calls)


@check()
def tools_that_are_not_strict():
    """Objects that do not close themselves may have more members; those that are declared are valid."""
    function = {"name": "weather", "parameters": Weather.model_json_schema(), "strict": False}
    asked = {"tools": [{"type": "function", "function": function}], "tool_choice": "required", "max_tokens": 150}
    calls = [
        json.loads(call.function.arguments)
        for seed in range(10)
        for call in client.chat.completions.create(
            model="demo", messages=CHAT, temperature=1.5, seed=seed, parallel_tool_calls=False, **asked
        )
        .choices[0]
        .message.tool_calls
    ]
    assert len(calls) == 10 and all(Weather.model_validate(call, strict=True) for call in calls)
    return sorted(map(len, calls))


@check()
def models_and_errors():
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").id == "demo"
    schemaless = {"model": "demo", "messages": CHAT, "response_format": {"type": "json_schema"}}
    return error_of(openai.BadRequestError, lambda: client.chat.completions.create(**schemaless)).code
