"""The errors and losses of every backend for unsupported, malformed and hostile constraints."""

from __future__ import annotations

import json
from decimal import Decimal

import jsonschema
import pytest

from hf_guided.backends import lm_format_enforcer
from hf_guided.constraints.values import Choice, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint, UnsupportedConstraint
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.property.strategies import (
    BACKENDS,
    SCHEMA_BACKENDS,
    allowed,
    backend,
    single_bytes,
    tiny,
    without_bytes,
)


@pytest.mark.parametrize("name", BACKENDS)
def test_error_for_an_invalid_schema_has_its_pointer(name):
    constraint = JsonSchema({"type": "object", "properties": {"a/b": {"type": "strin"}}})
    with pytest.raises(InvalidConstraint, match="at /properties/a~1b/type"):
        backend(name, tiny()).compile(constraint)


@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#/$defs/nope"},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "null", "enum": [1]},
    ],
)
def test_unsatisfiable_schema_is_refused(name, schema):
    with pytest.raises(InvalidConstraint, match="no value satisfies|which does not exist"):
        backend(name, tiny()).compile(JsonSchema(schema))


@pytest.mark.parametrize(
    ("name", "grammar"),
    [
        ("llguidance", Grammar("start: foo")),
        ("llguidance", Grammar('start: "a')),
        ("xgrammar", Grammar("root ::= foo")),
        ("xgrammar", Grammar('root ::= "a')),
        ("xgrammar", StructuralTag({"type": "structural_tag", "format": {"type": "grammar", "grammar": "root = "}})),
    ],
)
def test_malformed_grammar_is_refused(name, grammar):
    with pytest.raises(
        InvalidConstraint, match=r"^(StructuralTag: at /format/grammar: )?Grammar: line 1, column (6|8|10)\b"
    ):
        backend(name, tiny()).compile(grammar)


@pytest.mark.parametrize(
    ("name", "text"), [("llguidance", 'start: "a"\n  | foo'), ("xgrammar", 'root ::= "a" |\n    foo')]
)
def test_error_for_an_undefined_rule_names_it(name, text):
    with pytest.raises(InvalidConstraint, match="^Grammar: line 2, column 5: the rule 'foo' is not defined; define it"):
        backend(name, tiny()).compile(Grammar(text))


@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
@pytest.mark.parametrize("uri", [True, None, 3, {}, []])
def test_draft_that_is_no_text_is_refused(name, uri):
    with pytest.raises(InvalidConstraint, match="at /\\$schema: expected a URI"):
        backend(name, tiny()).compile(JsonSchema({"$schema": uri, "enum": ["a"]}))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("((?=a)a)*", "look-around"),
        (r"(a)\1", "back-ref"),
        (r"(\bfoo )+", "word boundaries inside"),
        ("x$y", "matches nothing"),
    ],
)
def test_non_regular_pattern_is_a_loss_and_an_error(name, pattern, reason):
    (loss,) = backend(name, tiny()).losses(Regex(pattern))
    assert (loss.pointer, loss.keyword) == ("", "regex")
    with pytest.raises(UnsupportedConstraint, match=reason) as caught:
        backend(name, tiny()).compile(Regex(pattern))
    assert caught.value.losses == (loss,)


def test_engines_that_support_look_around():
    constraint, names = Regex("(?!foo)[a-z]{3}(?<!bar)"), ("xgrammar", "llguidance", "native")
    for name in BACKENDS:
        assert bool(backend(name, tiny()).losses(constraint)) == (name not in names)
    for text, inside in {"foo": False, "bar": False, "fob": True, "abcd": False}.items():
        for name in names:
            matcher = backend(name, single_bytes()).compile(constraint).matcher()
            assert (all(map(matcher.accept_token, text.encode())) and matcher.is_completed()) == inside


@pytest.mark.parametrize(
    "pattern",
    [
        *("a(?!a)a", r"(?=a.*b)[ab]\W{2,5}(?!c)", r"(?<=\d)[a-z]+", "(?=[ab]{3})[a-c]{2}"),
        r"(?=a.*b)[ab]:\W{2,5}(?!c)" + r"\x00" * 28,  # too long to be known as empty before an engine has compiled it
    ],
)
def test_pattern_whose_parts_exclude_each_other_is_refused(pattern):
    for name in BACKENDS:
        with pytest.raises(UnsupportedConstraint, match="matches nothing|look-ahead"):
            backend(name, tiny()).compile(Regex(pattern))


