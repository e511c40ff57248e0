"""What type checkers read of ``hg.generate``: for tests/unit/test_typing.py, which gives this file to them.

Nothing here runs. A line that ends in ``# error`` has to be one for each checker, and no other line may be.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Annotated, Any, Literal, TypedDict

import pydantic
from typing_extensions import assert_type

import hf_guided as hg


class Person(pydantic.BaseModel):
    name: str


@dataclasses.dataclass
class Point:
    x: int


class Movie(TypedDict):
    title: str


class Color(enum.Enum):
    RED = "red"


def results(model: Any, tokenizer: Any, anything: Any, kind: type[Person]) -> None:
    assert_type(hg.generate(model, tokenizer, "x", Person), list[hg.GuidedResult[Person]])
    assert_type(hg.generate(model, tokenizer, ["x"], kind), list[hg.GuidedResult[Person]])
    assert_type(hg.generate(model, tokenizer, "x", Point), list[hg.GuidedResult[Point]])
    assert_type(hg.generate(model, tokenizer, "x", Movie), list[hg.GuidedResult[Movie]])
    assert_type(hg.generate(model, tokenizer, "x", Color), list[hg.GuidedResult[Color]])
    assert_type(hg.generate(model, tokenizer, "x", int), list[hg.GuidedResult[int]])
    assert_type(hg.generate(model, tokenizer, "x", list[Person]), list[hg.GuidedResult[list[Person]]])
    assert_type(hg.generate(model, tokenizer, "x", dict[str, int]), list[hg.GuidedResult[dict[str, int]]])
    assert_type(
        hg.generate(model, tokenizer, "x", pydantic.TypeAdapter(list[Point])), list[hg.GuidedResult[list[Point]]]
    )
    assert_type(hg.generate(model, tokenizer, "x", re.compile("a+")), list[hg.GuidedResult[re.Match[str]]])
    assert_type(hg.generate(model, tokenizer, "x", hg.Regex("a+")), list[hg.GuidedResult[re.Match[str]]])
    assert_type(hg.generate(model, tokenizer, "x", ["yes", "no"]), list[hg.GuidedResult[str]])
    assert_type(hg.generate(model, tokenizer, "x", ("yes", "no")), list[hg.GuidedResult[str]])
    assert_type(hg.generate(model, tokenizer, "x", hg.Choice(["yes", "no"])), list[hg.GuidedResult[str]])
    assert_type(hg.generate(model, tokenizer, "x", hg.Choice(Color)), list[hg.GuidedResult[Color]])
    assert_type(hg.generate(model, tokenizer, "x", hg.Choice([Color.RED])), list[hg.GuidedResult[Color]])
    assert_type(hg.generate(model, tokenizer, "x", hg.Choice((Color.RED,))), list[hg.GuidedResult[Color]])
    assert_type(hg.Model(model, tokenizer)("x", hg.Choice(Color)), Color)
    assert_type(hg.Choice(Color).parse("red"), Color)
    assert_type(hg.generate(model, tokenizer, "x", hg.Grammar("start: /a+/")), list[hg.GuidedResult[str]])
    assert_type(hg.generate(model, tokenizer, "x", None), list[hg.GuidedResult[str]])
    assert_type(hg.generate(model, tokenizer, "x", hg.ToolCalls([])), list[hg.GuidedResult[hg.ToolAnswer]])
    # No type is known.
    assert_type(hg.generate(model, tokenizer, "x", {"type": "object"}), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, "x", '{"type": "object"}'), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, "x", hg.JsonSchema(Person)), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, "x", hg.JsonObject()), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, ["x", "y"], [Person, None]), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, "x", Literal["a", "b"]), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, "x", Person | None), list[hg.GuidedResult[Any]])
    assert_type(hg.generate(model, tokenizer, "x", Annotated[int, pydantic.Field(ge=1)]), list[hg.GuidedResult[Any]])


def adapted(model: Any, tokenizer: Any) -> None:
    kind: pydantic.TypeAdapter[Literal["a", "b"]] = pydantic.TypeAdapter(Literal["a", "b"])
    assert_type(hg.generate(model, tokenizer, "x", kind), list[hg.GuidedResult[Literal["a", "b"]]])


def one_result(model: Any, tokenizer: Any) -> str:
    [result] = hg.generate(model, tokenizer, "x", Person)
    assert_type(result.value, Person | None)
    bare: hg.GuidedResult = result
    assert_type(bare.value, Any | None)
    return result.value.name  # error


def streams(model: Any, tokenizer: Any, flag: bool) -> None:
    assert_type(
        hg.generate(model, tokenizer, "x", Person, stream=True), Generator[hg.Partial[Person, Person], None, None]
    )
    assert_type(hg.generate(model, tokenizer, "x", Point, stream=True), Generator[hg.Partial[Point, Any], None, None])
    assert_type(hg.generate(model, tokenizer, "x", Color, stream=True), Generator[hg.Partial[Color], None, None])
    assert_type(
        hg.generate(model, tokenizer, "x", set[int], stream=True), Generator[hg.Partial[set[int], Any], None, None]
    )
    assert_type(hg.generate(model, tokenizer, "x", ["a"], stream=True), Generator[hg.Partial[str, str], None, None])
    assert_type(
        hg.generate(model, tokenizer, "x", hg.ToolCalls([]), stream=True),
        Generator[hg.Partial[hg.ToolAnswer, hg.ToolAnswer], None, None],
    )
    assert_type(
        hg.generate(model, tokenizer, "x", re.compile("a"), stream=True),
        Generator[hg.Partial[re.Match[str], re.Match[str]], None, None],
    )
    assert_type(hg.generate(model, tokenizer, "x", {}, stream=True), Generator[hg.Partial[Any], None, None])
    assert_type(hg.generate(model, tokenizer, "x", Person, stream=False), list[hg.GuidedResult[Person]])
    assert_type(
        hg.generate(model, tokenizer, "x", Person, stream=flag),
        list[hg.GuidedResult[Any]] | Generator[hg.Partial[Any], None, None],
    )
    for partial in hg.generate(model, tokenizer, "x", Person, stream=True):
        if partial.result is not None:
            assert_type(partial.result, hg.GuidedResult[Person])
        assert_type(partial.value, Person | None)
    for point in hg.generate(model, tokenizer, "x", Point, stream=True):
        assert_type(point.value, Any | None)  # a dict, until the answer ends
        if point.result is not None:
            assert_type(point.result, hg.GuidedResult[Point])


def arguments(model: Any, tokenizer: Any, more: dict[str, Any]) -> None:
    hg.generate(model, tokenizer, "x", Person, batch_size=3, seed=1, max_new_tokens=5, do_sample=True, top_p=0.9)
    hg.generate(model, tokenizer, "x", Person, generation_config=None, pixel_values=None, stop_strings=["a"])
    hg.generate(model, tokenizer, "x", Person, stream=False, **more)
    hg.generate(model, tokenizer, "x", Person, bach_size=3)  # error
    hg.generate(model, tokenizer, "x", Person, batch_size="3")  # error
    hg.generate(model, tokenizer, "x", Person, max_new_token=3)  # error
    hg.generate(model, tokenizer, "x", Person, temperature="hot")  # error
    hg.generate(model, tokenizer, "x", Person, stream=True, temprature=0.5)  # error
    hg.generate(model, tokenizer, "x")  # error


async def asynchronous(model: Any, tokenizer: Any, flag: bool) -> None:
    assert_type(await hg.agenerate(model, tokenizer, "x", Person), list[hg.GuidedResult[Person]])
    assert_type(await hg.agenerate(model, tokenizer, "x", list[Person]), list[hg.GuidedResult[list[Person]]])
    assert_type(await hg.agenerate(model, tokenizer, "x", re.compile("a")), list[hg.GuidedResult[re.Match[str]]])
    assert_type(await hg.agenerate(model, tokenizer, "x", ["a"], batch_size=2), list[hg.GuidedResult[str]])
    assert_type(await hg.agenerate(model, tokenizer, "x", {"type": "object"}), list[hg.GuidedResult[Any]])
    assert_type(
        hg.agenerate(model, tokenizer, "x", Person, stream=True), AsyncGenerator[hg.Partial[Person, Person], None]
    )
    assert_type(hg.agenerate(model, tokenizer, "x", ["a"], stream=True), AsyncGenerator[hg.Partial[str, str], None])
    assert_type(hg.agenerate(model, tokenizer, "x", Point, stream=True), AsyncGenerator[hg.Partial[Point, Any], None])
    assert_type(
        hg.agenerate(model, tokenizer, "x", re.compile("a"), stream=True),
        AsyncGenerator[hg.Partial[re.Match[str], re.Match[str]], None],
    )
    async for partial in hg.agenerate(model, tokenizer, "x", Person, stream=True):
        assert_type(partial.value, Person | None)
    assert_type(
        hg.agenerate(model, tokenizer, "x", Person, stream=flag),
        Coroutine[Any, Any, list[hg.GuidedResult[Any]]] | AsyncGenerator[hg.Partial[Any], None],
    )
    await hg.agenerate(model, tokenizer, "x", Person, bach_size=3)  # error


def short(model: Any, tokenizer: Any) -> None:
    ask = hg.Model(model, tokenizer, do_sample=False)
    assert_type(ask("x", Person), Person)
    assert_type(ask("x", list[Point]), list[Point])
    assert_type(ask("x", re.compile("a")), re.Match[str])
    assert_type(ask("x", hg.Regex("a")), re.Match[str])
    assert_type(ask("x", ["a", "b"]), str)
    assert_type(ask("x"), str)
    assert_type(ask("x", {"type": "object"}), Any)
    assert_type(ask("x", hg.ToolCalls([])), hg.ToolAnswer)
    ask("x", Person, max_new_tokens=20)
    ask("x", Person, max_new_token=20)  # error
    hg.Model(model, tokenizer, do_sampel=False)  # error
