"""How JSON text is written: the spelling of each value, and the white space between them."""

from __future__ import annotations

from typing import Literal, NamedTuple

Whitespace = Literal["flexible", "compact", "minified"]
Spelling = Literal["canonical", "any"]
KeyOrder = Literal["declared", "any"]
MAX_INDENT = 40
MAX_DIGITS = 20  # of an integer that nothing bounds, in the canonical spelling


class JsonStyle(NamedTuple):
    """The options of a JSON constraint that decide which texts a value has.

    Args:
        whitespace: "flexible" (bounded), "compact" (``", "`` and ``": "``, as ``json.dumps`` writes by default), or
            "minified" (``","`` and ``":"``).
        indent: the layout of ``json.dumps(indent=...)`` instead of ``whitespace``; None means no indentation.
        spelling: "canonical" (numbers, strings and times in the shape that ``json.dumps`` gives them), or "any".
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