@pytest.mark.parametrize(
    ("name", "constraint"),
    [
        ("native", Grammar('start: "a"')),
        ("llguidance", Grammar('root ::= "a"')),
        ("xgrammar", Grammar('start: "a"')),
        ("lm_format_enforcer", Grammar('start: "a"')),
    ],
)
def test_unsupported_kind_of_constraint_is_a_loss(name, constraint):
    losses = backend(name, tiny()).losses(constraint)
    assert len(losses) == 1
    with pytest.raises(UnsupportedConstraint) as caught:
        backend(name, tiny()).compile(constraint)
    assert caught.value.losses == tuple(losses)


SCHEMA = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "deep": {"type": "array", "items": {"not": {"type": "null"}, "type": ["integer", "null"]}},
        "uniqueItems": {"type": "boolean"},
        "note": {"enum": [{"uniqueItems": True}]},
    },
    "required": ["tags"],
}


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("llguidance", {("/properties/tags/uniqueItems", "uniqueItems")}),
        ("xgrammar", {("/properties/tags/uniqueItems", "uniqueItems")}),
    ],
)
def test_lost_keywords_have_pointers_and_are_dropped_only_on_request(name, lost):
    constraint = JsonSchema(SCHEMA)
    losses = backend(name, tiny()).losses(constraint)
    assert {(loss.pointer, loss.keyword) for loss in losses} == lost
    with pytest.raises(UnsupportedConstraint, match="/properties/tags/uniqueItems: ") as caught:
        backend(name, tiny()).compile(constraint)
    assert set(caught.value.losses) == set(losses)
    for on_unsupported in ("warn", "validate"):
        relaxed = backend(name, tiny()).compile(JsonSchema(SCHEMA, on_unsupported=on_unsupported))
        assert set(relaxed.losses) == set(losses)
        # The other keywords are still enforced: the tags are strings.
        assert _accepts(relaxed, {"tags": ["a", "a"], "deep": [1]})
        assert not _accepts(relaxed, {"tags": [], "deep": [None]})
        assert not _accepts(relaxed, {"tags": [1]})


