"""The text between the values of a JSON text: brackets, commas, colons and white space."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..constraints.json_style import JsonStyle
from ..regex import EMPTY, CharSet, Node, alt, chars, concat, repeat, text

COLUMNS = 8  # maximum indentation for each open bracket
MAX_COLUMNS, MAX_TABS = 40, 10  # maximum indentation, however deep, and where the depth is not known
_SPACE = chars(CharSet.of(" \t\n\r"))
_SEPARATORS = {"compact": (", ", ": "), "minified": (",", ":")}


class Layout(NamedTuple):
    """The texts of each part; an empty array or object has white space only after its opening bracket.

    Args:
        begin_object, begin_array: with the white space after, also where they are empty.
        close_object, close_array: the brackets alone.
        comma, colon: with the white space after, the colon also with that before it.
        space: the white space before a comma or a closing bracket.
        first: the text before the first entry.
        last: the text between the last entry, its ``space`` included, and the closing bracket.
    """

    begin_object: Node
    close_object: Node
    begin_array: Node
    close_array: Node
    comma: Node
    colon: Node
    space: Node
    first: Node = EMPTY
    last: Node = EMPTY


@lru_cache(maxsize=256)  # clients choose the style: a tag has max_whitespace_cnt
def layout_of(style: JsonStyle, level: int | None = None) -> Layout:
    """How the inside of an array or an object is laid out.

    Args:
        style: how JSON is written.
        level: how many brackets are open there, its own counted; None where that is not known: with an ``indent`` it
            has to be.
    """
    if style.indent is not None:
        assert level is not None, "an indentation depends on the depth"
        outside, inside = (text("\n" + " " * (style.indent * depth)) for depth in (level - 1, level))
        plain = _plain(",", ": ")
        return plain._replace(comma=concat(plain.comma, inside), first=inside, last=outside)
    if style.whitespace != "flexible":
        return _plain(*_SEPARATORS[style.whitespace])
    if style.max_space is not None:
        return _spaced(repeat(_SPACE, 0, style.max_space))
    # Between two tokens of JSON: nothing, a space, or a new line with its indentation. It comes at most once between
    # two tokens, so a model that likes white space cannot continue for ever.
    columns = MAX_COLUMNS if level is None else min(COLUMNS * level, MAX_COLUMNS)
    tabs = MAX_TABS if level is None else min(level, MAX_TABS)
    indented = (concat(text("\n"), repeat(text(" "), 0, columns)), concat(text("\n"), repeat(text("\t"), 1, tabs)))
    return _spaced(repeat(alt(text(" "), *indented), 0, 1))


def _plain(comma: str, colon: str) -> Layout:
    return Layout(*map(text, ("{", "}", "[", "]", comma, colon, "")))


def _spaced(space: Node) -> Layout:
    return Layout(
        concat(text("{"), space),
        text("}"),
        concat(text("["), space),
        text("]"),
        concat(text(","), space),
        concat(space, text(":"), space),
        space,
    )
