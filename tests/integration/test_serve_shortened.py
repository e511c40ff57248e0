"""What a server says of an answer that ``max_tokens`` has squeezed, asked by OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from hf_guided import demo
from tests.integration.test_shortened import PROMPT, Person
from tests.serving import client, serving

CHAT: list[Any] = [{"role": "user", "content": PROMPT}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": Person.model_json_schema()}}
ROOM, LITTLE = 100, 20  # tokens


@pytest.fixture(scope="module", params=[False, True], ids=["one by one", "shared batches"])
def api(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with serving(continuous_batching=request.param) as url, client(url) as found:
        yield found


@pytest.fixture(scope="module", params=[False, True], ids=["one by one", "shared batches"])
def lenient(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with serving(continuous_batching=request.param, valid_is_stop=True) as url, client(url) as found:
        yield found


def chat(api: openai.OpenAI, *, stream: bool, **asked: Any) -> tuple[str, str, bool]:
    """(text, finish reason, shortened) of a chat completion."""
    given = {"model": "demo", "messages": CHAT, "temperature": 0, **asked}
    if not stream:
        [choice] = api.chat.completions.create(**given).choices
        return choice.message.content or "", choice.finish_reason, choice.model_extra["hf_guided"]["shortened"]
    choices = [chunk.choices[0] for chunk in api.chat.completions.create(**given, stream=True)]
    own = [choice.model_extra["hf_guided"] for choice in choices if "hf_guided" in choice.model_extra]
    assert len(own) == 1 and choices[-1].model_extra["hf_guided"] == own[0]
    return "".join(choice.delta.content or "" for choice in choices), choices[-1].finish_reason, own[0]["shortened"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_that_lost_content_ends_with_length(api: openai.OpenAI, stream: bool) -> None:
    text, reason, shortened = chat(api, stream=stream, response_format=SCHEMA, max_tokens=LITTLE)
    assert (reason, shortened) == ("length", True)
    assert Person.model_validate_json(text).email != "daria@laurel.example"
    text, reason, shortened = chat(api, stream=stream, response_format=SCHEMA, max_tokens=ROOM)
    assert (reason, shortened) == ("stop", False)
    assert Person.model_validate_json(text).email == "daria@laurel.example"


def test_parse_raises(api: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "demo", "messages": CHAT, "response_format": Person, "temperature": 0}
    with pytest.raises(openai.LengthFinishReasonError):
        api.chat.completions.parse(**asked, max_tokens=LITTLE)
    assert api.chat.completions.parse(**asked, max_tokens=ROOM).choices[0].message.parsed.name == "Daria Pinto"


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_lost_content_is_incomplete(api: openai.OpenAI, stream: bool) -> None:
    form = {"type": "json_schema", "name": "person", "schema": Person.model_json_schema()}
    for limit, status in ((LITTLE, "incomplete"), (ROOM, "completed")):
        given: dict[str, Any] = {"model": "demo", "input": PROMPT, "text": {"format": form}, "temperature": 0}
        if stream:
            events = list(api.responses.create(**given, max_output_tokens=limit, stream=True))
            assert events[-1].type == f"response.{status}"
            response = events[-1].response
        else:
            response = api.responses.create(**given, max_output_tokens=limit)
        reason = None if response.incomplete_details is None else response.incomplete_details.reason
        assert (response.status, reason) == (status, "max_output_tokens" if limit == LITTLE else None)
        assert response.model_extra["hf_guided"] == {"shortened": limit == LITTLE, "thinking_cut": False}


def test_completions_say_it_too(api: openai.OpenAI) -> None:
    asked = {"model": "demo", "prompt": PROMPT, "temperature": 0, "extra_body": {"response_format": SCHEMA}}
    for limit, expected in ((LITTLE, ("length", True)), (ROOM, ("stop", False))):
        [choice] = api.completions.create(**asked, max_tokens=limit).choices
        assert (choice.finish_reason, choice.model_extra["hf_guided"]["shortened"]) == expected
        last = [chunk.choices[0] for chunk in api.completions.create(**asked, max_tokens=limit, stream=True)][-1]
        assert (last.finish_reason, last.model_extra["hf_guided"]["shortened"]) == expected


@pytest.mark.parametrize("stream", [False, True])
def test_valid_is_stop(lenient: openai.OpenAI, stream: bool) -> None:
    text, reason, shortened = chat(lenient, stream=stream, response_format=SCHEMA, max_tokens=LITTLE)
    assert (reason, shortened) == ("stop", True)
    Person.model_validate_json(text)
    form: Any = {"type": "regex", "regex": "[a-z]{40}"}
    assert chat(lenient, stream=stream, response_format=form, max_tokens=3)[1:] == ("length", False), "it was cut"


@pytest.mark.parametrize("stream", [False, True])
def test_white_space_that_is_missing_is_no_loss(api: openai.OpenAI, stream: bool) -> None:
    space = demo.load()[1].encode(" ", add_special_tokens=False)
    asked = {"response_format": {"type": "regex", "regex": "x {1,60}y"}, "logit_bias": {str(space[-1]): 100}}
    text, reason, shortened = chat(api, stream=stream, max_tokens=12, extra_body=asked)
    assert (text[0], text[-1], text[1:-1].strip()) == ("x", "y", "")
    assert (reason, shortened) == ("stop", True)


LONG = {"type": "string", "minLength": 4}


def wants(text: str) -> dict[str, Any]:
    """A model that writes this token wherever it may."""
    return {"logit_bias": {str(demo.load()[1].encode(text, add_special_tokens=False)[-1]): 100}}


@pytest.mark.parametrize("stream", [False, True])
def test_white_space_inside_a_string_is_content(api: openai.OpenAI, stream: bool) -> None:
    schema = {"type": "object", "properties": {"a": LONG}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    text, reason, shortened = chat(api, stream=stream, max_tokens=14, response_format=form, extra_body=wants(" "))
    assert json.loads(text)["a"].count(" ") > 3
    assert (reason, shortened) == ("length", True)


@pytest.mark.parametrize("stream", [False, True])
def test_white_space_between_the_tokens_of_a_format_is_no_loss(api: openai.OpenAI, stream: bool) -> None:
    schema = {"type": "object", "properties": {name: {"const": 1} for name in "ab"}, "required": ["a", "b"]}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    found = []
    for limit in range(10, 14):
        text, reason, shortened = chat(
            api, stream=stream, max_tokens=limit, response_format=form, extra_body=wants("\n")
        )
        if shortened:
            assert json.loads(text) == {"a": 1, "b": 1}
            found.append((limit, text, reason))
    assert found and {reason for *_, reason in found} == {"stop"}, found


@pytest.mark.parametrize("batching", [False, True], ids=["one by one", "shared batches"])
def test_white_space_in_the_arguments_of_a_call(batching: bool) -> None:
    parameters = {"type": "object", "properties": {"q": LONG}, "required": ["q"]}
    tool: Any = {"type": "function", "function": {"name": "look", "parameters": parameters}}
    asked: dict[str, Any] = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    with serving(continuous_batching=batching, tool_format="qwen_3") as url, client(url) as api:
        given: dict[str, Any] = {"model": "demo", "messages": CHAT, "temperature": 0, **asked}
        [choice] = api.chat.completions.create(**given, max_tokens=60, extra_body=wants(" ")).choices
    [call] = choice.message.tool_calls
    assert json.loads(call.function.arguments)["q"].count(" ") > 3
    assert (choice.finish_reason, choice.model_extra["hf_guided"]["shortened"]) == ("length", True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_list_whose_lines_are_missing_has_lost_more_than_white_space(api: openai.OpenAI, stream: bool) -> None:
    line_end = demo.load()[1].encode("\n", add_special_tokens=False)
    form = {"type": "regex", "regex": "[a-z]{1,2}(\\n[a-z]{1,2}){0,40}"}
    asked = {"response_format": form, "logit_bias": {str(line_end[-1]): 100}}
    text, reason, shortened = chat(api, stream=stream, max_tokens=12, extra_body=asked)
    assert text.count("\n") >= 3 and (reason, shortened) == ("length", True)


def test_samples(api: openai.OpenAI) -> None:
    """At random, a sample is shortened only if the limit left less than half."""
    found = {
        chat(api, stream=False, response_format=SCHEMA, max_tokens=limit, seed=1, extra_body={"temperature": 0.7})[1:]
        for limit in (LITTLE, ROOM)
    }
    assert found == {("length", True), ("stop", False)}
