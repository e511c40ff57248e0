"""Values that no argument expects: other types, other shapes, huge ones, and objects whose methods raise.

Each call makes new ones, because some of them can be used only once.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ForwardRef, TypedDict

import numpy as np
import pydantic
import torch


class Foreign(Exception):
    """No public call may let it through."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def fails(*_: Any, **__: Any) -> Any:
    raise Foreign


class HostileRepr:
    __repr__ = __str__ = fails


class HostileBool:
    __bool__ = __eq__ = __len__ = fails
    __hash__ = object.__hash__


class HostileHash:
    __hash__ = fails


class HostileIterator:
    __iter__ = __len__ = __getitem__ = fails


class HostileMapping(Mapping[str, Any]):
    __getitem__ = __len__ = fails

    def __iter__(self) -> Iterator[str]:
        raise Foreign

    __repr__ = fails


class HostileAttributes:
    def __getattr__(self, name: str) -> Any:
        raise Foreign


class HostileText(str):
    __repr__ = __str__ = __format__ = encode = lower = strip = fails


class HostileInt(int):
    __index__ = __repr__ = __str__ = __format__ = __le__ = __ge__ = __lt__ = __gt__ = fails


class HostileList(list[Any]):
    __iter__ = __repr__ = fails


class HostileDict(dict[str, Any]):
    __iter__ = __repr__ = items = get = keys = fails


class LongRepr:
    def __repr__(self) -> str:
        return "long " * 100_000


class HookRaises(pydantic.BaseModel):
    a: int = 0

    @classmethod
    def __get_pydantic_json_schema__(cls, *_: Any) -> Any:
        raise Foreign


class SchemaRaises(pydantic.BaseModel):
    a: int = 0

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> Any:
        raise Foreign


class UnknownField(TypedDict):
    a: ForwardRef("Nowhere")  # type: ignore[valid-type]  # noqa: F821


@dataclasses.dataclass
class FieldOfRaises:
    a: HookRaises


def deep(levels: int, kind: Callable[[Any], Any]) -> Any:
    value = kind(None)
    for _ in range(levels):
        value = kind(value)
    return value


def itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def dict_of_itself() -> dict[str, Any]:
    value: dict[str, Any] = {"type": "object"}
    value["properties"] = {"a": value}
    return value


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "minus one": lambda: -1,
    "zero": lambda: 0,
    "huge int": lambda: 10**6000,
    "64 bits": lambda: 2**63,
    "float": lambda: 1.5,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "complex": lambda: 1j,
    "empty text": lambda: "",
    "text": lambda: "nonesuch",
    "surrogate": lambda: "\ud800",
    "nul": lambda: "a\0b",
    "long text": lambda: "x" * 300_000,
    "brace": lambda: "{" * 5000,
    "bytes": lambda: b"\xff\xfe",
    "empty list": list,
    "list in a list": lambda: [[]],
    "list of None": lambda: [None],
    "mixed list": lambda: ["a", 1, None, 2.5],
    "long list": lambda: [None] * 10_000,
    "deep list": lambda: deep(3000, lambda value: [value]),
    "list of itself": itself,
    "tuple": lambda: (1, "a"),
    "empty dict": dict,
    "dict of ints": lambda: {1: 2},
    "deep dict": lambda: deep(3000, lambda value: {"properties": {"a": value}}),
    "dict of itself": dict_of_itself,
    "dict of a tuple": lambda: {("a",): {1}},
    "set": lambda: {1, "a"},
    "range": lambda: range(10**9),
    "iterator": lambda: iter([1]),
    "object": object,
    "class": lambda: Foreign,
    "function": lambda: fails,
    "module": lambda: sys,
    "path": lambda: Path("/nonesuch"),
    "pattern": lambda: re.compile(b"a"),
    "ellipsis": lambda: ...,
    "scalar tensor": lambda: torch.tensor(1.5),
    "tensor": lambda: torch.zeros(2, 3, 4),
    "empty tensor": lambda: torch.zeros(0, dtype=torch.int64),
    "ids out of range": lambda: torch.full((2, 3), 2**40),
    "meta tensor": lambda: torch.zeros(2, 2, device="meta"),
    "array": lambda: np.zeros((2, 0), np.float16),
    "hostile repr": HostileRepr,
    "hostile bool": HostileBool,
    "hostile hash": HostileHash,
    "hostile iterator": HostileIterator,
    "hostile mapping": HostileMapping,
    "hostile attributes": HostileAttributes,
    "hostile text": lambda: HostileText("a"),
    "hostile int": lambda: HostileInt(3),
    "hostile list": lambda: HostileList(["a"]),
    "hostile dict": lambda: HostileDict(type="string"),
    "long repr": LongRepr,
    "list of hostile reprs": lambda: [HostileRepr(), HostileRepr()],
    "dict of hostile reprs": lambda: {"type": HostileRepr()},
    "class of a hostile hook": lambda: HookRaises,
    "class of a hostile schema": lambda: SchemaRaises,
    "field of a hostile hook": lambda: FieldOfRaises,
    "forward reference": lambda: UnknownField,
    "generic alias": lambda: dict[int, Foreign],
}
