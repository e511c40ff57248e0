"""Answers that are being written, as Pydantic models: every field that is set is what the finished instance has."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from collections.abc import Iterator
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from hf_guided.constraints.coerce import coerce
from hf_guided.generation.partial import PartialRow, _JsonValues, _ModelValues, _values_of
from hf_guided.generation.partial_models import model_in
from hf_guided.session.result import GuidedResult, RowReader
from tests.toy import all_bytes

VOCABULARY = all_bytes()


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str
    since: datetime.date

    @pydantic.model_validator(mode="after")
    def whole(self) -> Address:
        assert self.city and self.since, "it must see the whole"
        return self


class Person(BaseModel):
    """Everything that half a value could break."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, frozen=True)

    _seen: int = pydantic.PrivateAttr(default=7)
    full_name: str = Field(alias="fullName", min_length=1)
    age: Annotated[int, Field(ge=18)] = 30
    nickname: str | None = None
    address: Address
    former: list[Address] = []
    by_year: dict[str, Address] = {}
    color: Color = Color.RED
    price: decimal.Decimal = decimal.Decimal(1)

    @pydantic.field_validator("full_name")
    @classmethod
    def title(cls, value: str) -> str:
        return value.strip().title()

    @pydantic.model_validator(mode="after")
    def whole(self) -> Person:
        assert self.full_name.istitle() and self.address.city, "it must see the whole"
        return self

    def model_post_init(self, context: Any) -> None:
        assert self.full_name.upper(), "it must see the whole"

    @property
    def shouted(self) -> str:
        return (self.full_name or "nobody").upper()


PLACE = '{"city": "Ghent", "since": "2020-02-29"}'
TEXT = (
    '{"fullName": "Ada", "age": 36, "nickname": null, "address": %s, "former": [%s, %s], '
    '"by_year": {"1999": %s}, "color": "blue", "price": 12.5}' % ((PLACE,) * 4)
)


def values(python_type: Any, text: str, step: int = 1) -> Iterator[tuple[str, Any, list[str]]]:
    """(text so far, value, closed by then) after every piece."""
    reading = _values_of(coerce(python_type))
    closed: list[str] = []
    for end in range(step, len(text) + step, step):
        closed += reading.feed(text[end - step : end], text[:end])
        yield text[:end], reading.snapshot()(), list(closed)


def agrees(part: Any, whole: Any) -> bool:
    """Whether a value is one that is on its way to another."""
    if isinstance(whole, BaseModel):
        if not isinstance(part, type(whole)):
            return False
        if type(part) is type(whole):
            return part == whole
        unset = set(type(whole).model_fields) - part.model_fields_set
        return all(getattr(part, name) is None for name in unset) and all(
            agrees(getattr(part, name), getattr(whole, name)) for name in part.model_fields_set
        )
    if isinstance(whole, list):
        return len(part) <= len(whole) and all(map(agrees, part, whole)) and part[:-1] == whole[: max(0, len(part) - 1)]
    if isinstance(whole, dict):
        return all(key in whole and agrees(part[key], whole[key]) for key in part)
    return bool(part == whole) and type(part) is type(whole)


@pytest.mark.parametrize("step", [1, 3, 17])
def test_what_is_set_is_what_it_will_be(step: int) -> None:
    # The model's own field validator comes with the whole; this text is what it would make.
    whole = Person.model_validate_json(TEXT)
    before: set[str] = set()
    for _, value, closed in values(Person, TEXT, step):
        assert isinstance(value, Person) and agrees(value, whole)
        assert value.model_fields_set >= before
        before = set(value.model_fields_set)
        written = {pointer.split("/")[1] for pointer in closed if pointer}
        assert {name.replace("fullName", "full_name") for name in written} <= before
    assert type(value) is Person and value == whole


