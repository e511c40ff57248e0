"""``hg.Model``: one prompt, one value."""

from __future__ import annotations

import asyncio
import pickle
import re
from typing import Any

import pydantic
import pytest

import hf_guided as hg
from hf_guided import demo

PROMPT = demo.EXAMPLES[0].prompt


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=18, le=99)


class Never(pydantic.BaseModel):
    yes: bool

    @pydantic.field_validator("yes")
    @classmethod
    def refuse(cls, value: bool) -> bool:
        raise ValueError("never good enough")


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


def test_a_value_of_each_kind(pair: tuple[Any, Any]) -> None:
    ask = hg.Model(*pair, do_sample=False)
    [expected] = hg.generate(*pair, PROMPT, Person, do_sample=False)
    assert isinstance(ask(PROMPT, Person), Person) and ask(PROMPT, Person) == expected.value
    assert ask([PROMPT], Person) == expected.value
    assert ask(PROMPT, Person.model_json_schema()).keys() == {"name", "age"}
    assert ask(PROMPT, ["yes", "no"]) in ("yes", "no")
    assert re.fullmatch("[ab]{3}", ask(PROMPT, re.compile("[ab]{3}"))[0])
    assert isinstance(ask(PROMPT, max_new_tokens=4), str), "free text may be cut"
    assert ask(PROMPT, Person | None) is None or isinstance(ask(PROMPT, Person | None), Person)
    assert ask(PROMPT, type(None)) is None, "null is a value"


def test_a_batch_is_a_value_for_each_prompt(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ask = hg.Model(*pair, do_sample=False)
    prompts = [example.prompt for example in demo.EXAMPLES[:3]]
    results = hg.generate(*pair, prompts, [Person, ["yes", "no"], None], do_sample=False, max_new_tokens=60)
    batch = ask.batch(prompts, [Person, ["yes", "no"], None], max_new_tokens=60)
    assert batch == [result.value for result in results] and isinstance(batch[0], Person)
    assert ask.batch(prompts[0], Person) == batch[:1] and ask.batch([], Person) == []
    chat = [{"role": "user", "content": prompts[0]}]
    monkeypatch.setattr(pair[1], "chat_template", "{% for one in messages %}{{ one.content }}{% endfor %}")
    assert ask.batch([chat, chat], Person) == batch[:1] * 2 and ask(chat, Person) == batch[0]
    with pytest.raises(hg.NoValue, match="never good enough"):
        ask.batch(prompts, [Person, Never, Person])
    with pytest.raises(hg.InvalidArgument, match="expected 2 answers, got 4"):
        ask.batch(prompts[:2], ["yes", "no"], num_return_sequences=2, do_sample=True)


def test_calls_of_one_event_loop(pair: tuple[Any, Any]) -> None:
    ask = hg.Model(*pair, do_sample=False)

    async def both() -> list[Any]:
        return await asyncio.gather(ask.acall(PROMPT, Person), ask.acall(PROMPT, ["yes", "no"]))

    assert asyncio.run(both()) == [ask(PROMPT, Person), ask(PROMPT, ["yes", "no"])]
    with pytest.raises(hg.NoValue):
        asyncio.run(ask.acall(PROMPT, Never))
    with pytest.raises(hg.InvalidArgument, match="expected one prompt"):
        asyncio.run(ask.acall(["a", "b"], Person))
    with pytest.raises(hg.InvalidArgument, match="stream"):
        asyncio.run(ask.acall("a", Person, stream=True))


def test_arguments_of_a_call_go_over_those_of_the_model(pair: tuple[Any, Any]) -> None:
    spent: list[hg.SessionStats] = []
    ask = hg.Model(*pair, do_sample=False, stats=spent.append, max_new_tokens=1)
    with pytest.raises(hg.BudgetTooSmall):
        ask(PROMPT, Person)
    assert isinstance(ask(PROMPT, Person, max_new_tokens=60), Person) and len(spent) == 1
    with pytest.raises(hg.UnknownArgument, match="did you mean max_new_tokens"):
        hg.Model(*pair, max_new_token=3)(PROMPT, Person)


def test_no_value_is_an_error_with_the_result(pair: tuple[Any, Any]) -> None:
    ask = hg.Model(*pair, do_sample=False)
    with pytest.raises(hg.NoValue, match="(?s)could not be read: ValidationError: .*never good enough") as raised:
        ask(PROMPT, Never)
    assert raised.value.result.finish_reason == "stop" and raised.value.result.text
    assert isinstance(raised.value, hg.GenerationError)
    assert pickle.loads(pickle.dumps(raised.value)).result.text == raised.value.result.text
    with pytest.raises(hg.NoValue, match="cut after 3 tokens; raise max_new_tokens") as raised:
        ask(PROMPT, re.compile("a{300}"), max_new_tokens=400, stop_strings=["aaa"])
    assert raised.value.result.finish_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "arguments", "says"),
    [
        (["a", "b"], {}, "expected one prompt, got a list of 2"),
        ([], {}, "expected one prompt, got a list of 0"),
        ("a", {"num_return_sequences": 2, "do_sample": True}, "expected one answer, got 2"),
        ("a", {"stream": True}, "stream"),
    ],
)
def test_more_than_one_value_is_refused(
    pair: tuple[Any, Any], prompt: Any, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        hg.Model(*pair)(prompt, ["yes", "no"], **arguments)


def test_stream_false_is_what_it_does_anyway(pair: tuple[Any, Any]) -> None:
    assert hg.Model(*pair, stream=False)("a", ["yes"], do_sample=False) == "yes"
    assert hg.Model(*pair)("a", ["yes"], do_sample=False, stream=False) == "yes"
