"""Canonical numbers: the language of a clause contains exactly the texts that ``json.dumps`` writes of its numbers.

The oracles are ``repr``, plain comparisons of floats and ints, and a regular expression for the shape.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_guided.automaton.emptiness import Emptiness
from hf_guided.regex import NOTHING, Alt, And, Chars, Concat, Node, Repeat, matches
from hf_guided.schema.canonical_numbers import MAX_DIGITS, canonical_numbers
from hf_guided.schema.ranges import integers_between, undecided_factors
from hf_guided.schema.scalars import has_plain_number, language_of, numbers_without_undecided
from hf_guided.schema.shapes import NumberClause
from tests.effort import repeats

INTEGER = re.compile(r"0|-?[1-9][0-9]*")
FIXED = re.compile(r"-?(0|[1-9][0-9]{0,15})\.(0|[0-9]*[1-9])")
EXPONENT = re.compile(r"-?[1-9](\.[0-9]*[1-9])?e([+-][0-9]{2,3})")
floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1e16, 1e15, 9999999999999998.0, 1e-4, 9.999999999999999e-05, 5e-324, 1.7976931348623157e308, 0.1]
)
halves = st.integers(-40, 40).map(lambda value: value / 8)
integers = st.integers(-(10**MAX_DIGITS) + 1, 10**MAX_DIGITS - 1) | st.integers(-30, 30)
numbers: st.SearchStrategy[int | float] = floats | halves | integers


def as_in_schema(number: float) -> Decimal:
    """The number as `documents.py` reads it: an integer without an exponent, a float with its repr."""
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


@st.composite
def clauses(draw: st.DrawFn) -> tuple[NumberClause, Callable[[Any], bool]]:
    """A clause, and a predicate that says whether a number satisfies it for a validator that reads doubles."""
    integral = draw(st.sampled_from([None, None, True, False]))
    low, high = draw(st.none() | numbers), draw(st.none() | numbers)
    low_open, high_open = draw(st.booleans()), draw(st.booleans())
    excluded = draw(st.lists(numbers, max_size=2))
    clause = NumberClause(
        integral,
        low=None if low is None else as_in_schema(low),
        low_open=low_open,
        high=None if high is None else as_in_schema(high),
        high_open=high_open,
        excluded=frozenset(map(as_in_schema, excluded)),
    )

    def holds(value: Any) -> bool:
        if integral is not None and (value == int(value)) != integral:
            return False
        if low is not None and (value < low or (low_open and value == low)):
            return False
        if high is not None and (value > high or (high_open and value == high)):
            return False
        return value not in excluded

    return clause, holds


def sample_text(node: Node, choose: Callable[[int], int]) -> str:
    """Draw a text of a language. For an intersection it is a text of the first part, and may violate the others."""
    if isinstance(node, Chars):
        first, last = node.charset.ranges[choose(len(node.charset.ranges))]
        return chr(first + choose(last - first + 1))
    if isinstance(node, Concat):
        return "".join(sample_text(part, choose) for part in node.parts)
    if isinstance(node, Alt):
        return sample_text(node.parts[choose(len(node.parts))], choose)
    if isinstance(node, And):
        return sample_text(node.parts[0], choose)
    if isinstance(node, Repeat):
        assert node.high is not None, "an unbounded repetition"
        return "".join(sample_text(node.body, choose) for _ in range(node.low + choose(node.high - node.low + 1)))
    return ""


def assert_canonical(text: str) -> None:
    """The text has the form that Python writes, and is read as a finite number of the same form."""
    value = json.loads(text)
    if INTEGER.fullmatch(text):
        assert json.dumps(value) == text
        return
    assert math.isfinite(value)
    digits = re.sub(r"e.*|[-.]", "", text).lstrip("0").rstrip("0")
    assert len(digits) <= 17, text
    if exponent := EXPONENT.fullmatch(text):
        power = int(exponent[2])
        assert f"{power:+03d}" == exponent[2], text
        assert power >= 16 or power < -4, text
        return
    assert FIXED.fullmatch(text), text
    assert value == 0 or abs(Decimal(text)) >= Decimal("1e-4"), text


def is_in_range(value: Any, clause: NumberClause) -> bool:
    """Whether canonical spelling covers the value."""
    return isinstance(value, float) or len(str(abs(value))) <= MAX_DIGITS


@given(case=clauses(), values=st.lists(numbers, max_size=6))
@settings(max_examples=repeats(50, 150))
def test_language_accepts_exactly_json_dumps_of_the_numbers_inside(
    case: tuple[NumberClause, Callable[[Any], bool]], values: list[Any]
) -> None:
    clause, holds = case
    node = canonical_numbers(clause)
    near = [bound for bound in (clause.low, clause.high, *clause.excluded) if bound is not None]
    for bound in near:
        as_float = float(bound)
        values += [as_float, math.nextafter(as_float, math.inf), math.nextafter(as_float, -math.inf)]
        values += [int(bound), int(bound) + 1, int(bound) - 1, as_float + 0.5]
    for value in values:
        if not math.isfinite(value) or not is_in_range(value, clause):
            continue
        if isinstance(value, float) and clause.integral is True:
            assert not matches(node, json.dumps(value))  # integers have no point
        else:
            # Above 2**53 a decimal and its double may differ. Both have to be inside.
            text = json.dumps(value)
            assert matches(node, text) == (holds(value) and clause.has(Decimal(text))), (clause, value)


@given(case=clauses(), data=st.data())
@settings(max_examples=repeats(50, 150))
def test_texts_of_the_language_are_canonical_and_inside(
    case: tuple[NumberClause, Callable[[Any], bool]], data: st.DataObject
) -> None:
    clause, holds = case
    node = canonical_numbers(clause)
    assume(node != NOTHING)
    text = sample_text(node, lambda count: data.draw(st.integers(0, count - 1)))
    assume(matches(node, text))
    assert_canonical(text)
    assert holds(json.loads(text)), (clause, text)
    assert clause.has(Decimal(text)), (clause, text)


def clauses_with_factors() -> st.SearchStrategy[NumberClause]:
    """Clauses with bounds that are near each other, or round to others, and with factors."""
    near = st.sampled_from(["0", "0.4", "0.5", "1", "9.99999999999999999999", "10", "10.00000000000000000001", "10.25"])
    values = st.builds(lambda value, sign: Decimal(sign + value), near, st.sampled_from(["", "-"]))
    return st.builds(
        NumberClause,
        integral=st.none() | st.booleans(),
        low=st.none() | values,
        low_open=st.booleans(),
        high=st.none() | values,
        high_open=st.booleans(),
        factors=st.lists(st.sampled_from(["3", "0.7", "10", "0.01", "2.5"]).map(Decimal), max_size=2).map(tuple),
        excluded=st.frozensets(values, max_size=3),
    )


@given(
    clause=clauses().map(lambda case: case[0]) | clauses_with_factors(), spelling=st.sampled_from(["any", "canonical"])
)
def test_plain_number_is_in_the_language(clause: NumberClause, spelling: Literal["any", "canonical"]) -> None:
    """The number that saves the search for a text is in the language that would have been searched."""
    if not has_plain_number(clause):
        return
    assert Emptiness().verdict(numbers_without_undecided(clause, spelling)) is not True


@given(
    factor=st.sampled_from(["0.01", "0.5", "5", "10", "2.5", "1", "1e-06", "0.00005", "250", "4e3", "0.125", "8"]),
    times=st.integers(0, 10**6),
    power=st.integers(0, 40),
    bounded=st.booleans(),
)
def test_multiples_also_have_the_form_of_floats(factor: str, times: int, power: int, bounded: bool) -> None:
    clause = NumberClause(factors=(Decimal(factor),))
    assert not undecided_factors(clause)
    if bounded:
        clause = replace(clause, low=Decimal(0), high=Decimal("1e30"))
    node, exact = canonical_numbers(clause), Decimal(factor) * times * 10**power
    value = float(exact)
    if Decimal(repr(value)) == exact:  # otherwise the double is another number
        assert matches(node, repr(value)) == clause.has(exact), (clause, value)
    if exact == int(exact) and len(str(int(exact))) <= MAX_DIGITS:
        assert matches(node, str(int(exact))) == clause.has(exact)
    other = exact + Decimal(factor) / 2
    for text in {repr(float(other)), f"{other:f}", repr(float(other) * 1e-30)}:
        if not clause.has(Decimal(text)):
            assert not matches(node, text), (clause, text)


@pytest.mark.parametrize(
    "text",
    ["-0", "00", "01", "1.", ".5", "1.50", "1.00", "1e5", "1E+16", "1e16", "1e+016", "1e+15", "1.0e+16", "0.00001"]
    + ["1e-04", "1e-4", "1e-5", "0.0000", "-0.00", "+1", "1e+309", "1.7976931348623159e+308", "1e-324", "1e+400"]
    + ["100000000000000000000", "12345678901234567.0", "1.23456789012345678", "0.12345678901234567800", "10.0e+16"],
)
def test_other_spellings_are_excluded(text: str) -> None:
    assert not matches(canonical_numbers(NumberClause()), text)


@pytest.mark.parametrize(
    ("values", "integral", "texts"),
    [
        ([1], None, {"1"}),
        ([1.0], None, {"1.0", "1"}),
        ([1.0], True, {"1"}),
        ([0.1, 2], None, {"0.1", "2"}),
        ([1e25], None, {"1e+25"}),
        ([1e16], None, {"1e+16", "10000000000000000"}),
        ([10**25], None, {str(10**25)}),
        ([10**25], True, {str(10**25)}),
        ([-0.0], None, {"-0.0", "0.0", "0"}),
        ([1e-07], None, {"1e-07"}),
        ([1e23], None, {"1e+23"}),
        ([1e23], True, {"99999999999999991611392"}),
        ([-1e23], True, {"-99999999999999991611392"}),
        ([-0.0], True, {"0"}),
    ],
)
def test_listed_values_are_written_as_in_the_schema(values: list[Any], integral: bool | None, texts: set[str]) -> None:
    floats = frozenset(Decimal(repr(value)) for value in values if isinstance(value, float))
    clause = NumberClause(integral, values=tuple(map(as_in_schema, values)), floats=floats)
    node = language_of(clause, "canonical")
    assert node is not None
    others = {"1", "1.0", "1.00", "1e0", "0.1", "0.10", "2", "2.0", "1e+25", "1e25", str(10**25), f"{10**25}.0", "0"}
    others |= {"0.0", "-0.0", "-0", "1e-07", "1e-7", "0.0000001", "1e+16", "10000000000000000", "10000000000000000.0"}
    others |= {"1e+23", str(10**23), f"-{10**23}", str(int(1e23)), str(-int(1e23))}
    assert {text for text in others if matches(node, text)} == texts


@pytest.mark.parametrize(
    ("clause", "inside", "outside"),
    [
        (NumberClause(True), "9" * 20, "1" + "0" * 20),
        (NumberClause(True, low=Decimal(10**25)), "9" * 26, "1" + "0" * 26),
        (NumberClause(True, high=Decimal(10**25)), "1" + "0" * 25, "-1" + "0" * 26),
        (NumberClause(True, low=Decimal(10**20 - 1), low_open=True), "1" + "0" * 20, "9" * 20),
        (NumberClause(True, factors=(Decimal(10**24),)), "3" + "0" * 24, "1" + "0" * 25),
        (NumberClause(True, low=Decimal(-(10**22)), high=Decimal(5)), "-1" + "0" * 22, "-1" + "0" * 23),
    ],
)
def test_integers_have_as_many_digits_as_bounds_need(clause: NumberClause, inside: str, outside: str) -> None:
    node = canonical_numbers(clause)
    assert matches(node, inside)
    assert not matches(node, outside)


@pytest.mark.parametrize(
    ("clause", "outside"),
    [
        (NumberClause(low=Decimal("0.1"), low_open=True), "0.10000000000000001"),
        (NumberClause(low=Decimal(9007199254740993)), "9007199254740993.0"),
        (NumberClause(high=Decimal("0.3"), high_open=True), "0.29999999999999999"),
        (NumberClause(excluded=frozenset([Decimal("0.1")])), "0.10000000000000001"),
        (NumberClause(False), "1.0000000000000001"),
        (NumberClause(False), "0.99999999999999999"),
        (NumberClause(False), "4503599627370496.4"),
        (NumberClause(False), "1e+16"),
    ],
)
def test_bounds_hold_for_the_parsed_double(clause: NumberClause, outside: str) -> None:
    assert clause.has(Decimal(outside)) or outside == "1e+16"
    assert not matches(canonical_numbers(clause), outside)


@given(ends=st.integers(1, 9).flatmap(lambda count: st.tuples(*[st.integers(0, 10**count - 1)] * 3)))
def test_integers_between_equals_comparison(ends: tuple[int, int, int]) -> None:
    low, value, high = ends
    node = integers_between(min(low, high), max(low, high))
    for number in {value, low, high, low + 1, max(low - 1, 0), high + 1, max(high - 1, 0)}:
        assert matches(node, str(number)) == (min(low, high) <= number <= max(low, high)), number


@pytest.mark.parametrize("bound", [1e308, 3.3e200, 7.26e110, 1.2345678901234567e250, 1e23, 10**309, 10**900 - 1])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("end", ["low", "high"])
def test_large_bound_gives_no_deep_expression(bound: int | float, sign: int, is_open: bool, end: str) -> None:
    bound *= sign
    clause = NumberClause(**{end: as_in_schema(bound), f"{end}_open": is_open})  # type: ignore[arg-type]
    node = canonical_numbers(clause)

    def holds(value: int | float) -> bool:
        return not is_open if value == bound else (value > bound) == (end == "low")

    exact = int(bound), int(as_in_schema(bound))
    for value in {base + step for base in exact for step in (-(10**9), -1, 0, 1, 10**9)}:
        if len(str(abs(value))) <= len(str(abs(exact[0]))):
            assert matches(node, str(value)) == (holds(value) and clause.has(Decimal(value))), value
    if isinstance(bound, float):
        for value in (math.nextafter(bound, 0), bound, math.nextafter(bound, math.inf * sign)):
            assert matches(node, repr(value)) == holds(value), value


@pytest.mark.parametrize(
    "excluded", [2**53 + 1, 2**53, 2.0**53, 1e23, 10**23, int(1e23), 0.1, 0, -0.0, 5e-324, 2**60, 1e300]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_excluded_number_is_excluded_as_decimal_and_as_double(excluded: int | float, sign: int) -> None:
    excluded *= sign
    exact = as_in_schema(excluded)
    node = canonical_numbers(NumberClause(excluded=frozenset([exact])))
    near = float(excluded)
    read = {math.nextafter(near, -math.inf), near, math.nextafter(near, math.inf)}
    texts = {json.dumps(value) for value in read if not value.is_integer() or abs(value) >= 1e16}
    texts |= {json.dumps(int(value)) for value in (*read, excluded, exact) if abs(value) < 10**19}
    texts |= {f"{value:.1f}" for value in read if abs(value) < 1e16 and value.is_integer()}
    for text in texts:
        differs = json.loads(text) != excluded and Decimal(text) != exact
        assert matches(node, text) == differs, text
    for text in ("0.10000000000000001", "9007199254740993.0", "-9007199254740993.0"):
        assert matches(node, text) == (json.loads(text) != excluded and Decimal(text) != exact), text
    if not near.is_integer() or abs(near) < 1e20:
        return
    # Integers may have more digits than usual if a listed value or a bound has as many.
    node = canonical_numbers(
        NumberClause(low=min(exact, Decimal(-(10**24))), high=abs(exact), excluded=frozenset([exact]))
    )
    assert not matches(node, str(int(exact))) and not matches(node, str(int(excluded)))
