"""What the scripts of all clients share. Each runs by itself: ``python with_openai.py URL``.

A script is a list of checks. Each runs where it is defined, once for each combination of the ways that it names, and
prints what it has seen as a line of JSON.
"""

import asyncio
import inspect
import itertools
import json
import sys
from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, Field

URL = f"{sys.argv[1]}/v1"
EMAIL = "daria@laurel.example"
PROMPT = f"[person]\nOur gardener Daria Pinto is 50 years old, reachable at {EMAIL}.\nJSON:\n"
CHAT = [{"role": "user", "content": PROMPT}]
SHORT, LONG = 20, 100  # tokens: too few for the whole answer, and enough
AROUND = 28  # tokens before and after the arguments of a call
STREAM = {"stream": (False, True)}
WAYS = {**STREAM, "effort": ("none", "low")}  # the model thinks if it is asked to
LIMITS = {**STREAM, "tokens": (SHORT, LONG)}


class Person(BaseModel):
    """A person."""

    name: str = Field(max_length=20)
    email: str = Field(max_length=40)
    age: int = Field(ge=18, le=99)


class Weather(BaseModel):
    """Looks up the weather."""

    unit: Literal["C", "F"]
    days: Literal[1, 2, 3]


def weather(unit: Literal["C", "F"], days: Literal[1, 2, 3]) -> str:
    """Looks up the weather."""
    return f"{days} dry days, {unit}"


_runner = asyncio.Runner()


def check(**ways: tuple[Any, ...]) -> Callable[[Callable[..., Any]], None]:
    """Run a function in all combinations of its ways; it raises where the client gets what it should not."""

    def run(function: Callable[..., Any]) -> None:
        for values in itertools.product(*ways.values()):
            seen = function(**dict(zip(ways, values, strict=True)))
            if inspect.iscoroutine(seen):
                seen = _runner.run(seen)
            names = [str(getattr(value, "__name__", value)) for value in (function, *values)]
            print(json.dumps([", ".join(names), seen], default=str), flush=True)

    return run


def error_of(kinds: type[Exception] | tuple[type[Exception], ...], call: Callable[[], Any]) -> Exception:
    """The error that a call raises."""
    try:
        call()
    except kinds as error:
        return error
    raise AssertionError(f"expected {kinds}")