_MANY_NAMES = {f"p{i}": {} for i in range(40)}


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, [("", "uniqueItems")]),
        ({"items": {"x-guidance": {"lenient": True}, "uniqueItems": True}}, [("/items", "uniqueItems")]),
        ({"items": {"enum": [*range(8)]}, "uniqueItems": True}, [("", "uniqueItems")]),
        ({"not": {"multipleOf": 3}}, [("/not", "multipleOf")]),
        ({"not": {"uniqueItems": True}}, [("/not", "uniqueItems")]),
        ({"not": {"unevaluatedProperties": False}}, [("/not", "unevaluatedProperties")]),
        ({"not": {"items": {"unevaluatedItems": False}}}, [("/not/items", "unevaluatedItems")]),
        (
            {"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}]},
            [("", "oneOf"), ("/oneOf/0", "multipleOf"), ("/oneOf/1", "multipleOf")],
        ),
        ({"type": "number", "multipleOf": 0.7}, [("", "multipleOf")]),
        ({"items": {"type": "integer", "multipleOf": 100_003}}, [("/items", "multipleOf")]),
        ({"type": "integer", "multipleOf": 7, "minimum": 2**53 + 1}, [("", "multipleOf")]),
        ({"type": "integer", "multipleOf": 7, "not": {"const": 14}}, [("", "multipleOf")]),
        ({"type": "object", "minProperties": 2}, [("", "minProperties")]),
        (
            {"patternProperties": {"^[ab]$": {}}, "additionalProperties": False, "minProperties": 2},
            [("", "minProperties")],
        ),
        ({"properties": _MANY_NAMES, "maxProperties": 60}, [("", "maxProperties")]),
        ({"contains": {"const": 1}, "minContains": 3000}, [("", "contains")]),
        ({"properties": {"a": {"$ref": "https://example.com/b"}}}, [("/properties/a", "$ref")]),
        (
            {
                "items": {"$dynamicRef": "#x"},
                "$defs": {"p": {"$id": "p", "$dynamicAnchor": "x"}, "q": {"$dynamicAnchor": "x", "type": "null"}},
            },
            [("/items", "$dynamicRef")],
        ),
        ({"$ref": "#/components/P", "components": {"P": {"uniqueItems": True}}}, [("/components/P", "uniqueItems")]),
        ({"items": {"anyOf": [{"pattern": f"a{i}"} for i in range(65)]}}, []),
        (
            {"allOf": [{"anyOf": [{"pattern": f"{letter}{i}"} for i in range(9)]} for letter in "ab"]},
            [("", "allOf")],
        ),
        ({"patternProperties": {f"{letter}": {"type": "null"} for letter in "abcdef"}}, [("", "patternProperties")]),
        ({"items": {"type": "string", "pattern": r"(a)\1"}}, [("/items", "pattern")]),
        ({"not": {"pattern": r"(a)\1"}}, [("/not", "pattern")]),
        (
            {"anyOf": [{"required": [name]} for name in "abcdef"], "unevaluatedProperties": False},
            [("", "anyOf")],
        ),
        (
            {
                "$schema": "https://json-schema.org/draft/2019-09/schema",
                "contains": {"const": 1},
                "unevaluatedItems": False,
            },
            [("", "unevaluatedItems")],
        ),
    ],
)
@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_more_losses_of_other_engines(name, schema, lost):
    losses = backend(name, tiny()).losses(JsonSchema(schema, extra="allow"))
    assert sorted((loss.pointer, loss.keyword) for loss in losses) == [(f"{at}/{name}", name) for at, name in lost]
    assert all(len(loss.reason.split()) > 2 for loss in losses)


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_only_the_native_engine_counts_remainders(name):
    seven = {"type": "integer", "multipleOf": 7}
    for schema, pointer in (({"items": seven}, "/items"), (seven, ""), ({"not": {"not": seven}}, "/not/not")):
        assert not backend("native", tiny()).losses(JsonSchema(schema))
        (loss,) = backend(name, tiny()).losses(JsonSchema(schema))
        assert (loss.pointer, loss.keyword) == (f"{pointer}/multipleOf", "multipleOf")


def test_only_the_native_engine_enforces_max_depth():
    for name in SCHEMA_BACKENDS:
        losses = backend(name, tiny()).losses(JsonSchema({"type": "null"}, max_depth=3))
        lost = [] if name == "native" else [("", "max_depth")]
        assert [(loss.pointer, loss.keyword) for loss in losses] == lost


@pytest.mark.parametrize("name", ["native", "llguidance"])
def test_losses_does_not_raise_compile_limits(name):
    """For a schema that is too large, only compile() raises."""
    constraint = JsonSchema({"properties": {f"p{i}": {"type": "null", "title": f"{i}"} for i in range(10_001)}})
    assert not backend(name, tiny()).losses(constraint)
    with pytest.raises(CompileLimitExceeded, match="more than 10000 positions"):
        backend(name, tiny()).compile(constraint)


