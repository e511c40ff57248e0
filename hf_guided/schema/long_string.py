"""Strings whose characters a register counts."""

from __future__ import annotations

from typing import NamedTuple

from ..regex import ANYTHING
from .shapes import Clause, StringClause

_FEW_CHARACTERS = 16  # a string with these bounds is counted by the states of the automaton


class LongString(NamedTuple):
    """A string of any characters, of which a register knows how many there are.

    Args:
        low, high: how many; ``high`` None is no bound.
        schema: its name, where one network has several.
        closing: the mark after a string whose characters are written as they are; None for a JSON string.
    """

    low: int
    high: int | None
    schema: str
    closing: str | None = None


def long_string(clause: Clause, schema: str = "", closing: str | None = None) -> LongString | None:
    """A string of any characters whose bounds would take many states; None if there is none."""
    if not isinstance(clause, StringClause) or max(clause.low, clause.high or 0) <= _FEW_CHARACTERS:
        return None
    is_any = clause.values is None and clause.language == ANYTHING
    return LongString(clause.low, clause.high, schema, closing) if is_any else None
