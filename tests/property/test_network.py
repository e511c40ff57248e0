"""The laws of the network engine: exactly the valid values, masks that equal reading every token, and no dead ends.

`jsonschema` decides which values are valid, and `json` which texts are JSON.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from functools import cache
from itertools import islice, permutations, product
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema, StructuralTag
from hf_guided.errors import CompileLimitExceeded, ConstraintError, InvalidConstraint, UnsupportedConstraint
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property.schema_examples import DRAFTS, Writer, constants, instance, orders, parsed, spellings
from tests.property.strategies import allowed
from tests.property.test_schema_language import accepts, validator
from tests.toy import all_bytes

BYTES = NetworkBackend(all_bytes())
MOST_ORDERS = 30

SCHEMAS: dict[str, dict[str, Any]] = {
    "different strings": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    "different listed strings": {"items": {"enum": ["aa", "ab", "b", "aab"]}, "uniqueItems": True, "minItems": 3},
    "different numbers": {"type": "array", "items": {"type": "number"}, "uniqueItems": True},
    "different values": {"type": "array", "uniqueItems": True},
    "different records": {
        "type": "array",
        "items": {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "string"}}, "required": ["a"]},
        "uniqueItems": True,
    },
    "different arrays": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2, "uniqueItems": True},
        "uniqueItems": True,
    },
    "different places": {
        "type": "array",
        "prefixItems": [{"enum": [1, 2]}, {"enum": [1, 3]}, {"enum": [1, 2]}],
        "items": {"type": "string"},
        "uniqueItems": True,
        "minItems": 3,
    },
    "a record": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "ab": {"type": "string"}, "b": {"type": "null"}},
        "required": ["a", "b"],
    },
    "a closed record": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "ab": {"type": "string"}, "b": {"items": {"type": "boolean"}}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "different closed records": {
        "items": {
            "properties": {"ab": {"enum": ["a", "aa"]}, "b": {"type": "boolean"}, "aa": {"const": 1}},
            "additionalProperties": False,
        },
        "uniqueItems": True,
        "minItems": 2,
    },
    "different lists": {
        "items": {"items": {"enum": ["aa", "ab", 12]}, "maxItems": 1, "minItems": 1},
        "uniqueItems": True,
        "minItems": 3,
    },
    "other names": {"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 3},
    "few names": {
        "type": "object",
        "propertyNames": {"enum": ["a", "aa", "b"]},
        "required": ["b"],
        "minProperties": 2,
        "maxProperties": 2,
    },
    "a tree": {
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#/$defs/node"}}},
                "required": ["name"],
            }
        },
        "$ref": "#/$defs/node",
    },
}


def compiled_or_none(backend: NetworkBackend, schema: Any, **options: Any) -> CompiledConstraint | None:
    """The compiled schema; None if the backend reports losses, or that no value is valid."""
    try:
        return backend.compile(JsonSchema(schema, **options))
    except (ConstraintError, CompileLimitExceeded) as error:
        assert not isinstance(error, UnsupportedConstraint) or error.losses
        return None


@settings(max_examples=repeats(12, 600))
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(DRAFTS)))
def test_valid_values_are_accepted_in_every_order_and_no_others(random: Random, draft: int) -> None:
    schema = Writer(random, draft).document()
    compiled = compiled_or_none(BYTES, schema, extra="allow", spelling="any", key_order="any")
    if compiled is None:
        return
    valid = validator(schema, draft)
    listed = list(constants(schema))
    for value in [*listed, *(instance(random, listed) for _ in range(12))]:
        texts = [json.dumps(ordered, ensure_ascii=False) for ordered in islice(orders(value), MOST_ORDERS)]
        is_valid = valid.is_valid(parsed(texts[0], draft))
        if draft == 4 and is_valid and ".0" in texts[0]:
            continue  # there 1.0 is no integer, and our networks do not write it as another number either
        for text in texts:
            assert accepts(compiled, text) == is_valid, (text, json.dumps(schema))
        odd = spellings(random, value)
        assert not accepts(compiled, odd) or valid.is_valid(parsed(odd, draft)), (odd, json.dumps(schema))


# Beside each other in one component: texts of a byte or few, and calls.
ALTERNATIVES = [
    {"const": 5}, {"enum": [0, 1, "", "a"]}, {"type": "integer", "minimum": 1, "maximum": 5}, {"type": "null"},
    {"type": "boolean"}, {"type": "string", "minLength": 20}, {"type": "string", "maxLength": 80}, {"type": "string"},
    {"type": "array", "items": {"const": 1}}, {"type": "array", "items": {"type": "string", "maxLength": 17}},
    {"type": "object", "properties": {"5": {"const": 2}}, "additionalProperties": False},
]  # fmt: skip
OF_FEW_BYTES = [
    *range(10),
    -5,
    15,
    None,
    True,
    "",
    "a",
    "5",
    "b" * 19,
    "b" * 20,
    "b" * 90,
    [],
    [1],
    ["1"],
    {},
    {"5": 2},
]


@settings(max_examples=repeats(30, 500))
@given(
    st.lists(st.sampled_from(ALTERNATIVES), min_size=1, max_size=5, unique_by=str),
    st.sampled_from(["canonical", "any"]),
    st.sampled_from(["declared", "any"]),
)
def test_values_of_few_bytes_are_kept_beside_calls(alternatives, spelling, key_order):
    inside = {"anyOf": alternatives}
    schema = {"type": ["object", "array"], "properties": {"a": inside}, "items": inside, "additionalProperties": inside}
    for outer, wrapped in ((inside, "{}"), (schema, "[{}]"), (schema, '{{"a": {}}}'), (schema, '{{"b": {}}}')):
        compiled = BYTES.compile(JsonSchema(outer, extra="allow", spelling=spelling, key_order=key_order))
        valid = validator(outer, 2020)
        for value in OF_FEW_BYTES:
            text = wrapped.format(json.dumps(value))
            assert accepts(compiled, text) == valid.is_valid(json.loads(text)), (text, outer)


@settings(max_examples=repeats(12, 600))
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(DRAFTS)), st.sampled_from(["canonical", "any"]))
def test_random_walks_end_and_are_valid(random: Random, draft: int, spelling: str) -> None:
    schema = Writer(random, draft).document()
    compiled = compiled_or_none(BYTES, schema, extra="allow", spelling=spelling)
    if compiled is None:
        return
    valid = validator(schema, draft)
    for _ in range(3):
        text = walked(compiled.matcher(), random)
        if text is not None:
            assert valid.is_valid(parsed(text.decode(), draft)), (text, json.dumps(schema))


def walked(matcher: Matcher, random: Random, most: int = 120) -> bytes | None:
    """A random text of single bytes, in a hurry to end; None if it is too long."""
    text = bytearray()
    for _ in range(most):
        if matcher.is_completed() and random.random() < 0.5:
            return bytes(text)
        fitting = [byte for byte in allowed(matcher) if byte < 256]
        if not fitting:
            assert matcher.is_completed(), f"a dead end after {bytes(text)!r}"
            return bytes(text)
        byte = random.choice([byte for byte in fitting if byte in b'"]},:012truefalsnb'] or fitting)
        assert matcher.accept_token(byte)
        text.append(byte)
    return None


PIECES = (
    '"', '",', '","', '", "', '":', '": ', '"}', '"]', '"],', "},", "}}", "]]", "{", "[", '["', '{"', "[{", "[[", "[]",
    ",", ", ", ":", ": ", " ", "\n", "1,", ",1", "1, 2", "1.", ".0", "0,1", "12", "\\", "\\u", "00", '\\"', "u0061",
    "a", "aa", "ab", "b", 'a"', '"a"', '"a":', '"b":', 'a","', 'a","a', '"a","b"', '"a", "a"', "null", "true", "é",
    '"a', '"b', '"aa', '"ab', ', "a', ', "ab', ', "b', ',"ab', '1,"a', ' "', '["a', '[["a', 'aa"],["a',
    '"aa","ab","b"', '1,"b":2', '":1,"', '"a":1,"b', '"aab"', '{"a":1}', '{"a":1},{"a":2}', "[true],", "[true,fal",
)  # fmt: skip


@cache
def pieces() -> Vocabulary:
    """Single bytes, and tokens that cross the ends of names, items and objects."""
    data = (
        *(bytes([byte]) for byte in range(256)),
        *(piece.encode() for piece in PIECES),
        b"\xc3\xa9x",
        b'\xa9"',
        None,
    )
    return Vocabulary(data, (len(data) - 1,), len(data) + 5, tokenizer=None)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"key_order": "any"},
        {"spelling": "any", "key_order": "any"},
        {"whitespace": "minified"},
        {"whitespace": "flexible", "key_order": "any"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", SCHEMAS)
@settings(max_examples=repeats(2, 40))
@given(random=st.randoms(use_true_random=False))
def test_masks_equal_reading_every_token(name: str, options: dict[str, Any], random: Random) -> None:
    compiled = compiled_or_none(NetworkBackend(pieces()), SCHEMAS[name], extra="allow", **options)
    assert compiled is not None
    check_masks(compiled.matcher(), random, steps=30)


# Tokens in which strings begin, and end, about as long as bounds allow.
LONG_PIECES = [
    *(
        f'{before}"{content}'
        for before in ("", ": ")
        for content in (
            '"',
            'a"',
            "a" * 15,
            f'{17 * "a"}"',
            f'{18 * "a"}"',
            19 * "a",
            f'{18 * "é"}"',
            17 * "\\n" + '"',
            9 * "\\ud83d\\ude00",
            16 * "\\u00e9" + 'a"',
            "\\ud83d",
        )
    ),
    '", "c": "' + 17 * "a",
    '"], "c": "',
    '", "' + 18 * "b",
    16 * "a",
    '"}',
    '"]',
    "\\u00e9",
    "\\ude00",
]


@cache
def long_pieces() -> Vocabulary:
    """Single bytes, and long tokens."""
    data = (*(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in LONG_PIECES), None)
    return Vocabulary(data, (len(data) - 1,), len(data) + 5, tokenizer=None)


@pytest.mark.parametrize("options", [{}, {"spelling": "any"}, {"spelling": "any", "key_order": "any"}], ids=str)
@settings(max_examples=repeats(4, 100))
@given(
    random=st.randoms(use_true_random=False),
    bounds=st.lists(st.tuples(st.sampled_from([0, 1, 2, 17, 18]), st.sampled_from([18, 19, 200, None])), min_size=3),
    unique=st.booleans(),
)
def test_masks_of_long_strings_equal_reading_every_token(
    options: dict[str, Any], random: Random, bounds: list[tuple[int, int | None]], unique: bool
) -> None:
    a, b, c = (
        {"type": "string", "minLength": low} | ({} if high is None else {"maxLength": high}) for low, high in bounds[:3]
    )
    properties = {"a": a, "b": {"type": "array", "items": b, "uniqueItems": unique}, "c": c}
    schema = {"type": "object", "properties": properties, "required": ["a", "b", "c"], "additionalProperties": False}
    compiled = compiled_or_none(NetworkBackend(long_pieces()), schema, **options)
    assert compiled is not None
    check_masks(compiled.matcher(), random, steps=10, vocabulary=long_pieces())


def check_masks(matcher: Matcher, random: Random, steps: int, vocabulary: Vocabulary | None = None) -> None:
    """Compare masks with the tokens that the matcher takes, along a walk that prefers long tokens."""
    stop = (vocabulary or pieces()).stop_token_ids[0]
    for _ in range(steps):
        fitting = [token_id for token_id in allowed(matcher) if token_id != stop]
        assert fitting == [token_id for token_id in range(stop) if matcher.validate_tokens([token_id])]
        if not fitting:
            break
        long = [token_id for token_id in fitting if token_id >= 256 or token_id in b'"]},:1a']
        assert matcher.accept_token(random.choice(long or fitting))


def every_text(matcher: Matcher, text: bytes = b"") -> Iterator[bytes]:
    """All texts of a finite language; every beginning that is allowed has one."""
    if matcher.is_completed():
        yield text
    fitting = [byte for byte in allowed(matcher) if byte < 256]
    assert fitting or matcher.is_completed(), f"a dead end after {text!r}"
    for byte in fitting:
        longer = matcher.fork()
        assert longer.accept_token(byte)
        yield from every_text(longer, text + bytes([byte]))


def values_of(schema: dict[str, Any], pool: list[Any]) -> set[str]:
    """The texts of the valid arrays, and of the valid objects in every order, that are made of a pool of values."""
    valid = validator(schema, 2020)
    arrays = (list(items) for length in range(4) for items in product(pool, repeat=length))
    objects = (
        dict(zip(names, values, strict=True))
        for length in range(5)
        for names in permutations(["a", "aa", "b", "c"], length)
        for values in product(pool[:2], repeat=length)
    )
    texts = (json.dumps(value, separators=(",", ":")) for value in [*arrays, *objects])
    return {text for text in texts if valid.is_valid(json.loads(text))}


FINITE: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "all of three": (
        {"type": "array", "items": {"enum": ["aa", "ab", "b"]}, "minItems": 3, "uniqueItems": True},
        ["aa", "ab", "b"],
    ),
    "a pair": (
        {
            "type": "array",
            "prefixItems": [{"type": "boolean"}, {"const": True}],
            "items": False,
            "minItems": 2,
            "uniqueItems": True,
        },
        [True, False],
    ),
    "three places": (
        {
            "type": "array",
            "prefixItems": [{"enum": [1, 2]}, {"enum": [1, 3]}, {"enum": [1, 2]}],
            "items": False,
            "minItems": 3,
            "uniqueItems": True,
        },
        [1, 2, 3],
    ),
    "records": (
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"a": {"enum": [1, 11]}, "b": {"const": True}},
                "required": ["a"],
                "additionalProperties": False,
            },
            "minItems": 2,
            "maxItems": 3,
            "uniqueItems": True,
        },
        [{"a": 1}, {"a": 11}, *({"a": a, "b": True} for a in (1, 11)), *({"b": True, "a": a} for a in (1, 11))],
    ),
    "two of few names": (
        {
            "type": "object",
            "properties": {"a": {"enum": [1, 12]}, "aa": {"const": 1}, "b": {"const": 1}},
            "required": ["b"],
            "minProperties": 2,
            "maxProperties": 2,
            "additionalProperties": False,
        },
        [1, 12],
    ),
    "names that need others": (
        {
            "type": "object",
            "properties": {"a": {"const": 1}, "aa": {"const": 1}, "b": {"const": 1}, "c": {"const": 1}},
            "dependentRequired": {"a": ["b"], "c": ["a"]},
            "additionalProperties": False,
        },
        [1],
    ),
    "listed names": (
        {
            "type": "object",
            "propertyNames": {"enum": ["a", "aa", "b"]},
            "additionalProperties": {"enum": [1, 12]},
            "minProperties": 2,
        },
        [1, 12],
    ),
    "names of a pattern": (
        {
            "type": "object",
            "patternProperties": {"^(aa?|b|c)$": {"enum": [1, 12]}},
            "additionalProperties": False,
            "minProperties": 3,
        },
        [1, 12],
    ),
}


@pytest.mark.parametrize("name", FINITE)
def test_every_beginning_of_a_finite_language_has_an_end(name: str) -> None:
    schema, pool = FINITE[name]
    compiled = BYTES.compile(JsonSchema(schema, whitespace="minified", key_order="any"))
    texts = {text.decode() for text in every_text(compiled.matcher())}
    assert texts == values_of(schema, pool)


@pytest.mark.parametrize("name", ["listed names", "names of a pattern"])
def test_names_without_a_place_in_the_declared_order_come_in_any(name: str) -> None:
    schema, pool = FINITE[name]
    compiled = BYTES.compile(JsonSchema(schema, whitespace="minified"))
    texts = {text.decode() for text in every_text(compiled.matcher())}
    assert texts == values_of(schema, pool)


@pytest.mark.parametrize(
    "items", [{"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 3}, {"enum": ["ab", 7]}]
)
def test_different_values_in_any_spelling_are_counted(items: Any) -> None:
    """Infinitely many texts mean the same few values."""
    most = 7 if "type" in items else 2
    schema = {"type": "array", "items": items, "uniqueItems": True}
    with pytest.raises((UnsupportedConstraint, InvalidConstraint)):
        BYTES.compile(JsonSchema(schema | {"minItems": most + 1}, spelling="any"))
    compiled = BYTES.compile(JsonSchema(schema | {"minItems": most}, spelling="any"))
    texts = ["0", "0.50", "1.0", "1.5", "2", "2.5", "3"] if most == 7 else ['"ab"', "7.0"]
    assert accepts(compiled, f"[{', '.join(texts)}]")
    assert not accepts(compiled, f"[{', '.join([*texts[:-1], texts[0]])}]")


A_STRING, NAMED = {"type": "string"}, {"type": "string", "maxLength": 20}
NAMES: dict[str, Any] = {
    "type": "object",
    "properties": {"name": NAMED},
    "required": ["name"],
    "additionalProperties": NAMED,
}
A_OR_B = {"type": "object", "additionalProperties": A_STRING, "propertyNames": {"enum": ["a", "b"]}}
OF_ITEMS: list[tuple[dict[str, Any], str, str]] = [
    ({"prefixItems": [A_STRING], "items": {"enum": ["b", "a"]}}, '["6","a","b', '"]'),
    ({"prefixItems": [A_STRING, {"const": "a"}], "items": False}, '["a', '"]'),
    ({"prefixItems": [A_STRING, {"const": "a"}], "items": False}, "[", '"b","a"]'),
    ({"prefixItems": [{"type": "integer"}, {"const": 1}], "items": False}, "[", "1]"),
    ({"prefixItems": [{"items": A_STRING}, {"const": ["a"]}], "items": False}, '[["a', '"]]'),
    ({"items": NAMES}, '[{"name":"x"},{"y":"', 'a","name":"b"}]'),
    ({"items": NAMES}, '[{"name":"x"},{"y":"a', '","name":"x"}]'),
    ({"prefixItems": [A_OR_B], "items": False}, '[{"a":"', 'x","b":"y"}]'),
    ({"items": {}}, '[{"a":1},{"a":2,', '"a":3}]'),
]


@pytest.mark.parametrize(("schema", "text", "rest"), OF_ITEMS)
def test_items_are_compared_alike_in_masks_and_in_the_reader(schema: dict[str, Any], text: str, rest: str) -> None:
    """Where later items have few values, names are many, and a member takes the place of another one."""
    unique = JsonSchema({"type": "array", "uniqueItems": True} | schema, whitespace="minified", key_order="any")
    matcher = NetworkBackend(pieces()).compile(unique).matcher()
    assert matcher.validate_tokens([*(text + rest).encode()]) == len((text + rest).encode())
    assert all(map(matcher.accept_token, text.encode()))
    check_masks(matcher, Random(0), steps=3)


def _overlapping(kind: str) -> dict[str, Any]:
    value = {"$ref": "#/$defs/value"}
    if kind == "objects":
        branches = [
            {"type": "object", "properties": {"x": value, other: {"type": "integer"}}, "required": ["x"]}
            for other in ("p", "q")
        ]
    else:
        branches = [
            {"type": "array", "items": value, "maxItems": 3},
            {"type": "array", "prefixItems": [value, {"type": "integer"}], "items": {"type": "string"}},
        ]
    return {**value, "$defs": {"value": {"anyOf": [*branches, {"type": "null"}]}}}


@pytest.mark.parametrize("options", [{}, {"key_order": "any"}], ids=str)
@pytest.mark.parametrize(
    "kind, text",
    [
        ("objects", '{"x":' * 64 + "null" + ',"p":1}' * 64),
        ("objects", '{"x":' * 64 + "null" + ',"p":1}' + ',"q":2}' * 63),
        ("arrays", "[" * 64 + "null" + "]" * 64),
        ("arrays", "[" * 64 + "null" + ',7,"z"]' + "]" * 63),
    ],
)
def test_overlapping_recursion_takes_little_memory(kind: str, text: str, options: dict[str, Any]) -> None:
    """Each level may be read in two ways, so there are two to the power of 64 readings before the innermost value."""
    compiled = BYTES.compile(JsonSchema(_overlapping(kind), **options))
    assert accepts(compiled, text)
    machine = cast(FrameEngine, compiled.new_engine())._machine
    assert machine._now.set_bytes < 4 * 2**20
    assert validator(_overlapping(kind), 2020).is_valid(json.loads(text))


def after(data: bytes, compiled: CompiledConstraint) -> Matcher:
    matcher = compiled.matcher()
    assert all(matcher.accept_token(byte) for byte in data)
    return matcher


@settings(max_examples=repeats(30, 1000))
@given(
    st.sets(st.text("ab", min_size=1, max_size=5), min_size=2, max_size=12),
    st.integers(0, 2),
    st.randoms(use_true_random=False),
)
def test_the_names_that_may_come_are_those_not_yet_used(names: set[str], others: int, random: Random) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": dict.fromkeys(sorted(names), {"const": 1})}
    # The only other names there are; those that are declared too are allowed once.
    schema["patternProperties"] = {f"^b{{{length}}}$": {"const": 1} for length in range(1, 1 + others)}
    options = {"key_order": "any", "whitespace": "minified"}
    compiled = BYTES.compile(JsonSchema({**schema, "additionalProperties": False}, **options))
    possible = names | {"b" * length for length in range(1, 1 + others)}
    used = random.sample(sorted(possible), random.randrange(len(possible)))
    begun = "{" + "".join(f'"{name}":1,' for name in used)
    matcher = after((begun + '"').encode(), compiled)
    assert set(names_after(matcher)) == {f'{name}"'.encode() for name in possible - {*used}}


def names_after(matcher: Matcher, name: bytes = b"") -> Iterator[bytes]:
    if name.endswith(b'"'):
        yield name
        return
    for byte in allowed(matcher):
        assert matcher.accept_token(byte)
        yield from names_after(matcher, name + bytes([byte]))
        matcher.rollback(1)


@pytest.mark.parametrize("keyword", ["additionalProperties", "propertyNames"])
def test_what_is_not_kept_in_any_order_is_no_contradiction(keyword: str) -> None:
    schema = {"type": "object", "not": {keyword: {"const": "a"}}}
    assert BYTES.compile(JsonSchema(schema, extra="allow"))
    with pytest.raises(UnsupportedConstraint, match="in any order"):
        BYTES.compile(JsonSchema(schema, extra="allow", key_order="any"))


_DROPPED: dict[str, Any] = {
    "compiled loops": JsonSchema({"type": "object", "properties": {"a": {"type": "string", "maxLength": 100}}}),
    "any order": JsonSchema({"type": "object", "properties": {"a": {}, "b": {}}}, key_order="any"),
    "different items": JsonSchema({"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True}),
    "a tag": StructuralTag(
        {
            "type": "structural_tag",
            "format": {"type": "tag", "begin": "<", "content": {"type": "json_schema", "json_schema": {}}, "end": ">"},
        }
    ),
}


@pytest.mark.parametrize("name", _DROPPED)
def test_a_network_that_is_dropped_is_freed_without_a_collection(name: str) -> None:
    backend = NetworkBackend(all_bytes())
    compiled = backend.compile(_DROPPED[name])
    matcher = compiled.matcher()
    for _ in range(3):
        assert matcher.accept_token(allowed(matcher)[0])
    network = weakref.ref(cast(FrameEngine, matcher.engine).network)
    gc.disable()
    try:
        del compiled, matcher
        backend._last = None  # what is kept of the constraint compiled last
        assert network() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("max_depth", [None, 3])
def test_hundreds_of_alternatives_may_begin_with_equal_parts(max_depth: int | None) -> None:
    """Each has these parts at positions of its own, and only what comes after them tells the alternatives apart."""
    part = {"type": "array", "items": {"type": "object", "properties": {"s": {"type": "string"}}}}
    numbers = range(1_500)
    branches = [{"properties": {"part": part, "n": {"const": n}}, "required": ["part", "n"]} for n in numbers]
    schema = {"type": "object", "anyOf": [*branches, {"properties": {"part": {"items": {"const": 1}}}}]}
    compiled = BYTES.compile(JsonSchema(schema, "minified", max_depth=max_depth))
    for value in [{"part": [{"s": "a"}, {}], "n": n} for n in (0, 7, 1_499, 1_500)]:
        text = json.dumps(value, separators=(",", ":"))
        assert accepts(compiled, text) == (value["n"] in numbers), text
    assert accepts(compiled, '{"part":[1,1]}') and not accepts(compiled, '{"part":[{},1]}')
    assert accepts(compiled, '{"part":[]}') and not accepts(compiled, '{"part":[{}]}')


@pytest.mark.parametrize("whitespace", ["flexible", "minified"])
@pytest.mark.parametrize("count", [200, 300, 500, 1_500])
def test_hundreds_of_alternatives_may_differ_before_what_tells_them_apart(count: int, whitespace: Any) -> None:
    """An empty list may be that of any alternative."""
    names = {n: {"list": {"type": "array", "items": {"const": n}}, "n": {"const": n}} for n in range(count)}
    schema = {"type": "object", "anyOf": [{"properties": own, "required": ["n"]} for own in names.values()]}
    compiled = BYTES.compile(JsonSchema(schema, whitespace))
    for items, n in [([], count - 1), ([7, 7], 7), ([7, 7], 8), ([], count)]:
        text = json.dumps({"list": items, "n": n}, separators=(",", ":"))
        assert accepts(compiled, text) == (n < count and set(items) <= {n}), text


def test_a_place_with_too_many_different_values_is_a_limit() -> None:
    """Each of the numbers may be one of any alternative, so no row comes to it: another engine has to be found."""
    branches = [{"properties": {"a": {"minimum": n, "type": "integer"}, "n": {"const": n}}} for n in range(1_500)]
    recursive = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    schema = {"type": "object", "anyOf": [*({**branch, "required": ["n"]} for branch in branches), recursive]}
    with pytest.raises(CompileLimitExceeded, match="more than 512 different values may come in one place"):
        BYTES.compile(JsonSchema(schema, "minified"))
