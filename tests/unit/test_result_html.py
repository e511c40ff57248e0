"""The HTML of a result in a notebook shows all parts of it, and shows any text of the model only as text."""

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


class CheckedPage(HTMLParser):
    """Parses a page. Checks that it has only our tags, that all are closed, and that everything else is text."""

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
    def visible_text(self) -> str:
        return "".join(self.text)


def render(text: str, value: Any = None, reason: FinishReason = "stop", **fields: Any) -> str:
    page = GuidedResult(text, value, [1, 2, 3], reason, **fields)._repr_html_()
    page.encode()  # a notebook is UTF-8
    assert 'class="tex2jax_ignore mathjax_ignore"' in page
    return CheckedPage(page).visible_text


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


def test_page_shows_text_value_and_statistics() -> None:
    person = Person(name="Ada", homes=[Address(city="Ghent", since=datetime.date(2020, 2, 29))])
    text = person.model_dump_json()
    output = render(text, person, stats=SessionStats(forwards=1234), thinking="hmm <b>")
    for part in (text, "name", "Ada", "homes", "city", "Ghent", "datetime.date(2020, 2, 29)", "hmm <b>"):
        assert part in output
    assert "finish reason" in output and "stop (the answer is finished)" in output
    assert "tokens3" in output and "forward passes1,234 (of the whole batch)" in output and "error" not in output


def test_page_shows_the_finish_reason() -> None:
    assert "cut by a limit" in render('{"a', None, "length") and "value" not in render('{"a', None, "length")
    dead = render("x", None, "dead_end", error="<the engine> gave up")
    assert "left its constraint" in dead and "error<the engine> gave up" in dead
    assert "forward passes" not in render("x") and "forward passes" not in render("x", stats=SessionStats())


def test_value_equal_to_the_text_is_shown_once() -> None:
    assert render("yes, please", "yes, please").count("yes, please") == 1
    assert render('"yes"', "yes").count("yes") == 2


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
    output = render("text", value)
    for part in parts:
        assert part in output


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_shown_as_text(hostile: str) -> None:
    value = {hostile: [hostile, {"a": hostile}], "b": hostile}
    output = render(hostile, value, error=hostile, thinking=hostile)
    visible = hostile.encode("utf-8", "replace").decode()
    visible = re.sub(r"[\x00-\x08\x0b-\x1f]", lambda match: chr(0x2400 + ord(match[0])), visible).replace("\x7f", "␡")
    assert output.count(visible) == 7


@given(st.text(max_size=40), st.recursive(st.text() | st.integers(), lambda inner: st.dictionaries(st.text(), inner)))
def test_any_text_and_value_can_be_rendered(text: str, value: Any) -> None:
    render(text, value, error=text)


def test_no_script_runs_in_a_browser(tmp_path: Path) -> None:
    parts = "".join(GuidedResult(text, {text: [text]}, [], "stop", error=text)._repr_html_() for text in HOSTILE)
    page = f'<html><head><meta charset="utf-8"></head><body><main>{parts}</main></body></html>'
    visited = visit(
        page,
        'return {hacked: window.hacked ?? 0, tables: document.querySelectorAll("main > div > table").length};',
        tmp_path,
    )
    assert visited.said["hacked"] == 0 and visited.said["tables"] == len(HOSTILE)
    assert visited.said["errors"] == visited.said["resources"] == visited.console == []


# -- long values -------------------------------------------------------------------------------------------------------


def test_long_texts_are_truncated() -> None:
    output = render("a" * 5_000, {"k" * 1_000: "v" * 1_000})
    assert "a" * 2_000 in output and "a" * 2_001 not in output and "… 3,000 more characters" in output
    assert "v" * 300 in output and "v" * 301 not in output and output.count("… 700 more characters") == 2


def test_values_with_many_parts_are_truncated() -> None:
    output = render("x", list(range(1_000)))
    assert "1919… 980 more" in output
    wide: Any = 0
    for _ in range(4):
        wide = [wide] * 50
    page = GuidedResult("x", wide, [], "stop")._repr_html_()
    assert len(page) < 100_000 and page.count("<tr>") < 300
    deep: Any = 0
    for _ in range(500):
        deep = [deep]
    assert "[[[" in render("x", deep)


class WithoutRepr:
    def __repr__(self) -> str:
        raise KeyError("no repr")


class WithoutAttributes(pydantic.BaseModel):
    name: str

    def __getattribute__(self, name: str) -> Any:
        if name == "name":
            raise ValueError("no attribute")
        return super().__getattribute__(name)


def unprintable_values() -> Iterator[Any]:
    recursive: list[Any] = []
    recursive.append(recursive)
    yield recursive
    yield WithoutRepr()
    yield [WithoutRepr()]
    yield WithoutAttributes.model_construct()
    yield 10**6_000  # Python refuses to convert it to text


@pytest.mark.parametrize("value", list(unprintable_values()), ids=["own", "odd", "inner", "fields", "huge"])
def test_value_that_cannot_be_shown_is_named(value: Any) -> None:
    output = render("x", value)
    assert "that cannot be shown" in output or "[[" in output or "[...]" in output
