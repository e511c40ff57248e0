"""Random walks through the masks to the end, checked with json and jsonschema, re, or membership."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path

import jsonschema
import pytest

from hf_guided.backends import registry
from hf_guided.constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex
from hf_guided.vocabulary.tokens import Vocabulary
from tests import vocabularies
from tests.effort import repeats
from tests.pairs import once_each
from tests.property.strategies import (
    BACKENDS,
    SCHEMA_BACKENDS,
    allowed,
    backend,
    is_laid_out_as_json_dumps_does,
    tiny,
    walk,
)

RECORD = Path(os.environ.get("HF_GUIDED_DATA", "../shared/data")) / "record12.json"
FORMATS = jsonschema.Draft202012Validator.FORMAT_CHECKER
PERSON = {
    "$defs": {
        "address": {
            "type": "object",
            "properties": {
                "street": {"type": "string", "maxLength": 8},
                "zip": {"type": "string", "pattern": r"^\d{5}$"},
            },
            "required": ["street", "zip"],
        }
    },
    "type": "object",
    "properties": {
        "born": {"type": "string", "format": "date"},
        "home": {"$ref": "#/$defs/address"},
        "pets": {"type": "array", "items": {"enum": ["cat", "dog", "naïve"]}, "maxItems": 3},
        "phone": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": r"^\+\d{3,6}$"}]},
    },
    "required": ["born", "home", "phone"],
}
CASES: dict[str, Constraint] = {
    "digits": Regex(r"\d{1,4}"),
    "words": Regex(r"\w{1,5}(\s\w{1,5}){0,2}"),
    "anything": Regex(r".{0,6}"),
    "not": Regex(r"[^\w\s]{1,3}"),
    "flags": Regex("(?i)straße|ok"),
    "anchors": Regex(r"^(yes|no)( sir)?$"),
    "plain specials": Regex(r"a\.b/\[c\]\{2\} && \"x\""),
    "choice": Choice(["a", "ab", 'q"\\', "line\nbreak", "/", "日本", "[a-z]+", ""]),
    "person": JsonSchema(PERSON),
    "person, compact": JsonSchema(PERSON, whitespace="compact"),
    "list": JsonSchema({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}),
    "any object": JsonObject(),
    "lark": Grammar('start: "(" start ")" | /[a-z]{1,3}/'),
    "gbnf": Grammar('root ::= "(" root ")" | [a-z]{1,3}'),
}


@pytest.mark.parametrize(("case", "name"), once_each(CASES, BACKENDS))
def test_finished_walks_satisfy_the_constraint(name: str, case: str):
    constraint = CASES[case]
    engine = backend(name, tiny())
    losses = engine.losses(constraint)
    if losses:
        pytest.skip(f"a loss, and reported: {losses[0]}")
    walks = repeats(8, 60)
    texts = finished_texts(engine.compile(constraint), tiny(), walks)
    assert len(texts) >= walks // 3, "too few walks reached the end"
    for text in texts:
        check_text(constraint, text)


@pytest.mark.parametrize(
    ("whitespace", "name"),
    once_each(["flexible", "compact"], SCHEMA_BACKENDS),
)
def test_walks_of_the_record_schema_validate(name: str, whitespace: str):
    if not RECORD.exists():
        pytest.skip(f"{RECORD} is missing; set HF_GUIDED_DATA")
    schema = json.loads(RECORD.read_text())["schema"]
    strict = JsonSchema(schema, whitespace=whitespace)
    losses = backend(name, tiny()).losses(strict)
    if name == "llguidance":
        assert not losses
    relaxed = json.loads(json.dumps(schema))
    for loss in losses:
        if loss.pointer.endswith(loss.keyword):
            del relaxed["properties"][loss.pointer.split("/")[2]][loss.keyword]
    compiled = backend(name, tiny()).compile(JsonSchema(schema, whitespace=whitespace, on_unsupported="warn"))
    walks = repeats(3, 12)
    texts = finished_texts(compiled, tiny(), walks, steps=1500)
    assert len(texts) >= walks // 2
    for text in texts:
        jsonschema.validate(json.loads(text), relaxed, format_checker=FORMATS)


@pytest.mark.parametrize("dumps", [{}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}])
@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
def test_flexible_whitespace_accepts_common_layouts(name: str, dumps: dict):
    value = {"born": "2024-02-29", "home": {"street": "x y", "zip": "01234"}, "pets": [], "phone": None}
    value["pets"] = ["cat", "dog"]
    matcher = backend(name, tiny()).compile(JsonSchema(PERSON)).matcher()
    text = json.dumps(value, **dumps)
    assert all(map(matcher.accept_token, tiny().encode_bytes(text.encode())))
    assert matcher.is_completed()


@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
def test_whitespace_is_bounded(name: str):
    matcher = backend(name, tiny()).compile(JsonSchema({"type": "array", "items": {"type": "boolean"}})).matcher()
    assert matcher.accept_token(tiny().encode_bytes(b"[")[0])
    spaces = [token_id for token_id, data in enumerate(tiny().token_bytes) if data and not data.strip(b" \t\r\n")]
    for _ in range(100):
        accepted = [token_id for token_id in spaces if matcher.accept_token(token_id)]
        if not accepted:
            break
    else:
        pytest.fail("the whitespace is unbounded")


@pytest.mark.parametrize("name", ["llguidance", "xgrammar"])
def test_compact_has_the_separators_of_json_dumps(name: str):
    value = {"born": "2024-02-29", "home": {"street": "x", "zip": "01234"}, "pets": ["cat", "dog"], "phone": None}
    compiled = backend(name, tiny()).compile(JsonSchema(PERSON, whitespace="compact"))
    for dumps, good in (({}, True), ({"indent": 1}, False), ({"separators": (",", ":")}, False)):
        matcher = compiled.matcher()
        tokens = tiny().encode_bytes(json.dumps(value, **dumps).encode())
        assert all([matcher.accept_token(token_id) for token_id in tokens] + [matcher.is_completed()]) == good


@pytest.fixture(scope="module")
def large() -> Vocabulary:
    return Vocabulary.from_tokenizer(vocabularies.tekken())


# The trie of Tekken takes a second and fifty megabytes in each engine.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "llguidance")) for name in SCHEMA_BACKENDS]
)
def test_control_tokens_are_not_allowed_inside_strings(name: str, large: Vocabulary):
    vocabulary = large
    matcher = registry.create(name, vocabulary).compile(JsonSchema({"type": "string"})).matcher()
    quote = vocabulary.encode_bytes(b'"')[0]
    assert matcher.accept_token(quote)
    tokens = allowed(matcher)
    assert len(tokens) > 50_000
    assert min(tokens) >= 1000, "Tekken's first thousand tokens are special"
    assert not any(matcher.accept_token(token_id) for token_id in range(1000))
    assert matcher.accept_token(quote)
    assert set(vocabulary.stop_token_ids) <= set(allowed(matcher))


@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
def test_control_tokens_of_a_small_vocabulary_are_not_allowed_inside_strings(name: str):
    vocabulary = tiny()
    special = vocabularies.tiny_byte_level().convert_tokens_to_ids(["<|endoftext|>", "<|im_end|>"])
    matcher = backend(name, vocabulary).compile(JsonSchema({"type": "string"})).matcher()
    quote = vocabulary.encode_bytes(b'"')[0]
    assert matcher.accept_token(quote)
    tokens = allowed(matcher)
    assert len(tokens) > 200
    for token_id in (*special, *range(len(vocabulary.token_bytes), vocabulary.padded_size)):
        assert token_id not in tokens and not matcher.accept_token(token_id)
    assert matcher.accept_token(quote)
    assert set(vocabulary.stop_token_ids) <= set(allowed(matcher))


def finished_texts(compiled, vocabulary: Vocabulary, walks: int, steps: int = 300) -> list[str]:
    rng = random.Random(7)
    texts = []
    for _ in range(walks):
        matcher = compiled.matcher()
        taken = walk(matcher, [rng.randrange(100_000) for _ in range(steps)], past_the_end=False)
        if matcher.is_terminated():
            texts.append(vocabulary.decode_bytes(taken).decode())
    return texts


def check_text(constraint: Constraint, text: str) -> None:
    if isinstance(constraint, Regex):
        assert re.fullmatch(constraint.pattern, text), text
    elif isinstance(constraint, Choice):
        assert text in constraint.options
    elif isinstance(constraint, JsonSchema):
        value = json.loads(text)
        jsonschema.validate(value, constraint.schema, format_checker=FORMATS)
        if constraint.whitespace == "compact":
            assert is_laid_out_as_json_dumps_does(text)
    elif isinstance(constraint, JsonObject):
        assert isinstance(json.loads(text), dict)
    else:
        assert re.fullmatch(r"(\()*[a-z]{1,3}(\))*", text) and text.count("(") == text.count(")")
