"""What every backend says about constraints it cannot take, and about hostile ones."""

from __future__ import annotations

import json

import pytest

from hf_guided.backends import llguidance, lm_format_enforcer, xgrammar
from hf_guided.bitmask import allocate_bitmask
from hf_guided.compiler import Compiler
from hf_guided.constraints import Choice, Grammar, JsonSchema, Regex, StructuralTag
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint, UnsupportedConstraint
from tests.property.strategies import BACKENDS, allowed, backend, tiny


@pytest.mark.parametrize("name", BACKENDS)
def test_an_invalid_schema_is_refused_with_its_pointer(name):
    constraint = JsonSchema({"type": "object", "properties": {"a/b": {"type": "strin"}}})
    with pytest.raises(InvalidConstraint, match="at /properties/a~1b/type"):
        backend(name, tiny()).compile(constraint)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"$ref": "#/$defs/nope"},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "null", "enum": [1]},
    ],
)
def test_a_schema_that_nothing_satisfies_is_refused(name, schema):
    with pytest.raises(InvalidConstraint, match="no value satisfies|which does not exist"):
        backend(name, tiny()).compile(JsonSchema(schema))


@pytest.mark.parametrize(
    ("name", "grammar"),
    [
        ("llguidance", Grammar("start: foo")),
        ("llguidance", Grammar('start: "a')),
        ("xgrammar", Grammar("root ::= foo")),
        ("xgrammar", Grammar('root ::= "a')),
        ("xgrammar", StructuralTag({"type": "structural_tag", "format": {"type": "nope"}})),
    ],
)
def test_a_grammar_that_is_malformed_is_refused(name, grammar):
    with pytest.raises(InvalidConstraint, match="cannot compile this: "):
        backend(name, tiny()).compile(grammar)


def test_an_undefined_rule_is_named():
    with pytest.raises(InvalidConstraint, match='unknown name: "foo"'):
        backend("llguidance", tiny()).compile(Grammar("start: foo"))
    with pytest.raises(InvalidConstraint, match='Rule "foo" is not defined'):
        backend("xgrammar", tiny()).compile(Grammar("root ::= foo"))


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [(r"(?=a)a", "look-ahead"), (r"(a)\1", "back-ref"), (r"\bfoo", r"\\b is not"), ("x$y", r"\$ is supported only")],
)
def test_what_is_not_regular_is_a_loss_and_an_error(name, pattern, reason):
    (loss,) = backend(name, tiny()).losses(Regex(pattern))
    assert (loss.pointer, loss.keyword) == ("", "regex")
    with pytest.raises(UnsupportedConstraint, match=reason) as caught:
        backend(name, tiny()).compile(Regex(pattern))
    assert caught.value.losses == (loss,)


