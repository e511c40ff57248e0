"""Values without children as terminals of llguidance's Lark.

Kept for all schemas together: the same few kinds of strings and numbers stand in every one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..regex import ANYTHING, NOTHING, Node, alt, both, complement, concat, json_spellings, text, to_lark
from .ranges import listed_numbers, number_language, whole_bounds
from .shapes import BooleanClause, Clause, NullClause, NumberClause, StringClause, string_language

MAX_FACTOR = 100_000  # of multipleOf: so many states llguidance's lexer may have
_EXACT = 2**53  # it computes with doubles
_QUOTE = text('"')


@lru_cache(maxsize=4096)
def scalars(clauses: tuple[Clause, ...], marks: tuple[str, ...] = ()) -> tuple[str, tuple[NumberClause, ...]]:
    """One terminal for all of the clauses.

    Args:
        clauses: of values without children.
        marks: what none of the texts holds, see ``without``.

    Returns:
        Its expression, "" if there is no such value; and numbers for which it takes a rule (see ``multiples_rule``).
    """
    multiples = tuple(one for one in clauses if isinstance(one, NumberClause) and number_language(one) is None)
    language = alt(*(language_of(one, marks) or NOTHING for one in clauses))
    return "" if language == NOTHING else to_lark(language), multiples


@lru_cache(maxsize=4096)
def constant(value: Any, marks: tuple[str, ...] = ()) -> str:
    """The terminal of one string, number or the like, as `json` writes it, but for marks."""
    return to_lark(text(_escaped(json.dumps(value, ensure_ascii=False), marks)))


def without(language: Node, marks: tuple[str, ...]) -> Node:
    """Those of some texts that hold none of these marks.

    Where JSON stands between marks, and whoever reads it looks for those first, its strings write them with escapes.
    """
    return both(language, complement(concat(ANYTHING, alt(*map(text, marks)), ANYTHING))) if marks else language


def quoted(content: Node) -> Node:
    """A JSON string with this between its quotes."""
    return concat(_QUOTE, content, _QUOTE)


def multiples_rule(clause: NumberClause) -> str | None:
    """Multiples of a factor that digits do not tell: llguidance counts remainders; None if it cannot do that."""
    factor = math.lcm(*(one.as_integer_ratio()[0] for one in clause.factors))
    whole = clause.integral or all(one == one.to_integral_value() for one in clause.factors)
    low, high = whole_bounds(clause)
    exact = all(abs(value) <= _EXACT for value in (low, high) if value is not None)
    if not whole or factor > MAX_FACTOR or clause.excluded or not exact:
        return None
    schema = {"type": "integer", "multipleOf": factor, "minimum": low, "maximum": high}
    multiple = f"%json {json.dumps({key: value for key, value in schema.items() if value is not None})}"
    if not clause.integral:
        return rf"{multiple} /\.0+/?"  # as many zeros as other numbers may have, and as the automaton takes
    return f'{multiple} ".0"?' if clause.point_zero else multiple


def language_of(clause: Clause, marks: tuple[str, ...] = ()) -> Node | None:
    """The JSON texts of a clause's values, without marks (see ``without``).

    None for numbers that digits do not tell (see ``number_language``).
    """
    listed = listed_texts(clause)
    if listed is not None:
        return alt(*(text(_escaped(one, marks)) for one in listed))
    if isinstance(clause, NumberClause):
        return number_language(clause)
    assert isinstance(clause, StringClause)
    return without(quoted(json_spellings(string_language(clause))), marks)


def listed_texts(clause: Clause) -> Iterator[str] | None:
    """The JSON texts of the values of a clause one by one; None if it does not list them."""
    if isinstance(clause, NullClause):
        return iter(("null",))
    if isinstance(clause, BooleanClause):
        return map(json.dumps, sorted(clause.values))
    if isinstance(clause, NumberClause) and clause.values is not None:
        return listed_numbers(clause)
    if isinstance(clause, StringClause) and clause.values is not None:
        return (json.dumps(value, ensure_ascii=False) for value in clause.values if clause.has(value))
    return None


def constant_language(value: Any) -> Node:
    """One string, number or the like, as `json` writes it."""
    return text(json.dumps(value, ensure_ascii=False))


def _escaped(listed: str, marks: tuple[str, ...]) -> str:
    """The text of one value with the marks in its strings spelled in another way."""
    for mark in marks:
        listed = listed.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return listed
