"""What patterns mean in Python and in ECMA-262: the documentation's table, by `re`, by Node.js and by our masks."""

from __future__ import annotations

import json
import re
import warnings
from operator import and_, or_
from pathlib import Path
from typing import NamedTuple

import pytest
from jsonschema import Draft202012Validator

from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import ConstraintError
from hf_guided.regex import UnsupportedRegex, matches, parse_search, parse_search_either
from tests import node
from tests.property.strategies import backend, single_bytes

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "patterns.md"
_ROW = re.compile(
    r'^\| `(.+)` \| `(".*")`[^|]* \| (yes|no|error) \| (yes|no|error) \| (yes|no|refused) \|$', re.MULTILINE
)


class Row(NamedTuple):
    """One row of the table."""

    pattern: str
    text: str
    python: str
    ecma: str
    ours: str


ROWS = [
    Row(pattern, json.loads(text), *rest) for pattern, text, *rest in _ROW.findall(PAGE.read_text(encoding="utf-8"))
]


def test_the_table_is_read() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Where")[2]
    assert len(ROWS) == table.count("\n| ") - 2 > 25


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.pattern} {row.text!a}")
def test_python_reads_as_the_table_says(row: Row) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            answer = "yes" if re.search(row.pattern, row.text) else "no"
    except re.error:
        answer = "error"
    assert answer == row.python


@pytest.mark.skipif(node.NODE is None, reason="Node.js is not installed")
def test_ecma_262_reads_as_the_table_says() -> None:
    answers = node.searches([(row.pattern, "u", row.text) for row in ROWS])
    said = {None: "error", True: "yes", False: "no"}
    assert [(row.pattern, row.text, said[answer]) for row, answer in zip(ROWS, answers, strict=True)] == [
        (row.pattern, row.text, row.ecma) for row in ROWS
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.pattern} {row.text!a}")
@pytest.mark.parametrize("name", ["llguidance", "native"])
def test_hf_guided_writes_what_the_table_says(row: Row, name: str) -> None:
    schema = JsonSchema({"type": "string", "pattern": row.pattern}, spelling="any")
    try:
        matcher = backend(name, single_bytes()).compile(schema).matcher()
    except ConstraintError:
        assert row.ours == "refused"
        return
    written = json.dumps(row.text)
    accepted = all(map(matcher.accept_token, written.encode())) and matcher.is_completed()
    assert ("yes" if accepted else "no") == row.ours


# Parts that both syntaxes take, or one of them: combined, and asked of both.
_PARTS = [
    "a", "é", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[a-c]", r"[^\d]", r"[\s\w]", r"\u0061", r"\x41", r"\b",
]  # fmt: skip
_PARTS += [
    "^", "$", "(a|é)", "(?:b)", "a?", "b{1,2}", r"\.", r"[^a]", r"\t", r"\n", r"[\b]", "(?=a)", "(?!b)", "(?<=a)",
]  # fmt: skip
_TEXTS = [
    "", "a", "b", "é", "ab", "aé", "a\n", "\n", "\r", "\u2028", "7", "\u0667", " ", "\ufeff", "\x85", "\x1c", "A.",
    "b a",
]  # fmt: skip


@pytest.mark.skipif(node.NODE is None, reason="Node.js is not installed")
def test_a_pattern_of_a_schema_matches_what_both_match_and_fails_where_both_fail() -> None:
    """All pairs of parts: 15,000 questions."""
    patterns = [first + second for first in _PARTS for second in _PARTS]
    answers = iter(node.searches([(pattern, "u", text) for pattern in patterns for text in _TEXTS]))
    examined, narrower = 0, []
    for pattern in patterns:
        ecma = [next(answers) for _ in _TEXTS]
        try:
            python = [bool(re.search(pattern, text)) for text in _TEXTS]
            read, either = parse_search(pattern), parse_search_either(pattern)
        except (re.error, UnsupportedRegex):
            continue
        others = python if None in ecma else [*map(bool, ecma)]
        both = [*map(and_, python, others)]
        assert [matches(either, text) for text in _TEXTS] == [*map(or_, python, others)], pattern
        examined += 1
        for text, expected in zip(_TEXTS, both, strict=True):
            ours = matches(read, text)
            assert expected or not ours, (pattern, text)
            if ours != expected:
                narrower.append((pattern[-2:], text))
    assert examined > 800
    # Python ends the word after é, and ECMA-262 before it: there is no one position at which both match.
    assert set(narrower) == {(r"\b", "aé")}


