"""The JSON-Schema-Test-Suite: either a group is refused with its reasons, or every test of it is judged rightly.

What is judged otherwise is listed below, each kind with its reason. A kind that no longer occurs fails the test, so the
list stays true. No invalid instance may be accepted, whatever the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from benchmarks.bench_schemas import Judged, judge, tokenizing
from benchmarks.bench_suite import load_groups, mistakes, suite_folder, summary, table
from benchmarks.schema_libraries import HFGuided, HFGuidedAnySpelling

if not suite_folder().is_dir():
    pytest.skip(f"no {suite_folder()}; set HF_GUIDED_DATA to the folder that holds it", allow_module_level=True)


class Exempt(NamedTuple):
    """A kind of valid instance that is refused, and why.

    Args:
        reason: why.
        place: pattern for draft and file.
        detail: pattern for the instance's text, ``>>>`` before the character that was refused.
    """

    reason: str
    place: str
    detail: str

    def covers(self, mistake: dict[str, str]) -> bool:
        return (
            mistake["what"] == REFUSED
            and re.fullmatch(self.place, mistake["schema"].partition(": ")[0]) is not None
            and re.search(self.detail, mistake["reason"]) is not None
        )


REFUSED = "valid refused, in order"


# Middle dots, keraia, Katakana's dot, digits of two alphabets, joiners behind a virama, an acute accent of its own.
LETTERS = r" >>> ([\u0301·͵・ब۰क]|بي\u200c)"

EXEMPT = (
    Exempt("the keys of an object stand in the order its const declares", ".*/const", r'^\{" >>> baz"'),
    Exempt("formats are asserted, whatever the dialect says of them", "draft2020-12/format", ""),
    Exempt("leap seconds: checkers disagree on when there is one", ".*/format/(date-)?time", r":[0-9]{2}: >>> 60"),
    Exempt("no pattern can prove Punycode valid", ".*/format/(idn-)?hostname", r'^"xn- >>> -'),
    Exempt("letters that combine, or are allowed in some contexts only", ".*/format/idn-(hostname|email)", LETTERS),
    Exempt(
        "letters written from right to left, and rare scripts", ".*/format/idn-hostname", r'^"( >>> [א-۽]|ßς >>> ་)'
    ),
    Exempt("the only dot is U+002E", ".*/format/idn-hostname", r'^"a >>> [。．｡]b"$'),
    Exempt("labels that may be too long in Punycode", ".*/format/idn-hostname", r'^"(παράδειγμα){2} >>> παράδειγμα'),
    Exempt("compressed IPv6 hosts in IRIs: checkers refuse them", ".*/format/iri", r"\[2001:db8: >>> :1\]"),
    Exempt("an upper-case V before a future kind of address: checkers refuse it", ".*/format/iri", r"\[ >>> V1"),
    Exempt("characters beyond U+FFFF in IRIs: checkers refuse them", ".*/format/iri", " >>> [\U00010000-\U0010ffff]"),
    Exempt("a zero before the last digit: checkers refuse it", ".*/format/relative-json-pointer", '^"10 >>> 0"$'),
    Exempt("variables that begin with %: checkers refuse them", ".*/format/uri-template", r"\{ >>> %41\}"),
    Exempt("prefixes of four digits: checkers refuse them", ".*/format/uri-template", r"\{v:100 >>> 0\}"),
)

POINTER = re.compile(r"([a-z]+:[^#]+#)?(/.*)?")  # into the schema, or, behind its URI, into another document

# What the canonical spelling leaves out besides.
NOT_CANONICAL = (
    Exempt("an integer has no point", ".*/(const|enum|type)", r"\d >>> \.0"),
    Exempt("lower-case t and z", ".*/format/(date-)?time", " >>> [tz]"),
    Exempt("more than nine digits of a second", ".*/format/date-time", r"\.999999999 >>> 9"),
)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(HFGuidedAnySpelling, id=HFGuidedAnySpelling.spelling, marks=pytest.mark.slow),
        pytest.param(HFGuided, id=HFGuided.spelling),
    ],
)
def library(request: pytest.FixtureRequest) -> type[HFGuided]:
    found: type[HFGuided] = request.param
    return found


@pytest.fixture(scope="module")
def exempt(library: type[HFGuided]) -> tuple[Exempt, ...]:
    return EXEMPT if library.spelling == "any" else EXEMPT + NOT_CANONICAL


@pytest.fixture(scope="module")
def judged(library: type[HFGuided]) -> list[Judged]:
    vocabulary, tokenize = tokenizing("bytes")
    made = library(vocabulary)
    return [Judged(group, judge(made, group.job, tokenize)) for group in load_groups()]


def all_mistakes(judged: list[Judged]) -> Iterator[dict[str, str]]:
    for one in judged:
        yield from mistakes(one)


def expect_none(found: Iterable[dict[str, str]]) -> None:
    lines = [": ".join(part for part in one.values() if part) for one in found]
    assert not lines, "\n".join([f"{len(lines)} mistakes", *lines])


def test_both_drafts_are_read(judged: list[Judged]) -> None:
    assert len(judged) > 600
    assert {one.sample.name.split("/")[0] for one in judged} == {"draft7", "draft2020-12"}
    assert any("optional/format" in one.sample.name for one in judged)


def test_no_invalid_instance_is_accepted(judged: list[Judged]) -> None:
    expect_none(one for one in all_mistakes(judged) if one["what"] == "invalid accepted")


def test_valid_instances_are_accepted(judged: list[Judged], exempt: tuple[Exempt, ...]) -> None:
    others = [one for one in all_mistakes(judged) if one["what"] == REFUSED]
    expect_none(one for one in others if not any(kind.covers(one) for kind in exempt))


def test_a_schema_that_has_instances_is_never_called_invalid(judged: list[Judged]) -> None:
    expect_none(one for one in all_mistakes(judged) if one["what"] not in (REFUSED, "invalid accepted"))


def test_what_is_exempt_still_occurs(judged: list[Judged], exempt: tuple[Exempt, ...]) -> None:
    found = list(all_mistakes(judged))
    assert [kind.reason for kind in exempt if not any(map(kind.covers, found))] == []


def test_a_refusal_names_pointer_and_keyword(judged: list[Judged]) -> None:
    refused = [one for one in judged if one.verdict.outcome == "refused"]
    unnamed = [
        (one.sample.name, one.verdict.reasons)
        for one in refused
        if not all(keyword and words and POINTER.fullmatch(pointer) for pointer, keyword, words in one.verdict.reasons)
    ]
    assert unnamed == []


def test_the_share_that_is_handled(judged: list[Judged], capsys: pytest.CaptureFixture[str]) -> None:
    row = summary("hf-guided", judged)
    with capsys.disabled():
        print(f"\n{table([row])}")
    wrong = sum(bool(mistakes(one)) for one in judged)
    assert row["handled"] + row["refused"] + wrong == row["groups"]
