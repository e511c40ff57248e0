"""Every warning points at the line of the caller's code, also from other threads and through other libraries."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hf_guided as hg
from hf_guided import demo
from hf_guided.errors import warn

MISSPELT = {"type": "object", "proprties": {}}
PACKAGE = Path(hg.__file__).parent


def misspelt(number: int) -> dict[str, Any]:
    """A schema that no other test has compiled, so that its warning is not lost in a cache."""
    return {**MISSPELT, "title": f"of this test {number}", "maxProperties": number}


@contextmanager
def warned_here() -> Iterator[None]:
    """Check that there are warnings, all of them at a line of the ``with`` statement."""
    frame = inspect.stack()[2]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert caught
    for warning in caught:
        assert warning.filename == __file__ and warning.category is UserWarning
        assert frame.lineno <= warning.lineno <= frame.lineno + 3


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


def test_compiling_warns_at_the_call(pair: tuple[Any, Any]) -> None:
    guide = hg.Guide(*pair)
    with warned_here():
        guide.compile(misspelt(1))
    with warned_here():
        guide.submit(misspelt(2)).result()
    with warned_here():
        guide.warm_up([misspelt(3)])
    with warned_here():
        guide.audit(misspelt(4))


def test_generating_warns_at_the_call(pair: tuple[Any, Any]) -> None:
    with warned_here():
        hg.generate(*pair, "x", misspelt(5), max_new_tokens=100)
    with warned_here():
        hg.generate(*pair, "x", ["yes", "no"], temperature=0.5)
    with warned_here():
        hg.Model(*pair)("x", ["yes", "no"], temperature=0.5)
    with warned_here():
        list(hg.generate(*pair, "x", ["yes", "no"], stream=True, temperature=0.5))
    with warned_here():
        for _ in hg.generate(*pair, "x", misspelt(6), stream=True, max_new_tokens=100):
            pass


def test_asynchronous_calls_warn_at_the_call(pair: tuple[Any, Any]) -> None:
    async def awaited() -> None:
        with warned_here():
            await hg.agenerate(*pair, "x", ["yes", "no"], temperature=0.5)
        with warned_here():
            await asyncio.create_task(hg.agenerate(*pair, "x", misspelt(7), max_new_tokens=100))
        with warned_here():
            async for _ in hg.agenerate(*pair, "x", misspelt(8), stream=True, max_new_tokens=100):
                pass

    asyncio.run(awaited())


def test_masks_warn_at_the_call_of_generate(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    processor = hg.Guide(model, tokenizer).logits_processor(["yes", "no"])
    inputs = tokenizer("x", return_tensors="pt")
    with warned_here():
        model.generate(**inputs, logits_processor=[processor], prefix_allowed_tokens_fn=free, max_new_tokens=5)


def free(batch_id: int, input_ids: Any) -> list[int]:
    return [7]


def test_no_other_way_to_warn() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.name != "errors.py":
            assert "warnings.warn" not in file.read_text(encoding="utf-8"), file


def test_warnings_of_many_texts_are_not_kept() -> None:
    """A server warns of schemas of requests, whose texts differ without end."""
    registry: dict[Any, Any] = globals().setdefault("__warningregistry__", {})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        most = 0
        for number in range(5000):
            warn(f"schema {number}: {'x' * 5000}")
            most = max(most, len(registry))
        shown = len(caught)
        for _ in range(3):
            warn("the same text at the same line")
    assert shown == 5000 and len(caught) == shown + 1
    assert most < 1000
    assert max(len(str(key)) for key in registry) < 2200
