"""Token budgets: masks keep a text near enough to its end, and forbid nothing else; the tokens that are enough.

For constraints without and with registers: members in any order, different items, bounds on free names. The oracles
search: token by token from where a text is, with masks that keep no budget, or among all texts of a finite language.
"""

from __future__ import annotations

import itertools
import json
import threading
from functools import lru_cache
from random import Random
from typing import Any, cast

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hf_guided.automaton.frame_machine import FrameMachine
from hf_guided.backends.base import CompiledConstraint, MaskedEngine
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import ConstraintError
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy
from tests.effort import repeats
from tests.pairs import once_each
from tests.property import strategies
from tests.property.strategies import allowed, backend, picks, single_bytes, still_open, tiny, walk_within
from tests.property.test_matcher_laws import is_valid

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
DIFFERENT_NODES = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "uniqueItems": True},
            },
            "required": ["value", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
OPEN_RECORD = {
    "type": "object",
    "properties": {
        "inner": {
            "type": "object",
            "properties": {"y": {"type": "string", "minLength": 3}, "z": {"enum": ["foo", "bar"]}},
            "required": ["z", "y"],
        },
        "list": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
    "required": ["inner", "list"],
    "minProperties": 3,
    "additionalProperties": True,
}
FULL = {
    "type": "object",
    "minProperties": 3,
    "maxProperties": 4,
    "properties": {"a": {"const": 1}, "ab": {"type": "null"}, "abc": {"type": "array"}, "z": {}},
    "required": ["abc", "z"],
    "additionalProperties": False,
}
PEOPLE = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "nam": {"type": "boolean"}},
        "required": ["name"],
        "additionalProperties": False,
    },
    "uniqueItems": True,
    "minItems": 2,
}
LONG = {
    "type": "object",
    "properties": {"a": {"type": "string", "minLength": 40, "maxLength": 2000}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
CHOICES = {
    "type": "array",
    "prefixItems": [{"enum": [1, 2]}, {"enum": [1, 2, 3]}],
    "items": {"enum": [1, 2, 3, 4, 5]},
    "uniqueItems": True,
    "minItems": 4,
}
PATTERNS = {
    "type": "object",
    "patternProperties": {"^x": {"type": "integer"}, "^y": {"type": "object"}},
    "minProperties": 3,
    "additionalProperties": False,
}
CONSTRAINTS: dict[str, Constraint] = {
    "words": Regex("(ab|ba|[a-d]b){3}[a-d]{3,9}x?"),
    "groups of digits": Regex(r"\d+(,\d{3})*|none|[^\W\d]{20}"),
    "choice": Choice(["a", "abc", "abcabcabcabc", "Anna Schmidt", "東京"]),
    "tree": JsonSchema(NODE),
    "compact tree": JsonSchema(NODE, whitespace="compact"),
    "any spelling": JsonSchema(NESTED, spelling="any"),
    "record": JsonSchema(RECORD),
    "indented": JsonSchema(RECORD, indent=2),
    "nested objects": JsonSchema(NESTED),
    "object": JsonObject(),
    "tag": StructuralTag(TAG),
    # Registers keep what these need.
    "recursive": JsonSchema(DIFFERENT_NODES, key_order="any"),
    "open record": JsonSchema(OPEN_RECORD, key_order="any"),
    "people, indented": JsonSchema(PEOPLE, key_order="any", indent=2),
    "bounds": JsonSchema(FULL, key_order="any"),
    "people": JsonSchema(PEOPLE, key_order="any"),
    "people in order": JsonSchema(PEOPLE, whitespace="compact"),
    "people, any spelling": JsonSchema(PEOPLE, key_order="any", spelling="any"),
    "long string": JsonSchema(LONG, key_order="any"),
    "matching": JsonSchema(CHOICES),
    "patterns": JsonSchema(PATTERNS),
    "free names": JsonSchema({"type": "object", "minProperties": 3}, key_order="any"),
    "numbers": JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 3}),
    "nested, many": JsonSchema(
        {
            "type": "array",
            "items": {"type": "array", "items": {"enum": [*range(1, 10)]}, "uniqueItems": True, "minItems": 2},
            "uniqueItems": True,
            "minItems": 1,
        }
    ),
    "nested": JsonSchema(
        {
            "type": "array",
            "items": {"type": "array", "items": {"enum": [0, 1, 10]}, "uniqueItems": True},
            "uniqueItems": True,
            "minItems": 2,
        }
    ),
    "objects in objects": JsonSchema(
        {
            "type": "object",
            "properties": {
                "s": {"type": "string"},
                "d": {"properties": dict.fromkeys("ab", {"type": "number"}), "required": ["a", "b"], "type": "object"},
            },
            "required": ["s", "d"],
        },
        key_order="any",
        extra="allow",
        spelling="any",
    ),
    "anything": JsonSchema({"type": "array", "uniqueItems": True, "minItems": 3}),
}

