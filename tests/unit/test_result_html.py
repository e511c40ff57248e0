"""A result in a notebook: everything is there, as text, whatever the model wrote."""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.constraints.tool_calls import ToolAnswer, ToolCall
from hf_guided.session.result import FinishReason, GuidedResult
from hf_guided.session.stats import SessionStats
from tests.browser import visit

TAGS = {"div", "table", "tbody", "tr", "th", "td", "span", "i", "details", "summary"}
ATTRIBUTES = {"class", "style", "scope", "dir"}
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</span></td></table></div><script>window.hacked = 1</script>",
    '<img src=x onerror="window.hacked = 1">',
    "\"' onmouseover='window.hacked = 1' x=\"",
    "<style>* { display: none }</style><!-- ]]> &lt; &#60;",
    "javascript:alert(1)",
    "$\\href{javascript:alert(1)}{x}$ $$\\unicode{<img src=x onerror=alert(1)>}$$ \\(a\\)",
    "\u202eright to left\u2066",
    "\x00\x07\x1b[31m\x7f",
    "lone \ud800 surrogate",
    "=cmd|' /C calc'!A0\n\n\ttabs and lines",
]


class Reading(HTMLParser):
    """Every tag is one of ours and closed, and what is left is text."""

    def __init__(self, page: str):
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []
        self.rows: dict[str, str] = {}
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS and {name for name, _ in attrs} <= ATTRIBUTES
        assert all("url" not in (value or "") and "expression" not in (value or "") for _, value in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = unknown_decl = handle_pi = handle_comment

    @property
    def shown(self) -> str:
        return "".join(self.text)


def shown(text: str, value: Any = None, reason: FinishReason = "stop", **fields: Any) -> str:
    page = GuidedResult(text, value, [1, 2, 3], reason, **fields)._repr_html_()
    page.encode()  # a notebook is UTF-8
    assert 'class="tex2jax_ignore mathjax_ignore"' in page
    return Reading(page).shown


class Address(pydantic.BaseModel):
    city: str
    since: datetime.date


class Person(pydantic.BaseModel):
    name: str
    homes: list[Address]


@dataclasses.dataclass
class Point:
    x: int
    inner: dict[str, Any]


class Pair(NamedTuple):
    left: int
    right: str


def test_what_stands_in_it() -> None:
    person = Person(name="Ada", homes=[Address(city="Ghent", since=datetime.date(2020, 2, 29))])
    text = person.model_dump_json()
    seen = shown(text, person, stats=SessionStats(forwards=1234), thinking="hmm <b>")
    for part in (text, "name", "Ada", "homes", "city", "Ghent", "datetime.date(2020, 2, 29)", "hmm <b>"):
        assert part in seen
    assert "finish reason" in seen and "stop (the answer is finished)" in seen
    assert "tokens3" in seen and "forward passes1,234 (of the whole batch)" in seen and "error" not in seen


def test_how_it_ended() -> None:
    assert "cut by a limit" in shown('{"a', None, "length") and "value" not in shown('{"a', None, "length")
    dead = shown("x", None, "dead_end", error="<the engine> gave up")
    assert "left its constraint" in dead and "error<the engine> gave up" in dead
    assert "forward passes" not in shown("x") and "forward passes" not in shown("x", stats=SessionStats())


def test_a_value_that_is_the_text_is_there_once() -> None:
    assert shown("yes, please", "yes, please").count("yes, please") == 1
    assert shown('"yes"', "yes").count("yes") == 2


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (Point(3, {"deep": [1, {"er": None}]}), ["x3", "inner", "deep", "01", "er", "None"]),
        (Pair(1, "b"), ["left1", "rightb"]),
        (re.fullmatch("(?P<year>[0-9]+)-([a-z])", "2020-x"), ["02020-x", "12020", "2x", "year2020"]),
        (ToolAnswer("so", (ToolCall("book", {"room": 3}),)), ["textso", "calls", "namebook", "room3"]),
        ({1, 2}, ["01", "12"]),
        ([], ["value[]"]),
        ({}, ["value{}"]),
        (0, ["value0"]),
        (False, ["valueFalse"]),
        ([None], ["0None"]),
    ],
    ids=repr,
)
def test_nested_values(value: Any, parts: list[str]) -> None:
    seen = shown("text", value)
    for part in parts:
        assert part in seen


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_model_writes_stays_text(hostile: str) -> None:
    value = {hostile: [hostile, {"a": hostile}], "b": hostile}
    seen = shown(hostile, value, error=hostile, thinking=hostile)
    visible = hostile.encode("utf-8", "replace").decode()
    visible = re.sub(r"[\x00-\x08\x0b-\x1f]", lambda found: chr(0x2400 + ord(found[0])), visible).replace("\x7f", "␡")
    assert seen.count(visible) == 7


@given(st.text(max_size=40), st.recursive(st.text() | st.integers(), lambda one: st.dictionaries(st.text(), one)))
def test_any_text_and_any_value(text: str, value: Any) -> None:
    shown(text, value, error=text)


def test_nothing_runs_in_a_browser(tmp_path: Path) -> None:
    parts = "".join(GuidedResult(text, {text: [text]}, [], "stop", error=text)._repr_html_() for text in HOSTILE)
    page = f'<html><head><meta charset="utf-8"></head><body><main>{parts}</main></body></html>'
    seen = visit(
        page,
        'return {hacked: window.hacked ?? 0, tables: document.querySelectorAll("main > div > table").length};',
        tmp_path,
    )
    assert seen.said["hacked"] == 0 and seen.said["tables"] == len(HOSTILE)
    assert seen.said["errors"] == seen.said["resources"] == seen.console == []


# -- what is long ------------------------------------------------------------------------------------------------------


def test_long_texts_are_cut() -> None:
    seen = shown("a" * 5_000, {"k" * 1_000: "v" * 1_000})
    assert "a" * 2_000 in seen and "a" * 2_001 not in seen and "… 3,000 more characters" in seen
    assert "v" * 300 in seen and "v" * 301 not in seen and seen.count("… 700 more characters") == 2


def test_many_parts_are_cut() -> None:
    seen = shown("x", list(range(1_000)))
    assert "1919… 980 more" in seen
    wide: Any = 0
    for _ in range(4):
        wide = [wide] * 50
    page = GuidedResult("x", wide, [], "stop")._repr_html_()
    assert len(page) < 100_000 and page.count("<tr>") < 300
    deep: Any = 0
    for _ in range(500):
        deep = [deep]
    assert "[[[" in shown("x", deep)


class Odd:
    def __repr__(self) -> str:
        raise KeyError("no repr")


class OddFields(pydantic.BaseModel):
    name: str

    def __getattribute__(self, name: str) -> Any:
        if name == "name":
            raise ValueError("no attribute")
        return super().__getattribute__(name)


def around() -> Iterator[Any]:
    own: list[Any] = []
    own.append(own)
    yield own
    yield Odd()
    yield [Odd()]
    yield OddFields.model_construct()
    yield 10**6_000  # Python refuses to write it


@pytest.mark.parametrize("value", list(around()), ids=["own", "odd", "inner", "fields", "huge"])
def test_a_value_that_cannot_be_shown_is_named(value: Any) -> None:
    seen = shown("x", value)
    assert "that cannot be shown" in seen or "[[" in seen or "[...]" in seen
