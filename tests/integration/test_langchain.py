"""The chat model for LangChain, by LangChain's own tests for chat models, and by the values of ``hg.generate``."""

from __future__ import annotations

import pytest

pytest.importorskip("langchain_tests", reason="needs LangChain: make test-frameworks")

import asyncio
import json
import re
from functools import reduce
from operator import add
from typing import Any, Literal

import pydantic
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

import hf_guided as hg
from hf_guided import demo
from hf_guided.integrations.langchain import ChatHFGuided, as_chat

TEMPLATE = (
    "{% if tools %}Tools: {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<{{ m.role }}> {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n{% endfor %}<assistant> {# <tool_call> #}"
)


def loaded() -> dict[str, Any]:
    model, tokenizer = demo.load()
    tokenizer.chat_template = TEMPLATE
    return {"model": model, "tokenizer": tokenizer, "tool_format": "qwen_3", "max_new_tokens": 400}


class TestUnits(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[ChatHFGuided]:
        return ChatHFGuided

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return loaded()

    @pytest.mark.xfail(strict=True, reason="the model is an object, which no argument of a call replaces")
    def test_standard_params_model_override(self, *arguments: Any) -> None:
        super().test_standard_params_model_override(*arguments)


SMALL = pytest.mark.xfail(strict=True, reason="the demo model is too small to choose the right words")


class TestCalls(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[ChatHFGuided]:
        return ChatHFGuided

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return loaded()

    @SMALL
    def test_tool_calling(self, model: Any) -> None:
        super().test_tool_calling(model)

    @SMALL
    async def test_tool_calling_async(self, model: Any) -> None:
        await super().test_tool_calling_async(model)

    @SMALL
    def test_agent_loop(self, model: Any) -> None:
        super().test_agent_loop(model)

    @SMALL
    def test_unicode_tool_call_integration(self, model: Any, **options: Any) -> None:
        super().test_unicode_tool_call_integration(model, **options)

    @pytest.mark.xfail(strict=True, reason="classes of Pydantic 1 are refused, with an error that says so")
    def test_structured_output_pydantic_2_v1(self, model: Any) -> None:
        super().test_structured_output_pydantic_2_v1(model)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=18, le=99)


class Never(pydantic.BaseModel):
    yes: bool

    @pydantic.field_validator("yes")
    @classmethod
    def refuse(cls, value: bool) -> bool:
        raise ValueError("never good enough")


def get_weather(city: str, days: Literal[1, 2]) -> str:
    """Looks up the weather.

    Args:
        city: The city.
        days: The number of days.
    """
    return f"{days} dry days in {city}"


@pytest.fixture(scope="module")
def chat() -> ChatHFGuided:
    return ChatHFGuided(**loaded())


def test_structured_values_are_those_of_generate(chat: ChatHFGuided) -> None:
    question = [{"role": "user", "content": "Who is it?"}]
    formats = (
        Person,
        Person.model_json_schema(),
        ["yes", "no"],
        re.compile("[ab]{3}"),
        hg.JsonSchema({"type": "integer"}),
    )
    for constraint in formats:
        [result] = hg.generate(chat.model, chat.tokenizer, question, constraint, do_sample=False, max_new_tokens=400)
        value = chat.with_structured_output(constraint).invoke("Who is it?")
        assert value == result.value if not isinstance(constraint, re.Pattern) else value[0] == result.value[0]
        assert asyncio.run(chat.with_structured_output(constraint).ainvoke("Who is it?")) is not None
    *_, last = chat.with_structured_output(Person.model_json_schema()).stream("Who is it?")
    [result] = hg.generate(chat.model, chat.tokenizer, question, Person, do_sample=False, max_new_tokens=400)
    assert last == json.loads(result.text)
    assert list(chat.with_structured_output(Person).stream("Who is it?")) == [result.value]
    for kind in (Person | None, list[Person]):  # no classes, but Python types: no dicts before the value
        values = list(chat.with_structured_output(kind).stream("Who is it?"))
        [result] = hg.generate(chat.model, chat.tokenizer, question, kind, do_sample=False, max_new_tokens=400)
        assert values == ([] if result.value is None else [result.value])  # LangChain passes no None on
    function = {"name": "person", "parameters": Person.model_json_schema()}
    for schema in (function, {"type": "function", "function": function}):
        assert chat.with_structured_output(schema).invoke("Who is it?") == last


def test_a_call_may_be_streamed_by_an_argument(chat: ChatHFGuided) -> None:
    plain = chat.invoke("Hello", max_tokens=5)
    for stream in (True, False):
        assert chat.invoke("Hello", max_tokens=5, stream=stream).text == plain.text


def test_an_answer_without_a_value_is_an_error(chat: ChatHFGuided) -> None:
    with pytest.raises(OutputParserException, match="never good enough"):
        chat.with_structured_output(Never).invoke("Yes?")
    told = chat.with_structured_output(Never, include_raw=True).invoke("Yes?")
    assert told["parsed"] is None and "never good enough" in str(told["parsing_error"]) and told["raw"].text
    with pytest.raises(OutputParserException, match="did not finish: length; raise max_tokens"):
        chat.with_structured_output(re.compile("a{300}")).invoke("a", stop=["aaa"])
    forbidden = {"suppress_tokens": list(range(3, 2048))}
    with pytest.warns(UserWarning), pytest.raises(OutputParserException, match="did not finish: (?!.*max_tokens)"):
        ChatHFGuided(**loaded(), generate_kwargs=forbidden).with_structured_output(["yes", "no"]).invoke("Yes?")
    with pytest.raises(OutputParserException, match="never good enough"):
        list(chat.with_structured_output(Never).stream("Yes?"))
    with pytest.raises(hg.BudgetTooSmall):
        chat.with_structured_output(Person).invoke("Who?", max_tokens=2)
    with pytest.raises(hg.InvalidArgument, match="no such argument: includeraw"):
        chat.with_structured_output(Person, includeraw=True)


def test_tools_beside_a_format(chat: ChatHFGuided) -> None:
    """The model calls, or answers in the format."""
    import torch

    kinds = set()
    for seed in range(12):
        torch.manual_seed(seed)
        bound = chat.bind_tools([get_weather], parallel_tool_calls=False)
        answer = bound.invoke("Rain?", response_format=Person, temperature=2.0)
        kinds.add(bool(answer.tool_calls))
        if answer.tool_calls:
            assert answer.tool_calls[0]["args"]["days"] in (1, 2) and not answer.text
        else:
            Person.model_validate_json(answer.text)
    assert kinds == {True, False}


def test_calls_are_valid_and_go_back_into_the_chat(chat: ChatHFGuided) -> None:
    bound = chat.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False)
    answer = bound.invoke("Rain?")
    [call] = answer.tool_calls
    assert call["name"] == "get_weather" and call["args"]["days"] in (1, 2) and isinstance(call["args"]["city"], str)
    streamed = reduce(add, bound.stream("Rain?"))
    assert [one["args"] for one in streamed.tool_calls] == [call["args"]] and not streamed.invalid_tool_calls
    assert streamed.usage_metadata == answer.usage_metadata
    messages = [HumanMessage("Rain?"), answer, ToolMessage("dry", tool_call_id=call["id"])]
    shown = chat.tokenizer.apply_chat_template(as_chat(messages), tokenize=False)
    assert json.dumps(call["args"]["city"])[1:-1] in shown and "<tool> dry" in shown
    prompt = len(chat.tokenizer.apply_chat_template(as_chat(messages))["input_ids"])
    usage = {"input_tokens": prompt, "output_tokens": 5, "total_tokens": prompt + 5}
    assert chat.invoke(messages, max_tokens=5).usage_metadata == usage
    assert not chat.bind_tools([get_weather], tool_choice="none").invoke("Rain?", max_tokens=20).tool_calls


