# ruff: noqa: UP007, UP045 - Union and Optional as people write them
"""Python types as people write them, each with JSON texts that must stay possible.

Every text here is one that Pydantic itself takes back; none may be lost where a type's JSON Schema is made narrower.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import importlib.util
import ipaddress
import pathlib
import re
import threading
import typing
import uuid
import zoneinfo
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

import annotated_types as at
import pydantic
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import core_schema
from typing_extensions import NotRequired, TypeAliasType, TypedDict


class Entry(NamedTuple):
    """One type.

    Args:
        name: for messages.
        type: the type.
        accepted: JSON texts that a guided model must be able to write.
    """

    name: str
    type: Any
    accepted: tuple[str, ...]


# -- classes ---------------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Shade(str, enum.Enum):
    DARK = "dark"
    LIGHT = "light"


class Ratio(float, enum.Enum):
    HALF = 0.5
    ONE = 1.0


class Mixed(enum.Enum):
    ONE = 1
    NAME = "x"
    NOTHING = None
    PAIR = (1, 2)
    MONEY = Decimal("1.5")


class Permission(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0
    name: str = "p"


class Address(BaseModel):
    street: str
    zip: Annotated[str, Field(pattern=r"^\d{5}$")]


class Person(BaseModel):
    name: str = Field(min_length=1, max_length=40)
    born: dt.date
    address: Address | None = None
    tags: set[str] = Field(default_factory=set)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    a: int


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int
    b: str = Field(alias="bee")


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int
    __pydantic_extra__: dict[str, int]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    a: int
    when: dt.datetime
    price: Decimal
    id: uuid.UUID
    host: ipaddress.IPv4Address
    where: pathlib.Path
    items: set[int]
    z: complex


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True, extra="allow")
    full_name: str = Field(alias="fullName")
    count: int = Field(default=1, validation_alias=AliasChoices("count", "n"))


class Paths(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str = Field(validation_alias=AliasPath("address", "city"))
    second: int = Field(validation_alias=AliasPath("values", 1))
    street: str = Field(default="", validation_alias=AliasPath("address", "street"))
    either: int = Field(validation_alias=AliasChoices(AliasPath("deep", "er"), "shallow"))


class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.upper(), validate_by_alias=True, validate_by_name=False)
    first: int
    second: str


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True, str_min_length=2, str_max_length=6, str_to_lower=True)
    a: str


class Blob(BaseModel):
    model_config = ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
    data: bytes
    short: Annotated[bytes, at.Len(2, 3)]


class Hex(BaseModel):
    model_config = ConfigDict(val_json_bytes="hex")
    data: Annotated[bytes, at.Len(1, 4)]


class Arbitrary(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    a: threading.Event | None


class Values(BaseModel):
    model_config = ConfigDict(use_enum_values=True, allow_inf_nan=False)
    color: Color
    level: Literal[Level.LOW]
    ratio: float


class Computed(BaseModel):
    width: Annotated[float, Field(gt=0)]

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> float:
        return self.width**2


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog", "puppy"] = "dog"
    name: str


class Bird(BaseModel):
    kind: Literal["bird"] = Field(default="bird", alias="kind")


Pet = Annotated[Union[Cat, Dog, Bird], Field(discriminator="kind")]


class Owner(BaseModel):
    pet: Pet
    others: list[Pet] = []


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Chain(BaseModel):
    next: Optional[Chain] = None


T = TypeVar("T")
N = TypeVar("N", bound=int)


class Box(BaseModel, Generic[T]):
    content: T
    note: str | None = None


class Tags(pydantic.RootModel[list[str]]):
    pass


class Scores(pydantic.RootModel[dict[str, Annotated[int, at.Interval(ge=0, le=10)]]]):
    pass


@dataclasses.dataclass
class Plain:
    a: int
    b: list[str] = dataclasses.field(default_factory=list)
    made: int = dataclasses.field(default=0, init=False)
    only: bool = dataclasses.field(default=False, kw_only=True)
    seed: dataclasses.InitVar[int] = 0


@dataclasses.dataclass(frozen=True)
class FrozenPlain:
    a: int


@pydantic.dataclasses.dataclass(config=ConfigDict(extra="forbid"))
class Strong:
    a: Annotated[int, Field(gt=0)]
    b: str = Field("x", max_length=3)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Loose(TypedDict, total=False):
    a: int
    b: str


class ClosedMovie(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    title: str


def _middle(source: Any, handler: Any) -> Any:
    items = [core_schema.int_schema(), core_schema.str_schema(), core_schema.bool_schema(), core_schema.none_schema()]
    return core_schema.tuple_schema(items, variadic_item_index=1)


Middle = Annotated[tuple, pydantic.GetPydanticSchema(_middle)]  # type: ignore[type-arg]


class Node(BaseModel):
    value: int
    next: Optional[Node] = None


UserId = NewType("UserId", int)
Json = TypeAliasType("Json", "Union[dict[str, Json], list[Json], str, int, bool, None]")
Positive = TypeAliasType("Positive", Annotated[int, at.Gt(0)])
Pair = TypeAliasType("Pair", tuple[T, T], type_params=(T,))
Day = dt.datetime(2024, 5, 17, 12, 30, 45)
UTC = dt.timezone.utc

# -- the zoo ---------------------------------------------------------------------------------------------------------

_UUID = '"123e4567-e89b-{}2d3-a456-426614174000"'

ZOO: list[Entry] = [
    # strings
    Entry("str", str, ('""', '"Grüße"', '"a\\"b"')),
    Entry("constr", Annotated[str, StringConstraints(min_length=2, max_length=4)], ('"ab"', '"äöüß"')),
    Entry("constr strip", pydantic.constr(strip_whitespace=True, min_length=2, max_length=5), ('"ab"', '"a b"')),
    Entry("constr lower", pydantic.constr(to_lower=True, pattern=r"^[A-Z]{2,3}$"), ('"AB"', '"XYZ"')),
    Entry("pattern", Annotated[str, Field(pattern=r"^[a-z]+(-[a-z]+)*$")], ('"a-b"', '"abc"')),
    Entry("pattern not anchored", Annotated[str, Field(pattern=r"\d{3}")], ('"123"', '"x123y"')),
    Entry("pattern negated", Annotated[str, Field(pattern=r"^\W\S\D$")], ('"-ab"', '"!!!"')),
    Entry("pattern flags", Annotated[str, Field(pattern=re.compile("^[^a]b$", re.I))], ('"cb"', '"CB"')),
    Entry("pattern words", Annotated[str, Field(pattern=r"^\w+\s\w+$")], ('"a b"', '"x_1 y2"')),
    Entry("lower case", at.LowerCase[str], ('"abc"', '"a-1"')),
    Entry("ascii", at.IsAscii[str], ('"abc"', '""')),
    Entry("SecretStr", pydantic.SecretStr, ('"hunter2"', '""')),
    Entry("SecretStr short", Annotated[pydantic.SecretStr, Field(min_length=3)], ('"abc"',)),
    Entry("Secret[int]", pydantic.Secret[int], ("5", "-1")),
    Entry("StrictStr", pydantic.StrictStr, ('"a"',)),
    Entry("bytes", bytes, ('"abc"', '"é"')),
    Entry("conbytes", pydantic.conbytes(min_length=2, max_length=4), ('"ab"', '"abcd"')),
    Entry("SecretBytes", pydantic.SecretBytes, ('"abc"',)),
    Entry("Base64Bytes", pydantic.Base64Bytes, ('""', '"YQ=="', '"/+8="', '"AAEC"')),
    Entry("Base64Bytes length", Annotated[pydantic.Base64Bytes, at.Len(2, 4)], ('"YWI="', '"YWJjZA=="')),
    Entry("Base64Str", pydantic.Base64Str, ('""', '"aGVsbG8="', '"YWI="')),
    Entry("Base64UrlBytes", pydantic.Base64UrlBytes, ('"_-8="',)),
    Entry("Base64UrlStr", pydantic.Base64UrlStr, ('"aGVsbG8gd29ybGQ="',)),
    Entry("bytes as base64", Blob, ('{"data":"_-8=","short":"YWI="}',)),
    Entry("bytes as hex", Hex, ('{"data":"00ff"}',)),
    Entry("config of strings", Stripped, ('{"a":"ab"}', '{"a":"a b c"}')),
    # numbers
    Entry("int", int, ("0", "-17", "12345678901234567890")),
    Entry("conint", pydantic.conint(gt=-5, le=100, multiple_of=5), ("0", "100", "45")),
    Entry("PositiveInt", pydantic.PositiveInt, ("1", "99")),
    Entry("NonNegativeInt", pydantic.NonNegativeInt, ("0",)),
    Entry("StrictInt", pydantic.StrictInt, ("7",)),
    Entry("NewType", UserId, ("7",)),
    Entry("float", float, ("0.5", "-2", "1e+16", "3.25", "1e-05")),
    Entry("float bounds", Annotated[float, at.Interval(gt=0.1, lt=0.3)], ("0.2", "0.10000000000000002")),
    Entry("float closed bounds", Annotated[float, at.Interval(ge=-1, le=1)], ("-1", "1", "0.001", "1.0")),
    Entry("PositiveFloat", pydantic.PositiveFloat, ("0.001", "1.5", "12345.678")),
    Entry("NonNegativeFloat", pydantic.NonNegativeFloat, ("0", "0.0", "7.25")),
    Entry("NegativeFloat", pydantic.NegativeFloat, ("-0.5",)),
    Entry("FiniteFloat", pydantic.FiniteFloat, ("1.5", "-200.125", "0")),
    Entry("StrictFloat", pydantic.StrictFloat, ("1.5",)),
    Entry("float multiple", Annotated[float, at.MultipleOf(0.5)], ("1.5", "-2", "1000000.5")),
    Entry("float tenths", Annotated[float, at.MultipleOf(0.1)], ("0.3", "1.7", "99999.9")),
    Entry("bool", bool, ("true", "false")),
    Entry("StrictBool", pydantic.StrictBool, ("true",)),
    Entry("None", None.__class__, ("null",)),
    Entry("Decimal", Decimal, ("1.5", '"1.5"', "-3", '"0.001"', '"1E+5"')),
    Entry("condecimal", pydantic.condecimal(max_digits=5, decimal_places=2), ("999.99", '"-12.3"', "0", '"0.05"')),
    Entry("condecimal places", pydantic.condecimal(decimal_places=2), ("12.25", '"1234567.89"', "0.1")),
    Entry("condecimal digits", pydantic.condecimal(max_digits=3), ("123", "0.12", '"1.23"', '"99.9"')),
    Entry("condecimal below one", pydantic.condecimal(max_digits=3, decimal_places=3), ("0.123", '"-0.01"')),
    Entry("union multiple", Annotated[int | float, at.MultipleOf(3)], ("6", "-9.0")),
    Entry("condecimal bounds", pydantic.condecimal(gt=Decimal("0.1"), le=Decimal("99.5")), ("0.2", '"99.5"', '"0.11"')),
    Entry("condecimal multiple", pydantic.condecimal(multiple_of=Decimal("0.25")), ("0.75", "-12.5")),
    Entry("Fraction", Fraction, ('"3/4"', '"-1/3"', "0.5", '"0.25"')),
    Entry("Fraction bounds", Annotated[Fraction, at.Gt(Fraction(1, 3))], ('"0.5"', "0.34")),
    Entry("complex", complex, ('"1+2j"', '"-0.5j"', '"3.5"')),
    Entry("ByteSize", pydantic.ByteSize, ("1024", '"1.5 GiB"', '"10KB"')),
    # dates and times
    Entry("date", dt.date, ('"2024-02-29"', '"0001-01-01"', '"9999-12-31"')),
    Entry(
        "date bounds",
        Annotated[dt.date, at.Interval(ge=Day.date(), lt=dt.date(2025, 1, 1))],
        ('"2024-05-17"', '"2024-12-31"'),
    ),
    Entry("PastDate", pydantic.PastDate, ('"2001-01-01"',)),
    Entry("FutureDate", pydantic.FutureDate, ('"2999-12-31"',)),
    Entry(
        "datetime",
        dt.datetime,
        ('"2024-05-17T12:30:45Z"', '"2024-05-17T12:30:45"', '"2024-05-17T12:30:45.123456+02:00"'),
    ),
    Entry("AwareDatetime", pydantic.AwareDatetime, ('"2024-05-17T12:30:45Z"', '"2024-05-17T12:30:45-08:00"')),
    Entry("NaiveDatetime", pydantic.NaiveDatetime, ('"2024-05-17T12:30:45"', '"2024-05-17T12:30:45.5"')),
    Entry("PastDatetime", pydantic.PastDatetime, ('"2001-01-01T00:00:00Z"', '"2001-01-01T00:00:00"')),
    Entry("FutureDatetime", pydantic.FutureDatetime, ('"2999-01-01T00:00:00Z"',)),
    Entry(
        "datetime bounds",
        Annotated[dt.datetime, at.Interval(gt=Day, le=Day.replace(hour=13))],
        ('"2024-05-17T12:30:46"', '"2024-05-17T13:30:45"'),
    ),
    Entry(
        "aware bounds",
        Annotated[dt.datetime, at.Ge(Day.replace(tzinfo=UTC))],
        ('"2024-05-17T12:30:45Z"', '"2030-01-01T00:00:00.25Z"'),
    ),
    Entry("time", dt.time, ('"12:30:00"', '"23:59:59.999999"', '"12:00:00Z"')),
    Entry(
        "time bounds", Annotated[dt.time, at.Interval(ge=dt.time(9), lt=dt.time(17, 30))], ('"09:00:00"', '"17:29:59"')
    ),
    Entry("timedelta", dt.timedelta, ('"P1DT2H"', '"PT0S"', '"-PT1.5S"', '"P2W"', '"P1Y35D"')),
    Entry(
        "timedelta bounds",
        Annotated[dt.timedelta, at.Interval(gt=dt.timedelta(), le=dt.timedelta(days=2))],
        ('"PT30M"', '"P1DT1H"', '"P2D"'),
    ),
    Entry(
        "timedelta multiple", Annotated[dt.timedelta, at.MultipleOf(dt.timedelta(minutes=15))], ('"PT45M"', '"P1DT30M"')
    ),
    Entry("ZoneInfo", zoneinfo.ZoneInfo, ('"UTC"', '"Europe/Paris"')),
    # identifiers and addresses
    Entry("UUID", uuid.UUID, (_UUID.format("1"),)),
    *(Entry(f"UUID{v}", getattr(pydantic, f"UUID{v}"), (_UUID.format(v),)) for v in (1, 3, 4, 5)),
    Entry("UUID7", pydantic.UUID7, (_UUID.format(7),)),
    Entry("IPv4Address", ipaddress.IPv4Address, ('"127.0.0.1"',)),
    Entry("IPv6Address", ipaddress.IPv6Address, ('"::1"', '"2001:db8::8a2e:370:7334"')),
    Entry("IPv4Network", ipaddress.IPv4Network, ('"10.0.0.0/8"', '"192.168.1.128/25"', '"1.2.3.4"', '"0.0.0.0/0"')),
    Entry(
        "IPv6Network",
        ipaddress.IPv6Network,
        ('"2001:db8::/48"', '"fe80::/10"', '"2001:db8::/32"', '"::/0"', '"::1/128"'),
    ),
    Entry("IPv4Interface", ipaddress.IPv4Interface, ('"10.1.2.3/8"', '"10.1.2.3"')),
    Entry("IPv6Interface", ipaddress.IPv6Interface, ('"2001:db8::1/64"',)),
    Entry("IPvAnyAddress", pydantic.IPvAnyAddress, ('"1.2.3.4"', '"::1"')),
    Entry("IPvAnyNetwork", pydantic.IPvAnyNetwork, ('"10.0.0.0/8"', '"2001:db8::/32"')),
    Entry("IPvAnyInterface", pydantic.IPvAnyInterface, ('"10.1.2.3/8"', '"::1/64"')),
    Entry(
        "HttpUrl",
        pydantic.HttpUrl,
        ('"https://example.com/a/b?c=d#e"', '"http://user:pw@localhost:8080"', '"http://10.0.0.1/x%20y"'),
    ),
    Entry(
        "AnyUrl",
        pydantic.AnyUrl,
        ('"s3://bucket/key"', '"mailto:a@b.c"', '"https://example.com"', '"file:///tmp/x"', '"urn:isbn:0451450523"'),
    ),
    Entry("AnyHttpUrl", pydantic.AnyHttpUrl, ('"https://sub.example.co.uk:443/"',)),
    Entry("WebsocketUrl", pydantic.WebsocketUrl, ('"wss://example.com/socket"',)),
    Entry("FileUrl", pydantic.FileUrl, ('"file:///home/me/a.txt"',)),
    Entry("FtpUrl", pydantic.FtpUrl, ('"ftp://ftp.example.com/pub"',)),
    Entry(
        "PostgresDsn",
        pydantic.PostgresDsn,
        ('"postgres://u:p@db.example.com:5432/app"', '"postgresql://h1:1,h2:2/app"'),
    ),
    Entry("RedisDsn", pydantic.RedisDsn, ('"redis://localhost:6379/0"', '"redis://"')),
    Entry("MongoDsn", pydantic.MongoDsn, ('"mongodb://a:27017,b:27017/db"',)),
    Entry(
        "UrlConstraints",
        Annotated[
            pydantic.AnyUrl, pydantic.UrlConstraints(allowed_schemes=["s3", "gs"], host_required=True, max_length=60)
        ],
        ('"s3://bucket/key"', '"gs://b"'),
    ),
    Entry(
        "default host and port",
        Annotated[pydantic.AnyUrl, pydantic.UrlConstraints(default_host="h", default_port=5)],
        ('"s3://bucket/key"', '"http://example.com"'),
    ),
    Entry("short HttpUrl", Annotated[pydantic.HttpUrl, at.MaxLen(20)], ('"http://example.com"', '"https://a.de/b"')),
    Entry("long AnyUrl", Annotated[pydantic.AnyUrl, at.Len(12, 400)], ('"https://example.com/a"',)),
    Entry("short SecretBytes", Annotated[pydantic.SecretBytes, at.MaxLen(3)], ('"abc"',)),
    Entry("Path", pathlib.Path, ('"/tmp/x"', '"a b"')),
    Entry("PurePosixPath", pathlib.PurePosixPath, ('"a/b"',)),
    Entry("Pattern", re.Pattern[str], ('"^a+$"',)),
    Entry("Color type", pydantic.TypeAdapter(Color), ('"red"',)),
    # choices
    Entry("Enum", Color, ('"red"', '"green"')),
    Entry("IntEnum", Level, ("1", "2")),
    Entry("str Enum", Shade, ('"dark"',)),
    Entry("float Enum", Ratio, ("0.5",)),
    Entry("mixed Enum", Mixed, ("1", '"x"', "null", "1.5")),
    Entry("Flag", Permission, ("1", "2")),
    Entry("Literal", Literal["a", "b"], ('"a"',)),
    Entry("mixed Literal", Literal["a", 1, True, None, Color.RED], ('"a"', "1", "true", "null")),
    Entry("use_enum_values", Values, ('{"color":"red","level":1,"ratio":0.5}',)),
    Entry("Optional", Optional[int], ("null", "3")),
    Entry("Union", Union[int, str, list[int]], ("1", '"a"', "[1]")),
    Entry("left to right", Annotated[Union[str, int], Field(union_mode="left_to_right")], ("1", '"a"')),
    Entry("union with a class", Union[int, type[int]], ("1",)),
    # collections
    Entry("list", list[int], ("[]", "[1, 2]")),
    Entry("conlist", pydantic.conlist(int, min_length=1, max_length=3), ("[1]", "[1, 2, 3]")),
    Entry("nested list", list[list[bool]], ("[[true], []]",)),
    Entry("set", set[str], ("[]", '["a", "b"]')),
    Entry("bare set", set, ('[1, "a", null, true]',)),
    Entry("frozenset", frozenset[int], ("[1, 2]",)),
    Entry("conset", pydantic.conset(int, min_length=1, max_length=4), ("[1]", "[1, 2]")),
    Entry("set of choices", pydantic.conset(Literal["a", "b", "c"], min_length=2), ('["a", "b"]', '["c", "a", "b"]')),
    Entry("set of frozen", set[Frozen], ('[{"a": 1}]',)),
    Entry("set of tuples", set[tuple[int, str]], ('[[1, "a"]]',)),
    Entry("set of frozensets", set[frozenset[int]], ("[[1], [2]]",)),
    Entry("tuple", tuple[int, str], ('[1, "a"]',)),
    Entry("tuple of any length", tuple[int, ...], ("[]", "[1, 2, 3]")),
    Entry("tuple with a middle", Middle, ("[1, true, null]", '[1, "a", "b", false, null]')),
    Entry("empty tuple", tuple[()], ("[]",)),
    Entry("NamedTuple", Point, ("[1]", '[1, 2, "q"]')),
    Entry("deque", Annotated[collections.deque[int], at.MaxLen(2)], ("[1, 2]",)),
    Entry("Sequence", typing.Sequence[int], ("[1]",)),
    Entry("Iterable", typing.Iterable[int], ("[1]",)),
    Entry("dict", dict[str, int], ("{}", '{"a": 1}')),
    Entry("dict of int", dict[int, str], ('{"1": "a", "-20": "b"}',)),
    Entry("dict of positive", dict[pydantic.PositiveInt, str], ('{"7": "a"}',)),
    Entry("dict of bounded", dict[Annotated[int, at.Interval(ge=5, lt=120)], bool], ('{"5": true, "119": false}',)),
    Entry("dict of float", dict[float, int], ('{"1.5": 1, "2": 2}',)),
    Entry("dict of fives", dict[Annotated[int, at.MultipleOf(5)], int], ('{"5": 1, "-20": 2}',)),
    Entry("dict of halves", dict[Annotated[float, at.MultipleOf(0.5)], int], ('{"1.5": 1}',)),
    Entry("dict of digits", dict[pydantic.condecimal(max_digits=3, decimal_places=1), int], ('{"1.5": 1}',)),
    Entry("dict of bool", dict[bool, int], ('{"true": 1, "false": 0}',)),
    Entry("dict of pattern", dict[Annotated[str, Field(pattern="^[a-z]{2}$")], int], ('{"de": 1, "fr": 2}',)),
    Entry("dict of date", dict[dt.date, int], ('{"2024-05-17": 1}',)),
    Entry("dict of UUID", dict[uuid.UUID, int], (f"{{{_UUID.format(4)}: 1}}",)),
    Entry("dict of Decimal", dict[Decimal, int], ('{"1.50": 1}',)),
    Entry("dict of Enum", dict[Color, int], ('{"red": 1}', '{"green": 2, "red": 1}')),
    Entry("dict of IntEnum", dict[Level, int], ('{"1": 1}',)),
    Entry("dict of Literal", dict[Literal["a", "b"], int], ('{"b": 1}',)),
    Entry("dict of two choices", Annotated[dict[Literal["a", "b"], int], at.MinLen(2)], ('{"a": 1, "b": 2}',)),
    Entry("dict not empty", Annotated[dict[str, int], at.Len(1, 3)], ('{"a": 1}',)),
    Entry("dict of Any", dict[str, Any], ('{"a": [1, {"b": null}]}',)),
    Entry("OrderedDict", collections.OrderedDict[str, int], ('{"a": 1}',)),
    Entry("defaultdict", collections.defaultdict[str, list[int]], ('{"a": [1]}',)),
    Entry("Counter", typing.Counter[str], ('{"a": 2}',)),
    Entry("Mapping", typing.Mapping[str, float], ('{"a": 0.5}',)),
    Entry("Hashable", typing.Hashable, ("1", '"a"')),
    Entry("Any", Any, ("1", '{"a": [1]}')),
    # JSON in a string
    Entry("Json", pydantic.Json, ('"[1,{\\"a\\":null}]"', '"1"')),
    Entry("Json[int]", pydantic.Json[int], ('"-12"',)),
    Entry("Json[list]", pydantic.Json[list[bool]], ('"[]"', '"[true,false]"')),
    Entry("Json[dict]", pydantic.Json[dict[str, list[int]]], ('"{\\"a\\":[1,2]}"', '"{}"')),
    Entry("Json[model]", pydantic.Json[Cat], ('"{\\"kind\\":\\"cat\\",\\"lives\\":3}"', '"{}"')),
    Entry("Json[recursive]", pydantic.Json[Node], ('"{\\"value\\":1,\\"next\\":{\\"value\\":2}}"',)),
    Entry("Json[Json]", pydantic.Json[pydantic.Json[int]], ('"\\"-12\\""',)),
    Entry("Json[UUID]", pydantic.Json[uuid.UUID], ('"\\"123e4567-e89b-12d3-a456-426614174000\\""',)),
    Entry("Json[date]", pydantic.Json[dt.date], ('"\\"2024-02-29\\""',)),
    Entry("set of both", pydantic.conset(bool, min_length=2), ("[true, false]",)),
    Entry("Json bounds", Annotated[pydantic.Json[int], at.Interval(gt=3, lt=12)], ('"4"', '"11"')),
    Entry("ByteSize bounds", Annotated[pydantic.ByteSize, at.Interval(gt=3, le=2048)], ("4", "2048")),
    Entry(
        "WithJsonSchema",
        Annotated[dt.date, pydantic.WithJsonSchema({"type": "string", "pattern": "^2024"})],
        ('"2024-02-29"',),
    ),
    Entry("json_schema_extra", Annotated[int, Field(json_schema_extra={"minimum": 5})], ("5",)),
    Entry("instance or None", Arbitrary, ('{"a": null}',)),
    Entry("Json[float]", pydantic.Json[Annotated[float, at.Interval(ge=0, le=1)]], ('"0.25"', '"1"')),
    # models and the like
    Entry(
        "model",
        Person,
        ('{"name": "A", "born": "2001-01-01", "address": null, "tags": ["a"]}', '{"name": "A", "born": "2001-01-01"}'),
    ),
    Entry("extra forbid", Closed, ('{"a": 1, "bee": "x"}',)),
    Entry("extra allow", Open, ('{"a": 1}',)),
    Entry(
        "strict model",
        Strict,
        (
            '{"a":1,"when":"2024-05-17T12:30:45Z","price":"1.5","id":'
            + _UUID.format(4)
            + ',"host":"1.2.3.4","where":"x","items":[1],"z":"1+1j"}',
        ),
    ),
    Entry("aliases", Aliased, ('{"fullName": "a", "count": 2}', '{"fullName": "a"}')),
    Entry("alias paths", Paths, ('{"shallow": 1, "address": {"city": "a", "street": "b"}, "values": [0, 1]}',)),
    Entry("alias generator", Camel, ('{"FIRST": 1, "SECOND": "a"}',)),
    Entry("computed field", Computed, ('{"width": 1.5}',)),
    Entry("discriminated", Pet, ('{"kind": "cat", "lives": 3}', '{"kind": "puppy", "name": "a"}', '{"kind": "bird"}')),
    Entry("discriminated field", Owner, ('{"pet": {"kind": "cat", "lives": 9}, "others": []}',)),
    Entry("recursive", Tree, ('{"value": 1, "children": [{"value": 2, "children": []}]}',)),
    Entry("linked", Chain, ('{"next": {"next": null}}', "{}")),
    Entry("generic", Box[int], ('{"content": 1, "note": null}',)),
    Entry("generic of generic", Box[Box[list[str]]], ('{"content": {"content": ["a"]}}',)),
    Entry("root model", Tags, ('["a"]',)),
    Entry("root dict", Scores, ('{"a": 10}',)),
    Entry("dataclass", Plain, ('{"a": 1, "b": ["x"], "only": true}', '{"a": 1}')),
    Entry("frozen dataclasses", set[FrozenPlain], ('[{"a": 1}]',)),
    Entry("pydantic dataclass", Strong, ('{"a": 1, "b": "abc"}',)),
    Entry("TypedDict", Movie, ('{"title": "a"}', '{"title": "a", "year": 1999}')),
    Entry("TypedDict loose", Loose, ("{}", '{"b": "x"}')),
    Entry("TypedDict closed", ClosedMovie, ('{"title": "a"}',)),
    Entry("alias type", Positive, ("1",)),
    Entry("recursive alias", Json, ('{"a": [1, null]}', '"x"')),
    Entry("generic alias", Pair[int], ("[1, 2]",)),
    Entry("OnErrorOmit", list[pydantic.OnErrorOmit[int]], ("[1]",)),
    Entry("default factory", Annotated[list[int], Field(default_factory=list)], ("[1]",)),
]

if importlib.util.find_spec("email_validator"):  # optional for Pydantic; without it these are no types
    ZOO += [
        Entry("EmailStr", pydantic.EmailStr, ('"someone@example.com"', '"a.b+c@mail.example.co.uk"')),
        Entry("short EmailStr", Annotated[pydantic.EmailStr, at.MaxLen(20)], ('"someone@example.com"',)),
        Entry("NameEmail", pydantic.NameEmail, ('"Fred Bloggs <fred.bloggs@example.com>"', '"fred@example.com"')),
    ]
if importlib.util.find_spec("pydantic_extra_types"):
    from pydantic_extra_types.color import Color as ExtraColor
    from pydantic_extra_types.coordinate import Latitude
    from pydantic_extra_types.country import CountryAlpha2
    from pydantic_extra_types.mac_address import MacAddress

    ZOO += [
        Entry("CountryAlpha2", CountryAlpha2, ('"DE"',)),
        Entry("Latitude", Latitude, ("12.5", '"-90"')),
        Entry("extra Color", ExtraColor, ('"#ff8800"', '"red"')),
        Entry("MacAddress", MacAddress, ('"00:00:5e:00:53:01"',)),
    ]
