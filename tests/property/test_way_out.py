"""The network knows its way out: the tokens that are enough, and masks that keep a text from getting too far away.

The oracle searches: token by token from where a text is, with masks that keep no budget.
"""

from __future__ import annotations

import json
import threading
from functools import lru_cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hf_guided.backends import registry
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.values import Constraint, JsonObject, JsonSchema, StructuralTag
from hf_guided.errors import ConstraintError
from tests.property import strategies
from tests.property.strategies import allowed, picks, single_bytes, tiny

NODE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value", "children"],
        }
    },
    "$ref": "#/$defs/node",
}
RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 40},
        "text": {"type": "string", "minLength": 300},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,}$"},
        "tags": {"type": "array", "items": {"enum": ["a", "longer", "é"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "tags"],
}
NESTED = {
    "type": "object",
    "properties": {
        "a": {"anyOf": [{"type": "object", "properties": {"b": {"const": 123}}, "required": ["b"]}, {"type": "null"}]},
        "c": {},
        "d": {"type": "number", "minimum": 100},
    },
    "required": ["a", "d"],
}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<f="],
        "tags": [
            {"begin": "<f=x>", "content": {"type": "json_schema", "json_schema": RECORD}, "end": "</f>"},
            {"begin": "<f=yy>", "content": {"type": "regex", "pattern": "[a-z]{3,8}"}, "end": "</f>"},
        ],
        "at_least_one": True,
    },
}
CONSTRAINTS: dict[str, Constraint] = {
    "tree": JsonSchema(NODE),
    "compact tree": JsonSchema(NODE, whitespace="compact"),
    "any spelling": JsonSchema(NESTED, spelling="any"),
    "record": JsonSchema(RECORD),
    "indented": JsonSchema(RECORD, indent=2),
    "nested": JsonSchema(NESTED),
    "object": JsonObject(),
    "tag": StructuralTag(TAG),
}
NEAR = 3  # tokens that the oracle searches
VOCABULARIES = {"tiny": tiny, "single_bytes": single_bytes}
cases = pytest.mark.parametrize(("name", "vocabulary"), [(n, v) for n in CONSTRAINTS for v in VOCABULARIES])


@lru_cache
def compiled(name: str, vocabulary: str) -> CompiledConstraint:
    return registry.create("native", VOCABULARIES[vocabulary]()).compile(CONSTRAINTS[name])


def needed(matcher: Matcher) -> int:
    count = matcher.min_tokens_to_finish()
    assert count is not None
    return count


def after(matcher: Matcher, token_id: int) -> int:
    """The tokens needed after one more."""
    assert matcher.accept_token(token_id)
    count = needed(matcher)
    matcher.rollback(1)
    return count


def taken(matcher: Matcher, choices: list[int]) -> None:
    """Take text tokens that are allowed."""
    for choice in choices:
        text = [token_id for token_id in allowed(matcher) if token_id not in matcher.stop_token_ids]
        if not text:
            break
        matcher.accept_token(text[choice % len(text)])


def least(matcher: Matcher, at_most: int) -> int:
    """The fewest tokens to the end, the stop token counted; one more than ``at_most`` if there are more."""
    level = [matcher.fork()]
    for count in range(1, at_most + 1):
        if any(one.is_completed() for one in level):
            return count
        following: list[Matcher] = []
        for one in level if count < at_most else ():
            for token_id in allowed(one):
                ahead = one.fork()
                ahead.accept_token(token_id)
                following.append(ahead)
        level = following
    return at_most + 1


@cases
@given(choices=picks, data=st.data())
def test_some_token_leads_to_a_text_that_needs_one_less(name, vocabulary, choices, data):
    matcher = compiled(name, vocabulary).matcher()
    taken(matcher, choices)
    count = needed(matcher)
    assert (count == 1) == matcher.is_completed()
    if count > 1:
        rest = {
            token_id: after(matcher, token_id)
            for token_id in allowed(matcher)
            if token_id not in matcher.stop_token_ids
        }
        assert min(rest.values()) <= count - 1
        left = data.draw(st.integers(count, count + 6))
        expected = {token_id for token_id, more in rest.items() if more <= left - 1}
        assert set(allowed(matcher, left)) - {*matcher.stop_token_ids} == expected