VOCABULARIES = {"tiny": tiny, "single_bytes": single_bytes}
NEAR = 3  # tokens that the oracle searches


@lru_cache
def compiled(name: str, vocabulary: str = "tiny") -> CompiledConstraint:
    found = backend("native", VOCABULARIES[vocabulary]()).compile(CONSTRAINTS[name])
    assert found.keeps_budget
    return found


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


def check_walk(matcher: Matcher, random: Random, *, looks: int) -> None:
    """Walk to the end within a budget; at some texts compare the mask with the counts after each token."""
    taken: list[int] = []
    for _ in range(random.randrange(12)):  # before there is a budget
        text = [token_id for token_id in allowed(matcher) if token_id not in matcher.stop_token_ids]
        if text:
            taken.append(random.choice(text))
            assert matcher.accept_token(taken[-1])
    left = needed(matcher) + random.randrange(1 + random.choice([9, needed(matcher)]))
    while not matcher.is_terminated():
        count, free, permitted = needed(matcher), allowed(matcher), allowed(matcher, left)
        assert count <= left and (count == 1) == matcher.is_completed()
        assert matcher.can_finish_in(left) and matcher.can_finish_in(count - 1) is False
        if looks and random.random() < 0.3:
            looks -= 1
            counts = {token_id: after(matcher, token_id) for token_id in free}
            assert min(counts.values()) <= count - 1
            assert permitted == [token_id for token_id, most in counts.items() if most <= left - 1]
        # A sampler that avoids the end, or one that takes any token.
        taken.append(random.choice(still_open(matcher, permitted) if random.random() < 0.7 else permitted))
        assert matcher.accept_token(taken[-1])
        left -= 1
    assert left >= 0
    if not isinstance(matcher.compiled.constraint, StructuralTag):
        assert is_valid(matcher.compiled.vocabulary.decode_bytes(taken).decode(), matcher.compiled.constraint)


@pytest.mark.parametrize(("name", "vocabulary"), once_each(CONSTRAINTS, VOCABULARIES))
@settings(max_examples=repeats(4, 25))
@given(random=st.randoms(use_true_random=False))
def test_masks_keep_the_budget_and_forbid_nothing_else(name, vocabulary, random):
    check_walk(compiled(name, vocabulary).matcher(), random, looks=4)


