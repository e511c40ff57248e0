"""The checker of formats, with and without the package that reads IRIs for `jsonschema`."""

from __future__ import annotations

import pytest
from jsonschema import FormatChecker, validators

from hf_guided.constraints.json_validator import format_checker

IRIS = ["http://é.example/漢?ü#δ", "urn:isbn:0-395", "a:", "//é/ü", "", "a b", "http://[::1", "é:x", "%zz", "a:%c3"]


class WithoutIris:
    """As a validator of `jsonschema` where `rfc3987_syntax` is not installed."""

    FORMAT_CHECKER = FormatChecker(formats=())


@pytest.mark.parametrize("name", ["iri", "iri-reference"])
def test_iris_are_judged_as_by_the_package_that_is_not_needed(name: str) -> None:
    theirs = validators.Draft202012Validator.FORMAT_CHECKER
    ours = format_checker(WithoutIris)
    assert ours.checkers.keys() == {"iri", "iri-reference"}
    assert [ours.conforms(text, name) for text in IRIS] == [theirs.conforms(text, name) for text in IRIS]
    assert {theirs.conforms(text, name) for text in IRIS} == {True, False}
    assert ours.conforms(7, name)


def test_other_formats_are_those_of_jsonschema() -> None:
    for validator in (validators.Draft4Validator, validators.Draft7Validator, validators.Draft202012Validator):
        theirs = validator.FORMAT_CHECKER.checkers
        assert theirs.items() <= format_checker(validator).checkers.items()
        assert {"date-time", "email", "ipv4", "ipv6", "uri", "hostname"} <= theirs.keys()
