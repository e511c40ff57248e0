"""How JSON text is written: the spelling of each value, and the white space between them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ..errors import InvalidConstraint, shown
from .base import one_of

Whitespace = Literal["flexible", "compact", "minified"]
Spelling = Literal["canonical", "any"]
KeyOrder = Literal["declared", "any"]
_MAX_INDENT = 40
MAX_DIGITS = 20  # most digits of an integer that nothing bounds, in the canonical spelling


class JsonStyle(NamedTuple):
    """The options of a JSON constraint that decide which texts a value has.

    Args:
        whitespace: see ``JsonSchema``.
        indent: see ``JsonSchema``.
        spelling: see ``JsonSchema``.
        max_space: white space characters in a row at most, of any kind, instead of the "flexible" layout's own bound.
    """

    whitespace: Whitespace = "flexible"
    indent: int | None = None
    spelling: Spelling = "canonical"
    max_space: int | None = None

    @property
    def is_canonical(self) -> bool:
        """Whether each value has the spelling of ``json.dumps`` alone."""
        return self.spelling == "canonical"

    @property
    def is_flexible(self) -> bool:
        """Whether the white space between two tokens is left open."""
        return self.whitespace == "flexible" and self.indent is None


def json_style(whitespace: Any, indent: Any, spelling: Any) -> JsonStyle:
    """The style these options name.

    Raises:
        InvalidConstraint: one of them is unknown, or two contradict each other.
    """
    style = JsonStyle(
        one_of("whitespace", whitespace, Whitespace), indent, spelling=one_of("spelling", spelling, Spelling)
    )
    if indent is not None:
        if type(indent) is not int or not 0 <= indent <= _MAX_INDENT:
            raise InvalidConstraint(f"indent: expected an int from 0 to {_MAX_INDENT}, or None, got {shown(indent)}")
        if whitespace != "flexible":
            raise InvalidConstraint(
                f"expected whitespace or indent, got whitespace={shown(whitespace)} and indent={shown(indent)}; "
                "leave one out"
            )
    return style
