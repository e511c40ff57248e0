"""Partial answers as Pydantic models: every field that is set equals the field of the finished instance."""

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
from hf_guided.generation.partial import _values_of
from hf_guided.generation.partial_values import model_in
from hf_guided.session.result import GuidedResult
from tests.sessions import partial_row
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
        assert self.city and self.since, "validators need the complete value"
        return self


class Person(BaseModel):
    """A model with everything that an incomplete value could break."""

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
        assert self.full_name.istitle() and self.address.city, "validators need the complete value"
        return self

    def model_post_init(self, context: Any) -> None:
        assert self.full_name.upper(), "validators need the complete value"

    @property
    def shouted(self) -> str:
        return (self.full_name or "nobody").upper()


PLACE = '{"city": "Ghent", "since": "2020-02-29"}'
TEXT = (
    '{"fullName": "Ada", "age": 36, "nickname": null, "address": %s, "former": [%s, %s], '
    '"by_year": {"1999": %s}, "color": "blue", "price": 12.5}' % ((PLACE,) * 4)
)


def partial_values(python_type: Any, text: str, step: int = 1) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield (text so far, value, pointers of the parts closed so far) after every piece of text."""
    parser = _values_of(coerce(python_type))
    closed: list[str] = []
    for end in range(step, len(text) + step, step):
        closed += parser.feed(text[:end])
        yield text[:end], parser.snapshot()(), list(closed)


def is_part_of(part: Any, whole: Any) -> bool:
    """Whether a partial value agrees with the whole value."""
    if isinstance(whole, BaseModel):
        if not isinstance(part, type(whole)):
            return False
        if type(part) is type(whole):
            return part == whole
        unset = set(type(whole).model_fields) - part.model_fields_set
        return all(getattr(part, name) is None for name in unset) and all(
            is_part_of(getattr(part, name), getattr(whole, name)) for name in part.model_fields_set
        )
    if isinstance(whole, list):
        return (
            len(part) <= len(whole)
            and all(map(is_part_of, part, whole))
            and part[:-1] == whole[: max(0, len(part) - 1)]
        )
    if isinstance(whole, dict):
        return all(key in whole and is_part_of(part[key], whole[key]) for key in part)
    return bool(part == whole) and type(part) is type(whole)


@pytest.mark.parametrize("step", [1, 3, 17])
def test_set_fields_have_their_final_values(step: int) -> None:
    # The model's own field validator runs on the whole value only. It does not change this text.
    whole = Person.model_validate_json(TEXT)
    before: set[str] = set()
    for _, value, closed in partial_values(Person, TEXT, step):
        assert isinstance(value, Person) and is_part_of(value, whole)
        assert value.model_fields_set >= before
        before = set(value.model_fields_set)
        closed_fields = {pointer.split("/")[1] for pointer in closed if pointer}
        assert {name.replace("fullName", "full_name") for name in closed_fields} <= before
    assert type(value) is Person and value == whole


def test_fields_are_set_one_by_one() -> None:
    value_after_text = {text: value for text, value, _ in partial_values(Person, TEXT)}

    def after(mark: str) -> Any:
        return value_after_text[TEXT[: TEXT.index(mark) + len(mark)]]

    assert after('"fullName": "A').model_fields_set == set() and after('"fullName": "A').full_name is None
    ada = after('"Ada"')
    assert (ada.full_name, ada.age, ada.address, ada._seen, ada.shouted) == ("Ada", None, None, 7, "ADA")
    assert after("36").age is None and after("36,").age == 36, "a number is complete when the next character arrives"
    assert "nickname" not in after("36,").model_fields_set and "nickname" in after("null").model_fields_set
    opened = after('"address": {')
    assert isinstance(opened.address, Address) and opened.address.city is None
    city = after('"Ghent"')
    assert city.address.city == "Ghent" and city.address.since is None and type(city.address) is not Address
    full = after(PLACE)
    assert type(full.address) is Address and full.address.since == datetime.date(2020, 2, 29)
    assert after('"former": [').former == []
    second = after(f'"former": [{PLACE}, {{"city": "Ghent"')
    assert [type(address) is Address for address in second.former] == [True, False] and second.former[1].city == "Ghent"
    assert after('"1999": {').by_year["1999"].city is None
    assert after('"blue"').color is Color.BLUE
    assert after("12.5}").price == decimal.Decimal("12.5")
    assert ada.model_dump(by_alias=True) == {"fullName": "Ada"} | dict.fromkeys(
        ["age", "nickname", "address", "former", "by_year", "color", "price"]
    )


def test_snapshots_share_no_objects() -> None:
    first, second = (list(partial_values(dict[str, Person], f'{{"a": {TEXT}'))[-1][1] for _ in range(2))
    first["a"].former.clear()
    assert len(second["a"].former) == 2


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
def test_types_that_contain_models(python_type: Any, value: Any) -> None:
    text = json.dumps(value)
    adapter = python_type if isinstance(python_type, pydantic.TypeAdapter) else pydantic.TypeAdapter(python_type)
    whole = adapter.validate_json(text)
    parts = [part for _, part, _ in partial_values(python_type, text)]
    assert parts[-1] == whole and type(parts[-1]) is type(whole)
    models = 0
    for part in parts:
        if isinstance(part, BaseModel) and not isinstance(part, pydantic.RootModel):
            models += 1
            for name in part.model_fields_set:
                now, then = getattr(part, name), getattr(whole, name)
                # A dict while the member of a union is not decided; a list where the whole has a tuple.
                assert now == then or isinstance(now, (dict, list)) or is_part_of(now, then)
    assert models or isinstance(whole, (list, dict, pydantic.RootModel))


def test_undecided_member_of_a_union_is_a_dict() -> None:
    text = '{"first": {"kind": "dog", "tricks": ["sit"]}, "second": null}'
    value_after_text = {text: value for text, value, _ in partial_values(Pair, text)}
    assert value_after_text['{"first": {'].first == {}
    assert isinstance(value_after_text['{"first": {"kind": "dog"'].first, Dog)
    assert value_after_text['{"first": {"kind": "dog", "tricks": ["sit"'].first.tricks == ["sit"]


def test_model_exists_before_the_first_token() -> None:
    value = _values_of(coerce(Person)).snapshot()()
    assert isinstance(value, Person) and value.model_fields_set == set()


def test_model_keeps_its_fields_if_a_validator_refuses() -> None:
    class Never(BaseModel):
        name: str
        inner: Address

        @pydantic.field_validator("name")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise KeyError("any exception at all")

    text = f'{{"name": "x", "inner": {PLACE}}}'
    parser = _values_of(coerce(Never))
    parser.feed(text)
    parser.end(GuidedResult(text, None, [], "stop", error="refused"))
    value = parser.snapshot()()
    assert isinstance(value, Never) and value.name == "x" and type(value.inner) is Address


def test_final_snapshot_is_the_value_of_the_result() -> None:
    parser = _values_of(coerce(Person))
    whole = Person.model_validate_json(TEXT)
    parser.feed(TEXT)
    parser.end(GuidedResult(TEXT, whole, [], "stop"))
    assert parser.snapshot()() is whole


def test_class_that_forbids_subclasses() -> None:
    class Last(BaseModel):
        name: str
        age: int

        @classmethod
        def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
            raise TypeError("no subclasses")

    parts = [value for _, value, _ in partial_values(Last, '{"name": "x", "age": 3}')]
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
def test_types_without_models_are_json_data_until_the_result(python_type: Any, text: str) -> None:
    row = partial_row(VOCABULARY, coerce(python_type))
    partials = [partial for byte in text.encode() if (partial := row.add_tokens([byte])) is not None]
    last = row.add_tokens([VOCABULARY.stop_token_ids[0]])
    for partial in partials:
        assert partial.value is None or is_part_of(partial.value, json.loads(text))
    assert partials[-1].value is not None or text[0] not in "[{"
    expected = pydantic.TypeAdapter(python_type).validate_json(text)
    assert last is not None and last.result is not None
    assert last.value == last.result.value == expected and type(last.value) is type(expected)


def test_text_that_its_type_refuses_stays_json_data() -> None:
    text = '{"x": 1, "since": "2020-02-30"}'
    row = partial_row(VOCABULARY, coerce(Point))
    last = row.end([*text.encode(), VOCABULARY.stop_token_ids[0]])
    assert last.result is not None and last.result.value is None and last.result.error
    assert last.value == json.loads(text)


@pytest.mark.parametrize("python_type", [int, list[int], dict[str, Any], Literal["a"], Color, datetime.date, Any])
def test_types_without_models_have_no_partial_model(python_type: Any) -> None:
    assert model_in(python_type) is None


def test_models_are_found_inside_types() -> None:
    for python_type in (Person, list[Person], Person | None, dict[str, Person], Annotated[Person, 1], Home, Page[int]):
        assert model_in(python_type) is not None


def test_a_text_nested_too_deeply_closes_at_its_end() -> None:
    text = "[" * 600 + "]" * 600
    row = partial_row(VOCABULARY, coerce({"type": "array"}))
    last = row.end([*text.encode(), VOCABULARY.stop_token_ids[0]])
    assert last.closed == ("",)
    assert last.value == json.loads(text)
