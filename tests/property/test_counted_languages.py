"""Strings of a pattern or a format whose characters a register counts: the texts that jsonschema takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.json_style import Spelling
from hf_guided.schema import scalars
from tests import toy
from tests.effort import repeats
from tests.property.strategies import allowed, tiny
from tests.property.test_canonical_spelling import accepts
from tests.property.test_network import check_masks
from tests.property.test_tag_network import pieces

BYTES = NetworkBackend(toy.all_bytes())
# Of one class, of alternatives of different lengths, with characters of several bytes (one that takes more of them than
# two others), and with those that are written with escapes: in the last but one an escape has the digits of a text.
PATTERNS = [
    "^[ab]+$", "^a*b?$", "^(ab|c)*$", "^[^x]*$", "b", "^é+a*$", "^b*(\U0001f600|aa)$", "^a{3}b*$", "^(a|cccc)+$",
    '^[\\\\"]*$', "^(\n|a)*$", "^(\u0001|[0-9a-f])*$", "^(\U0001f600|[\ud7fda])*$",
]  # fmt: skip
ALPHABET = 'abcéx\\"\n\u00011\U0001f600\ud7fd'


@pytest.fixture(scope="module", autouse=True)
def all_bounds_are_counted() -> Iterator[None]:
    """By a register, however small they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalars, "_MANY_CHARACTERS", 0)
        yield


def written(string: str) -> str:
    return json.dumps(string, ensure_ascii=False)


def spelled(string: str, choose: Random) -> str:
    """As `json` writes it with and without escapes, chosen for each character, and digits of either case."""

    def character(letter: str) -> str:
        plain, escaped = written(letter)[1:-1], json.dumps(letter)[1:-1]
        code = letter.encode("utf-16-be").hex()
        numbers = "".join(rf"\u{code[at : at + 4]}" for at in range(0, len(code), 4))
        return choose.choice([plain, escaped, numbers, numbers.upper().replace("U", "u")])

    return f'"{"".join(map(character, string))}"'


@pytest.mark.parametrize("spelling", ["canonical", "any"])
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=repeats(4, 40), deadline=None)
@given(low=st.integers(0, 3), high=st.integers(1, 5), strings=st.lists(st.text(ALPHABET, max_size=7), max_size=40))
def test_strings_of_a_pattern_and_bounds_are_those_of_jsonschema(
    pattern: str, spelling: Spelling, low: int, high: int, strings: list[str]
) -> None:
    schema = {"type": "string", "pattern": pattern, "minLength": low, "maxLength": high}
    short = map("".join, (letters for length in range(4) for letters in product(ALPHABET[:5], repeat=length)))
    # In Python alone, "$" is also before a newline at the end.
    validator = jsonschema.Draft202012Validator({**schema, "pattern": pattern.replace("$", r"\Z")})
    candidates = [*short, *strings]
    try:
        compiled = BYTES.compile(hg.JsonSchema(schema, spelling=spelling))
    except hg.InvalidConstraint:
        assert not any(map(validator.is_valid, candidates))
        return
    choose = Random(high)
    for string in candidates:
        text = written(string) if spelling == "canonical" else spelled(string, choose)
        assert accepts(compiled, text) == validator.is_valid(string), text


@pytest.mark.parametrize("spelling", ["canonical", "any"])
@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=repeats(4, 40), deadline=None)
@given(high=st.integers(4, 9), data=st.data())
def test_texts_end_within_their_bound_and_a_budget(pattern: str, spelling: Spelling, high: int, data: Any) -> None:
    item = {"type": "string", "pattern": pattern, "maxLength": high}
    schema = {"type": "array", "items": item, "minItems": 1, "maxItems": 3}
    compiled = NetworkBackend(tiny()).compile(hg.JsonSchema(schema, spelling=spelling))
    choose, matcher, taken = Random(data.draw(st.integers(0, 10**6))), compiled.matcher(), list[int]()
    for left in range((matcher.min_tokens_to_finish() or 0) + choose.randrange(30), 0, -1):
        token_id = choose.choice(allowed(matcher, left))
        assert matcher.accept_token(token_id)
        if matcher.is_terminated():
            break
        taken.append(token_id)
    assert matcher.is_terminated()
    jsonschema.validate(json.loads(compiled.vocabulary.decode_bytes(taken)), schema)


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=repeats(4, 40), deadline=None)
@given(high=st.integers(4, 9), seed=st.integers(0, 10**6))
def test_masks_are_the_tokens_that_are_taken(pattern: str, high: int, seed: int) -> None:
    schema = {"type": "array", "items": {"type": "string", "pattern": pattern, "maxLength": high}}
    matcher = NetworkBackend(pieces()).compile(hg.JsonSchema(schema, spelling="any")).matcher()
    check_masks(matcher, Random(seed), 12)


def test_half_of_a_surrogate_pair_is_one_character() -> None:
    compiled = NetworkBackend(pieces()).compile(hg.JsonSchema({"type": "string", "maxLength": 20}, spelling="any"))
    text = f'"{"a" * 19}\\ud83D\\uDE00"'
    for length in range(len(text)):
        matcher = compiled.matcher()
        assert all(map(matcher.accept_token, text[:length].encode()))
        fitting = allowed(matcher)
        assert text[length:].encode()[0] in fitting, text[:length]
        assert fitting == [
            token_id for token_id in range(pieces().stop_token_ids[0]) if matcher.validate_tokens([token_id])
        ]


def test_long_formats_and_patterns_are_counted_by_a_register() -> None:
    for schema in (
        {"type": "string", "format": "uri", "minLength": 1, "maxLength": 2083},
        {"type": "string", "format": "email", "maxLength": 254},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^/[^?]*$", "maxLength": 1024}}},
    ):
        compiled = BYTES.compile(hg.JsonSchema(schema))
        engine = compiled.new_engine()
        assert isinstance(engine, FrameEngine)
        assert max(component.dfa.states for component in engine.network.components) < 2_000
    compiled = BYTES.compile(hg.JsonSchema({"type": "string", "pattern": "^/[a-z]*$", "maxLength": 1024}))
    assert accepts(compiled, written("/" + "a" * 1023)) and not accepts(compiled, written("/" + "a" * 1024))


def test_where_an_escape_looks_like_a_character_the_states_count() -> None:
    """After the escape's last digit but one, a digit comes: as if it were the next character of this language."""
    schema = {"type": "string", "pattern": "^(\u0001[0-9a-f]|[0-9a-f]{1,3})*$", "maxLength": 6}
    compiled, validator = BYTES.compile(hg.JsonSchema(schema)), jsonschema.Draft202012Validator(schema)
    for letters in product("\u00011f", repeat=5):
        assert accepts(compiled, written("".join(letters))) == validator.is_valid("".join(letters))


def test_elements_of_a_call_have_patterns_with_long_bounds() -> None:
    path = {"type": "string", "pattern": "^/[a-z/]*$", "maxLength": 300}
    function = {"name": "f", "parameters": {"type": "object", "properties": {"path": path}}}
    tools = hg.ToolCalls([{"type": "function", "function": function}], "qwen_3_coder")
    start = BYTES.compile(tools.structural_tag()).matcher()
    before, after = "<tool_call>\n<function=f>\n<parameter=path>\n/", "\n</parameter>\n</function>\n</tool_call>"
    for length, fits in ((299, True), (300, False)):
        matcher = start.fork()
        assert all(map(matcher.accept_token, f"{before}{'a' * length}{after}".encode())) == fits