@cases
@given(choices=picks, data=st.data())
def test_any_sampling_closes_the_text_within_the_budget(name, vocabulary, choices, data):
    matcher = compiled(name, vocabulary).matcher()
    taken(matcher, choices)
    left = needed(matcher) + data.draw(st.integers(0, 9))
    while not matcher.is_terminated():
        permitted = allowed(matcher, left)
        text = [token_id for token_id in permitted if token_id not in matcher.stop_token_ids]
        assert matcher.accept_token(data.draw(st.sampled_from(text or permitted)))
        left -= 1
        assert needed(matcher) <= left
        assert matcher.can_finish_in(left)
        assert matcher.is_terminated() or matcher.can_finish_in(needed(matcher) - 1) is False


@cases
@given(choices=picks)
def test_near_the_end_hardly_more_tokens_are_counted_than_the_least_there_is(name, vocabulary, choices):
    matcher = compiled(name, vocabulary).matcher()
    taken(matcher, choices)
    while (count := needed(matcher)) > NEAR:
        matcher.accept_token(allowed(matcher, count)[0])
    fewest = least(matcher, count)
    assert fewest <= count <= fewest + (count == NEAR)


@given(strategies.schemas, st.sampled_from(["flexible", "compact", "minified"]), picks)
def test_of_single_bytes_the_shortest_text_is_counted(schema, whitespace, choices):
    """Where each byte is a token, no text is shorter in bytes than the one that is counted."""
    try:
        compiled = registry.create("native", single_bytes()).compile(JsonSchema(schema, whitespace=whitespace))
    except ConstraintError:
        assume(False)
    assume(compiled.keeps_budget)
    matcher, start = compiled.matcher(), compiled.matcher()
    for one in (matcher, start):
        taken(one, choices[:6])
    count = needed(matcher)
    written = bytearray()
    while not matcher.is_completed():
        (byte, *_) = allowed(matcher, needed(matcher))
        matcher.accept_token(byte)
        written.append(byte)
    assert len(written) + 1 == count
    fewest = least(start, NEAR)
    assert fewest == min(count, NEAR + 1)


@pytest.mark.parametrize("length", [17, 1_000, 10_000])
def test_long_strings_are_closed_in_tokens_of_several_characters(length):
    schema = {"type": "string", "minLength": length}
    matcher = registry.create("native", tiny()).compile(JsonSchema(schema)).matcher()
    count, written = needed(matcher), []
    assert count <= length + 3
    for left in range(count, 1, -1):
        written.append(allowed(matcher, left)[0])
        matcher.accept_token(written[-1])
    text = matcher.compiled.vocabulary.decode_bytes(written).decode()
    assert len(json.loads(text)) >= length


def test_deep_texts_are_closed():
    matcher = registry.create("native", tiny()).compile(JsonSchema({})).matcher()
    assert all(map(matcher.accept_token, matcher.compiled.vocabulary.encode_bytes(b"[" * 2_000)))
    for left in range(needed(matcher), 1, -1):
        matcher.accept_token(allowed(matcher, left)[0])
    assert matcher.is_completed()


def test_the_depth_of_a_text_does_not_matter_to_the_stack():
    """A thread's stack may be small."""
    matcher = registry.create("native", tiny()).compile(JsonSchema({})).matcher()
    assert all(map(matcher.accept_token, matcher.compiled.vocabulary.encode_bytes(b"[" * 30_000)))
    counts: list[int] = []
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: counts.append(needed(matcher)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert 15_000 < counts[0] <= 30_001
