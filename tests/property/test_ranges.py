"""The language of a number clause accepts exactly its numbers, by brute force over a pool of decimals."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hf_guided.automaton.direct_dfas import multiples_dfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.regex import matches
from hf_guided.schema.ranges import number_language, whole_bounds
from hf_guided.schema.scalars import language_of
from hf_guided.schema.shapes import NumberClause
from tests.toy import all_bytes

WHOLES = [*map(str, range(13)), "19", "20", "25", "40", "95", "99", "100", "101", "105", "120", "199", "200", "999"]
WHOLES += ["1000", "1001", "1020", "2000", "9999", "12345678901234567890"]
FRACTIONS = ["", ".0", ".5", ".25", ".01", ".1", ".19", ".49", ".50", ".75", ".9", ".99", ".125", ".005", ".500", ".00"]
POOL = [sign + whole + fraction for sign in ("", "-") for whole in WHOLES for fraction in FRACTIONS]
NO_NUMBERS = ["", "-", "00", "01", "-01", "1.", ".5", "+1", "1 ", "0x1", "1e", "--1", "1.0.0", "\u0661"]

bounds = st.none() | st.sampled_from(
    [Decimal(text) for text in ("0", "-0.5", "0.01", "0.5", "1", "-1", "1.25", "9", "9.99", "10", "19.5", "99", "100")]
    + [Decimal(text) for text in ("-100", "-12.125", "0.005", "200", "999", "1000.1", "1E+3", "-1E-3", "2.50")]
)
factors = st.sampled_from(
    [Decimal(text) for text in ("5", "0.01", "0.25", "2.5", "20", "100", "1", "0.5", "1E-3", "2")]
)
clauses = st.builds(
    NumberClause,
    integral=st.sampled_from([None, True, False]),
    point_zero=st.booleans(),
    low=bounds,
    low_open=st.booleans(),
    high=bounds,
    high_open=st.booleans(),
    factors=st.lists(factors, max_size=2).map(tuple),
    excluded=st.frozensets(
        st.sampled_from([Decimal(text) for text in ("0", "1", "-1", "5", "0.25", "100")]), max_size=2
    ),
)


def is_spelled_plainly(text: str, clause: NumberClause) -> bool:
    """Whether the language must accept this spelling: no -0, and an integer as 1, or as 1.0 if the clause allows it."""
    if text.startswith("-") and Decimal(text) == 0:
        return False
    if not clause.integral:
        return True
    whole, point, zeros = text.partition(".")
    return not point or (clause.point_zero and zeros == "0")


@given(clauses)
@example(NumberClause(low=Decimal(0), high=Decimal(0)))
@example(NumberClause(high=Decimal(0), high_open=True))
@example(NumberClause(factors=(Decimal("0.01"),), low=Decimal("-0.25")))
@example(NumberClause(True, low=Decimal("0.5"), high=Decimal("0.75")))
@example(NumberClause(False, factors=(Decimal("2.5"),)))
def test_decimals_are_accepted_exactly_if_they_satisfy_the_clause(clause: NumberClause) -> None:
    language = number_language(clause)
    for text in POOL:
        if clause.has(Decimal(text)):
            assert matches(language, text) or not is_spelled_plainly(text, clause), f"{text} is missing"
        else:
            assert not matches(language, text), f"{text} is accepted, but does not satisfy the clause"
    for text in NO_NUMBERS:
        assert not matches(language, text), f"{text!r} is no JSON"


EXPONENTS = [
    f"{number}{exponent}" for number in ("1", "-1", "0", "0.0", "2.5", "-0.5") for exponent in ("e0", "E+2", "e-2")
]
EXPONENTS += ["1e299", "-1.5E-299", "0e5"]


@given(clauses)
def test_accepted_exponents_satisfy_the_clause(clause: NumberClause) -> None:
    language = number_language(clause)
    for text in EXPONENTS:
        assert not matches(language, text) or clause.has(Decimal(text)), text


@pytest.mark.parametrize(
    "clause",
    [
        NumberClause(),
        NumberClause(low=Decimal(0)),
        NumberClause(low=Decimal(0), low_open=True),
        NumberClause(high=Decimal(0)),
        NumberClause(high=Decimal(0), high_open=True),
    ],
)
def test_exponents_are_accepted_if_only_the_sign_is_bounded(clause: NumberClause) -> None:
    language = number_language(clause)
    for text in EXPONENTS:
        assert matches(language, text) == clause.has(Decimal(text)), text


def test_greatest_exponent_stays_below_infinity() -> None:
    language = number_language(NumberClause())
    for exponent, accepted in ((299, True), (300, False), (309, False), (999, False)):
        assert matches(language, f"1e{exponent}") == accepted
    assert json.loads("9.99e299") < float("inf") == json.loads("9.99e308")


@given(st.lists(st.sampled_from([Decimal(text) for text in WHOLES] + [Decimal("0.5"), Decimal("-2.25")]), min_size=1))
def test_listed_numbers_are_accepted_and_no_others(values: list[Decimal]) -> None:
    language = language_of(NumberClause(values=tuple(dict.fromkeys(values))), "any")
    assert language is not None
    for text in POOL:
        assert not matches(language, text) or Decimal(text) in values
    for value in values:
        assert matches(language, str(value))


@pytest.mark.parametrize("value", ["1E+30", "1.5E-7", "-2.5E+22", "123456789012345678901234567890", "1E+298"])
def test_listed_number_has_pythons_spelling(value: str) -> None:
    exact = Decimal(value)
    language = language_of(NumberClause(values=(exact,)), "any")
    assert language is not None
    for text in (json.dumps(float(value)), *([f"{exact:f}"] if len(f"{exact:f}") < 40 else [])):
        assert matches(language, text) == (Decimal(text) == exact)


LONG = "1234567890123456789012345678901"  # more digits than Python's decimals keep in arithmetic


@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("tail", ["", ".5"])
def test_bounds_with_many_digits_are_exact(sign: str, tail: str) -> None:
    neighbours = [f"{sign}{LONG[:-1]}{digit}{tail}" for digit in "0123"]
    bound = Decimal(f"{sign}{LONG}{tail}")
    for clause in (
        NumberClause(low=bound),
        NumberClause(low=bound, low_open=True),
        NumberClause(high=bound),
        NumberClause(high=bound, high_open=True),
        NumberClause(True, high=bound),
        NumberClause(True, low=bound),
        NumberClause(excluded=frozenset({bound})),
        NumberClause(values=(bound,)),
    ):
        language = language_of(clause, "any")
        assert language is not None
        for text in neighbours:
            inside = clause.has(Decimal(text))
            assert matches(language, text) == inside, f"{text} in {clause}"


def test_factor_with_many_digits_is_exact() -> None:
    language = language_of(NumberClause(factors=(Decimal("1.0000000000000000000000000000007"),)), "any")
    assert language is None or not matches(language, "1")


@pytest.mark.parametrize("factor", ["3", "0.7", "7", "0.03", "12", "1E-30"])
def test_factors_not_decided_by_last_digits_have_no_language(factor: str) -> None:
    language = language_of(NumberClause(factors=(Decimal(factor),)), "any")
    decided = all(digit in "25" for digit in _primes(Decimal(factor)))
    assert (language is not None) == decided


def _primes(factor: Decimal) -> set[str]:
    digits = int("".join(map(str, factor.as_tuple().digits)))
    return {str(prime) for prime in (2, 3, 5, 7) if digits % prime == 0}


@given(clauses)
def test_whole_bounds_are_the_least_and_greatest_integers(clause: NumberClause) -> None:
    low, high = whole_bounds(clause)
    inside = NumberClause(low=clause.low, low_open=clause.low_open, high=clause.high, high_open=clause.high_open)
    for number in itertools.chain(range(-105, 205), (998, 999, 1000, 1001)):
        expected = (low is None or low <= number) and (high is None or number <= high)
        assert inside.has(Decimal(number)) == expected


FACTORS = [Decimal(text) for text in ("7", "0.07", "3", "0.3", "12", "1.5", "0.013", "21", "700", "1E+1", "9.9", "16")]


@pytest.mark.parametrize("factor", FACTORS, ids=str)
def test_multiples_dfa_equals_exact_division(factor: Decimal) -> None:
    """The automaton counts remainders, also for factors that the last digits decide."""
    dfa = multiples_dfa(factor, WorkMeter())
    products = [f"{factor * count:f}" for count in range(-40, 400, 7)]
    longer = {f"{product}0" for product in products if "." in product} | {f"{product}.00" for product in products}
    for text in {*POOL, *products, *longer}:
        try:
            expected = Decimal(text) % factor == 0
        except InvalidOperation:  # 12.00.00
            expected = False
        assert dfa.accepts(text.encode()) == expected, text
    for text in ("", "-", ".", "1.", "7.", "-7.", ".7", ".07", "--7", "7-", "7e0", "7 "):
        assert not dfa.accepts(text.encode()), repr(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "multipleOf": 7},
        {"type": "number", "multipleOf": 0.07},
        {"multipleOf": 3, "type": "number", "minimum": -20, "exclusiveMaximum": 99},
        {"type": "integer", "allOf": [{"multipleOf": 7}, {"multipleOf": 3}, {"multipleOf": 5}]},
        {"type": "number", "multipleOf": 1.5, "not": {"enum": [3, -1.5]}},
    ],
)
def test_automaton_enforces_multiples_not_decided_by_last_digits(schema: dict[str, Any]) -> None:
    """The oracle is `jsonschema` with exact numbers. All plain spellings are accepted."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal, parse_int=Decimal)
    kinds = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "number": lambda _, value: isinstance(value, Decimal),
            "integer": lambda _, value: isinstance(value, Decimal) and value == value.to_integral_value(),
        }
    )
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=kinds)(exact)
    matcher = NetworkBackend(all_bytes()).compile(JsonSchema(schema, spelling="any")).matcher()
    num_accepted = 0
    for text in [*POOL, *(str(number) for number in range(-120, 1200))]:
        matcher.reset()
        taken = all(map(matcher.accept_token, text.encode())) and matcher.is_completed()
        valid = validator.is_valid(Decimal(text))
        assert taken <= valid, text
        assert taken or not valid or not is_spelled_plainly(text, NumberClause(schema["type"] == "integer")), text
        num_accepted += taken
    assert num_accepted > 3


def test_too_many_remainders_are_a_loss() -> None:
    schema = {"properties": {"a": {"type": "number", "multipleOf": 12345.678901}}, "type": "object"}
    (loss,) = NetworkBackend(all_bytes()).losses(JsonSchema(schema))
    assert (loss.pointer, loss.keyword) == ("/properties/a/multipleOf", "multipleOf")
    assert "12345.678901 has more than 5000 remainders" in loss.reason
