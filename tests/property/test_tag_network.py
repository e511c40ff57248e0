"""Structural tags on the network: the texts of a slow reading, masks that equal reading every token, no dead ends.

The slow reading knows what each format means for a text, and nothing of automata; `re`, `json` and `jsonschema` decide
what its parts are. xgrammar reads the same tags by another way, a grammar.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any

import jsonschema
import pytest
import xgrammar
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import NetworkBackend
from hf_guided.backends.tag_marks import runs_on
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy
from tests.effort import repeats
from tests.pairs import one_in
from tests.property.strategies import allowed, still_open, tiny
from tests.property.test_network import check_masks, every_text
from tests.property.test_tool_calls import JSON_FAMILIES, STOP, as_tools, target_texts, tools_of, walk
from tests.tool_families import FAMILIES

Format = dict[str, Any]
BYTES = NetworkBackend(toy.all_bytes())


@cache
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


def const(value: str) -> Format:
    return {"type": "const_string", "value": value}


def values(schema: Any, **options: Any) -> Format:
    return {"type": "json_schema", "json_schema": schema, **options}


def sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": [*elements]}


def tag(begin: str, content: Format, end: str | list[str]) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


# -- the slow reading


def ends(part: Format, text: str, start: int) -> set[int]:
    """Where a format may end that begins at a place of a text."""
    return {end for end in range(start, len(text) + 1) if fits(part, text[start:end])}


@cache
def _reader(written: str) -> tuple[Format, Callable[[str], bool]]:
    part = json.loads(written)
    return part, cache(lambda text: READERS[part["type"]](part, text))


def fits(part: Format, text: str) -> bool:
    """Whether a text is one of a format."""
    return _reader(json.dumps(part))[1](text)


def _is_value(part: Format, text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    is_canonical = json.dumps(value, separators=(",", ":")) == text  # there are no spaces in these tests
    return is_canonical and jsonschema.Draft202012Validator(part["json_schema"]).is_valid(value)


def _split(first: Format, rest: list[Format], text: str) -> bool:
    if not rest:
        return fits(first, text)
    return any(_split(rest[0], rest[1:], text[end:]) for end in ends(first, text, 0))


def _repeats(part: Format, text: str, low: int, high: float) -> bool:
    if not text:
        return low <= 0 or fits(part, "")
    return high > 0 and any(_repeats(part, text[end:], low - 1, high - 1) for end in ends(part, text, 0) if end)


def _is_tag(part: Format, text: str) -> bool:
    closings = [part["end"]] if isinstance(part["end"], str) else part["end"]
    if not text.startswith(part["begin"]):
        return False
    text = text[len(part["begin"]) :]
    if runs_on(part["content"]) and "" not in closings:  # the first end is the end
        earlier = any(text[:length].endswith(end) for end in closings for length in range(len(text)))
        closings = [] if earlier else closings
    return any(text.endswith(end) and fits(part["content"], text[: len(text) - len(end)]) for end in closings)


def _is_triggered(part: Format, text: str, called: bool = False) -> bool:
    """Free text up to the first trigger, and a tag there."""
    triggers, excludes, once = part["triggers"], part.get("excludes", []), part.get("stop_after_first")
    starts = [0]
    if called or not part.get("at_least_one"):
        if not any(word in text for word in (*triggers, *excludes)):
            return True
        first = next((i for i in range(len(text) + 1) if any(map(text[:i].endswith, triggers))), 0)
        starts = [first - len(trigger) for trigger in triggers if text[:first].endswith(trigger)]
        if any(word in text[:first] for word in excludes):
            return False
    found = [end for start in starts for one in part["tags"] for end in ends(one, text, start)]
    return any(end == len(text) if once else _is_triggered(part, text[end:], True) for end in found)


def _is_separated(part: Format, text: str) -> bool:
    if not text and not part.get("at_least_one"):
        return True
    for one in part["tags"]:
        for end in ends(one, text, 0):
            rest = text[end:]
            if not rest:
                return True
            if rest.startswith(part["separator"]) and not part.get("stop_after_first"):
                if _is_separated({**part, "at_least_one": True}, rest[len(part["separator"]) :]):
                    return True
    return False


READERS: dict[str, Callable[[Format, str], bool]] = {
    "const_string": lambda part, text: text == part["value"],
    "regex": lambda part, text: re.fullmatch(part["pattern"], text) is not None,
    "any_text": lambda part, text: (
        not any(word in text for word in part.get("excludes", ())) and len(text) <= part.get("max_chars", 99)
    ),
    "json_schema": _is_value,
    "sequence": lambda part, text: _split(part["elements"][0], part["elements"][1:], text),
    "or": lambda part, text: any(fits(one, text) for one in part["elements"]),
    "optional": lambda part, text: _repeats(part["content"], text, 0, 1),
    "plus": lambda part, text: _repeats(part["content"], text, 1, 99),
    "star": lambda part, text: _repeats(part["content"], text, 0, 99),
    "repeat": lambda part, text: _repeats(part["content"], text, part["min"], part["max"] if part["max"] >= 0 else 99),
    "tag": _is_tag,
    "triggered_tags": _is_triggered,
    "tags_with_separator": _is_separated,
}

SCHEMAS: list[Any] = [
    {"enum": [1, 11]},
    {"type": "array", "items": {"enum": [1, 11]}, "uniqueItems": True},
    {"type": "array", "items": {"enum": [1, []]}, "maxItems": 2},
    {"type": "array", "uniqueItems": True, "prefixItems": [{"const": 1}], "items": {"type": "array", "maxItems": 1}},
]
ALPHABET = "1,[]a<"


def random_format(rng: random.Random, depth: int) -> Format:
    """A format over a few characters."""
    kinds = ["const", "regex", "text", "values", "values"]
    kinds += ["sequence", "or", "times", "tag", "triggered", "separated"] * (depth > 0)
    kind = rng.choice(kinds)
    if kind == "const":
        return const(rng.choice(["a", "<", "1", ",", ""]))
    if kind == "regex":
        return {"type": "regex", "pattern": rng.choice(["a+", "[1,]?", "<|a", "(1,)*"])}
    if kind == "text":
        bound = {"max_chars": rng.randint(0, 2)} if rng.random() < 0.5 else {}
        return {"type": "any_text", "excludes": rng.sample(["a", "<", "1,"], rng.randint(0, 2)), **bound}
    if kind == "values":
        return values(rng.choice(SCHEMAS))
    inside = [random_format(rng, depth - 1) for _ in range(rng.randint(1, 3))]
    if kind == "sequence":
        return sequence(*inside)
    if kind == "or":
        return {"type": "or", "elements": inside}
    if kind == "times":
        low = rng.randint(0, 1)
        bounds = rng.choice([{"type": "repeat", "min": low, "max": rng.choice([-1, low + 1])}, {"type": "plus"}])
        return {**rng.choice([bounds, {"type": "optional"}, {"type": "star"}]), "content": inside[0]}
    ending = rng.choice(["", "a", "<", ["<", "a"]])
    tags = [tag(f"<{rng.choice(['', 'a', '1'])}", content, ending) for content in inside]
    if kind == "tag":
        return tags[0]
    options = {name: True for name in ("at_least_one", "stop_after_first") if rng.random() < 0.4}
    if kind == "triggered":
        return {"type": "triggered_tags", "triggers": ["<"], "tags": tags, **options}
    return {"type": "tags_with_separator", "tags": tags, "separator": rng.choice([",", ""]), **options}


def beginnings(matcher: Matcher, length: int, text: str = "") -> Iterator[tuple[str, bool]]:
    """All beginnings of texts up to a length, over the alphabet, and whether they are complete."""
    yield text, matcher.is_completed()
    for letter in map(chr, allowed(matcher)) if len(text) < length else ():
        if letter in ALPHABET:
            longer = matcher.fork()
            assert longer.accept_token(ord(letter))
            yield from beginnings(longer, length, text + letter)


@settings(max_examples=repeats(25, 1500))
@given(st.randoms(use_true_random=False))
def test_random_tags_have_the_texts_of_the_slow_reading(rng: random.Random) -> None:
    part = random_format(rng, 2)
    try:
        compiled = BYTES.compile(hg.StructuralTag({"format": part}))
    except hg.UnsupportedConstraint as error:
        assert all("free text in it ends at the tag's end" in loss.reason for loss in error.losses), error
        return
    except hg.InvalidConstraint as error:
        assert "matches nothing" in str(error)
        return
    length = 4
    complete = {text for text, is_complete in beginnings(compiled.matcher(), length) if is_complete}
    texts = ("".join(letters) for count in range(length + 1) for letters in product(ALPHABET, repeat=count))
    assert complete == {text for text in texts if fits(part, text)}, json.dumps(part)


# -- beside xgrammar


# xgrammar has no notation with a line end on both sides of a value.
WITH_ELEMENTS = [name for name in FAMILIES if name not in (*JSON_FAMILIES, "qwen_3_coder", "qwen_3_5")]


@pytest.mark.parametrize("family", WITH_ELEMENTS)
def test_calls_with_elements_are_calls_of_xgrammar(family: str) -> None:
    """Of its own converter, which takes more: other white space, other types, and strings of any length.

    Calls that are JSON are compared in test_tool_calls.py.
    """
    # xgrammar ignores how long a string without marks may be, and says so. For minimax_m3 it also ignores other marks.
    left_out = ["mixed", "tags", "marks"] if family == "minimax_m3" else ["mixed"]
    schemas = {name: schema for name, schema in tools_of(family).items() if name not in left_out}
    info = xgrammar.TokenizerInfo([*(bytes([byte]) for byte in range(256)), b"<s>"], stop_token_ids=[STOP])
    rng, compared = random.Random(family), 0
    for choice in ("auto", "required", "either"):
        constraint = hg.ToolCalls(as_tools(schemas), family, choice)
        matcher = compiler().compile(constraint, "native").matcher()
        grammar = xgrammar.Grammar.from_structural_tag(json.dumps(constraint.structural_tag().tag))
        its_own = xgrammar.GrammarCompiler(info).compile_grammar(grammar)
        for _ in range(repeats(5, 50)):
            written = walk(matcher.fork(), target_texts(family, [*schemas]), rng)
            if written is not None:
                assert all(map(xgrammar.GrammarMatcher(its_own).accept_token, [*written, STOP])), written
                compared += 1
    assert compared > repeats(10, 100)


# -- registers in tags

DIFFERENT: dict[str, Any] = {
    "strings": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2},
    "records": {
        "type": "array",
        "items": {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "string"}}, "required": ["b"]},
        "uniqueItems": True,
    },
    "names": {
        "type": "object",
        "properties": {"</p>": {"type": "integer"}},
        "additionalProperties": {"type": "integer"},
        "minProperties": 2,
    },
    "listed_names": {
        "type": "object",
        "propertyNames": {"enum": ["</p>", "<", "b"]},
        "required": ["</p>"],
        "minProperties": 2,
        "maxProperties": 2,
    },
    "long": {"type": "string", "minLength": 18, "maxLength": 20},
    "short": {"type": "string", "minLength": 1, "maxLength": 5},
    "few": {"type": "array", "items": {"enum": ["</p>", "<", "</p></p>"]}, "uniqueItems": True, "minItems": 3},
    "sevenths": {"type": "integer", "multipleOf": 7},
}


def different_tools(names: Iterable[str] = DIFFERENT) -> dict[str, Any]:
    return {name: {"type": "object", "properties": {"v": DIFFERENT[name]}, "required": ["v"]} for name in names}


def of_tools(*kinds: str) -> list[str]:
    """Families that write arguments as JSON, or as elements, or as elements in elements."""
    written = {"json": JSON_FAMILIES, "nested": ["cohere", "minimax_m3"]}
    written["elements"] = [name for name in FAMILIES if name not in (*written["json"], *written["nested"])]
    return [family for kind in kinds for family in written[kind]]


@pytest.mark.parametrize("family", one_in(2, of_tools("json", "elements")))
def test_calls_keep_what_only_registers_know(family: str) -> None:
    schemas, rng, finished = different_tools(), random.Random(family), 0
    constraint = hg.ToolCalls(as_tools(schemas), family, "required")
    with pytest.raises(hg.UnsupportedConstraint):
        compiler().compile(constraint, "xgrammar")
    compiled = compiler().compile(constraint)
    assert compiled.backend == "native"
    targets = [*target_texts(family, [*schemas]), b"</p>", b"<", b'"<"', b"\\u003c", b'", "', b'"b"']
    for _ in range(repeats(6, 60)):
        written = walk(compiled.matcher(), targets, rng)
        for call in constraint.parse(written.decode()).calls if written is not None else ():
            jsonschema.Draft202012Validator(schemas[call.name]).validate(call.arguments)
            finished += 1
    assert finished > repeats(3, 30)


PIECES = [
    *('", "', '","', '"]', '["', 'a"', '"a', 'a", "a"', "aa", '"b"', '"b": ', '": 1', '{"v": ', '"}]}', "<<"),
    *("<p>{", "}</p>", 'text <p>{"v"', "</", "p>", "/p>", "</p>", '</p>"', '"</', '"<"'),
    *("\\u003c", "\\u00", "3c/p>", "003c", '"\\u', '\\u003c/p>x"', "\\u003c/p>x", 'c/p>x"]', 'x\\u003c/p>"'),
]


@cache
def pieces() -> Vocabulary:
    data = (*(bytes([byte]) for byte in range(256)), *(piece.encode() for piece in PIECES), None)
    return Vocabulary(data, (len(data) - 1,), len(data) + 5, tokenizer=None)


def marked(schema: Any, **options: Any) -> hg.StructuralTag:
    """Free text, and calls whose strings do not hold their end."""
    call = tag("<p>", values(schema, excludes=["</p>"], **options), "</p>")
    return hg.StructuralTag({"format": {"type": "triggered_tags", "triggers": ["<p>"], "tags": [call]}})


BEGUN = {
    "strings": ['["\\u003c/p>x", "', '["x\\u003c/p>", "x', '["</", "<'],
    "records": ['[{"b": "\\u003c/p>x"}, {"b": "'],
    "names": ['{"\\u003c/p>": 1, "', '{"</q>": 1, "</'],
    "listed_names": ['{"\\u003c/p>": 1, "'],
    "long": ['"' + "a" * 14, '"' + "a" * 19],
    "short": ['"a'],
}


@pytest.mark.parametrize("name", DIFFERENT)
@settings(max_examples=repeats(6, 100))
@given(rng=st.randoms(use_true_random=False))
def test_masks_in_tags_equal_reading_every_token(name: str, rng: random.Random) -> None:
    matcher = NetworkBackend(pieces()).compile(marked(different_tools()[name])).matcher()
    begun = rng.choice(["", 'a <p>{"v": ', *(f'<p>{{"v": {text}' for text in BEGUN.get(name, ()))])
    assert all(map(matcher.accept_token, begun.encode()))
    check_masks(matcher, rng, steps=15, vocabulary=pieces())
    assert allowed(matcher)


def test_a_string_has_room_for_the_rest_of_its_mark() -> None:
    matcher = BYTES.compile(marked(DIFFERENT["long"])).matcher()
    assert all(map(matcher.accept_token, b'<p>"'))
    for count in range(20):
        assert (matcher.validate_tokens([*b"\\u003c"]) == 6) == (count + len("</p>") <= 20)
        assert matcher.accept_token(ord("a"))


def check_same_masks(first: Matcher, second: Matcher, targets: list[bytes], rng: random.Random) -> None:
    """Walk at random, and compare the bytes that may come."""
    written = b""
    while len(written) < 400:
        masks = allowed(first), allowed(second)
        assert masks[0] == masks[1], written
        if STOP in masks[0] and (masks[0] == [STOP] or rng.random() < 0.2):
            return
        attempt = list(rng.choice(targets))
        taken = first.validate_tokens(attempt) if rng.random() < 0.4 else 0
        assert not taken or second.validate_tokens(attempt) == taken, (written, attempt)
        attempt = attempt[:taken] or [rng.choice([byte for byte in masks[0] if byte != STOP])]
        assert all(map(first.accept_token, attempt)) and all(map(second.accept_token, attempt))
        written += bytes(attempt)


# -- what no string may hold

LISTED = ["", "</p>", "<", "</p", "/p>", "a</p>b</p>", "<</p>", "</p></p>", '"</p>', "\\</p>", "\n</p>", "é</p>"]


@pytest.mark.parametrize("schema", [{"enum": LISTED}, {"type": "string", "pattern": "^[</p>a]{0,5}$"}], ids=str)
def test_every_string_without_its_marks_has_one_text(schema: Any) -> None:
    compiled = BYTES.compile(
        hg.StructuralTag({"format": values(schema, excludes=["</p>", "<a"], max_whitespace_cnt=0)})
    )
    written = [text.decode() for text in every_text(compiled.matcher())]
    assert not any(mark in text for mark in ("</p>", "<a") for text in written)
    found = [json.loads(text) for text in written]
    if "enum" in schema:
        assert sorted(found) == sorted(LISTED)
    else:
        letters = ("".join(some) for count in range(6) for some in product("</p>a", repeat=count))
        assert sorted(found) == sorted(letters)


def test_a_mark_in_a_name_that_is_not_declared_is_escaped() -> None:
    part = values({"additionalProperties": {"const": 1}, "type": "object"}, excludes=["</p>"])
    matcher = BYTES.compile(hg.StructuralTag({"format": part})).matcher()
    texts = [b'{"</p>": 1}', b'{"\\u003c/p>": 1}', b'{"\\u003c/q>": 1}']
    assert [matcher.validate_tokens([*text, STOP]) == len(text) + 1 for text in texts] == [False, True, False]


# -- budgets


@pytest.mark.parametrize("family", ["qwen_3", "glm_4_7"])
def test_a_call_over_a_large_schema_ends_within_its_budget(family: str) -> None:
    """Of a model that wants nothing but to go on."""
    fields = {f"field {i}": {"type": "string"} if i % 2 else {"items": {"type": "integer"}} for i in range(8)}
    schema = {"type": "object", "properties": {**fields, "v": DIFFERENT["records"]}, "required": [*fields, "v"]}
    constraint = hg.ToolCalls(as_tools({"f": schema}), family, "f")
    compiled = Compiler(tiny()).compile(constraint)
    assert compiled.backend == "native" and compiled.keeps_budget
    start = compiled.matcher()
    needed = start.min_tokens_to_finish()
    assert needed is not None
    for seed in range(repeats(2, 10)):
        matcher, rng, taken = start.fork(), random.Random(seed), []
        left = needed + rng.randint(0, 50)
        while not matcher.is_terminated():
            assert left > 0, compiled.vocabulary.decode_bytes(taken)
            taken.append(rng.choice(still_open(matcher, allowed(matcher, left))))
            assert matcher.accept_token(taken[-1])
            left -= 1
        [call] = constraint.parse(compiled.vocabulary.decode_bytes(taken).decode()).calls
        jsonschema.Draft202012Validator(schema).validate(call.arguments)


# -- what is refused


FEW_NAMES = {"properties": {"a": {}}, "propertyNames": {"pattern": "^[ab]{1,9}$"}, "minProperties": 3}
UNKNOWN = {"type": "array", "uniqueItems": True, "contains": {"const": 1}}


def losses(part: Format | hg.StructuralTag) -> list[tuple[str, str]]:
    constraint = hg.StructuralTag({"format": part}) if isinstance(part, dict) else part
    with pytest.raises(hg.UnsupportedConstraint) as caught:
        BYTES.compile(constraint)
    return [(loss.pointer, loss.keyword) for loss in caught.value.losses]


@pytest.mark.parametrize(
    ("part", "pointer", "keyword"),
    [
        (values({}, any_order=True), "/format/any_order", "any_order"),
        (values({}, excludes=["{}"]), "/format/excludes", "excludes"),
        # In these strings a part of an escape would be a mark, or what is left of one mark another.
        *(
            (values({}, excludes=marks), "/format/excludes", "excludes")
            for marks in (["no"], ["\\n"], ["<\n"], ["\n<"], ["\U0001f600"], ["<<"], ["<a", "a>"], ["<a", "x<ab"])
        ),
        ({"type": "any_text", "max_tokens": 3}, "/format/max_tokens", "max_tokens"),
        ({"type": "token", "token": 3}, "/format", "token"),
        ({"type": "grammar", "grammar": 'root ::= "a" <[5]>'}, "/format/grammar", "<[5]>"),
        (tag("<", sequence(values({"type": "integer"}), {"type": "any_text"}), ">"), "/format/content", "sequence"),
        # Registers of what is no JSON.
        (
            values({"additionalProperties": {"type": "integer"}, "minProperties": 2}, style="qwen_xml"),
            "/format/json_schema/minProperties",
            "minProperties",
        ),
        (
            values({"properties": {"a": DIFFERENT["strings"]}}, style="cohere_xml"),
            "/format/json_schema/properties/a/uniqueItems",
            "uniqueItems",
        ),
        (
            values({"properties": {"a": {"const": "]<]minimax[>["}}}, style="minimax_m3_xml"),
            "/format/json_schema/properties",
            "properties",
        ),
        (
            sequence(const("a"), values({"properties": {"a": {"type": "integer", "multipleOf": 7919}}})),
            "/format/elements/1/json_schema/properties/a/multipleOf",
            "multipleOf",
        ),
        (
            sequence(const("a"), values({"additionalProperties": {}, **FEW_NAMES})),
            "/format/elements/1/json_schema/minProperties",
            "minProperties",
        ),
        (
            sequence(const("a"), values({"properties": {"a": UNKNOWN}})),
            "/format/elements/1/json_schema/properties/a/uniqueItems",
            "uniqueItems",
        ),
    ],
    ids=str,
)
def test_what_the_network_does_not_take(part: Format, pointer: str, keyword: str) -> None:
    assert losses(part) == [(pointer, keyword)]


def test_pointers_into_the_older_form_of_a_tag() -> None:
    schema = {"properties": {"a": UNKNOWN}}
    older = {"structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}], "triggers": ["<f>"]}
    with pytest.raises(hg.UnsupportedConstraint) as caught:
        compiler().compile(hg.StructuralTag(older), "native")
    (loss,) = caught.value.losses
    assert (loss.pointer, loss.keyword) == ("/structures/0/schema/properties/a/uniqueItems", "uniqueItems")


NO_FOUR = {"type": "array", "items": {"const": 1}, "prefixItems": [{}], "uniqueItems": True, "minItems": 4}
NEVER: list[tuple[Format, str]] = [
    (
        tag("<", values({"items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3, "type": "array"}), ">"),
        "content",
    ),
    (values(NO_FOUR), ""),
    (values({"properties": {"a": NO_FOUR}, "required": ["a"]}, style="qwen_xml"), ""),
    (values({"type": "string"}, style="qwen_xml"), ""),
    (values({"patternProperties": {"^<": {}}, "additionalProperties": False, "minProperties": 1}, style="glm_xml"), ""),
]


@pytest.mark.parametrize(("part", "inside"), NEVER, ids=str)
def test_a_tag_without_texts_is_refused_before_the_first_token(part: Format, inside: str) -> None:
    """Also where only counting different values tells, and where there would be another alternative."""
    constraint = hg.StructuralTag({"format": {"type": "or", "elements": [const("a"), part]}})
    with pytest.raises(hg.InvalidConstraint) as caught:
        BYTES.compile(constraint)
    assert caught.value.pointers == (f"/format/elements/1{inside and '/'}{inside}/json_schema",)


def test_what_has_no_values_is_left_out_of_every_schema() -> None:
    """The second reading leaves out alternatives of both."""
    none = {"type": "array", "items": {"enum": [[1], [2]]}, "uniqueItems": True, "minItems": 3}
    parts = [values({"anyOf": [none, {"const": value}]}, max_whitespace_cnt=0) for value in (1, 2)]
    compiled = BYTES.compile(hg.StructuralTag({"format": sequence(parts[0], const(";"), parts[1])}))
    assert [*every_text(compiled.matcher())] == [b"1;2"]
    elements = values({"properties": {"a": NO_FOUR, "b": {"const": 1}}}, style="qwen_xml")
    compiled = BYTES.compile(hg.StructuralTag({"format": elements}))
    assert [*every_text(compiled.matcher())] == [b"", b"<parameter=b>1</parameter>"]


def test_repetitions_without_end_reach_a_limit() -> None:
    part = {"type": "repeat", "min": 0, "max": 2**31 - 1, "content": values({"type": "array"})}
    with pytest.raises(hg.CompileLimitExceeded):
        BYTES.compile(hg.StructuralTag({"format": part}))