def test_the_model_need_not_call_where_the_choice_is_false(chat: ChatHFGuided) -> None:
    texts = [
        chat.bind_tools([get_weather], tool_choice=choice).invoke("Rain?", max_tokens=8).text
        for choice in (False, None, "auto")
    ]
    assert texts[0] and set(texts) == {texts[0]}


def test_a_described_format_is_a_system_message(chat: ChatHFGuided) -> None:
    described = ChatHFGuided(**loaded(), describe=True)
    said = [SystemMessage(hg.describe(Person)), HumanMessage("Who is it?")]
    expected = chat.with_structured_output(Person, include_raw=True).invoke(said)
    for model in (described, chat.bind(describe=True)):
        answer = model.invoke("Who is it?", response_format=Person)
        assert (answer.text, answer.usage_metadata) == (expected["raw"].text, expected["raw"].usage_metadata)
    plain = chat.invoke("Who is it?", response_format=Person)
    assert plain.usage_metadata["input_tokens"] < answer.usage_metadata["input_tokens"]


def test_a_free_answer_ends_before_its_stop_text(chat: ChatHFGuided) -> None:
    whole = chat.invoke("Hello", max_tokens=30).text
    stop = whole[4:6]
    assert chat.invoke("Hello", max_tokens=30, stop=[stop]).text == whole[: whole.index(stop)]
