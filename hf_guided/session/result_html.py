"""Displays a result in a notebook: its text, its value as a table, and how it ended.

A model's output is not trusted: all of it is escaped, cannot change the text direction of its surroundings, and is
hidden from the notebook's formula renderer. Long text is cut, and the number of missing characters is shown.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .result import GuidedResult

_MOST_TEXT = 2_000  # characters of the text
_MOST_CELL = 300  # characters of one cell
_MOST_ROWS = 20  # rows of one table
_MOST_CELLS = 200  # cells of all tables
_MOST_DEPTH = 5
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_TEXT = "white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; text-align: left"
_REASONS = {
    "stop": "stop (the answer is finished)",
    "length": "length (cut by a limit, so the answer is not finished)",
    "dead_end": "dead_end (the answer left its constraint, so it is not finished)",
}


def result_html(result: GuidedResult[Any], *, with_text: bool = True) -> str:
    """A result as HTML without scripts and style sheets; its text may be left out."""
    value, text = result.value, result.text if with_text else None
    rows = [] if text is None else [("text", _text(text, _MOST_TEXT))]
    if result.thinking is not None:
        rows.append(("thinking", f"<details><summary>show</summary>{_text(result.thinking, _MOST_TEXT)}</details>"))
    if value is not None and not (isinstance(value, str) and value == text):
        rows.append(("value", _Cells().cell(value, 0)))
    if result.error is not None:
        rows.append(("error", _text(result.error, _MOST_TEXT)))
    rows.append(("finish reason", _REASONS[result.finish_reason]))
    if result.shortened:
        rows.append(("shortened", "yes (the token limit changed the answer; raise it)"))
    if result.thinking_cut:
        rows.append(("thinking cut", "yes (it had no token left; raise its max_tokens, or the token limit)"))
    rows.append(("tokens", f"{len(result.token_ids):,}"))
    if result.stats is not None and result.stats.forwards:
        rows.append(("forward passes", f"{result.stats.forwards:,} (of the whole batch)"))
    # Both names: notebooks have different versions of MathJax, which look for different ones.
    return f'<div class="tex2jax_ignore mathjax_ignore" style="max-width: 60em">{_table(rows)}</div>'


def shares_html(shares: Sequence[tuple[Any, float]], note: str) -> str:
    """Values and their probabilities as a table with bars, as HTML without scripts and style sheets."""
    cells, rows = _Cells(), []
    for value, probability in shares[:_MOST_ROWS]:
        bar = f'<div style="width: {12 * probability:.3f}em; height: 0.7em; background: #4a7ebb"></div>'
        rows.append((f"{probability:.4f}", f"{bar}{cells.cell(value, 0)}"))
    more = len(shares) - len(rows)
    notes = html.escape(f"{f'{more:,} more values, ' if more else ''}{note}")
    return f'<div class="tex2jax_ignore mathjax_ignore" style="max-width: 60em">{_table(rows)}<i>{notes}</i></div>'


def _table(rows: list[tuple[str, str]]) -> str:
    """A table with a heading before each row; both are HTML."""
    cell = "text-align: left; vertical-align: top; padding: 2px 8px"
    lines = (
        f'<tr><th scope="row" style="{cell}">{name}</th><td style="{cell}">{value}</td></tr>' for name, value in rows
    )
    return f'<table style="margin: 0; border-collapse: collapse"><tbody>{"".join(lines)}</tbody></table>'


def _text(text: str, most: int) -> str:
    """Text as HTML without tags, formulas or lone surrogates."""
    more = len(text) - most
    cut = text[:most].encode("utf-8", "replace").decode()
    visible = _CONTROL.sub(lambda match: "␡" if match[0] == "\x7f" else chr(0x2400 + ord(match[0])), cut)
    note = f" <i>… {more:,} more characters</i>" if more > 0 else ""
    return f'<span dir="auto" style="{_TEXT}">{html.escape(visible)}</span>{note}'


class _Cells:
    """The cells of one result; their number is limited, so that a page stays small."""

    def __init__(self) -> None:
        self._left = _MOST_CELLS

    def cell(self, value: Any, depth: int) -> str:
        """A value as HTML: a table of its parts, or its text."""
        self._left -= 1
        try:
            parts = _parts(value) if depth < _MOST_DEPTH else None
            if parts is None:
                return _text(value if isinstance(value, str) else repr(value), _MOST_CELL)
            number, members = parts
            if not number:
                return _text(repr(value), _MOST_CELL)
            return self._members(number, members, depth)
        except Exception:  # a user's class may raise any error; a huge int has no repr
            return f"<i>{html.escape(type(value).__name__)} that cannot be shown</i>"

    def _members(self, number: int, members: Iterator[tuple[Any, Any]], depth: int) -> str:
        rows: list[tuple[str, str]] = []
        for name, value in islice(members, _MOST_ROWS):
            if self._left <= 0:
                break
            rows.append((_text(str(name), _MOST_CELL), self.cell(value, depth + 1)))
        more = number - len(rows)
        return _table(rows) + (f"<i>… {more:,} more</i>" if more else "")


def _parts(value: Any) -> tuple[int, Iterator[tuple[Any, Any]]] | None:
    """The number of parts of a value, and their names and values; None if it has no parts."""
    if isinstance(value, re.Match):
        groups: dict[Any, Any] = {0: value[0], **dict(enumerate(value.groups(), 1)), **value.groupdict()}
        return len(groups), iter(groups.items())
    if isinstance(fields := getattr(type(value), "model_fields", None), Mapping):  # a Pydantic model
        members = {name: getattr(value, name) for name in fields} | (getattr(value, "model_extra", None) or {})
        return len(members), iter(members.items())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return len(names), ((name, getattr(value, name)) for name in names)
    if isinstance(value, Mapping):
        return len(value), iter(value.items())
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return len(value), iter(value._asdict().items())
    if isinstance(value, (list, tuple, Set)):
        return len(value), enumerate(value)
    return None
