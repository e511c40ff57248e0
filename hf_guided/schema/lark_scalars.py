"""Values without children as terminals of llguidance's Lark.

Kept for all schemas together, like their languages (scalars.py).
"""

from __future__ import annotations

import json
import math

from ..constraints.json_style import Spelling
from ..regex import NOTHING, alt, text, to_lark, tree_cache
from .ranges import whole_bounds
from .scalars import constant_text, language_of
from .shapes import Clause, NumberClause

_MAX_FACTOR = 100_000  # of multipleOf: the number of states that llguidance's lexer may have
_EXACT = 2**53  # it computes with doubles
_LARGEST_INTEGER = 2**63 - 1024  # the largest double below what it takes for a bound
_LARGEST_WITH_POINT = 10**16 - 2  # the largest double that has no exponent as a float's repr


@tree_cache(maxsize=4096)
def scalars(clauses: tuple[Clause, ...], spelling: Spelling) -> tuple[str, tuple[NumberClause, ...]]:
    """One terminal for all of the clauses.

    Args:
        clauses: of values without children.
        spelling: which texts of a value there are.

    Returns:
        Its expression, "" if there is no such value; and numbers for which it takes a rule (see ``multiples_rule``).
    """
    languages = [(clause, language_of(clause, spelling)) for clause in clauses]
    multiples = tuple(
        clause
        for clause, language_or_none in languages
        if language_or_none is None and isinstance(clause, NumberClause)
    )
    language = alt(*(language_or_none or NOTHING for _, language_or_none in languages))
    return "" if language == NOTHING else to_lark(language), multiples


@tree_cache(maxsize=4096)
def name_terminal(name: str) -> str:
    """The terminal of a declared name."""
    return to_lark(text(constant_text(name)))


def multiples_rule(clause: NumberClause, spelling: Spelling) -> str | None:
    """Multiples of a factor that digits do not decide: llguidance counts remainders; None if it cannot do that."""
    factor = math.lcm(*(factor.as_integer_ratio()[0] for factor in clause.factors))
    whole = clause.integral or all(factor == factor.to_integral_value() for factor in clause.factors)
    low, high = whole_bounds(clause)
    exact = all(abs(value) <= _EXACT for value in (low, high) if value is not None)
    if not whole or factor > _MAX_FACTOR or clause.excluded or not exact:
        return None
    if spelling == "canonical":
        return _canonical_multiples(factor, low, high, clause.integral is True)
    multiple = _multiples_between(factor, low, high)
    if not clause.integral:
        return rf"{multiple} /\.0+/?"  # as many zeros as other numbers may have, and as the automaton takes
    return f'{multiple} ".0"?' if clause.point_zero else multiple


def _canonical_multiples(factor: int, low: int | None, high: int | None, is_integer: bool) -> str:
    """Without the zero that has a sign, and with a point up to the digits that floats have without an exponent."""
    low, high = (-_LARGEST_INTEGER if low is None else low), (_LARGEST_INTEGER if high is None else high)
    ranges = [(0, _LARGEST_INTEGER, ""), (-_LARGEST_INTEGER, -1, "")]
    if not is_integer:
        past = _LARGEST_WITH_POINT + 2
        ranges = [(0, _LARGEST_WITH_POINT, ' ".0"?'), (-_LARGEST_WITH_POINT, -1, ' ".0"?')]
        ranges += [(past, _LARGEST_INTEGER, ""), (-_LARGEST_INTEGER, -past, "")]
    alternatives = [
        f"{_multiples_between(factor, max(low, least), min(high, greatest))}{point}"
        for least, greatest, point in ranges
        if -(-max(low, least) // factor) * factor <= min(high, greatest)
    ]
    if not is_integer and low <= 0 <= high:
        alternatives.append('"-0.0"')
    return f"({' | '.join(alternatives)})"


def _multiples_between(factor: int, low: int | None, high: int | None) -> str:
    schema = {"type": "integer", "multipleOf": factor, "minimum": low, "maximum": high}
    schema = {key: value for key, value in schema.items() if value is not None}
    return f"%json {json.dumps({**schema, 'x-guidance': {'whitespace_flexible': False}})}"  # or it takes any before it