@given(
    st.frozensets(st.text("abcd", min_size=1, max_size=9), min_size=1, max_size=6),
    st.integers(1, 12),
    st.data(),
)
def test_budget_forbids_only_tokens_that_cannot_close(options, left, data):
    """The oracle counts the letters and pairs of letters to the end of each option."""
    vocabulary = toy.letters()
    compiled_choice = backend("native", vocabulary).compile(Choice(sorted(options)))
    matcher, taken = compiled_choice.matcher(), ""

    def needed(start: str) -> int:  # tokens have up to two letters
        remaining = (len(option) - len(start) for option in options if option.startswith(start))
        return min((1 + (letters + 1) // 2 for letters in remaining), default=10**6)

    while not matcher.is_terminated():
        assert matcher.min_tokens_to_finish() == needed(taken)
        texts = {i: text.decode() for i, text in enumerate(vocabulary.token_bytes) if text is not None}
        fits = left if needed(taken) <= left else 10**5  # if the budget is too small, the masks ignore it
        expected = [i for i, text in texts.items() if needed(taken + text) <= fits - 1]
        expected += [stop for stop in vocabulary.stop_token_ids if taken in options]
        assert sorted(expected) == allowed(matcher, left)
        token_id = data.draw(st.sampled_from(expected))
        assert matcher.accept_token(token_id)
        taken += texts.get(token_id, "")
        left = max(left - 1, 1)


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


NEAR_BY = ["tree", "compact tree", "any spelling", "record", "indented", "nested objects", "object", "tag"]


@pytest.mark.parametrize(("name", "vocabulary"), once_each(NEAR_BY, VOCABULARIES))
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
        compiled = backend("native", single_bytes()).compile(JsonSchema(schema, whitespace=whitespace))
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
    matcher = backend("native", tiny()).compile(JsonSchema(schema)).matcher()
    count, written = needed(matcher), []
    assert count <= length + 3
    for left in range(count, 1, -1):
        written.append(allowed(matcher, left)[0])
        matcher.accept_token(written[-1])
    text = matcher.compiled.vocabulary.decode_bytes(written).decode()
    assert len(json.loads(text)) >= length


def test_deep_texts_are_closed():
    matcher = backend("native", tiny()).compile(JsonSchema({})).matcher()
    assert all(map(matcher.accept_token, matcher.compiled.vocabulary.encode_bytes(b"[" * 2_000)))
    for left in range(needed(matcher), 1, -1):
        matcher.accept_token(allowed(matcher, left)[0])
    assert matcher.is_completed()


def test_the_depth_of_a_text_does_not_matter_to_the_stack():
    """A thread's stack may be small."""
    matcher = backend("native", tiny()).compile(JsonSchema({})).matcher()
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


leaves = st.sampled_from(
    [
        {"type": "integer"},
        {"type": "boolean"},
        {"enum": ["a", "a longer one", 0]},
        {"type": "string", "minLength": 2},
        {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"},
        {"type": ["number", "null"]},
        {"type": "array", "items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, "uniqueItems": True, "minItems": 2},
    ]
)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "ab", "abc", "name", "na me", "é", ""])
    objects = st.builds(
        lambda properties, required, low, closed: {
            "type": "object",
            "properties": properties,
            "required": sorted(set(required) & set(properties)),
            "minProperties": min(low, len(properties)),
            "additionalProperties": not closed,
        },
        st.dictionaries(names, children, min_size=1, max_size=4),
        st.lists(names),
        st.integers(0, 3),
        st.booleans(),
    )
    arrays = st.builds(
        lambda items, low, unique: {"type": "array", "items": items, "minItems": low, "uniqueItems": unique},
        children,
        st.integers(0, 2),
        st.booleans(),
    )
    return objects | arrays | st.builds(lambda one, other: {"anyOf": [one, other]}, children, children)


@settings(max_examples=repeats(12, 200))
@given(
    inner=st.recursive(leaves, containers, max_leaves=5),
    layout=st.sampled_from([{"whitespace": "flexible"}, {"whitespace": "compact"}, {"indent": 3, "max_depth": 7}]),
    random=st.randoms(use_true_random=False),
)
def test_every_schema_keeps_its_budget(inner, layout, random):
    schema = {"type": "object", "properties": {"x": inner, "y": {}}, "required": ["y", "x"]}
    constraint = JsonSchema(schema, key_order="any", **layout)
    found = backend("native", tiny()).compile(constraint)
    check_walk(found.matcher(), random, looks=2)


def test_an_object_is_begun_only_with_room_for_its_indentation():
    member = {"type": "object", "properties": {"b": {"const": 1}, "c": {"type": "array"}}, "required": ["c", "b"]}
    schema = {"anyOf": [member, {"type": "string"}]}
    compiled = backend("native", tiny()).compile(JsonSchema(schema, key_order="any", indent=4, max_depth=4))
    bracket = tiny().token_bytes.index(b"{")
    matcher = compiled.matcher()
    least = next(left for left in range(100) if bracket in allowed(matcher, left) and needed(matcher) <= left)
    assert matcher.accept_token(bracket)
    assert needed(matcher) == least - 1


@pytest.mark.parametrize("name", ["open record", "people", "numbers", "long string", "objects in objects"])
@settings(max_examples=repeats(4, 25))
@given(random=st.randoms(use_true_random=False))
def test_masks_and_counts_depend_on_the_text_alone(name, random):
    matcher = compiled(name).matcher()
    left = needed(matcher) + random.randint(0, 8)
    taken = walk_within(matcher, left, random.randint(1, left), random)
    left -= len(taken)
    before, count, back = allowed(matcher, left), needed(matcher), random.randint(0, len(taken))
    matcher.rollback(back)
    for token_id in taken[len(taken) - back :]:
        assert matcher.accept_token(token_id)
    again = NetworkBackend(tiny()).compile(CONSTRAINTS[name]).matcher()
    assert all(map(again.accept_token, taken))
    assert allowed(matcher, left) == allowed(again, left) == before
    assert needed(matcher) == needed(again) == count


def test_many_different_items_are_counted_in_little_work(monkeypatch):
    """Each of 300 items is another one than those before it: the ways to these are not found again."""
    looked = [0]
    onwards = FrameMachine.onwards

    def counted(machine: FrameMachine, number: int) -> list[int]:
        looked[0] += 1
        return onwards(machine, number)

    monkeypatch.setattr(FrameMachine, "onwards", counted)
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 300}
    matcher = backend("native", single_bytes()).compile(JsonSchema(schema, whitespace="minified")).matcher()
    shortest = json.dumps([*range(300 - 9), *range(-9, 0)], separators=(",", ":"))  # -1 is as short as 10
    assert needed(matcher) == 1 + len(shortest)
    assert looked[0] < 10_000


def test_mask_of_a_large_budget_is_the_kept_one():
    engine = cast(MaskedEngine, compiled("open record").new_engine())
    toy.mask_of(engine, tiny(), 10**6)  # then it is known that this is enough for all
    assert engine.mask_key(10**6) == engine.mask_key() is not None
    least = engine.min_tokens_to_finish() or 0
    assert engine.mask_key(least) is None
    assert (toy.mask_of(engine, tiny(), least)[0] & ~toy.mask_of(engine, tiny())[0] == 0).all()


# -- the least there is, found among all texts of a finite language, each cut into tokens in the best way --------------


def least_tokens(vocabulary: Vocabulary, texts: list[str]) -> int:
    """The fewest tokens of any of the texts, the stop token counted."""
    tokens = {data for data in vocabulary.token_bytes if data}
    best = 10**6
    for text in texts:
        data = text.encode()
        counts = [0] + [10**6] * len(data)
        for end in range(1, len(data) + 1):
            counts[end] = min(counts[start] + 1 for start in range(end) if data[start:end] in tokens)
        best = min(best, counts[-1])
    return best + 1


def spelled(parts: list[str]) -> list[str]:
    """Texts of some tokens of JSON, with one space or none after each comma and colon."""
    spaces = [[part, part + " "] if part in (",", ":") else [part] for part in parts]
    return ["".join(choice) for choice in itertools.product(*spaces)]


def objects(members: dict[str, list[Any]], required: set[str], low: int) -> list[str]:
    """All minified and spaced texts of objects with some of these members in any order."""
    texts = []
    for count in range(low, len(members) + 1):
        for names in itertools.permutations(members, count):
            if required <= set(names):
                for values in itertools.product(*(members[name] for name in names)):
                    parts = ["{"]
                    for name, value in zip(names, values, strict=True):
                        parts += [json.dumps(name), ":", json.dumps(value), ","]
                    texts += spelled([*parts[:-1], "}"] if count else ["{", "}"])
    return texts


def arrays(values: list[Any], low: int) -> list[str]:
    """All texts of arrays of ``low`` different values."""
    texts = []
    for items in itertools.permutations(values, low):
        parts = ["["]
        for item in items:
            parts += [json.dumps(item), ","]
        texts += spelled([*parts[:-1], "]"])
    return texts


members = st.dictionaries(
    st.sampled_from(["a", "name", "date", "total", "id"]),
    st.lists(st.sampled_from([0, 12, "a", "Anna", True, None]), min_size=1, max_size=2, unique_by=repr),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("vocabulary", [tiny, single_bytes])
@settings(max_examples=repeats(8, 60))
@given(members=members, data=st.data())
def test_count_of_an_object_is_near_the_least(vocabulary, members, data):
    required = data.draw(st.sets(st.sampled_from(sorted(members))))
    low = data.draw(st.integers(0, len(members)))
    schema = {
        "type": "object",
        "properties": {name: {"enum": values} for name, values in members.items()},
        "required": sorted(required),
        "minProperties": low,
        "additionalProperties": False,
    }
    # In any order also where there is only one member, which has no order.
    matcher = backend("native", vocabulary()).compile(JsonSchema(schema, key_order="any")).matcher()
    least = least_tokens(vocabulary(), objects(members, required, low))
    assert least <= needed(matcher) <= 1.2 * least


@pytest.mark.parametrize("vocabulary", [tiny, single_bytes])
@settings(max_examples=repeats(8, 60))
@given(
    values=st.lists(st.sampled_from([0, 1, 10, 12, "a", "ab", "Anna"]), min_size=3, max_size=5, unique=True),
    low=st.integers(1, 3),
)
def test_count_of_different_items_is_near_the_least(vocabulary, values, low):
    schema = {"type": "array", "items": {"enum": values}, "minItems": low, "uniqueItems": True}
    matcher = backend("native", vocabulary()).compile(JsonSchema(schema)).matcher()
    least = least_tokens(vocabulary(), arrays(values, low))
    assert least <= needed(matcher) <= 1.2 * least


def test_lists_of_different_lists_of_lists_finish_within_any_budget():
    items = {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}}, "uniqueItems": True}
    schema = {"type": "array", "items": items | {"minItems": 3}, "uniqueItems": True}
    matcher = backend("native", single_bytes()).compile(JsonSchema(schema, key_order="any")).matcher()
    assert all(map(matcher.accept_token, b"[["))
    wanted = b"[[[],[true],[false]]]"
    for end in range(2, len(wanted)):
        assert wanted[end] in allowed(matcher, len(wanted) - end + 4), wanted[:end]
        assert matcher.accept_token(wanted[end])
    assert matcher.is_completed()
    assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(wanted))