@pytest.mark.parametrize(
    ("name", "constraint"),
    [
        ("llguidance", StructuralTag({"type": "structural_tag", "format": {"type": "any_text"}})),
        ("llguidance", Grammar('root ::= "a"')),
        ("xgrammar", Grammar('start: "a"')),
        ("lm_format_enforcer", Grammar('start: "a"')),
    ],
)
def test_kinds_a_backend_does_not_have_are_losses(name, constraint):
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


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_lost_keywords_have_their_pointers_and_are_dropped_only_when_asked(name):
    constraint = JsonSchema(SCHEMA)
    losses = backend(name, tiny()).losses(constraint)
    assert {(loss.pointer, loss.keyword) for loss in losses} == {
        ("/properties/tags", "uniqueItems"),
        ("/properties/deep/items", "not"),
    }
    with pytest.raises(UnsupportedConstraint, match="/properties/tags .uniqueItems.") as caught:
        backend(name, tiny()).compile(constraint)
    assert set(caught.value.losses) == set(losses)
    for on_unsupported in ("warn", "validate"):
        relaxed = backend(name, tiny()).compile(JsonSchema(SCHEMA, on_unsupported=on_unsupported))
        assert set(relaxed.losses) == set(losses)
        # Nothing else went with them: the tags are still strings.
        assert _takes(relaxed, {"tags": ["a", "a"], "deep": [None]})
        assert not _takes(relaxed, {"tags": [1]})


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"type": "string", "format": "idn-email"}, "", "format"),
        ({"type": "string", "format": "unknown"}, "", "format"),
        ({"oneOf": [{"type": "number"}, {"minimum": 3}]}, "", "oneOf"),
        ({"type": "object", "minProperties": 2}, "", "minProperties"),
        ({"items": {"type": "string", "pattern": "(?!a)b"}}, "/items", "pattern"),
        ({"$ref": "https://example.com/other"}, "", "$ref"),
        ({"const": "\u0002x"}, "", "const"),
        ({"items": {"enum": [{"b": ["a\u0001b"]}]}}, "/items", "enum"),
        ({"const": {"\u007f": 1}}, "", "const"),
        ({"properties": {"\u0001a": {}}}, "/properties", "\u0001a"),
        ({"required": ["\u0001a"]}, "", "required"),
        ({"type": "integer", "minimum": 2**53 + 1}, "", "minimum"),
        ({"type": "integer", "maximum": 1e30}, "", "maximum"),
        ({"const": [2**63]}, "", "const"),
        ({"const": float(2**70)}, "", "const"),
        ({"type": "number", "exclusiveMaximum": 2**70}, "", "exclusiveMaximum"),
        ({"type": "string", "maxLength": 2**70}, "", "maxLength"),
        ({"type": "number", "maximum": 1e300}, "", "maximum"),
        ({"type": "number", "multipleOf": 1e-30}, "", "multipleOf"),
        ({"patternProperties": {"^a": {"const": 1}, "b$": {"const": 1}}}, "", "patternProperties"),
        (
            {"patternProperties": {"^[ab]$": {}}, "additionalProperties": False, "minProperties": 2},
            "",
            "minProperties",
        ),
        ({"items": {"x-guidance": {"lenient": True}, "uniqueItems": True}}, "/items", "uniqueItems"),
        (
            {"$ref": "#/components/P", "components": {"P": {"type": "string", "format": "unknown"}}},
            "/components/P",
            "format",
        ),
    ],
)
def test_more_losses_of_llguidance(schema, pointer, keyword):
    losses = backend("llguidance", tiny()).losses(JsonSchema(schema, extra="allow"))
    assert [(loss.pointer, loss.keyword) for loss in losses] == [(pointer, keyword)]


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        ({"$ref": "#/$defs/a", "maxLength": 3, "$defs": {"a": {"type": "string"}}}, {"maxLength"}),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": True}, {"additionalProperties"}),
        ({"type": "object", "required": ["a"]}, {"required"}),
        ({"type": "number", "minimum": 0.5}, {"minimum"}),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, {"allOf"}),
        ({"if": {"type": "string"}, "then": {"maxLength": 3}}, {"if", "then"}),
        ({"type": "object", "patternProperties": {"^a": {}}}, {"patternProperties"}),
        ({"type": "array", "contains": {"const": 1}}, {"contains"}),
        ({"anyOf": [{"type": "string"}], "maxLength": 2}, {"anyOf"}),
        ({"enum": [1, [2**63]]}, {"enum"}),
        ({"type": "integer", "minimum": -(2**63) - 1, "maximum": 2**63}, {"minimum", "maximum"}),
        ({"type": "string", "maxLength": 2**70}, {"maxLength"}),
    ],
)
def test_what_xgrammar_would_drop_in_silence_is_a_loss(schema, lost):
    assert {loss.keyword for loss in backend("xgrammar", tiny()).losses(JsonSchema(schema))} == lost


def test_a_text_that_breaks_the_shared_lexer_is_an_error_for_itself_alone():
    # Deep in this grammar the lexer reaches its limit, and it is shared by all matchers of the grammar.
    compiled = backend("llguidance", tiny()).compile(Regex("((a{1,100}){1,100}){1,100}"))
    bitmask = allocate_bitmask(1, tiny().padded_size)
    hostile, bystander = compiled.matcher(), compiled.matcher()
    (a,) = tiny().encode_bytes(b"a")
    assert bystander.accept_token(a)
    with pytest.raises(CompileLimitExceeded, match="llguidance gave up: .*too many expressions"):
        for _ in range(2000):
            hostile.fill_next_token_bitmask(bitmask)
            assert hostile.accept_token(a)
    for matcher in (bystander, compiled.matcher()):
        assert a in allowed(matcher)
        assert matcher.accept_token(a)


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_a_regex_with_exponentially_many_states_does_not_hang(name):
    compiled = backend(name, tiny()).compile(Regex("(a|b)*a(a|b){24}"))
    matcher = compiled.matcher()
    text = b"abba" * 4 + b"a" + b"ba" * 12
    assert all(matcher.accept_token(token_id) for token_id in tiny().encode_bytes(text))
    assert matcher.is_completed()
    assert {tiny().token_bytes[token_id] for token_id in allowed(matcher) if tiny().is_text(token_id)} >= {b"a", b"b"}