def test_fields_come_one_by_one() -> None:
    at = {text: value for text, value, _ in values(Person, TEXT)}

    def behind(mark: str) -> Any:
        return at[TEXT[: TEXT.index(mark) + len(mark)]]

    assert behind('"fullName": "A').model_fields_set == set() and behind('"fullName": "A').full_name is None
    ada = behind('"Ada"')
    assert (ada.full_name, ada.age, ada.address, ada._seen, ada.shouted) == ("Ada", None, None, 7, "ADA")
    assert behind("36").age is None and behind("36,").age == 36, "another digit could follow"
    assert "nickname" not in behind("36,").model_fields_set and "nickname" in behind("null").model_fields_set
    opened = behind('"address": {')
    assert isinstance(opened.address, Address) and opened.address.city is None
    city = behind('"Ghent"')
    assert city.address.city == "Ghent" and city.address.since is None and type(city.address) is not Address
    full = behind(PLACE)
    assert type(full.address) is Address and full.address.since == datetime.date(2020, 2, 29)
    assert behind('"former": [').former == []
    second = behind(f'"former": [{PLACE}, {{"city": "Ghent"')
    assert [type(one) is Address for one in second.former] == [True, False] and second.former[1].city == "Ghent"
    assert behind('"1999": {').by_year["1999"].city is None
    assert behind('"blue"').color is Color.BLUE
    assert behind("12.5}").price == decimal.Decimal("12.5")
    assert ada.model_dump(by_alias=True) == {"fullName": "Ada"} | dict.fromkeys(
        ["age", "nickname", "address", "former", "by_year", "color", "price"]
    )


def test_values_are_shared_with_nobody() -> None:
    one, other = (list(values(dict[str, Person], f'{{"a": {TEXT}'))[-1][1] for _ in range(2))
    one["a"].former.clear()
    assert len(other["a"].former) == 2


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Pair(BaseModel):
    first: Cat | Dog
    second: Annotated[Cat | Dog, Field(discriminator="kind")] | None = None


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: Page[T] | None = None


class Places(pydantic.RootModel[list[Address]]):
    pass


Home = NewType("Home", Address)


class Alias(BaseModel):
    home: Home = Field(validation_alias=pydantic.AliasChoices("casa", "home"))
    tags: tuple[str, Address] = Field(serialization_alias="t")


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


CASES: list[tuple[Any, Any]] = [
    (Pair, {"first": {"kind": "dog", "tricks": ["sit", "roll"]}, "second": {"kind": "cat", "lives": 9}}),
    (Pair, {"first": {"kind": "cat", "lives": 9}, "second": None}),
    (Page[Address], {"items": [json.loads(PLACE)] * 2, "next": {"items": [], "next": None}}),
    (Places, [json.loads(PLACE)] * 2),
    (list[Person], [json.loads(TEXT)] * 2),
    (Person | None, json.loads(TEXT)),
    (dict[str, list[Cat]], {"a": [{"kind": "cat", "lives": 1}], "b": []}),
    (Annotated[Cat | Dog, Field(discriminator="kind")], {"kind": "dog", "tricks": ["sit"]}),
    (pydantic.TypeAdapter(list[Cat]), [{"kind": "cat", "lives": 1}]),
    (Alias, {"casa": json.loads(PLACE), "tags": ["a", json.loads(PLACE)]}),
    (Loose, {"name": "a", "more": {"deep": [1, 2]}}),
]


@pytest.mark.parametrize(("python_type", "value"), CASES, ids=[str(case[0])[:40] for case in CASES])
def test_types_with_models_in_them(python_type: Any, value: Any) -> None:
    text = json.dumps(value)
    adapter = python_type if isinstance(python_type, pydantic.TypeAdapter) else pydantic.TypeAdapter(python_type)
    whole = adapter.validate_json(text)
    found = [part for _, part, _ in values(python_type, text)]
    assert found[-1] == whole and type(found[-1]) is type(whole)
    models = 0
    for part in found:
        if isinstance(part, BaseModel) and not isinstance(part, pydantic.RootModel):
            models += 1
            for name in part.model_fields_set:
                now, then = getattr(part, name), getattr(whole, name)
                # A dict while it is open which member of a union it is; a list where a tuple comes.
                assert now == then or isinstance(now, (dict, list)) or agrees(now, then)
    assert models or isinstance(whole, (list, dict, pydantic.RootModel))


def test_an_open_member_of_a_union_is_a_dict_until_it_is_clear_which() -> None:
    text = '{"first": {"kind": "dog", "tricks": ["sit"]}, "second": null}'
    at = {text: value for text, value, _ in values(Pair, text)}
    assert at['{"first": {'].first == {}
    assert isinstance(at['{"first": {"kind": "dog"'].first, Dog)
    assert at['{"first": {"kind": "dog", "tricks": ["sit"'].first.tricks == ["sit"]


