"""What stands between the values of a JSON text: brackets, commas, colons and white space."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ..regex import Node, concat, parse_fullmatch, text

# Between two tokens of JSON: nothing, a space, or a new line with its indentation. It stands at most once between two
# tokens, so a model that likes white space cannot go on for ever.
FLEXIBLE_WHITESPACE = r"(?:\x20|\n\x20{0,40}|\n\t{1,10})?"


class Layout(NamedTuple):
    """The texts of each; an empty array or object has no white space inside but behind its opening bracket.

    Args:
        begin_object, begin_array: with the white space behind.
        close_object, close_array: the brackets alone.
        comma, colon: with the white space behind, the colon also with that before it.
        space: the white space before a comma or a closing bracket.
    """

    begin_object: Node
    close_object: Node
    begin_array: Node
    close_array: Node
    comma: Node
    colon: Node
    space: Node


@cache
def layout_of(whitespace: str) -> Layout:
    """How JSON is laid out.

    Args:
        whitespace: "flexible", or "compact" as `json.dumps` does.
    """
    if whitespace == "compact":
        return Layout(*map(text, ("{", "}", "[", "]", ", ", ": ", "")))
    space = parse_fullmatch(FLEXIBLE_WHITESPACE)
    return Layout(
        concat(text("{"), space),
        text("}"),
        concat(text("["), space),
        text("]"),
        concat(text(","), space),
        concat(space, text(":"), space),
        space,
    )