# Keywords that the libraries' own JSON Schema front ends lack or get wrong. Our grammar for them enforces them.
ENFORCED = {
    "not, among types": ({"type": ["integer", "null"], "not": {"type": "null"}}, [None, 3]),
    "oneOf, one of two lengths": ({"oneOf": [{"maxLength": 3}, {"minLength": 2}]}, ["a", "ab", "abc", "abcd", 1]),
    "uniqueItems that says nothing": ({"items": {"type": "null"}, "maxItems": 1, "uniqueItems": True}, [[None], [1]]),
    "minProperties over declared names": (
        {"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False, "minProperties": 2},
        [{}, {"b": 1}, {"a": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    "maxProperties": ({"properties": {"a": {}}, "maxProperties": 1}, [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}]),
    "patternProperties that overlap": (
        {"patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}},
        [{"ab": 3}, {"ab": 2}, {"ab": "x"}, {"a": 2}, {"b": "x"}, {"b": 2}, {"c": None}],
    ),
    "a constant with control characters": ({"const": "\u0002x"}, ["\u0002x", "x"]),
    "an enum with control characters": (
        {"items": {"enum": [{"b": ["a\u0001b"]}]}},
        [[{"b": ["a\u0001b"]}], [{"b": ["ab"]}]],
    ),
    "a name with control characters": (
        {"properties": {"\u0001a": {"type": "null"}}, "required": ["\u0001a"], "additionalProperties": False},
        [{"\u0001a": None}, {"\u0001a": 1}, {"a": None}, {}],
    ),
    "big integers": ({"type": "integer", "minimum": 2**53 + 1}, [2**53, 2**53 + 1, 2**66]),
    "a big constant": ({"const": [2**63]}, [[2**63], [2**63 - 1], [2**63 + 1]]),
    "a big bound of numbers": ({"type": "number", "exclusiveMaximum": 2**70}, [2**70 - 1, 2**70, 0.5]),
    "a very big bound": ({"type": "integer", "maximum": 10**30}, [10**30, 10**30 + 1, -(10**30)]),
    "cents": ({"type": "number", "multipleOf": 0.01}, [0.25, 19.99, 0.125, 3]),
    "an excluded number": ({"type": "integer", "not": {"enum": [3, 5]}}, [2, 3, 4, 5, 35]),
    "look-ahead in a pattern": ({"type": "string", "pattern": "^(?!ab)[a-c]{2}$"}, ["ab", "ba", "bc", "d"]),
}


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
@pytest.mark.parametrize("case", ENFORCED)
def test_keywords_beyond_their_front_ends_are_enforced(case, name):
    schema, values = ENFORCED[case]
    constraint = JsonSchema(schema, extra="allow")
    assert tuple(backend(name, tiny()).losses(constraint)) == ()
    compiled = backend(name, tiny()).compile(constraint)
    # With exact decimals, because 19.99 is no multiple of 0.01 in binary floating point.
    exact = [json.loads(json.dumps(value), parse_float=Decimal) for value in (schema, values)]
    validator = jsonschema.Draft202012Validator(exact[0])
    verdicts = [validator.is_valid(value) for value in exact[1]]
    assert len(set(verdicts)) == 2, "expected valid and invalid instances"
    assert [_accepts(compiled, value) for value in values] == verdicts


@pytest.mark.parametrize("name", ["unknown", "path", "byte"])
def test_unspecified_format_is_an_annotation(name):
    constraint = JsonSchema({"type": "string", "format": name, "maxLength": 2})
    assert tuple(backend("llguidance", tiny()).losses(constraint)) == ()
    compiled = backend("llguidance", tiny()).compile(constraint)
    assert _accepts(compiled, "ab")
    assert not _accepts(compiled, "abc")


def test_lexer_error_does_not_affect_other_matchers():
    """Each letter may count for any of three counters, so the lexer, which all matchers share, gets too many states."""
    compiled = backend("llguidance", tiny()).compile(Regex("((a{1,100}){1,100}){1,100}b?"))
    bitmask = allocate_bitmask(1, tiny().padded_size)
    failing, other = compiled.matcher(), compiled.matcher()
    (a,) = tiny().encode_bytes(b"a")
    assert other.accept_token(a)
    taken = 0
    with pytest.raises(CompileLimitExceeded, match="llguidance gave up: .*too many expressions.*; make the constraint"):
        for _ in range(2000):
            failing.fill_next_token_bitmask(bitmask)
            assert failing.accept_token(a)
            taken += 1
    assert taken == failing.num_accepted > 10
    for matcher in (other, compiled.matcher()):
        assert a in allowed(matcher)
        assert matcher.accept_token(a)


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_regex_with_exponentially_many_states_does_not_hang(name):
    compiled = backend(name, tiny()).compile(Regex("(a|b)*a(a|b){24}"))
    matcher = compiled.matcher()
    text = b"abba" * 4 + b"a" + b"ba" * 12
    assert all(matcher.accept_token(token_id) for token_id in tiny().encode_bytes(text))
    assert matcher.is_completed()
    assert {tiny().token_bytes[token_id] for token_id in allowed(matcher) if tiny().is_text(token_id)} >= {b"a", b"b"}


def test_lm_format_enforcer_has_a_limit_of_calls(monkeypatch):
    monkeypatch.setattr(lm_format_enforcer, "LM_FORMAT_ENFORCER_MAX_CALLS", 100_000)
    with pytest.raises(CompileLimitExceeded, match="did not finish in 100000 calls"):
        backend("lm_format_enforcer", tiny()).compile(Regex("(a|b)*a(a|b){24}"))


def test_xgrammar_refuses_what_it_would_take_long_for():
    wide = {f"p{i}": {"type": "null"} for i in range(2000)}
    with pytest.raises(CompileLimitExceeded, match="xgrammar may take long .*; make the constraint smaller"):
        backend("xgrammar", tiny()).compile(JsonSchema({"properties": wide}))
    fewer = JsonSchema({"properties": dict(list(wide.items())[:500])})
    assert _accepts(backend("xgrammar", tiny()).compile(fewer), {"p3": None, "p400": None})
    with pytest.raises(CompileLimitExceeded, match="grew past 5000 states"):
        backend("xgrammar", tiny()).compile(Regex("(?!(a|b)*a(a|b){14})(a|b)*"))


@pytest.mark.parametrize("name", BACKENDS)
def test_dead_end_has_an_empty_mask_and_rollback_leaves_it(name):
    # Private use characters: the vocabulary has their bytes, but lm-format-enforcer takes whole characters only.
    compiled = backend(name, tiny()).compile(Choice(["ab\ue000", "ac"]))
    matcher = compiled.matcher()
    a, b, c = (tiny().encode_bytes(letter)[0] for letter in (b"a", b"b", b"c"))
    assert matcher.accept_token(a)
    if b in allowed(matcher):
        assert matcher.accept_token(b)
        rest = allowed(matcher)
        assert (rest == []) == (name == "lm_format_enforcer")
        assert not matcher.is_completed()
        matcher.rollback(1)
    assert matcher.accept_token(c)
    assert matcher.is_completed()


def test_dead_end_in_llguidance_is_not_an_error():
    vocabulary = without_bytes()  # no token has the {
    engine = backend("llguidance", vocabulary)
    assert allowed(engine.compile(Grammar('start: "{"')).matcher()) == []
    matcher = engine.compile(Grammar('start: "a" "{" | "c"')).matcher()
    assert vocabulary.encode_bytes(b"c")[0] in allowed(matcher)
    assert matcher.accept_token(vocabulary.encode_bytes(b"a")[0]) and allowed(matcher) == []


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("schema", [{"type": "strin"}, {"type": "object", "required": 3}, {"properties": {"a": 1}}])
def test_malformed_schema_has_no_losses(name, schema):
    # The schema is wrong, not unsupported: compile() raises the error that the caller needs.
    assert tuple(backend(name, tiny()).losses(JsonSchema(schema))) == ()


def _accepts(compiled, value) -> bool:
    matcher = compiled.matcher()
    tokens = tiny().encode_bytes(json.dumps(value).encode())
    return (
        matcher.validate_tokens(tokens) == len(tokens)
        and all(map(matcher.accept_token, tokens))
        and matcher.is_completed()
    )


@pytest.mark.parametrize(
    ("value", "text", "wrong"),
    [
        ("\u0002x", r'"\u0002x"', '"x"'),
        ({"a\u007f": 1}, '{"a\u007f":1}', '{"a":1}'),
        (2**53 + 1, str(2**53 + 1), str(2**53)),
        ("a\tb\u0080", '"a\\tb\u0080"', '"atb\u0080"'),
        (0.5, "0.5", "0.05"),
        (float(2**70), "1.1805916207174113e+21", "1.18e+21"),
    ],
)
def test_constants_are_written_exactly(value, text, wrong):
    constraint = JsonSchema({"const": value, "default": 2**80})
    compiled = backend("llguidance", tiny()).compile(constraint)
    assert not compiled.losses
    assert json.loads(text) == value != json.loads(wrong)
    assert _accepts_text(compiled, text)
    assert not _accepts_text(compiled, wrong)


def _accepts_text(compiled, text: str) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, tiny().encode_bytes(text.encode()))) and matcher.is_completed()


def test_json_is_a_loss_of_engines_that_write_it_loosely():
    for name in set(BACKENDS) - set(SCHEMA_BACKENDS):
        for constraint in (JsonSchema({"type": "null"}), JsonObject()):
            (loss,) = backend(name, single_bytes()).losses(constraint)
            assert (loss.pointer, loss.keyword) == ("", "json_schema")
            assert loss.reason.endswith("use llguidance, or the native engine")
