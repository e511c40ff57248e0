"""Values without children as formal languages.

Kept for all schemas together: the same few kinds of strings and numbers appear in every one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

from typing_extensions import override

from ..automaton.emptiness import Emptiness
from ..automaton.limits import count
from ..automaton.nfa import longest
from ..automaton.rtn import LaterLanguage
from ..constraints.json_style import Spelling
from ..regex import (
    ANYTHING,
    Node,
    alt,
    both,
    complement,
    concat,
    json_spelling_without,
    json_spellings,
    text,
    tree_cache,
)
from .canonical_numbers import canonical_listed, canonical_numbers
from .normalize import too_deep_is_a_limit
from .ranges import listed_numbers, number_language, undecided_factors
from .shapes import (
    BooleanClause,
    Clause,
    NullClause,
    NumberClause,
    StringClause,
    canonical_clause,
    canonical_strings,
    string_language,
)

_SMALL, _HALF = 10**12, Decimal("0.5")  # integers and halves up to here are doubles, and have no exponent
_QUOTE = text('"')
_FEW_CHARACTERS = 16  # a string with these bounds is counted by the states of the automaton
_MANY_CHARACTERS = 64  # a string of a language with this bound is counted by a register: states would be many
_as_json = json.JSONEncoder(ensure_ascii=False).encode  # ``json.dumps`` makes an encoder for each value


def without(language: Node, marks: tuple[str, ...]) -> Node:
    """The texts of a language that hold none of some marks.

    Where JSON is written between marks, and a reader looks for those first, its strings write them with escapes.
    """
    return both(language, complement(concat(ANYTHING, alt(*map(text, marks)), ANYTHING))) if marks else language


def quoted(content: Node) -> Node:
    """A JSON string with this between its quotes."""
    return concat(_QUOTE, content, _QUOTE)


def _counted_text(value: str) -> Node:
    count(1 + len(value) // 3)
    return text(value)


def language_of(clause: Clause, spelling: Spelling, marks: tuple[str, ...] = ()) -> Node | None:
    """The JSON texts of a clause's values, without marks (see ``without``).

    None for numbers that digits do not decide (see ``undecided_factors``).
    """
    listed = listed_texts(clause, spelling, marks)
    if listed is not None:
        return alt(*map(_counted_text, listed))
    return None if undecided_factors(clause) else _unlisted(clause, spelling, marks)


@dataclass(frozen=True)
class Values(LaterLanguage):
    """The values of some clauses, by which an RTN may call their texts before they are worked out.

    Args:
        clauses: of values without children, and without ``undecided_factors``.
        spelling: which texts of a value there are.
        marks: what none of the texts holds.
    """

    clauses: tuple[Clause, ...]
    spelling: Spelling
    marks: tuple[str, ...]

    @property
    @override
    @too_deep_is_a_limit()
    def language(self) -> Node:
        """The texts of the values."""
        languages = [language_of(clause, self.spelling, self.marks) for clause in self.clauses]
        return alt(*filter(None, languages))


@tree_cache(maxsize=4096)
def _unlisted(clause: Clause, spelling: Spelling, marks: tuple[str, ...]) -> Node:
    """See ``language_of``; the clause does not list its values."""
    if isinstance(clause, NumberClause):
        return numbers_without_undecided(clause, spelling)
    assert isinstance(clause, StringClause)
    if spelling == "canonical":
        return quoted(json_spelling_without(canonical_strings(clause), marks))
    return without(quoted(json_spellings(string_language(clause))), marks)


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


def long_string_of_language(clause: Clause, spelling: Spelling, schema: str) -> LongString | None:
    """A string of a language with an upper bound that a register counts; None if the states of an automaton count it.

    The language has the lower bound: whether a longer text comes is not for a register to know.
    """
    if not isinstance(clause, StringClause) or clause.values is not None or clause.language == ANYTHING:
        return None
    most = longest(clause.language)
    is_long = clause.high is not None and clause.high > _MANY_CHARACTERS and (most is None or most > _MANY_CHARACTERS)
    if not is_long or clause.low > _FEW_CHARACTERS:
        return None
    language = string_language(replace(canonical_clause(clause) if spelling == "canonical" else clause, high=None))
    return LongString(0, clause.high, schema, language=language)


@tree_cache(maxsize=4096)
def has_text(clause: Clause, spelling: Spelling) -> bool | None:
    """Whether any value of a clause is written: between two floats there are numbers that no float represents.

    None where that is too hard to tell. Strings that are not listed all have texts.
    """
    if (listed := listed_texts(clause, spelling)) is not None:
        return next(listed, None) is not None
    if isinstance(clause, NumberClause):
        if has_plain_number(clause):
            return True
        empty = Emptiness().verdict(_unlisted(clause, spelling, ()))
        return None if empty is None else not empty
    return True


def has_plain_number(clause: NumberClause) -> bool:
    """Whether a clause surely has an integer or a half near zero or near one of its bounds: these are all written."""
    bounds = [bound for bound in (clause.low, clause.high) if bound is not None and abs(bound) <= _SMALL]
    step = math.lcm(*(factor.as_integer_ratio()[0] for factor in clause.factors))
    firsts = [0, *(math.floor(bound) // step * step for bound in bounds)]
    integers = [first + step * times for first in firsts for times in (-1, 0, 1, 2)]
    halves = () if clause.integral is True else (Decimal(value) + _HALF for value in integers)
    return any(_is_surely_inside(clause, value) for value in (*map(Decimal, integers), *halves))


def _is_surely_inside(clause: NumberClause, value: Decimal) -> bool:
    """Whether a clause has a number as written, and as a double: bounds and excluded values may round to it."""
    low, high = clause.low, clause.high
    return (
        abs(value) <= _SMALL
        and clause.has(value)
        and (low is None or float(low) < value or (low == value and not clause.low_open))
        and (high is None or float(high) > value or (high == value and not clause.high_open))
        and not any(float(excluded) == value for excluded in clause.excluded)
    )


def numbers_without_undecided(clause: NumberClause, spelling: Spelling) -> Node:
    """The texts of numbers that would be in a clause but for the factors that digits do not decide."""
    return canonical_numbers(clause) if spelling == "canonical" else number_language(clause)


def listed_texts(clause: Clause, spelling: Spelling, marks: tuple[str, ...] = ()) -> Iterator[str] | None:
    """The JSON texts of the values of a clause one by one, without marks; None if it does not list them."""
    if isinstance(clause, NullClause):
        return iter(("null",))
    if isinstance(clause, BooleanClause):
        return map(json.dumps, sorted(clause.values))
    if isinstance(clause, NumberClause) and clause.values is not None:
        return canonical_listed(clause) if spelling == "canonical" else listed_numbers(clause)
    if isinstance(clause, StringClause) and clause.values is not None:
        return (constant_text(value, marks) for value in clause.values if clause.has(value))
    return None


def constant_text(value: Any, marks: tuple[str, ...] = ()) -> str:
    """One string, number or the like, as `json` writes it, but with escapes for marks in strings."""
    written: str = _as_json(value)
    for mark in marks:
        written = written.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return written