_NEGATED = [row for row in ROWS if row.ours != "refused"]


@pytest.mark.parametrize("name", ["llguidance", "native"])
@pytest.mark.parametrize("row", _NEGATED, ids=lambda row: f"{row.pattern} {row.text!a}")
def test_what_a_pattern_forbids_is_what_one_of_them_matches(name: str, row: Row) -> None:
    """No validator may find a string that a pattern forbids, or a member that the patterns of names forbid."""
    is_matched, is_certain = "yes" in (row.python, row.ecma, row.ours), "no" not in (row.python, row.ecma)
    schemas: dict[str, tuple[dict[str, object], object]] = {
        "not": ({"not": {"pattern": row.pattern}}, row.text),
        "patternProperties": ({"patternProperties": {row.pattern: {"const": 1}}}, {row.text: 2}),
        "not propertyNames": ({"not": {"propertyNames": {"pattern": row.pattern}}}, {row.text: 1}),
        "declared": ({"properties": {row.text: {}}, "patternProperties": {row.pattern: {"const": 1}}}, {row.text: 2}),
    }
    for schema, value in schemas.values():
        assert _writes(name, {"type": ["string", "object"], **schema}, value) == (not is_matched), schema
    # A name that only one of them matches falls under additionalProperties for the other.
    closed = {"type": "object", "patternProperties": {row.pattern: {"const": 1}}, "additionalProperties": {"const": 2}}
    assert _writes(name, closed, {row.text: 1}) == (is_matched and is_certain)
    assert _writes(name, closed, {row.text: 2}) == (not is_matched)


def _writes(name: str, schema: dict[str, object], value: object) -> bool:
    constraint = JsonSchema(schema, extra="allow", whitespace="minified")
    matcher = backend(name, single_bytes()).compile(constraint).matcher()
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return all(map(matcher.accept_token, text)) and matcher.is_completed()


@pytest.mark.parametrize("name", ["llguidance", "native"])
@pytest.mark.parametrize(
    "schema, value",
    [
        # The only names that all match are declared.
        ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^a$": {"type": "string"}}}, {"a\n": 1}),
        ({"type": "object", "patternProperties": {r"\s": {}, "^a$": {"type": "string"}}}, {"a\n": 1}),
        # Both branches hold for a reader in Python.
        ({"type": "string", "oneOf": [{"pattern": r"\s"}, {"pattern": "^a$"}]}, "a\n"),
        ({"type": "string", "oneOf": [{"pattern": r"^\w$"}, {"pattern": "é"}]}, "é"),
        # A name that only one reader sorts under the pattern.
        (
            {
                "type": "object",
                "oneOf": [
                    {"patternProperties": {r"^\w+$": {"type": "integer"}}, "additionalProperties": False},
                    {"properties": {"straße": {"type": "integer"}}, "required": ["straße"]},
                ],
            },
            {"straße": 1},
        ),
        (
            {
                "type": "object",
                "oneOf": [
                    {"patternProperties": {"^a$": {}}, "additionalProperties": False},
                    {"required": ["a\n"]},
                ],
            },
            {"a\n": 1},
        ),
        ({"type": "string", "pattern": "^(?!a$)"}, "a\n"),
        ({"type": "string", "pattern": "^(?!(?!a$)a)"}, "a\n"),
    ],
    ids=str,
)
def test_what_one_reader_refuses_is_not_written(name: str, schema: dict[str, object], value: object) -> None:
    assert not all(is_valid(schema, value) for is_valid in (_in_python, _in_ecma))
    assert not _writes(name, schema, value)


def _in_python(schema: dict[str, object], value: object) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


def _in_ecma(schema: dict[str, object], value: object) -> bool:
    """The same, with `$` and classes of characters as ECMA-262 reads them."""
    plain = json.loads(json.dumps(schema).replace("$", r"\\Z").replace(r"\\w", "[0-9A-Za-z_]"))
    return _in_python(plain, value)


@pytest.mark.parametrize("name", ["llguidance", "native"])
def test_a_look_behind_may_come_after_the_end(name: str) -> None:
    schema = {"type": "object", "patternProperties": {"^[a-z-]+$(?<!-)": {"const": 1}}, "additionalProperties": False}
    texts = {"a": True, "a-b": True, "a-": False, "a\n": False}
    assert {text: _writes(name, schema, {text: 1}) for text in texts} == texts