def test_a_model_is_there_before_it_begins() -> None:
    value = _values_of(coerce(Person)).snapshot()()
    assert isinstance(value, Person) and value.model_fields_set == set()


def test_a_validator_that_refuses_leaves_what_was_written() -> None:
    class Never(BaseModel):
        name: str
        inner: Address

        @pydantic.field_validator("name")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise KeyError("any exception at all")

    text = f'{{"name": "x", "inner": {PLACE}}}'
    reading = _values_of(coerce(Never))
    reading.feed(text, text)
    reading.end(GuidedResult(text, None, [], "stop", error="refused"))
    value = reading.snapshot()()
    assert isinstance(value, Never) and value.name == "x" and type(value.inner) is Address


def test_at_the_end_it_is_the_results_value() -> None:
    reading = _values_of(coerce(Person))
    whole = Person.model_validate_json(TEXT)
    reading.feed(TEXT, TEXT)
    reading.end(GuidedResult(TEXT, whole, [], "stop"))
    assert reading.snapshot()() is whole


def test_a_class_that_may_not_be_derived_from() -> None:
    class Last(BaseModel):
        name: str
        age: int

        @classmethod
        def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
            raise TypeError("no subclasses")

    parts = [value for _, value, _ in values(Last, '{"name": "x", "age": 3}')]
    assert isinstance(parts[12], BaseModel) and parts[13].name == "x" and parts[13].age is None
    assert parts[-1] == Last(name="x", age=3)


@dataclasses.dataclass
class Point:
    x: int
    since: datetime.date


class Movie(TypedDict):
    title: str


WHOLE: list[tuple[Any, str]] = [
    (Point, '{"x": 1, "since": "2020-02-29"}'),
    (set[Color], '["red", "blue"]'),
    (Color, '"red"'),
    (datetime.date, '"2020-02-29"'),
    (decimal.Decimal, '"1.50"'),
    (tuple[int, str], '[1, "a"]'),
    (dict[int, Point], '{"7": {"x": 1, "since": "2020-02-29"}}'),
    (Movie, '{"title": "Alien"}'),
]


@pytest.mark.parametrize(("python_type", "text"), WHOLE, ids=[str(case[0]) for case in WHOLE])
def test_other_types_are_json_data_and_at_the_end_the_results_value(python_type: Any, text: str) -> None:
    row = PartialRow(0, RowReader(VOCABULARY, constraint=coerce(python_type)))
    shown = [partial for byte in text.encode() if (partial := row.add_tokens([byte])) is not None]
    last = row.add_tokens([VOCABULARY.stop_token_ids[0]])
    for partial in shown:
        assert partial.value is None or agrees(partial.value, json.loads(text))
    assert shown[-1].value is not None or text[0] not in "[{"
    expected = pydantic.TypeAdapter(python_type).validate_json(text)
    assert last is not None and last.result is not None
    assert last.value == last.result.value == expected and type(last.value) is type(expected)


def test_a_text_that_its_type_refuses_stays_json_data() -> None:
    text = '{"x": 1, "since": "2020-02-30"}'
    row = PartialRow(0, RowReader(VOCABULARY, constraint=coerce(Point)))
    last = row.end([*text.encode(), VOCABULARY.stop_token_ids[0]])
    assert last.result is not None and last.result.value is None and last.result.error
    assert last.value == json.loads(text)


@pytest.mark.parametrize("python_type", [int, list[int], dict[str, Any], Literal["a"], Color, datetime.date, Any])
def test_other_types_have_no_partial_models(python_type: Any) -> None:
    assert model_in(python_type) is None
    assert (
        type(_values_of(coerce(python_type) if python_type is not Any else coerce({"type": "object"}))) is _JsonValues
    )


def test_types_with_models_are_found() -> None:
    for python_type in (Person, list[Person], Person | None, dict[str, Person], Annotated[Person, 1], Home, Page[int]):
        assert model_in(python_type) is not None
        assert type(_values_of(coerce(python_type))) is _ModelValues
