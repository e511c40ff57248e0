"""The server, asked by OpenAI's own client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pydantic
import pytest
import torch

from hf_guided import demo
from hf_guided.serve.options import ServeLimits
from tests.pairs import once_each
from tests.serving import calls_of, client, serving

EXAMPLE = demo.EXAMPLES[0]
CHAT: list[Any] = [{"role": "user", "content": EXAMPLE.prompt}]
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "strict": True, "schema": EXAMPLE.schema}}
WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["unit", "days"],
        "additionalProperties": False,
    },
}
CLOCK = {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS: list[Any] = [{"type": "function", "function": one} for one in (WEATHER, CLOCK)]
# With some other seeds, the limit makes the model leave out content, and the reason is "length".
HOT = {"generation_config": json.dumps({"do_sample": True, "temperature": 4.0, "max_new_tokens": 100}), "seed": 4}


@pytest.fixture(scope="module", params=[False, True], ids=["one by one", "shared batches"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    limits = ServeLimits(max_schema_bytes=20_000, max_request_bytes=400_000)
    with serving(limits=limits, continuous_batching=request.param) as found:
        yield found


# Both ways and both kinds of answer, but not all four together.
IN_TURNS = pytest.mark.parametrize(("url", "stream"), once_each([False, True], [False, True]), indirect=["url"])
IN_OTHER_TURNS = pytest.mark.parametrize(("url", "stream"), once_each([False, True], [True, False]), indirect=["url"])


@pytest.fixture
def api(url: str) -> Iterator[openai.OpenAI]:
    with client(url) as found:
        yield found


def answer(api: openai.OpenAI, *, stream: bool, **asked: Any) -> Any:
    """(text, tool calls as (name, arguments), finish reason) of a chat completion."""
    if not stream:
        [choice] = api.chat.completions.create(model="demo", messages=CHAT, **asked).choices
        return choice.message.content, calls_of([choice.message]), choice.finish_reason
    chunks = list(api.chat.completions.create(model="demo", messages=CHAT, stream=True, **asked))
    assert len({chunk.id for chunk in chunks}) == 1
    deltas = [chunk.choices[0].delta for chunk in chunks]
    text = "".join(delta.content or "" for delta in deltas)
    return text, calls_of(deltas), chunks[-1].choices[0].finish_reason


def plain_text() -> str:
    """What transformers writes when it is left alone."""
    model, tokenizer = demo.load()
    inputs = tokenizer(EXAMPLE.prompt, return_tensors="pt")
    output = model.generate(inputs["input_ids"], max_new_tokens=200, do_sample=False)
    return tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@IN_TURNS
def test_a_free_request_is_answered_as_by_the_model_alone(api, stream):
    text, calls, reason = answer(api, stream=stream, temperature=0)
    assert (text, calls, reason) == (plain_text(), [], "stop")


@IN_OTHER_TURNS
@pytest.mark.parametrize("extra", [{}, HOT], ids=["greedy", "hot"])
def test_json_schema(api, stream, extra):
    text, calls, reason = answer(api, stream=stream, response_format=SCHEMA_FORMAT, extra_body=extra)
    jsonschema.validate(json.loads(text), EXAMPLE.schema)
    assert (calls, reason) == ([], "stop")


@IN_TURNS
def test_other_formats(api, stream):
    def text(**response_format: Any) -> str:
        found, _, reason = answer(api, stream=stream, response_format=response_format, extra_body=HOT)
        assert reason == "stop"
        return found

    assert isinstance(json.loads(text(type="json_object")), dict)
    assert re.fullmatch("[a-f]{3}-[0-9]{2}", text(type="regex", regex="[a-f]{3}-[0-9]{2}"))
    assert text(type="choice", choice=["left", "right"]) in ("left", "right")
    grammar = 'root ::= "(" root ")" | "[" [0-9] "]"'
    assert re.fullmatch(r"(\(*)\[[0-9]\](\)*)", text(type="grammar", grammar=grammar))


def test_an_answer_as_a_pydantic_model(api):
    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=150)

    chat = api.chat.completions.parse(model="demo", messages=CHAT, response_format=Person, extra_body=HOT)
    assert isinstance(chat.choices[0].message.parsed, Person)
    response = api.responses.parse(model="demo", input=EXAMPLE.prompt, text_format=Person)
    assert isinstance(response.output_parsed, Person)
    with api.chat.completions.stream(model="demo", messages=CHAT, response_format=Person) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)


def check_calls(calls: list[tuple[str, str]]) -> set[str]:
    parameters = {one["name"]: one["parameters"] for one in (WEATHER, CLOCK)}
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), parameters[name])
    return {name for name, _ in calls}


@IN_OTHER_TURNS
def test_tools(api, stream):
    asked: dict[str, Any] = {"tools": TOOLS, "stream": stream, "extra_body": HOT, "parallel_tool_calls": False}
    _, calls, reason = answer(api, tool_choice="required", **asked)
    assert (len(calls), reason) == (1, "tool_calls")
    assert check_calls(calls) <= {"get_weather", "get_time"}
    named = {"type": "function", "function": {"name": "get_weather"}}
    _, calls, reason = answer(api, tool_choice=named, **asked)
    assert (len(calls), reason, check_calls(calls)) == (1, "tool_calls", {"get_weather"})
    _, calls, _ = answer(api, tool_choice="auto", **asked)
    check_calls(calls)
    text, calls, _ = answer(api, tool_choice="none", response_format=SCHEMA_FORMAT, **asked)
    jsonschema.validate(json.loads(text), EXAMPLE.schema)
    assert calls == []


SMALL = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["sure", "days"],
    "additionalProperties": False,
}


def biased(seed: int) -> dict[str, Any]:
    """Fields of a request, by which every other answer of the demo model begins with the mark of a call."""
    vocabulary = demo.load()[1].get_vocab()
    marks = {str(token_id): 100 for text, token_id in vocabulary.items() if text.startswith("<")}
    return {**HOT, "seed": seed, **({"logit_bias": marks} if seed % 2 else {})}


@IN_TURNS
def test_tools_beside_a_format(api, stream):
    """The model calls, or answers in the format."""
    response_format = {"type": "json_schema", "json_schema": {"name": "small", "schema": SMALL}}
    asked: dict[str, Any] = {"tools": TOOLS, "response_format": response_format, "stream": stream}
    seen = set()
    for seed in range(8):
        text, calls, reason = answer(api, **asked, extra_body=biased(seed))
        if reason == "length":
            continue
        seen.add(reason)
        if calls:
            assert (text or "", reason) == ("", "tool_calls") and check_calls(calls)
        else:
            jsonschema.validate(json.loads(text), SMALL)
            assert reason == "stop"
    assert seen == {"stop", "tool_calls"}
    _, calls, _ = answer(api, tool_choice="required", parallel_tool_calls=False, **asked, extra_body=HOT)
    assert len(calls) == 1 and check_calls(calls)
    text, calls, _ = answer(api, tool_choice="none", **asked, extra_body=HOT)
    assert not calls
    jsonschema.validate(json.loads(text), SMALL)


def test_tools_beside_the_format_of_a_response(api):
    tools = [{"type": "function", **function} for function in (WEATHER, CLOCK)]
    text_format: Any = {"format": {"type": "json_schema", "name": "small", "schema": SMALL}}
    asked: dict[str, Any] = {"model": "demo", "input": EXAMPLE.prompt, "tools": tools, "text": text_format}
    seen = set()
    for seed in range(8):
        whole = api.responses.create(**asked, extra_body=biased(seed))
        streamed = list(api.responses.create(**asked, stream=True, extra_body=biased(seed)))[-1].response
        for response in (whole, streamed):
            if response.status != "completed":
                continue
            kinds = {item.type for item in response.output}
            seen |= kinds
            if kinds == {"function_call"}:
                assert check_calls([(item.name, item.arguments) for item in response.output])
            else:
                assert kinds == {"message"}
                jsonschema.validate(json.loads(response.output_text), SMALL)
    assert seen == {"message", "function_call"}


LOOSE = {"name": "loose", "parameters": SMALL | {"additionalProperties": {"type": "null"}}, "strict": False}


@pytest.mark.parametrize("enforce", ["all", "strict-only"])
def test_tools_that_are_not_strict(enforce):
    """Frameworks say "strict": false by default; the arguments keep to the schema all the same."""
    valid = 0
    with serving(enforce=enforce) as url, client(url) as api:
        for seed in range(8):
            tools = [{"type": "function", "function": LOOSE}]
            more: dict[str, Any] = {"seed": seed, "extra_body": HOT, "parallel_tool_calls": False}
            _, calls, reason = answer(api, stream=False, tools=tools, tool_choice="required", **more)
            if reason == "tool_calls":
                validator = jsonschema.Draft202012Validator(LOOSE["parameters"])
                valid += validator.is_valid(json.loads(calls[0][1]))
                assert isinstance(json.loads(calls[0][1]), dict)
            else:
                valid += enforce == "all"
    assert (valid == 8) == (enforce == "all")


def test_responses(api):
    text_format: Any = {"type": "json_schema", "name": "record", "schema": EXAMPLE.schema, "strict": True}
    asked: dict[str, Any] = {"model": "demo", "input": EXAMPLE.prompt, "extra_body": HOT}
    response = api.responses.create(text={"format": text_format}, **asked)
    jsonschema.validate(json.loads(response.output_text), EXAMPLE.schema)
    events = list(api.responses.create(text={"format": text_format}, stream=True, **asked))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    jsonschema.validate(json.loads(text), EXAMPLE.schema)
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == text


NO = {"type": "object", "properties": {"a/b": {"type": "array", "items": {"type": "objekt"}}}}
UNIQUE = {"type": "object", "properties": {"c": {"type": "array", "contains": {"const": 1}, "uniqueItems": True}}}
DEEP: dict[str, Any] = {}
for _ in range(400):
    DEEP = {"items": DEEP}


def json_schema(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("response_format", "code", "pointers"),
    [
        (json_schema(NO), "invalid_constraint", ["/properties/a~1b/items/type"]),
        (json_schema({"anyOf": [{"$ref": "#/$defs/no"}]}), "invalid_constraint", ["/anyOf/0"]),
        (json_schema({"not": 5}), "invalid_constraint", ["/not"]),
        (json_schema(UNIQUE), "unsupported_constraint", ["/properties/c/uniqueItems"]),
        (json_schema(False), "invalid_constraint", []),
        (json_schema(DEEP), "too_deep", []),
        (json_schema({"enum": ["x" * 20_000]}), "constraint_too_large", []),
        ({"type": "json_schema"}, "invalid_constraint", []),
        ({"type": "regex", "regex": "("}, "invalid_constraint", []),
        ({"type": "no such type"}, "invalid_constraint", []),
        ("json", "invalid_value", []),
    ],
)
def test_what_cannot_be_promised_is_refused(api, response_format, code, pointers, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        api.chat.completions.create(model="demo", messages=CHAT, response_format=response_format, stream=stream)
    assert isinstance(caught.value.body, dict)
    assert caught.value.code == code
    assert str(caught.value.param).partition(".")[0] == "response_format"
    assert caught.value.body["pointers"] == pointers
    assert caught.value.body["message"]


def test_other_refusals(api):
    def refused(**asked: Any) -> tuple[str | None, str | None]:
        with pytest.raises(openai.BadRequestError) as caught:
            api.chat.completions.create(model="demo", messages=CHAT, **asked)
        return caught.value.param, caught.value.code

    assert refused(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "no"}})[0] == "tool_choice"
    assert refused(tool_choice="required")[0] == "tool_choice"
    assert refused(tools=[{"type": "function", "function": {}}]) == ("tools.0.function.name", "missing_field")
    two = {"guided_regex": "a"}
    assert refused(tools=TOOLS, response_format=SCHEMA_FORMAT, extra_body=two)[1] == "invalid_constraint"
    flat: list[Any] = [{"type": "function", **WEATHER}]
    for tools in ([], flat):
        with pytest.raises(openai.BadRequestError) as caught:
            api.responses.create(
                model="demo",
                input="x",
                tools=tools,
                text={"format": {"type": "json_schema", "name": "x", "schema": NO}},
            )
        assert isinstance(caught.value.body, dict)
        assert (caught.value.param, caught.value.body["pointers"]) == ("text.format", ["/properties/a~1b/items/type"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_ends_with_its_last_token_is_not_called_cut(api, stream):
    asked: dict[str, Any] = {
        "response_format": {"type": "regex", "regex": "[a-z]{6}"},
        "stream": stream,
        "temperature": 0,
    }
    answers = [answer(api, max_tokens=n, **asked) for n in range(1, 9)]
    reasons = [reason for _, _, reason in answers]
    smallest = reasons.index("stop")
    assert reasons == ["length"] * smallest + ["stop"] * (8 - smallest)
    for text, _, reason in answers:
        assert re.fullmatch("[a-z]{6}" if reason == "stop" else "[a-z]{0,6}", text)


def test_a_strict_server_refuses_a_budget_that_is_too_small():
    with serving(strict_budget=True) as url, client(url) as api, pytest.raises(openai.BadRequestError) as caught:
        api.chat.completions.create(model="demo", messages=CHAT, response_format=SCHEMA_FORMAT, max_tokens=5)
    assert (caught.value.param, caught.value.code) == ("response_format", "budget_too_small")


def test_requests_that_are_too_large(api, url):
    import httpx2

    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "x" * 500_000}]}).encode()
    declared = httpx2.post(f"{url}/v1/chat/completions", content=body)
    in_chunks = httpx2.post(
        f"{url}/v1/chat/completions", content=(body[i : i + 50_000] for i in range(0, 500_000, 50_000))
    )
    assert [found.status_code for found in (declared, in_chunks)] == [413, 413]
    assert declared.json() == in_chunks.json()
    nested = httpx2.post(f"{url}/v1/chat/completions", content='{"a":' * 60_000)
    assert 400 <= nested.status_code < 500
    text, _, _ = answer(api, stream=False, response_format=SCHEMA_FORMAT)
    jsonschema.validate(json.loads(text), EXAMPLE.schema)


def test_the_model_that_is_served(api):
    assert [model.id for model in api.models.list()] == ["demo"]
    with pytest.raises(openai.NotFoundError):
        api.chat.completions.create(model="another", messages=CHAT)
    import httpx2

    refused = httpx2.post(f"{api.base_url.copy_with(path='/load_model')}", json={"model": "another"})
    assert refused.status_code == 404 and refused.json()["error"]["code"] == "not_found"
    assert api.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError, match="expected the model that is served, 'demo', got 'owner/another'"):
        api.models.retrieve("owner/another")


def test_the_demo_models_chat_is_its_prompt():
    from hf_guided.serve.models import load
    from hf_guided.serve.options import ServeOptions

    tokenizer = load(ServeOptions("demo", device="cpu")).tokenizer
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    assert torch.equal(ids["input_ids"], tokenizer(EXAMPLE.prompt, return_tensors="pt")["input_ids"])
