"""Strings whose characters a register counts."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..automaton.nfa import longest
from ..regex import ANYTHING, Node
from .shapes import Clause, StringClause, canonical_clause, string_language

_FEW_CHARACTERS = 16  # a string with these bounds is counted by the states of the automaton
_MANY_CHARACTERS = 64  # of a string of a language: the automaton would have its states for each of so many


class LongString(NamedTuple):
    """A string of which a register knows how many characters there are.

    Args:
        low, high: how many; ``high`` None is no bound.
        schema: its name, where one network has several.
        closing: the mark after a string whose characters are written as they are; None for a JSON string.
        language: of the strings, however long; ``low`` is 0 where it is not all strings.
    """

    low: int
    high: int | None
    schema: str
    closing: str | None = None
    language: Node = ANYTHING


def long_string(clause: Clause, schema: str = "", closing: str | None = None) -> LongString | None:
    """A string of any characters whose bounds would take many states; None if there is none."""
    if not isinstance(clause, StringClause) or max(clause.low, clause.high or 0) <= _FEW_CHARACTERS:
        return None
    is_any = clause.values is None and clause.language == ANYTHING
    return LongString(clause.low, clause.high, schema, closing) if is_any else None


def long_string_of_language(clause: Clause, schema: str) -> LongString | None:
    """A string of a language, as the canonical spelling writes it, whose upper bound would take many states.

    The language has the lower bound: whether a longer text comes is not for a register to know.
    """
    if not isinstance(clause, StringClause) or clause.values is not None or clause.language == ANYTHING:
        return None
    most = longest(clause.language)
    is_long = clause.high is not None and clause.high > _MANY_CHARACTERS and (most is None or most > _MANY_CHARACTERS)
    if not is_long or clause.low > _FEW_CHARACTERS:
        return None
    language = string_language(replace(canonical_clause(clause), high=None))
    return LongString(0, clause.high, schema, language=language)
