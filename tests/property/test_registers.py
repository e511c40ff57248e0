"""Different items, and members in any order: masks are those of brute force, and every way out is one.

`jsonschema` decides which texts are valid, and `json` whether a name comes twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from functools import cache
from random import Random
from typing import Any, cast

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hf_guided.automaton import component_walk, frame_machine
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import HFGuidedError
from hf_guided.session.mask_table import MaskTables
from hf_guided.session.masks import MaskFiller
from hf_guided.session.row import Row
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy
from tests.effort import repeats

# Tokens that end an item and begin the next one, hold whole items, repeat a name, or write the same otherwise.
OF_ITEMS = toy.pieces(
    "[1,1]",
    "[true,false,true]",
    '["a","b","a"]',
    '[{"a":1},{"a":1}]',
    '{"a":1,"b":true}',
    '{"b":true,"a":1},',
    '"ab","abc","',
    "1,2],[1,2",
    '"a":"ab","b":',
    '{"a": 1, "b": 2}, {',
    '}, {"',
    '", "',
    "null, ",
    '"x","a":"y"}',
    "11,12,1",
    '\\u0061\\n"',
    "1.0, 1e0",
)
# Tokens with several names, with one twice, and with parts of them.
OF_NAMES = toy.pieces(
    '{"a":1,"ab":"x","b":[1]}',
    '{"a": 1, "ab": {"a": 2, "b": "ab"}}',
    '"a":"a","b":1,"a":2,"abc":',
    '{"abcd": true, "x": null}',
    '"b":1,"a","',
    '":1,"a":1,"a',
    '{"":"",""',
)
LEAVES: list[Any] = [
    {"type": "boolean"},
    {"type": "null"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "string"},
    {"type": "string", "maxLength": 2},
    {"type": "string", "pattern": "^[ab]{1,2}$"},
    {"type": "integer", "minimum": 0, "maximum": 12},
    {"enum": [1, 2, "a"]},
    {"enum": ["a", "ab", "b"]},
    {"enum": [0, 1, 10]},
    {"const": 1},
]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"whitespace": "compact"},
    {"spelling": "any"},
    {"key_order": "any"},
    {"key_order": "any", "whitespace": "minified"},
    {"extra": "allow"},
    {"extra": "allow", "key_order": "any", "spelling": "any"},
]


def item_of(random: Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.5:
        return random.choice(LEAVES)
    which = random.random()
    if which < 0.35:
        return array_of(random, depth - 1, unique=random.random() < 0.6)
    names = random.sample(["a", "b", "ab"], random.randint(0, 2))
    schema: dict[str, Any] = {"type": "object", "properties": {name: item_of(random, depth - 1) for name in names}}
    schema["required"] = [name for name in names if random.random() < 0.6]
    if random.random() < 0.7:
        schema["additionalProperties"] = random.choice([False, False, random.choice(LEAVES)])
    if random.random() < 0.2:
        schema["patternProperties"] = {"^a": random.choice(LEAVES)}
    if random.random() < 0.2:
        schema["propertyNames"] = random.choice([{"enum": ["a", "ab"]}, {"pattern": "^[ab]$"}])
    return {"anyOf": [schema, random.choice(LEAVES)]} if which > 0.9 else schema


def array_of(random: Random, depth: int, *, unique: bool = True) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "uniqueItems": unique, "items": item_of(random, depth)}
    if random.random() < 0.25:
        schema["prefixItems"] = [item_of(random, depth) for _ in range(random.randint(1, 3))]
        schema["items"] = random.choice([False, schema["items"]])
    if random.random() < 0.5:
        schema["minItems"] = random.randint(0, 3)
    if random.random() < 0.3:
        schema["maxItems"] = schema.get("minItems", 0) + random.randint(0, 2)
    if random.random() < 0.1:
        schema["contains"] = random.choice(LEAVES)
    return schema


def schema_of(random: Random) -> Any:
    array = array_of(random, 2)
    if random.random() < 0.7:
        return array
    return {"type": "object", "properties": {"a": array, "b": item_of(random, 1)}, "required": ["a"]}


def engines(schema: Any, vocabulary: Vocabulary, **options: Any) -> tuple[FrameEngine, FrameEngine] | None:
    """Of two machines; the second one is never asked for a mask, so it reads the text itself."""
    try:
        first, second = (NetworkBackend(vocabulary).compile(JsonSchema(schema, **options)) for _ in range(2))
    except HFGuidedError:
        return None
    return cast(FrameEngine, first.new_engine()), cast(FrameEngine, second.new_engine())


def tokens_of(words: NDArray[np.int32]) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def accepted(engine: FrameEngine, vocabulary: Vocabulary) -> set[int]:
    return {token_id for token_id, data in enumerate(vocabulary.token_bytes) if data and engine.validate([token_id])}


def read(engine: FrameEngine, vocabulary: Vocabulary, text: bytes) -> None:
    """Byte by byte."""
    for byte in text:
        assert engine.accept(vocabulary.token_bytes.index(bytes([byte]))), text


def needed_after(engine: FrameEngine, token_id: int) -> int:
    twin = engine.fork()
    assert twin.accept(token_id)
    return twin.min_tokens_to_finish()


@settings(max_examples=repeats(40, 2_000), deadline=None)
@given(
    random=st.randoms(use_true_random=False),
    options=st.sampled_from(OPTIONS),
    few=st.sampled_from([0, 3, 30, 2_000]),
    is_limited=st.booleans(),
)
def test_masks_are_those_of_brute_force_and_ways_out_hold(
    random: Random, options: dict[str, Any], few: int, is_limited: bool
) -> None:
    check_walk(schema_of(random), OF_ITEMS, random, few, is_limited=is_limited, **options)


def check_walk(
    schema: Any, vocabulary: Vocabulary, random: Random, few: int, *, is_limited: bool, **options: Any
) -> None:
    """A token may come where both machines take it; with a limit, where what is left after it is enough."""
    valid, both = jsonschema.Draft202012Validator(schema), engines(schema, vocabulary, **options)
    if both is None:
        return
    ours, theirs = both
    text, known, token_bytes = b"", dict[Hashable, set[int]](), vocabulary.token_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_walk, "FEW", few)
        patch.setattr(frame_machine, "FEW", few)
        patch.setattr(frame_machine, "_BYTES", random.choice([30_000, 10 << 20, 10 << 20]))
        left = ours.min_tokens_to_finish() + random.randint(0, 10)
        for _ in range(30):
            words, may_stop = toy.mask_of(ours, vocabulary)
            fitting = tokens_of(words)
            assert fitting == accepted(theirs, vocabulary), text
            assert fitting or may_stop, text
            key = ours.mask_key()  # that from before may be another: a mask shows what it depends on
            assert key is None or known.setdefault(key, fitting) == fitting, text
            assert may_stop == ours.is_completed() == theirs.is_completed()
            assert not may_stop or valid.is_valid(json.loads(text)), text
            if may_stop and schema["type"] == "object":
                members = json.loads(text, object_pairs_hook=list)
                assert len(dict(members)) == len(members), text
            needed = ours.min_tokens_to_finish()
            if is_limited:
                assert needed <= left, text
                within = tokens_of(toy.mask_of(ours, vocabulary, left)[0])
                if random.random() < 0.4:
                    counts = {token_id: needed_after(ours, token_id) for token_id in fitting}
                    assert within == {token_id for token_id, count in counts.items() if count < left}, text
                    assert needed == 1 or min(counts.values()) < needed, text
                fitting, left = within, left - 1
            if not fitting or (needed == 1 and random.random() < 0.2):
                assert may_stop, text
                return
            open_ones = [token_id for token_id in fitting if not set(b"]}") & set(token_bytes[token_id] or b"")]
            token_id = random.choice(sorted(open_ones if open_ones and random.random() < 0.7 else fitting))
            assert ours.accept(token_id) and theirs.accept(token_id), text
            text += token_bytes[token_id] or b""


VALUES: list[Any] = [
    *(0, 1, 10, True, False, None, "", "a", "ab", [], [1], [1, 0], [0, 1], {}, {"a": 1}, {"b": [1]}),
    *([[1], [0, 1]], [[], [1], [[]]], [{"a": 1}, {"a": 2}], {"a": [1, 0], "b": True}, {"a": "a", "ab": 1}),
]


@cache
def byte_backend() -> NetworkBackend:
    return NetworkBackend(toy.all_bytes())


def usual_or_any(digits: str) -> float:
    """A number that Python writes so; else one that is no integer."""
    return float(digits) if repr(float(digits)) == digits else 0.5


@settings(max_examples=repeats(60, 3_000), deadline=None)
@given(
    random=st.randoms(use_true_random=False),
    items=st.lists(st.sampled_from(VALUES), max_size=4),
    whitespace=st.sampled_from(["flexible", "minified"]),
)
def test_arrays_are_those_of_jsonschema(random: Random, items: list[Any], whitespace: Any) -> None:
    """Whatever order members are in, and where all values may be written in any spelling, numbers too."""
    schema = array_of(random, 2)
    constraint = JsonSchema(schema, whitespace, spelling="any", key_order="any", extra="allow")
    try:
        matcher = byte_backend().compile(constraint).matcher()
    except HFGuidedError:
        return
    text = json.dumps(items, separators=None if whitespace == "flexible" else (",", ":"))
    if random.random() < 0.3:
        text = text.replace('"a', '"\\u0061', 1)
    if random.random() < 0.3:
        text = text.replace("0", "0e1", 1) if "1" not in text else text.replace("1", "1.", 1).replace("1.", "1.0", 1)
    # Integers and listed numbers are written as Python does: 0e1 and 1.00 are spellings where any number may stand.
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    valid = is_valid(json.loads(text)) and is_valid(json.loads(text, parse_float=usual_or_any))
    valid = valid and re.search(r'\\u0061[^"]*":', text) is None  # names have one spelling
    token_ids = [*text.encode(), matcher.stop_token_ids[0]]
    assert (matcher.validate_tokens(token_ids) == len(token_ids)) == valid, text


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("items", "first", "second"),
    [
        ({"type": "integer"}, "1", "1"),
        ({"type": "number"}, "10", "1e1"),
        ({"type": "string"}, '"ab"', '"a\\u0062"'),
        (CLOSED, '{"a": "ab"}', '{ "a":"ab" }'),
        ({"type": "object"}, '{"a": 1, "b": [true]}', '{"b":[true],"a":1}'),
        ({"type": "array"}, '[1, {"a": 2}]', '[1,{"a":2.0}]'),
    ],
)
def test_equal_values_are_equal_in_every_spelling(items: Any, first: str, second: str) -> None:
    options: dict[str, Any] = {"spelling": "any", "key_order": "any", "extra": "allow"}
    schema = {"type": "array", "items": items, "uniqueItems": True}
    matcher = byte_backend().compile(JsonSchema(schema, **options)).matcher()
    whole = [*f"[{first}, {second}]".encode()]
    assert matcher.validate_tokens(whole) < len(whole)
    assert matcher.validate_tokens([*f"[{second}]".encode()]) == len(f"[{second}]")
    changed = second.replace("1", "2").replace("62", "63").replace('"ab"', '"ac"')
    both = [*f"[{first}, {changed}]".encode()]
    assert matcher.validate_tokens(both) == len(both)


def test_a_second_member_of_a_name_takes_the_place_of_the_first() -> None:
    """In objects whose names are free: so an item may become one that is there after all, by one token."""
    free = {"type": "object", "additionalProperties": {"type": "string"}}
    vocabulary = toy.pieces('","a":"y"}]', '"a":"y"', '[{"a":"x"},')
    both = engines({"type": "array", "uniqueItems": True, "items": free}, vocabulary, whitespace="minified")
    assert both is not None
    ours, theirs = both
    for byte in b'[{"a":"y"},{"a":"x':
        assert tokens_of(toy.mask_of(ours, vocabulary)[0]) == accepted(theirs, vocabulary)
        token_id = vocabulary.token_bytes.index(bytes([byte]))
        assert ours.accept(token_id) and theirs.accept(token_id)
    repeated = vocabulary.token_bytes.index(b'","a":"y"}')
    assert repeated not in tokens_of(toy.mask_of(ours, vocabulary)[0])


@pytest.mark.parametrize(
    ("names", "value", "text"),
    [
        ("^[ab]$", {"enum": [1, 2, "a"]}, '[{"a":1},{"a":1,"b":1,"b":1,"a":'),
        ("^[ab]$", {"enum": [1, 2]}, '[{"a":1,"b":1},{"a":1,"b":1,"a":1,"b":1'),
        ("^a{1,3}$", {"const": 1}, '[{"aaa":1,"aaa":1,"a":1},{"aaa":1,"a":1,"aaa":1,'),
        ("^[abc]$", {"const": 1}, '[{"a":1,"b":1},{"a":1,"b":1,"b":1'),
    ],
)
@pytest.mark.parametrize("spelling", ["canonical", "any"])
def test_ways_out_of_an_item_with_repeated_names_end(names: str, value: Any, text: str, spelling: str) -> None:
    """However often names come and whatever is known: the way is known, short, and falls by one with some token."""
    items = {"type": "object", "propertyNames": {"pattern": names}, "additionalProperties": value}
    schema = {"type": "array", "uniqueItems": True, "items": items, "minItems": 3}
    both = engines(schema, OF_ITEMS, whitespace="minified", spelling=spelling)
    assert both is not None
    engine = both[0]
    for byte in text.encode():
        if not engine.accept(OF_ITEMS.token_bytes.index(bytes([byte]))):
            return  # here the item could not become a new one
        needed, fitting = engine.min_tokens_to_finish(), tokens_of(toy.mask_of(engine, OF_ITEMS)[0])
        assert needed <= 40
        within = tokens_of(toy.mask_of(engine, OF_ITEMS, needed)[0])
        counts = {token_id: needed_after(engine, token_id) for token_id in fitting}
        assert within == {token_id for token_id, count in counts.items() if count < needed}
        assert min(counts.values()) < needed


def test_a_repeated_name_makes_no_new_item() -> None:
    """Of one name with one value there are two objects, however often the name comes."""
    one = {"type": "object", "propertyNames": {"const": "a"}, "additionalProperties": {"const": 1}}
    schema = {"type": "array", "uniqueItems": True, "prefixItems": [one, one], "items": False}
    assert engines({**schema, "prefixItems": [one] * 3, "minItems": 3}, OF_ITEMS, whitespace="minified") is None
    both = engines({**schema, "minItems": 2}, OF_ITEMS, whitespace="minified")
    assert both is not None
    for byte in b'[{"a":1},{':
        assert both[0].accept(OF_ITEMS.token_bytes.index(bytes([byte])))
    allowed = [OF_ITEMS.token_bytes[token_id] for token_id in tokens_of(toy.mask_of(both[0], OF_ITEMS)[0])]
    assert {*filter(None, allowed)} == {b"}", b"}]"}


def test_a_way_out_past_an_unknown_item_is_found() -> None:
    """Near a limit, tokens whose item could become any are read one by one where later items depend on it."""
    items = {"type": "array", "uniqueItems": True, "items": {"type": "object"}, "minItems": 2}
    schema = {"type": "array", "uniqueItems": True, "items": items, "minItems": 2}
    vocabulary = toy.pieces('[{"a":1},{"a":1}]', '[{"a":1},{')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_walk, "FEW", 0)
        patch.setattr(frame_machine, "FEW", 0)
        both = engines(schema, vocabulary, extra="allow", key_order="any", spelling="any")
        assert both is not None
        engine = both[0]
        assert engine.accept(vocabulary.token_bytes.index(b"["))
        fitting = tokens_of(toy.mask_of(engine, vocabulary)[0])
        needed = {token_id: needed_after(engine, token_id) for token_id in fitting}
        for left in range(engine.min_tokens_to_finish(), max(needed.values()) + 2):
            within = tokens_of(toy.mask_of(engine, vocabulary, left)[0])
            assert within == {token_id for token_id in fitting if needed[token_id] < left}


def test_items_that_differ_from_all_entered_ones_share_a_mask() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    both = engines(schema, OF_ITEMS, whitespace="minified")
    assert both is not None
    rows = [both[0].fork(), both[0].fork()]
    for row, text in zip(rows, (b'["ab","ba', b'["ab","bbb'), strict=True):
        read(row, OF_ITEMS, text)
    assert rows[0].mask_key() == rows[1].mask_key() is not None


# -- members in any order

NAMES = ["a", "ab", "abc", "b", "abcd", "x"]
VALUES_OF_NAMES: list[Any] = [
    {"type": "integer", "minimum": 0, "maximum": 2},
    {"type": "string", "maxLength": 2},
    {"const": 1},
    {"enum": ["a", "ab"]},
    {"type": "boolean"},
    {"type": "null"},
]


def member_of(random: Random, depth: int) -> Any:
    if depth == 0 or random.random() < 0.4:
        return random.choice(VALUES_OF_NAMES)
    if random.random() < 0.15:
        return {"type": "array", "items": member_of(random, depth - 1)}
    return object_of(random, depth)


def object_of(random: Random, depth: int) -> dict[str, Any]:
    chosen = random.sample(NAMES, random.randint(0, 4))
    schema: dict[str, Any] = {"type": "object", "properties": {name: member_of(random, depth - 1) for name in chosen}}
    for keyword, share, make in (
        ("required", 0.6, lambda: random.sample(NAMES, random.randint(1, 3))),
        ("additionalProperties", 0.5, lambda: random.choice([False, False, member_of(random, 0)])),
        ("patternProperties", 0.2, lambda: {random.choice(["^a", "b$", "^ab?$"]): member_of(random, 0)}),
        ("propertyNames", 0.2, lambda: {"pattern": random.choice(["^[ab]{1,3}$", "^a", "^(a|ab|b)$"])}),
        ("minProperties", 0.3, lambda: random.randint(1, 4)),
        ("maxProperties", 0.3, lambda: random.randint(1, 4)),
        ("dependentRequired", 0.2, lambda: {random.choice(NAMES): [random.choice(NAMES)]}),
    ):
        if random.random() < share:
            schema[keyword] = make()
    return schema


@settings(max_examples=repeats(12, 500), deadline=None)
@given(
    random=st.randoms(use_true_random=False),
    options=st.sampled_from([{}, {"whitespace": "minified"}, {"spelling": "any"}]),
    few=st.sampled_from([0, 3, 50, 2_000]),
    is_limited=st.booleans(),
)
def test_masks_of_names_are_those_of_brute_force_and_ways_out_hold(
    random: Random, options: Any, few: int, is_limited: bool
) -> None:
    options = {"key_order": "any", "extra": "allow", **options}
    check_walk(object_of(random, 3), OF_NAMES, random, few, is_limited=is_limited, **options)


def test_enough_names_are_left_where_few_letters_can_be_written() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "patternProperties": {"^b+$": {"const": 1}},
        "additionalProperties": False,
        "minProperties": 2,
    }
    vocabulary = toy.letters('ab":{}, 1')
    id_of = {data: token_id for token_id, data in enumerate(vocabulary.token_bytes) if data is not None}
    compiled = NetworkBackend(vocabulary).compile(JsonSchema(schema, key_order="declared"))
    for text in ('{"a": 1, "b": 1}', '{"b": 1, "bb": 1}', '{"a": 1}', '{"bb": 1}', '{"bbb": 1, "b": 1, "bb": 1}'):
        matcher = compiled.matcher()
        accepted = all(matcher.accept_token(id_of[letter.encode()]) for letter in text) and matcher.is_completed()
        assert accepted == jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))


def test_the_same_names_in_another_order_are_one_state() -> None:
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in ("a", "b", "x")}}
    both = engines(schema, OF_NAMES, whitespace="minified", key_order="any", extra="allow")
    assert both is not None
    first, second = both[0].fork(), both[0].fork()
    for engine, text in ((first, b'{"a":null,"abcde":1,"b":null,'), (second, b'{"b":null,"a":null,"abcde":1,')):
        read(engine, OF_NAMES, text)
    assert first.here() == second.here()
    assert first.mask_key() == second.mask_key() is not None
    assert not first.validate([OF_NAMES.token_bytes.index(b'"a"')]) and first.validate(
        [OF_NAMES.token_bytes.index(b'"x"')]
    )


@pytest.mark.parametrize("few", [0, 2_000])
def test_rows_with_other_open_names_share_no_mask_that_is_not_theirs(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that ends a name, and has another one, may repeat it: then the mask is that of one open name alone."""
    monkeypatch.setattr(frame_machine, "FEW", few)
    monkeypatch.setattr(component_walk, "FEW", few)
    compiled = NetworkBackend(OF_NAMES).compile(
        JsonSchema({"type": "object", "minProperties": 2}, "minified", key_order="any", extra="allow")
    )
    rows = [Row(compiled.matcher()) for _ in range(3)]
    for row, text in zip(rows, (b'{"a', b'{"bb', b'{"cd'), strict=True):
        for byte in text:
            assert row.advance(OF_NAMES.token_bytes.index(bytes([byte])))
    tables = MaskTables(OF_NAMES.padded_size)
    for filler in (MaskFiller(OF_NAMES, (0,), tables=tables), MaskFiller(OF_NAMES, (0,), tables=tables)):
        masks = filler.fill(rows, [None] * 3)
        for i, row in enumerate(rows):
            assert tokens_of(masks.words(i)) == accepted(cast(FrameEngine, row.engine), OF_NAMES)
    repeated = (
        OF_NAMES.token_bytes.index(b'":1,"a"')
        if b'":1,"a"' in OF_NAMES.token_bytes
        else OF_NAMES.token_bytes.index(b'":1,"a":')
    )
    assert [row.num_taken([repeated]) for row in rows] == [0, 1, 1]
