"""Types and schemas as users write them, for what a request with a token budget costs before its first token."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import uuid
from typing import Annotated, Any, Literal

import pydantic
from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, create_model


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    street: str
    city: str
    zip: Annotated[str, StringConstraints(pattern=r"^\d{5}$")]


class Person(BaseModel):
    name: str
    age: Annotated[int, Field(ge=0, le=120)]
    home: Address
    email: Annotated[str, pydantic.WithJsonSchema({"type": "string", "format": "email"})] | None = None
    tags: list[str] = []


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool


_FIELDS: dict[str, Any] = {
    "HttpUrl": pydantic.HttpUrl,
    "AnyUrl": pydantic.AnyUrl,
    "FileUrl": pydantic.FileUrl,
    "PostgresDsn": pydantic.PostgresDsn,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "UUID": uuid.UUID,
    "UUID4": pydantic.UUID4,
    "Decimal": decimal.Decimal,
    "Decimal of 10 digits": Annotated[decimal.Decimal, Field(max_digits=10, decimal_places=2)],
    "IPv4Address": ipaddress.IPv4Address,
    "IPv6Address": ipaddress.IPv6Address,
    "IPvAnyAddress": pydantic.IPvAnyAddress,
    "IPv4Network": ipaddress.IPv4Network,
    "Base64Str": pydantic.Base64Str,
    "bytes": bytes,
    "Json[list[int]]": pydantic.Json[list[int]],
    "dict[str, int]": dict[str, int],
    "dict[str, Any]": dict[str, Any],
    "dict of constrained keys": dict[Annotated[str, StringConstraints(pattern="^[a-z]{1,9}$")], float],
    "list of at most 10": Annotated[list[int], Field(max_length=10)],
    "list of 1 to 100 str": Annotated[list[str], Field(min_length=1, max_length=100)],
    "list of at most 20 models": Annotated[list[Person], Field(max_length=20)],
    "list[HttpUrl]": list[pydantic.HttpUrl],
    "list of at most 30 datetimes": Annotated[list[datetime.datetime], Field(max_length=30)],
    "constr": Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}\d{4,9}$")],
    "Literal": Literal["a", "b", 3],
    "int | str | None": int | str | None,
    "discriminated union": Annotated[Cat | Dog, Field(discriminator="kind")],
    "Enum": Color,
    "tuple[int, str, float]": tuple[int, str, float],
    "str of at most 500": Annotated[str, Field(max_length=500)],
    "str of at most 5000": Annotated[str, Field(max_length=5000)],
    "float between": Annotated[float, Field(gt=0.1, lt=99.5)],
    "Any": Any,
    "model": Person,
    "recursive model": Node,
}

SCHEMAS: dict[str, dict[str, Any]] = {
    **{name: TypeAdapter(create_model("Answer", value=(kind, ...))).json_schema() for name, kind in _FIELDS.items()},
    "three URLs": {
        "type": "object",
        "properties": {f"u{i}": {"type": "string", "format": "uri", "maxLength": 2083} for i in range(3)},
        "required": ["u0", "u1", "u2"],
    },
    "five e-mail addresses": {
        "type": "object",
        "properties": {f"e{i}": {"type": "string", "format": "email"} for i in range(5)},
        "required": [f"e{i}" for i in range(5)],
    },
    "list of at most 20 e-mail addresses": {
        "type": "array",
        "items": {"type": "string", "format": "email"},
        "maxItems": 20,
    },
    "list of at most 20 URIs": {"type": "array", "items": {"type": "string", "format": "uri"}, "maxItems": 20},
    "12 str of at most 200": {
        "type": "object",
        "properties": {f"s{i}": {"type": "string", "maxLength": 200} for i in range(12)},
        "required": [f"s{i}" for i in range(12)],
    },
    "15 optional members": {"type": "object", "properties": {f"o{i}": {"type": "string"} for i in range(15)}},
    "hostname": {"type": "string", "format": "hostname"},
    "an e-mail pattern of at most 300": {"type": "string", "maxLength": 300, "pattern": "^[^@]+@[^@]+$"},
}

# These may take three times as much: there is much to count.
LARGE: dict[str, dict[str, Any]] = {
    "1000 integers": {"type": "array", "items": {"type": "integer"}, "minItems": 1000, "maxItems": 1000},
    "1000 strings": {"type": "array", "items": {"type": "string"}, "minItems": 1000, "maxItems": 1000},
    "1000 of anything": {"type": "array", "minItems": 1000, "maxItems": 1000},
    "words and hyphens": {"type": "string", "pattern": "^([a-z]{1,50}-){0,50}[a-z]{1,50}$"},
}
