"""The JSON Schema of a Python type contains Pydantic's checks. The oracles are Pydantic, `re` and brute force."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
import ipaddress
import itertools
import json
import pathlib
import random
import re
import warnings
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

import annotated_types as at
import pydantic
import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.python_types import NARROWER, digits
from tests.effort import repeats
from tests.toy import all_bytes
from tests.type_zoo import Arbitrary, Cat, Dog

RNG = random.Random(0)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(all_bytes())


def acceptor(compiler: Compiler, python_type: Any, **options: Any) -> Callable[[str], bool]:
    """Return a function that says whether the grammar of the type accepts a text."""
    compiled = compiler.compile(hg.JsonSchema(python_type, **options))

    def accepts(text: str) -> bool:
        matcher = compiled.matcher()
        return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()

    return accepts


def pydantic_validator(python_type: Any) -> Callable[[str], bool]:
    adapter = TypeAdapter(python_type)

    def is_valid(text: str) -> bool:
        try:
            adapter.validate_json(text)
        except (ValidationError, OverflowError):
            return False
        return True

    return is_valid


PYTHON_RE = ConfigDict(regex_engine="python-re")


def assert_sound(compiler: Compiler, python_type: Any, texts: Iterable[str], *, lost: int = 0) -> None:
    """The grammar accepts no text that Pydantic refuses, and refuses at most ``lost`` texts that Pydantic accepts."""
    accepts, is_valid = acceptor(compiler, python_type), pydantic_validator(python_type)
    excluded = []
    for text in texts:
        if is_valid(text):
            excluded += [] if accepts(text) else [text]
        else:
            assert not accepts(text), text
    assert len(excluded) <= lost, excluded


# -- ranges of digits ------------------------------------------------------------------------------------------------


def matches(pattern: str, text: str) -> bool:
    return pattern != digits.NOTHING and re.fullmatch(pattern, text) is not None


def test_integers_between_bounds() -> None:
    bounds = [None, -101, -100, -10, -9, -1, 0, 1, 7, 9, 10, 99, 100, 105]
    for low in bounds:
        for high in bounds:
            pattern = digits.whole(low, high)
            for number in (*range(-120, 120), 1000, -1000, 10**6):
                inside = (low is None or number >= low) and (high is None or number <= high)
                assert matches(pattern, str(number)) == inside, (low, high, number)
            assert not matches(pattern, "-0") and not matches(pattern, "05")


@pytest.mark.parametrize("low", [None, 7, 10**19, 10**20, 10**20 - 1, 10**25, 99 * 10**24 + 1])
def test_unbounded_side_has_as_many_digits_as_json_integers(low: int | None) -> None:
    most = 20 if low is None else max(20, len(str(low)) + 1)
    numbers = [9, 10**19, 10**20 - 1, 10**20, 10**25 - 1, 10**25, 10**26 - 1, 10**26, 10**27, 10**28]
    for pattern, sign in ((digits.whole(low, None), 1), (digits.whole(None, None if low is None else -low), -1)):
        for number in numbers:
            inside = (low is None or number >= low) and len(str(number)) <= most
            assert matches(pattern, str(sign * number)) == inside, (low, number)


@pytest.mark.parametrize(
    ("python_type", "text"),
    [
        (dict[int, int], '{{"{}": 1}}'),
        (dict[Annotated[int, Field(multiple_of=5)], int], '{{"{}": 1}}'),
        (dict[float, int], '{{"{}": 1}}'),
        (pydantic.Json[int], '"{}"'),
        (pydantic.Json[dict[int, list[int]]], '"{{\\"5\\":[{0}],\\"{0}\\":[]}}"'),
    ],
)
def test_integers_in_strings_have_as_many_digits_as_integers(compiler: Compiler, python_type: Any, text: str) -> None:
    """Python cannot parse an integer of more than 4300 digits."""
    assert_sound(compiler, python_type, [text.format("5" * length) for length in (1, 19, 20)])
    accepts = acceptor(compiler, python_type)
    assert not any(accepts(text.format("5" * length)) for length in (21, 29, 5000))
    if python_type != dict[float, int]:
        assert not pydantic_validator(python_type)(text.format("5" * 5000))


def test_decimals_between_bounds() -> None:
    for _ in range(repeats(25, 150)):
        low, high = (RNG.choice([None, Fraction(RNG.randrange(-3000, 3000), 100)]) for _ in range(2))
        places = RNG.randrange(4)
        pattern = digits.decimals(low, high, places)
        for _ in range(100):
            fraction = "".join(RNG.choice("059") for _ in range(RNG.randrange(4)))
            text = f"{RNG.choice(['', '-'])}{RNG.randrange(40)}{'.' if fraction else ''}{fraction}"
            value = Fraction(text)
            inside = (low is None or value >= low) and (high is None or value <= high) and len(fraction) <= places
            assert matches(pattern, text) == (inside and not (value == 0 and text[0] == "-")), (low, high, places, text)


def test_between_equals_string_comparison() -> None:
    low, high = "2024-02-27", "2025-03-01"
    pattern = digits.between(low, high)
    for text in (
        f"{year}-{month:02}-{day:02}" for year in (2023, 2024, 2025) for month in range(14) for day in range(33)
    ):
        assert matches(pattern, text) == (low <= text <= high)


# -- numbers ---------------------------------------------------------------------------------------------------------


def decimals_around(bound: float) -> list[str]:
    """Decimals around a double. Some of them are parsed as the double itself."""
    exact = Decimal(bound)
    ulp = Decimal(5e-18) if abs(bound) < 1 else Decimal(1e-16) * abs(int(bound) or 1)
    return [f"{exact + ulp * step / 4:.25f}" for step in range(-30, 31)] + [repr(bound), f"{bound:.17g}"]


@pytest.mark.parametrize("bound", [0.1, 0.3, 1.1, -0.7, 100.01])
@pytest.mark.parametrize("option", ["gt", "ge", "lt", "le"])
def test_bounds_of_floats_hold_for_the_parsed_double(compiler: Compiler, bound: float, option: str) -> None:
    python_type = Annotated[float, Field(**{option: bound})]  # type: ignore[arg-type]
    # Some decimals at the boundary that are no shortest repr may be excluded, but none may be wrong.
    assert_sound(compiler, python_type, (text for text in decimals_around(bound) if "e" not in text), lost=64)
    inside = bound + (1 if option in ("gt", "ge") else -1)
    assert acceptor(compiler, python_type)(repr(inside))


def test_finite_float_excludes_infinity(compiler: Compiler) -> None:
    accepts = acceptor(compiler, pydantic.FiniteFloat)
    assert not any(map(accepts, ("1e999", "-1e999", "1.8e308")))
    assert all(map(accepts, ("0.5", "-3", "123456.789")))


def test_bounds_and_digits_of_decimals(compiler: Compiler) -> None:
    numbers = [
        f"{sign}{whole}{fraction}"
        for sign in ("", "-")
        for whole in ("0", "1", "9", "10", "99", "100", "123", "999", "1000")
        for fraction in ("", ".0", ".1", ".25", ".5", ".99", ".001", ".125", ".10", ".250")
    ]
    texts = [*numbers, *map(json.dumps, numbers), '"1e2"', "1e999", '"NaN"', '"Infinity"']
    for options in (
        {"max_digits": 4, "decimal_places": 2},
        {"max_digits": 3},
        {"decimal_places": 1},
        {"gt": Decimal("0.1"), "le": Decimal("99.5")},
        {"ge": Decimal("-1.25"), "lt": Decimal(10), "decimal_places": 2},
        {"multiple_of": Decimal("0.25")},
        {"multiple_of": Decimal(5)},
    ):
        python_type = Annotated[Decimal, Field(**options)]  # type: ignore[arg-type]
        # Exponents, -0 and strings of multiples above one are excluded.
        assert_sound(compiler, python_type, texts, lost=90)
    assert_sound(compiler, pydantic.condecimal(max_digits=4, decimal_places=2), texts, lost=40)


def test_infinite_bounds_of_decimals(compiler: Compiler) -> None:
    infinity = Decimal("Infinity")
    for options in ({"lt": infinity}, {"le": infinity}, {"gt": -infinity}, {"ge": -infinity}):
        python_type = Annotated[Decimal, Field(**options)]  # type: ignore[arg-type]
        assert_sound(compiler, python_type, ["0", "-1.5", "1e+300", '"2"', '"Infinity"', '"NaN"'])
        assert hg.JsonSchema(python_type).described == {"type": "number"}
    beyond_doubles = Annotated[Decimal, Field(lt=Decimal("1e400"))]
    assert hg.JsonSchema(beyond_doubles).described == {"type": "number"}
    for options in ({"gt": infinity}, {"ge": infinity}, {"lt": -infinity}, {"le": -infinity}, {"gt": Decimal("NaN")}):
        with pytest.raises(hg.InvalidConstraint, match="no decimal is inside the bounds"):
            hg.JsonSchema(Annotated[Decimal, Field(**options)])  # type: ignore[arg-type]


DIGITS = [(3, 3), (1, 1), (2, 3), (1, 3), (2, 5), (3, 2), (1, 0), (0, 0), (0, None), (2, None)]


@pytest.mark.parametrize("total, places", DIGITS)
def test_zero_before_the_decimal_point(compiler: Compiler, total: int, places: int | None) -> None:
    fractions = ("".join(chosen) for size in range(5) for chosen in itertools.product("01", repeat=size))
    parts = ["", *(f".{part}" for part in fractions if part)]
    numbers = [f"{sign}{whole}{part}" for sign in ("", "-") for whole in ("0", "1", "10") for part in parts]
    numbers += ["0e0", "0.0e-3", "1e-1", "0.5", "-0.5", "0.25"]
    texts = [*numbers, *map(json.dumps, numbers)]
    for step in (None, Decimal("0.5"), Decimal("0.001"), Decimal(2)):
        python_type = Annotated[Decimal, Field(max_digits=total, decimal_places=places, multiple_of=step)]
        try:
            # Zeros with a sign or at the end, exponents, and strings of some multiples are excluded.
            assert_sound(compiler, python_type, texts, lost=len(texts) // 2)
        except hg.InvalidConstraint as error:
            assert "no decimal is inside the bounds" in str(error)
            assert total == 0 or step == 2
        else:
            assert any(map(acceptor(compiler, python_type), texts))


def test_multiples_of_floats_are_limited_to_exact_division(compiler: Compiler) -> None:
    texts = [str(Decimal(RNG.randrange(10**size)) * Decimal("0.1")) for size in range(1, 13) for _ in range(20)]
    assert_sound(compiler, Annotated[float, at.MultipleOf(0.1)], texts, lost=len(texts))
    assert acceptor(compiler, Annotated[float, at.MultipleOf(0.1)])("99999.9")


# -- dates and times -------------------------------------------------------------------------------------------------

EDGES = [
    dt.datetime(2024, 2, 28, 23, 59, 59),
    dt.datetime(2024, 2, 29),
    dt.datetime(2024, 3, 1, 0, 0, 0, 1),
    dt.datetime(2024, 12, 31, 12, 30, 59, 999999),
]


def moments() -> list[dt.datetime]:
    steps = [dt.timedelta(microseconds=n) for n in (0, 1, -1, 10**6, -(10**6))] + [
        dt.timedelta(days=n) for n in (1, -1)
    ]
    return [edge + step for edge in EDGES for step in steps]


@pytest.mark.parametrize("kind", [dt.datetime, dt.date, dt.time])
def test_bounds_of_dates_and_times(compiler: Compiler, kind: Any) -> None:
    def of(moment: dt.datetime) -> Any:
        return moment if kind is dt.datetime else moment.date() if kind is dt.date else moment.time()

    texts = [f'"{of(moment).isoformat()}{zone}"' for moment in moments() for zone in ("", "Z")]
    texts += ['"2024-02-30"', '"2024-02-30T00:00:00"', '"0000-01-01"', '"12:60:00"', '"2024-02-29T00:00:60"']
    for low, high in ((EDGES[0], EDGES[1]), (EDGES[1], EDGES[3]), (EDGES[2], EDGES[3])):
        bounds = sorted(map(of, (low, high)))
        for interval in (at.Interval(ge=bounds[0], le=bounds[1]), at.Interval(gt=bounds[0], lt=bounds[1])):
            try:
                # A fraction of the first or the last second may be excluded.
                assert_sound(compiler, Annotated[kind, interval], texts, lost=24)
            except hg.InvalidConstraint as error:
                assert "inside the bounds" in str(error)


def test_naive_and_aware_datetimes(compiler: Compiler) -> None:
    naive, aware = '"2024-05-17T12:30:45"', '"2024-05-17T12:30:45+02:00"'
    for python_type in (pydantic.NaiveDatetime, pydantic.AwareDatetime, dt.datetime):
        assert_sound(compiler, python_type, [naive, aware])


def test_bounds_of_durations(compiler: Compiler) -> None:
    sizes = [dt.timedelta(0), dt.timedelta(seconds=1), dt.timedelta(minutes=59, seconds=59), dt.timedelta(hours=1)]
    sizes += [dt.timedelta(days=1), dt.timedelta(days=1, microseconds=500_000), dt.timedelta(days=40, hours=5)]
    sizes += [-size for size in sizes]
    dump = TypeAdapter(dt.timedelta).dump_json
    for low, high in ((sizes[1], sizes[4]), (-sizes[3], sizes[5]), (-sizes[6], -sizes[2]), (sizes[0], sizes[6])):
        for interval in (at.Interval(ge=low, le=high), at.Interval(gt=low, lt=high)):
            tick = dt.timedelta.resolution
            texts = [dump(size + step).decode() for size in sizes for step in (dt.timedelta(0), tick, -tick)]
            assert_sound(compiler, Annotated[dt.timedelta, interval], texts)


def test_longest_duration_is_within_pydantics_limits() -> None:
    longest = "P99999Y999999M9999999W99999999DT999999H999999M999999.999999S"
    pattern = hg.JsonSchema(dt.timedelta).schema["pattern"]  # type: ignore[index]
    for text in (longest, f"-{longest}"):
        assert re.search(pattern, text) and TypeAdapter(dt.timedelta).validate_python(text)
    assert not re.search(pattern, longest.replace("P9", "P99"))


def test_past_and_future_dates_keep_a_margin(compiler: Compiler) -> None:
    today = dt.datetime.now(dt.timezone.utc).date()  # the margin also covers a change of the date during the test
    for python_type, sign in ((pydantic.PastDate, -1), (pydantic.FutureDate, 1)):
        accepts = acceptor(compiler, python_type)
        assert not accepts(f'"{today}"') and not accepts(f'"{today + dt.timedelta(sign)}"')
        assert accepts(f'"{today + dt.timedelta(3 * sign)}"')


# -- strings ---------------------------------------------------------------------------------------------------------


def test_length_of_bytes_counts_bytes(compiler: Compiler) -> None:
    assert_sound(compiler, pydantic.conbytes(max_length=3), ['"abc"', '"abcd"', '"ééé"', '""'])


def test_stripped_whitespace_does_not_count_for_the_length(compiler: Compiler) -> None:
    python_type = pydantic.constr(strip_whitespace=True, min_length=2, pattern="^[a-z ]+$")
    assert_sound(compiler, python_type, ['"ab"', '"a "', '" a"', '"  "', '"a b"'])


def test_patterns_have_pydantics_meaning(compiler: Compiler) -> None:
    texts = [
        '"a"',
        '"\u00e9"',
        '"\u0661"',
        '"\u0300"',
        '"\u200d"',
        '" "',
        '"\\u0085"',
        '"\ufeff"',
        '"\\n"',
        '"-"',
        '"_"',
    ]
    for pattern in (r"^\W$", r"^\w$", r"^\D$", r"^\d$", r"^\S$", r"^\s$", "^.$", r"^[^\w]$", r"^[^\d]$"):
        assert_sound(compiler, Annotated[str, Field(pattern=pattern)], texts, lost=len(texts))
    ignoring_case = Annotated[str, Field(pattern=re.compile("^[^a]$", re.I))]
    assert_sound(compiler, ignoring_case, ['"a"', '"A"', '"b"'])
    # Python's rules alone: all that they allow is written.
    canonical = [text for text in texts if json.dumps(json.loads(text), ensure_ascii=False) == text]
    for pattern in (
        r"^\W$",
        r"^\w$",
        r"^\D$",
        r"^\d$",
        r"^\S$",
        r"^\s$",
        "^.$",
        r"^[^\w]$",
        "^[[:alpha:]]$",
        "(?a)^\\w$",
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of the nested class
            by_python = pydantic.create_model("M", __config__=PYTHON_RE, value=(str, Field(pattern=pattern)))
            compiled = Annotated[str, Field(pattern=re.compile(f"{pattern} # a comment", re.X))]
            assert_sound(compiler, compiled, canonical)
            assert_sound(compiler, by_python, [f'{{"value": {text}}}' for text in canonical])
    keys = pydantic.create_model(
        "M", __config__=PYTHON_RE, value=(dict[Annotated[str, Field(pattern=r"^\d$")], int], ...)
    )
    assert_sound(compiler, keys, [f'{{"value": {{"{key}": 1}}}}' for key in ("7", "\u0667", "a")])
    assert hg.describe(by_python).endswith("{value: string (/^\\w$/)}")


def test_networks_with_prefixes_of_every_length(compiler: Compiler) -> None:
    ones = 2**128 - 1
    texts = []
    for bits in range(129):
        mask = ones ^ (ones >> bits)
        for address in (
            ones,
            0x20010DB8 << 96,
            RNG.getrandbits(128),
            RNG.getrandbits(128),
            1 << 127 >> max(0, bits - 1),
        ):
            texts.append(f"{ipaddress.IPv6Address(address & mask)}/{bits}")
            texts.append(f"{ipaddress.IPv6Address(address & mask | 1 << 127 >> min(bits, 127))}/{bits}")
    texts += ["::/129", "::/-1", "::", "1::/7", "FE80::/10", "fe8::/10", "8::/13", "4::/13"]
    # The excluded networks have their longest run of zeros before the end. Common networks are all accepted.
    assert_sound(compiler, ipaddress.IPv6Network, map(json.dumps, texts), lost=130)
    accepts = acceptor(compiler, ipaddress.IPv6Network)
    common = [(0x20010DB8 << 96, (32, 33, 40, 48, 56, 64, 127)), (0xFE80 << 112, (9, 10, 64)), (0x2 << 124, (3, 4, 16))]
    for address, lengths in common:
        for bits in lengths:
            network = ipaddress.IPv6Network((address, bits))
            assert accepts(json.dumps(str(network) if bits < 113 else f"{network[0].exploded}/{bits}")), network


@pytest.mark.parametrize("options", [{"default_host": "h"}, {"default_port": 5}, {"default_path": "/q"}])
def test_defaults_of_urls_keep_texts_sound(compiler: Compiler, options: dict[str, Any]) -> None:
    texts = ["mailto:a", "x:a", "http://a", "x://a", "x:/a", "x:///a", "file:///a", "file://a/b", "x://a:1/b", "s3://"]
    for more in ({}, {"host_required": True}, {"max_length": 60}, {"allowed_schemes": ["x", "file"]}):
        constraints = pydantic.UrlConstraints(**options, **more)
        assert_sound(compiler, Annotated[pydantic.AnyUrl, constraints], map(json.dumps, texts), lost=9)


# -- containers ------------------------------------------------------------------------------------------------------


def test_sets_count_equal_items_once(compiler: Compiler) -> None:
    assert_sound(compiler, set[str], ["[]", '["a"]', '["a","a"]'])
    assert_sound(compiler, pydantic.conset(int, min_length=1, max_length=2), ["[]", "[1]", "[1,1]", "[1,2,3]"])
    listed = pydantic.conset(Literal["a", "b"], min_length=2)
    assert_sound(compiler, listed, ['["a","b"]', '["a","a"]', '["a"]'])
    assert_sound(compiler, set, ["[1]", "[[1]]", "[{}]"])


def test_keys_are_valid_for_their_type(compiler: Compiler) -> None:
    keys = ["1", "-1", "01", "1.5", "a", "ab", "true", "2024-05-17", "", "7", "123e4567-e89b-42d3-a456-426614174000"]
    texts = [json.dumps({key: 1}) for key in keys]
    for key in (int, float, bool, dt.date, pydantic.UUID4, Annotated[str, Field(pattern="^a+$")], pydantic.PositiveInt):
        assert_sound(compiler, dict[key, int], texts, lost=4)  # type: ignore[valid-type]


def test_keys_keep_bounds_multiples_and_digit_limits(compiler: Compiler) -> None:
    keys = ["0", "-5", "5", "6", "10", "25", "30", "75", "100", "125", "1000", "0.5", "1.5", "0.25", "7.357957", "99.9"]
    keys += ["100.0", "99.95", "14", "21", "-7", "-0.5", "2.0", "1234.5", "0.3", "0.1", "0.05"]
    texts = [json.dumps({key: 1}) for key in keys]
    for key in (
        *(Annotated[int, Field(multiple_of=step)] for step in (1, 2, 5, 8, 25, 100)),
        Annotated[int, Field(multiple_of=7, ge=-20, lt=1000)],
        Annotated[int, Field(multiple_of=5, gt=5, le=100)],
        *(Annotated[float, Field(multiple_of=step)] for step in (0.5, 0.1, 0.25, 5)),
        Annotated[float, Field(multiple_of=0.5, gt=0, lt=75)],
        Annotated[Decimal, Field(max_digits=3, decimal_places=1)],
        Annotated[Decimal, Field(max_digits=2)],
        Annotated[Decimal, Field(multiple_of=Decimal("0.25"), ge=0)],
        Annotated[int, Field(gt=5)] | Annotated[Decimal, Field(max_digits=2)],
        Annotated[Decimal, Field(max_digits=2, decimal_places=2)] | None,
    ):
        assert_sound(compiler, dict[key, int], texts, lost=6)  # type: ignore[valid-type]


@pytest.mark.parametrize(
    "key",
    [Annotated[int, at.MultipleOf(7)], Annotated[float, at.MultipleOf(0.3)], Annotated[Decimal, at.MultipleOf(7)]],
)
def test_multiples_that_no_key_pattern_can_express_are_refused(key: Any) -> None:
    with pytest.raises(hg.InvalidConstraint, match="not decided by their digits"):
        hg.JsonSchema(dict[key, int])


# -- models ----------------------------------------------------------------------------------------------------------


class Paths(BaseModel):
    model_config = ConfigDict(extra="allow")
    city: str = Field(validation_alias=pydantic.AliasPath("address", "city"))
    last: int = Field(validation_alias=pydantic.AliasPath("values", -1))
    name: str = Field(default="", validation_alias=pydantic.AliasChoices("name", "title"))


def test_alias_paths_and_alias_choices(compiler: Compiler) -> None:
    base = {"address": {"city": "a"}, "values": [1]}
    texts = [base, {**base, "name": "b"}, {**base, "values": []}, {**base, "address": {}}, {"city": "a", "last": 1}]
    texts += [{"name": "b", **base, "title": 3}, {**base, "title": 3}]
    assert_sound(compiler, Paths, map(json.dumps, texts), lost=2)


def test_discriminator_of_a_union_is_required(compiler: Compiler) -> None:
    python_type = Annotated[Cat | Dog, Field(discriminator="kind")]
    texts = ["{}", '{"kind":"cat"}', '{"kind":"dog"}', '{"kind":"dog","name":"a"}', '{"lives":3}']
    assert_sound(compiler, python_type, texts)


def test_schema_of_the_user_is_combined_with_pydantics_checks(compiler: Compiler) -> None:
    annotated = Annotated[dt.date, pydantic.WithJsonSchema({"type": "string", "pattern": "^2024"})]
    accepts = acceptor(compiler, annotated)
    assert accepts('"2024-02-29"') and not accepts('"2023-01-01"') and not accepts('"2024-02-30"')
    preprocessed = Annotated[int, BeforeValidator(len), pydantic.WithJsonSchema({"type": "string"})]
    assert acceptor(compiler, preprocessed)('"abc"')


# -- notes, audits and refusals --------------------------------------------------------------------------------------


def even(value: int) -> int:
    return value


class Checked(BaseModel):
    count: Annotated[int, AfterValidator(even)]
    when: dt.datetime

    @pydantic.field_validator("when")
    @classmethod
    def not_too_late(cls, value: dt.datetime) -> dt.datetime:
        return value

    @pydantic.model_validator(mode="after")
    def together(self) -> Checked:
        return self


@dataclasses.dataclass
class Prepared:
    a: int

    def __post_init__(self) -> None:
        pass


def test_integers_are_written_as_strict_readers_take_them(compiler: Compiler) -> None:
    """JSON Schema takes 1.0 for an integer, and Pydantic does not where it is strict."""
    accepts = acceptor(compiler, int, spelling="any")
    for text in ("1", "-20", "1.0", "1e1"):
        try:
            TypeAdapter(int).validate_json(text, strict=True)
        except ValidationError:
            assert not accepts(text)
        else:
            assert accepts(text)


def test_audit_lists_validators_of_the_user(compiler: Compiler) -> None:
    audit = compiler.audit(hg.JsonSchema(Checked))
    code = {(row.pointer, row.keyword): row.detail for row in audit.rows if row.outcome == "validator"}
    assert {pointer for pointer, _ in code} == {"", "/properties/count", "/properties/when"}
    assert [name for _, name in code] == ["together", "even", "not_too_late"]
    assert audit.ok and all("may refuse a value" in detail for detail in code.values())
    (row,) = (row for row in compiler.audit(hg.JsonSchema(Prepared)).rows if row.outcome == "validator")
    assert row.keyword == "__post_init__"


def test_audit_lists_narrower_types(compiler: Compiler) -> None:
    audit = compiler.audit(hg.JsonSchema(Checked))
    (row,) = (row for row in audit.rows if row.outcome == "narrower")
    assert (row.pointer, row.keyword) == ("/properties/when", "datetime")
    assert row.detail.endswith(NARROWER["datetime"])
    assert "narrower" in str(audit)


class Bits(enum.IntFlag):
    A = 1
    B = 2


@pytest.mark.parametrize(
    "python_type, text, said",
    [
        (Bits, "3", "combinations"),
        (complex, '"(1+2j)"', "parentheses"),
        (ipaddress.IPv6Address, '"fe80::1%eth0"', "scope ids"),
        (ipaddress.IPv6Interface, '"fe80::1%eth0/64"', "scope ids"),
        (ipaddress.IPv4Interface, '"1.2.3.4/255.255.255.0"', "netmasks"),
        (Decimal, f'"{"1" * 20}"', "more than 18 digits"),
        (pydantic.HttpUrl, '"http://a/b c"', "spaces"),
    ],
)
def test_each_excluded_text_has_a_note(compiler: Compiler, python_type: Any, text: str, said: str) -> None:
    assert pydantic_validator(python_type)(text) and not acceptor(compiler, python_type)(text)
    assert any(note.outcome == "narrower" and said in note.detail for note in hg.JsonSchema(python_type).type_notes)


def test_notes_do_not_change_the_key_of_a_constraint() -> None:
    assert hg.JsonSchema(list[int]).type_notes == ()
    assert hg.JsonSchema({"type": "string"}).type_notes == ()
    assert "x-hf-guided" not in hg.JsonSchema(Checked).schema_json
    assert hg.JsonSchema(pydantic.PastDatetime).key == hg.JsonSchema(pydantic.PastDatetime).key


class Booking(BaseModel):
    home: pydantic.HttpUrl
    when: dt.datetime = Field(description="in UTC")
    price: Annotated[Decimal, Field(gt=0, max_digits=5)]
    host: ipaddress.IPv4Network | None = None


def test_description_names_long_patterns() -> None:
    described: Any = hg.JsonSchema(Booking).described
    assert described["properties"]["home"] == {"title": "Home", "type": "string", "format": "http|https uri"}
    assert described["properties"]["when"] == {
        "title": "When",
        "description": "in UTC",
        "type": "string",
        "format": "date-time",
    }
    assert described["properties"]["price"] == {"title": "Price", "type": "number", "exclusiveMinimum": 0.0}
    assert "pattern" not in json.dumps(described) and "x-hf-guided" not in json.dumps(described)
    assert described["required"] == ["home", "when", "price"]
    assert hg.JsonSchema({"type": "string"}).described == {"type": "string"}
    assert "http|https uri" in hg.describe(Booking) and len(hg.describe(Booking)) < 300


class Urgency(enum.Enum):
    """How soon to answer."""

    LOW = "low"
    HIGH = "high"


def test_enum_keeps_its_title_and_docstring() -> None:
    assert hg.JsonSchema(Urgency).schema == {
        name: value for name, value in TypeAdapter(Urgency).json_schema().items() if name != "type"
    }


class Unhashable(BaseModel):
    a: int


class Skipping(BaseModel):
    a: pydantic.json_schema.SkipJsonSchema[int]


@pytest.mark.parametrize(
    "python_type, message",
    [
        (set[list[int]], "use list"),
        (set[Unhashable], "frozen"),
        (pydantic.conset(int, min_length=3), "a set of at least 3 items"),
        (dict[tuple[int, int], str], "no string becomes a key"),
        (type[int], "not made from JSON"),
        (collections.abc.Callable[[int], int], "has no JSON; use a type"),
        (re.Pattern[bytes], re.escape("use re.Pattern[str]")),
        (
            Annotated[dt.date, at.Interval(gt=dt.date(2024, 1, 1), lt=dt.date(2024, 1, 2))],
            "no date is inside the bounds",
        ),
        (Annotated[float, at.Gt(float("inf"))], "no JSON number"),
        (Annotated[str, Field(pattern="^[[:alpha:]]$")], "write the class out"),
        (enum.Enum("Raw", {"A": b"x"}), "list strings or ints"),
        (Skipping, "give it a default"),
    ],
)
def test_error_for_a_type_without_json_gives_advice(python_type: Any, message: str) -> None:
    with pytest.raises(hg.InvalidConstraint, match=message) as caught:
        hg.JsonSchema(python_type)
    assert "errors.pydantic.dev" not in str(caught.value)


def test_union_keeps_the_members_that_have_json() -> None:
    constraint = hg.JsonSchema(Arbitrary)
    assert constraint.described["properties"]["a"]["type"] == "null"
    assert [(note.name, note.outcome) for note in constraint.type_notes] == [("union", "narrower")]


# -- options on types that do not have them ----------------------------------------------------------------------------


def length_limits(**lengths: int) -> Any:
    return Field(**lengths)  # type: ignore[call-overload]


URLS = ['"http://a"', '"http://a/"', '"http://a/bc"', '"http://abc.de"', '"redis://a"', '"redis://a/bcd"', '"x://a"']
URLS += ['"redis://a/"', '"redis://abcde/"', '"redis://abcdefghij/"', '"redis://abcdefghij"']
URLS += [f'"http://a.de/{"b" * size}"' for size in (4, 5, 86, 87, 88, 89, 310, 317, 320)]


@pytest.mark.parametrize(
    "low, high", [(0, 9), (0, 10), (10, 12), (12, 13), (0, 18), (16, 22), (0, 25), (0, 100), (0, 330)]
)
@pytest.mark.parametrize("url", [pydantic.HttpUrl, pydantic.AnyUrl, pydantic.RedisDsn])
def test_length_of_a_url_is_that_after_normalization(compiler: Compiler, url: Any, low: int, high: int) -> None:
    try:
        assert_sound(compiler, Annotated[url, length_limits(min_length=low, max_length=high)], URLS, lost=9)
    except hg.InvalidConstraint as error:
        assert high < 18 and "no room for a URL" in str(error)


def test_lengths_of_secrets_and_addresses(compiler: Compiler) -> None:
    texts = ['""', '"a"', '"ab"', '"abc"', '"\u00e9\u00e9"', '"a@bc.de"', '"a@bcd.com"', '"abcd@efgh.com"']
    for secret in (pydantic.SecretStr, pydantic.SecretBytes):
        assert_sound(compiler, Annotated[secret, length_limits(max_length=2)], texts)
        assert_sound(compiler, Annotated[secret, length_limits(min_length=2)], texts)
    pytest.importorskip("email_validator", reason="without it EmailStr is no type")
    assert_sound(compiler, Annotated[pydantic.EmailStr, length_limits(max_length=9)], texts)
    assert_sound(compiler, Annotated[pydantic.EmailStr, length_limits(min_length=9)], texts)
    assert_sound(compiler, Annotated[pydantic.EmailStr, Field(pattern="^a@")], texts)


def test_checks_on_unions_lists_and_literals(compiler: Compiler) -> None:
    numbers = ["0", "1", "3", "4", "6", "4.5", "7.5", "-3", "-3.0", "9007199254740993", '"3"']
    assert_sound(compiler, Annotated[int | float, Field(multiple_of=3)], numbers, lost=2)
    assert_sound(compiler, Annotated[int | float, Field(multiple_of=1.5, gt=3)], numbers, lost=2)
    assert_sound(compiler, Annotated[int | float, Field(allow_inf_nan=False)], [*numbers, "1e999", "1" * 400], lost=1)
    assert_sound(
        compiler, Annotated[str | list[int], length_limits(max_length=2)], ['"ab"', '"abc"', "[1,2]", "[1,2,3]"]
    )
    assert_sound(compiler, Annotated[Literal["a", "abc"], length_limits(max_length=2)], ['"a"', '"abc"'])
    assert_sound(compiler, Annotated[bool, Field(gt=0)], ["true", "false"])
    assert_sound(compiler, Annotated[pydantic.ByteSize, Field(multiple_of=8)], ["0", "8", "9", "16", "-8"])
    assert_sound(compiler, Annotated[pydantic.Json[int | float], Field(gt=3)], ['"3"', '"4"', '"3.5"'], lost=1)
    whole = [f'"{number}"' for number in ("0", "1", "2", "3", "100", "1.5", "0.2")]
    assert_sound(compiler, Annotated[pydantic.Json[int], Field(gt=0.1, le=2.5)], whole)


@pytest.mark.parametrize(
    "python_type",
    [
        Annotated[pathlib.Path, length_limits(max_length=4)],
        Annotated[pydantic.Secret[list[int]], length_limits(max_length=4)],
        Annotated[pydantic.UUID4, length_limits(min_length=4)],
        Annotated[int, Field(max_digits=3)],
        Annotated[float, Field(max_digits=3, decimal_places=1)],
        Annotated[int | Decimal, Field(max_digits=3)],
        Annotated[int | float, Field(multiple_of=0.1)],
        Annotated[str, Field(gt="b")],
        Annotated[ipaddress.IPv4Address, Field(gt=ipaddress.IPv4Address("1.2.3.4"))],
        Annotated[Any, length_limits(max_length=4)],
        Annotated[pydantic.HttpUrl, Field(pattern="a")],
    ],
)
def test_checks_that_the_text_cannot_decide_are_refused(python_type: Any) -> None:
    with pytest.raises(hg.InvalidConstraint, match="cannot be enforced here"):
        hg.JsonSchema(python_type)


class Raising:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise KeyError("no schema")


@pytest.mark.parametrize("python_type", [Annotated[int | float, pydantic.Strict()], Raising, list[Raising]])
def test_errors_of_pydantic_become_invalid_constraint(python_type: Any) -> None:
    with pytest.raises(hg.InvalidConstraint, match="expected a type that Pydantic can validate"):
        hg.JsonSchema(python_type)


def test_audit_lists_checks_after_validators_of_the_user() -> None:
    (_, note) = hg.JsonSchema(Annotated[int, AfterValidator(even), Field(gt=3)]).type_notes
    assert (note.name, note.outcome) == ("gt", "validator") and "gt=3" in note.detail