def test_lm_format_enforcer_gives_up_after_its_time(monkeypatch):
    monkeypatch.setattr(lm_format_enforcer, "COMPILE_SECONDS", 0.3)
    with pytest.raises(CompileLimitExceeded, match="did not finish"):
        backend("lm_format_enforcer", tiny()).compile(Regex("(a|b)*a(a|b){24}"))


def test_nesting_has_a_limit(monkeypatch):
    monkeypatch.setattr(xgrammar, "MAX_NESTING", 20)
    schema: dict = {"type": "null"}
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    with pytest.raises(CompileLimitExceeded, match="nests deeper than 20"):
        backend("xgrammar", tiny()).compile(JsonSchema(schema))
    assert _takes(backend("llguidance", tiny()).compile(JsonSchema(schema)), [[[]]])


@pytest.mark.parametrize("name", BACKENDS)
def test_a_dead_end_is_an_empty_mask_and_can_be_left(name):
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


def test_a_dead_end_of_llguidance_is_not_an_error():
    lark = 'start: "a" X | "c"\nX: "b" /[^\\x00-\\x{10ffff}]/'
    compiled = backend("llguidance", tiny()).compile(Grammar(lark, syntax="lark"))
    assert tiny().encode_bytes(b"c")[0] in allowed(compiled.matcher())


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("schema", [{"type": "strin"}, {"type": "object", "required": 3}, {"properties": {"a": 1}}])
def test_a_malformed_schema_has_no_losses(name, schema):
    # Not unsupported but wrong: what compile says about it is what the caller should read.
    assert tuple(backend(name, tiny()).losses(JsonSchema(schema))) == ()


def _takes(compiled, value) -> bool:
    matcher = compiled.matcher()
    tokens = tiny().encode_bytes(json.dumps(value).encode())
    return (
        matcher.validate_tokens(tokens) == len(tokens)
        and all(map(matcher.accept_token, tokens))
        and matcher.is_completed()
    )


@pytest.mark.parametrize("name", ["xgrammar", "lm_format_enforcer"])
def test_a_part_that_nothing_satisfies_is_a_loss(name):
    schema = {"type": "object", "properties": {"a": {"type": "null", "enum": [1]}, "b": {"type": "null"}}}
    (loss,) = backend(name, tiny()).losses(JsonSchema(schema))
    assert (loss.pointer, loss.keyword) == ("/properties/a", "enum")


@pytest.mark.parametrize(
    ("value", "text", "wrong"),
    [
        ("\u0002x", r'"\u0002x"', '"x"'),
        ({"a\u007f": 1}, r'{"a\u007f":1}', '{"a":1}'),
        (2**53 + 1, str(2**53 + 1), str(2**53)),
    ],
)
def test_values_that_llguidance_would_change_go_to_xgrammar(value, text, wrong):
    compiled = Compiler(tiny()).compile(JsonSchema({"const": value}))
    assert compiled.backend == "xgrammar"
    assert _takes_text(compiled, text)
    assert not _takes_text(compiled, wrong)


@pytest.mark.parametrize(("value", "text"), [("a\tb\u0080", '"a\\tb\u0080"'), (2**53, str(2**53)), (0.5, "0.5")])
def test_values_that_llguidance_writes_right_are_no_losses(value, text):
    constraint = JsonSchema({"const": value, "default": 2**80})
    assert tuple(backend("llguidance", tiny()).losses(constraint)) == ()
    assert _takes_text(backend("llguidance", tiny()).compile(constraint), text)


def test_a_valid_schema_that_llguidance_fails_on_is_unsupported_and_not_wrong(monkeypatch):
    # Whatever else it may say of a valid schema, another backend gets its turn.
    message = "something nobody has seen yet"
    monkeypatch.setattr(llguidance.LLGuidanceBackend, "_matcher", _raise(llguidance._refused(message)))
    compiler = Compiler(tiny())
    with pytest.raises(UnsupportedConstraint, match=message):
        compiler.compile(JsonSchema({"type": "null"}), "llguidance")
    assert compiler.compile(JsonSchema({"type": "null"})).backend == "xgrammar"
    with pytest.raises(InvalidConstraint, match=message):
        compiler.compile(Regex("a"), "llguidance")


def test_a_full_row_is_a_limit():
    # Each name that may come next takes places in the parser's row.
    schema = {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(600)}}
    matcher = backend("llguidance", tiny()).compile(JsonSchema(schema)).matcher()
    with pytest.raises(CompileLimitExceeded, match="max is 2000"):
        for token_id in tiny().encode_bytes(b"{}"):
            matcher.accept_token(token_id)


def _raise(error):
    def raising(*args):
        raise error

    return raising


def _takes_text(compiled, text: str) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, tiny().encode_bytes(text.encode()))) and matcher.is_completed()
