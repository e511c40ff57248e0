"""``hg.Model``: one prompt, one value."""

from __future__ import annotations

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
        (["a", "b"], {}, "expected one prompt"),
        ([], {}, "expected one prompt"),
        ("a", {"num_return_sequences": 2, "do_sample": True}, "expected one answer, got 2"),
        ("a", {"stream": True}, "stream"),
    ],
)
def test_more_than_one_value_is_refused(
    pair: tuple[Any, Any], prompt: Any, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        hg.Model(*pair)(prompt, ["yes", "no"], **arguments)
