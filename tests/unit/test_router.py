"""The choice of a backend for a constraint, the errors if there is none, and the audit of the choice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from operator import getitem
from typing import Any

import jsonschema
import pytest

from hf_guided.backends import registry
from hf_guided.backends.base import CompiledConstraint, held_spelling
from hf_guided.backends.compile import Compiler
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import BackendUnavailable, CompileLimitExceeded, Loss, UnsupportedConstraint
from hf_guided.schema.audit import audit
from tests.toy import all_bytes

A = Loss("/properties/a", "uniqueItems", "not known")
B = Loss("/properties/b", "contains", "not known")


class Fake:
    """A backend that reports the given losses, and compiles as the native engine does."""

    def __init__(self, name: str, *losses: Loss) -> None:
        self.name, self.lost = name, losses

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        return self.lost

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        compiled = NetworkBackend(all_bytes()).compile(constraint)
        return replace(compiled, backend=self.name, losses=self.lost)


def compiler(*backends: Fake) -> Compiler:
    return Compiler(all_bytes(), backends={backend.name: backend for backend in backends})


TAG = StructuralTag({"format": {"type": "any_text"}})


@pytest.mark.parametrize(
    ("constraint", "name"),
    [
        (JsonSchema({}), "native"),
        (JsonSchema({}, spelling="any", key_order="any"), "native"),
        (JsonObject(), "native"),
        (JsonSchema({}, max_depth=3), "native"),
        (TAG, "native"),
        (Regex("a"), "native"),
        (Choice(["a"]), "native"),
        (Grammar('root ::= "a"'), "native"),
        (Grammar('start: "a"'), "llguidance"),
    ],
    ids=str,
)
def test_auto_takes_one_engine_and_asks_no_other(constraint: Constraint, name: str) -> None:
    backend = registry.create(name, all_bytes())
    only = Compiler(all_bytes(), backends={name: backend})  # another name would raise KeyError
    report = only.audit(constraint)
    assert (report.backend, report.lost, report.spelling) == (name, (), constraint.spelling)
    assert report.reason == "enforces all of it"


HARD = [
    (
        {"allOf": [{"pattern": f"{a}.*{b}"} for a, b in ("ab", "cd", "ef", "gh", "kl", "mn", "op")]},
        "abcdefghklmnop",
    ),
    ({"pattern": "^(ab|cd){1,20000}$"}, "abcd"),
]


@pytest.mark.parametrize(("schema", "text"), HARD, ids=["patterns together", "repetitions"])
def test_patterns_that_are_too_large_for_one_automaton(schema: dict[str, Any], text: str) -> None:
    compiled = Compiler(all_bytes()).compile(JsonSchema({"type": "string", **schema}))
    assert compiled.backend == "native"
    matcher = compiled.matcher()
    assert all(map(matcher.accept_token, f'"{text}"'.encode())) and matcher.is_completed()


def test_what_is_too_large_for_the_native_engine_is_left_to_who_names_another() -> None:
    """All states that a text with choices far back may be in together are too many."""
    constraint, text = Regex("(?=(a|b)*a(a|b){30}).*"), b"b" * 9 + b"a" * 31
    with pytest.raises(CompileLimitExceeded, match=r'choose backend="llguidance"'):
        Compiler(all_bytes()).compile(constraint)
    matcher = Compiler(all_bytes()).compile(constraint, "llguidance").matcher()
    assert all(map(matcher.accept_token, text)) and matcher.is_completed()


@pytest.mark.parametrize("constraint", [JsonSchema({}), JsonObject()])
def test_a_backend_by_name_may_write_other_spellings(constraint: Constraint) -> None:
    foreign = Fake("native")
    assert held_spelling(foreign, constraint) == "any"
    assert held_spelling(NetworkBackend(all_bytes()), constraint) == "canonical"
    assert held_spelling(foreign, Choice(["a"])) is None


def test_explicit_backend() -> None:
    report = compiler(Fake("other")).audit(JsonSchema({}), "other")
    assert (report.backend, report.reason) == ("other", "chosen by name; enforces all of it")
    with pytest.raises(
        UnsupportedConstraint, match=r"other does not enforce all .*: 1 keyword would not be enforced: /properties/a"
    ) as caught:
        compiler(Fake("other", A)).compile(JsonSchema({}), "other")
    assert caught.value.pointers == ("/properties/a",)


def test_error_names_five_keywords_and_counts_the_others() -> None:
    losses = tuple(Loss(f"/properties/{name}", "contains", "not known") for name in "abcdefg")
    with pytest.raises(UnsupportedConstraint, match="7 keywords would not be enforced") as caught:
        compiler(Fake("other", *losses)).compile(JsonSchema({}), "other")
    first, *below = str(caught.value).splitlines()
    assert "/properties/e (contains), 2 more; change or remove them, or wrap it" in first
    assert "/properties/f" not in first and len(below) == 7
    assert 'or choose another backend: backend="auto"' in first


def test_error_of_a_tag_names_no_option_of_schemas() -> None:
    with pytest.raises(UnsupportedConstraint, match="no backend enforces all of this") as caught:
        compiler(Fake("native", A)).compile(TAG)
    assert caught.value.losses == (A,)
    assert "/properties/a (uniqueItems): not known" in str(caught.value)
    assert "on_unsupported" not in str(caught.value)  # a tag has no such option
    with pytest.raises(UnsupportedConstraint, match="on_unsupported"):
        compiler(Fake("native", A)).compile(JsonSchema({}))


class Refusing(Fake):
    """A backend that finds out only in a compile."""

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        raise UnsupportedConstraint("too hard", [A])


@pytest.mark.parametrize("mode", ["warn", "validate"])
def test_error_does_not_advise_an_option_that_is_already_set(mode: Any) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        compiler(Refusing("native")).compile(JsonSchema({}, on_unsupported=mode))
    assert caught.value.losses == (A,)
    assert "on_unsupported" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:native does not enforce all of the schema:UserWarning")
@pytest.mark.parametrize("mode", ["warn", "validate"])
@pytest.mark.parametrize("backend", ["auto", "native"])
def test_losses_may_be_allowed(mode: Any, backend: str) -> None:
    compiled = compiler(Fake("native", A, B)).compile(JsonSchema({}, on_unsupported=mode), backend)
    assert (compiled.backend, compiled.losses) == ("native", (A, B))


class Missing(dict[str, Any]):
    """Backends of which none is installed."""

    def __missing__(self, name: str) -> Any:
        raise BackendUnavailable(f"{name} is not installed")


@pytest.mark.parametrize("name", ["auto", "other"])
def test_missing_backend_is_named(name: str) -> None:
    with pytest.raises(BackendUnavailable, match="is not installed"):
        Compiler(all_bytes(), backends=Missing()).compile(JsonSchema({}), name)


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "T",
    "type": "object",
    "properties": {"a/b": {"type": "array", "uniqueItems": True, "x-note": 1}, "title": {"const": 1}},
}


def test_audit_has_a_row_for_every_keyword() -> None:
    loss = Loss("/properties/a~1b/uniqueItems", "uniqueItems", "not known")
    report = audit(JsonSchema(SCHEMA), "xgrammar", "why", [loss])
    assert [(row.pointer, row.outcome) for row in report.rows] == [
        ("/title", "annotation"),
        ("/type", "enforced"),
        ("/properties", "enforced"),
        ("/properties/a~1b/type", "enforced"),
        ("/properties/a~1b/uniqueItems", "lost"),
        ("/properties/a~1b/x-note", "annotation"),
        ("/properties/title/const", "enforced"),
    ]
    assert not report.ok
    assert [row.keyword for row in report.lost] == ["uniqueItems"]
    lines = str(report).splitlines()
    assert lines[0] == "backend: xgrammar (why)"
    assert lines[8].split() == ["/properties/a~1b/uniqueItems", "uniqueItems", "lost", "not", "known"]
    assert audit(JsonSchema(SCHEMA), "xgrammar", "why", []).ok


def test_audit_shows_losses_without_a_keyword_and_other_kinds() -> None:
    report = audit(JsonSchema({"type": "array"}), "x", "why", [Loss("", "whole thing", "too large")])
    assert report.lost[0].detail == "too large"
    assert audit(Choice(["a"]), "x", "why", []).rows[0][1:] == ("choice", "enforced", "by x")
    refused = audit(Choice(["a"]), None, "no", [Loss("", "choice", "no such kind")])
    assert (refused.ok, refused.backend, refused.rows[0].outcome) == (False, None, "lost")
    assert "backend: none (no)" in str(refused)


MULTIPLES: dict[str, Any] = {"type": "number", "multipleOf": 3.5}
NOT_FOR_LLGUIDANCE: list[tuple[dict[str, Any], str]] = [
    (MULTIPLES, "{}"),
    ({"type": "array", "items": MULTIPLES}, "[{}]"),
    ({"type": "object", "properties": {"x": MULTIPLES}, "required": ["x"]}, '{{"x": {}}}'),
    ({"type": "object", "additionalProperties": MULTIPLES}, '{{"x": {}}}'),
]


@pytest.mark.parametrize(("schema", "written"), NOT_FOR_LLGUIDANCE)
def test_what_llguidance_does_not_enforce_has_the_native_engine(schema: dict[str, Any], written: str) -> None:
    compiled = Compiler(all_bytes()).compile(JsonSchema(schema))
    assert compiled.backend == "native"
    for tenths in range(-110, 110):
        number = Decimal(tenths) / 10
        matcher = compiled.matcher()
        accepted = all(map(matcher.accept_token, written.format(number).encode())) and matcher.is_completed()
        assert accepted == (number % Decimal("3.5") == 0), number


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"type": "array", "contains": {"type": "integer"}, "uniqueItems": True, "maxItems": 3}),
        JsonSchema({"type": "integer", "multipleOf": 3, "not": {"multipleOf": 2}}),
        Regex(r"(a|b)\1"),
    ],
    ids=str,
)
def test_refused_constraint_is_a_loss_of_every_backend(constraint: Constraint) -> None:
    with pytest.raises(UnsupportedConstraint, match="no backend enforces all of this"):
        Compiler(all_bytes()).compile(constraint)
    for name in registry.available():
        assert registry.create(name, all_bytes()).losses(constraint), name


WITH_LOSS = {
    "type": "object",
    "title": "T",
    "properties": {
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "contains": {"const": "a"}, "uniqueItems": True},
        "n": {"type": "integer", "minimum": 3},
    },
    "required": ["n"],
}


@pytest.mark.parametrize("backend", ["auto", "native", "llguidance", "xgrammar"])
def test_a_refused_schema_is_audited_keyword_by_keyword(backend: str) -> None:
    refused, relaxed = (
        Compiler(all_bytes()).audit(JsonSchema(WITH_LOSS, on_unsupported=mode), backend)
        for mode in ("error", "validate")
    )
    assert refused.lost and refused.backend is None
    assert relaxed.backend == ("native" if backend == "auto" else backend)
    assert [row[:3] for row in refused.rows] == [row[:3] for row in relaxed.rows]
    assert refused.spelling == relaxed.spelling
    treated = {row.pointer: row.outcome for row in refused.rows}
    assert treated["/properties/n/minimum"] == "enforced" and treated["/title"] == "annotation"
    assert len(treated) == 12
    with pytest.raises(UnsupportedConstraint) as caught:
        Compiler(all_bytes()).compile(JsonSchema(WITH_LOSS), backend)
    assert [row.pointer for row in refused.lost] == list(caught.value.pointers)
    for row in refused.lost:
        assert row.pointer in refused.reason and f"  {row.pointer}: {row.detail}" in str(caught.value)
    # Each pointer leads to the keyword, and without the keywords that are lost the schema compiles.
    schema = json.loads(json.dumps(WITH_LOSS))
    for row in refused.lost:
        *steps, keyword = row.pointer.split("/")[1:]
        assert keyword == row.keyword
        del reduce(getitem, steps, schema)[keyword]
    assert Compiler(all_bytes()).audit(JsonSchema(schema), backend).ok


def test_nothing_of_a_schema_that_is_too_large_is_enforced() -> None:
    schema = {"type": "string", "title": "T", "pattern": "^(a|b)*a(a|b){18}$"}
    report = Compiler(all_bytes()).audit(JsonSchema(schema))
    assert [(row.pointer, row.outcome) for row in report.rows] == [
        ("", "lost"),
        ("/type", "lost"),
        ("/title", "annotation"),
        ("/pattern", "lost"),
    ]


TWO = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}}
ONE = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (ONE, {}),
        (ONE, {"extra": "allow"}),
        (ONE, {"extra": "allow", "key_order": "any"}),
        (TWO, {}),
        (TWO, {"key_order": "any"}),
        ({**TWO, "additionalProperties": False}, {}),
        ({**TWO, "additionalProperties": {"type": "integer"}}, {}),
        ({**ONE, "additionalProperties": False}, {}),
        ({"allOf": [ONE, {"properties": {"b": True}}]}, {}),
        ({"allOf": [ONE], "additionalProperties": {"type": ["integer", "null"]}}, {}),
        ({"allOf": [ONE, {"additionalProperties": True}]}, {"key_order": "any"}),
        (
            {"type": "object", "properties": {"a": True}, "anyOf": [{"properties": {"b": True}}, {"required": ["z"]}]},
            {},
        ),
        ({"type": "object", "required": ["a", "b"]}, {}),
        ({"type": "object", "required": ["a", "b"]}, {"key_order": "any"}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {}),
        ({"type": "object", "not": {"required": ["q"], "properties": {"q": {"const": 1}}}}, {}),
        ({"type": "array", "items": {"type": "integer"}}, {}),
    ],
    ids=str,
)
def test_the_audit_says_which_valid_objects_are_left_out(schema: dict[str, Any], options: dict[str, Any]) -> None:
    """An oracle that is not ours: jsonschema says which of these are valid, the matcher which are written."""
    constraint = JsonSchema(schema, **options)
    report = Compiler(all_bytes()).audit(constraint)
    matcher = Compiler(all_bytes()).compile(constraint).matcher()
    texts = ['{"a": 1, "z": 2}', '{"a": 1, "b": null, "z": 2}', '{"b": null, "a": 1}', '{"b": 2, "a": 1}']
    texts += ['{"z": 2, "a": 1}', "[1]", '{"a": 1}', '{"a": 1, "b": null}']
    valid = [text for text in texts if jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))]
    refused = [text for text in valid if matcher.validate_tokens([*text.encode(), 256]) <= len(text)]
    details, head = " ".join(row.detail for row in report.rows), str(report).partition("pointer")[0]
    tells_order = "keys in order" in details
    tells_others = "no undeclared keys" in details
    assert (tells_order or tells_others) == bool(refused), refused
    assert tells_others == any("z" in text and text.startswith('{"a"') for text in refused)
    if not tells_others:  # what is refused is valid in another order
        assert all("z" not in text or text.startswith(('{"b', '{"z')) for text in refused)
    assert ("\nkey_order: declared" in head, "\nextra: forbid" in head) == (tells_order, tells_others)
