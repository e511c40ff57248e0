"""The choice of a backend for a constraint, the errors if there is none, and the audit of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from hf_guided.backends import registry, router
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.backends.network import FrameEngine, NetworkBackend
from hf_guided.backends.router import choose_backend
from hf_guided.constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import BackendUnavailable, CompileLimitExceeded, Loss, UnsupportedConstraint
from hf_guided.schema.audit import audit
from tests.toy import all_bytes

A = Loss("/properties/a", "uniqueItems", "not known")
B = Loss("/properties/b", "contains", "not known")


class Fake:
    """A backend that reports the given losses."""

    canonical_spelling = True

    def __init__(self, name: str, *losses: Loss) -> None:
        self.name, self.lost, self.num_queries = name, losses, 0

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        self.num_queries += 1
        return self.lost

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        raise NotImplementedError


class Missing(dict[str, Any]):
    """Backends of which only the given ones are installed."""

    def __missing__(self, name: str) -> Any:
        raise BackendUnavailable(f"{name} is not installed")


def backends(
    native: Sequence[Loss] = (),
    xgrammar: Sequence[Loss] = (),
    llguidance: Sequence[Loss] = (),
    other: Sequence[Loss] = (),
) -> dict[str, Any]:
    lost = {"native": native, "xgrammar": xgrammar, "llguidance": llguidance, "other": other}
    return {name: Fake(name, *losses) for name, losses in lost.items()}


TAG = StructuralTag({"format": {"type": "any_text"}})


@pytest.mark.parametrize(
    ("constraint", "names"),
    [
        (JsonSchema({}), ("native",)),
        (JsonSchema({}, spelling="any", key_order="any"), ("native",)),
        (JsonObject(), ("native",)),
        (JsonSchema({}, max_depth=3), ("native",)),
        (TAG, ("native",)),
        (Regex("a"), ("native",)),
        (Choice(["a"]), ("native",)),
        (Grammar('root ::= "a"'), ("native",)),
        (Grammar('start: "a"'), ("llguidance",)),
    ],
    ids=str,
)
def test_auto_takes_the_first_engine_that_loses_nothing(constraint: Constraint, names: tuple[str, ...]) -> None:
    for number, name in enumerate(names):
        known = backends()
        refused = {earlier: (A,) for earlier in names[:number]}
        chosen = choose_backend(constraint, "auto", known, refused)
        assert (chosen.backend, chosen.losses, chosen.spelling) == (name, (), constraint.spelling)
        assert chosen.considered == (*refused.items(), (name, ()))
        assert chosen.reason.startswith("enforces all of it")
        assert [other for other in known if known[other].num_queries] == [name], "others were queried"
    with pytest.raises(UnsupportedConstraint):
        choose_backend(constraint, "auto", backends(), dict.fromkeys(names, (A,)))


IN_COMPILED_LOOPS = [
    JsonSchema({"type": "string", "maxLength": 100}),
    JsonSchema({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}),
    JsonSchema({"properties": {"a": {"$ref": "#"}}}),
    JsonSchema({"type": "string", "maxLength": 9}, spelling="any"),
    JsonObject(),
    JsonSchema({"type": "object", "minProperties": 3}, extra="allow"),
    JsonSchema({"properties": {"a": {}, "b": {}}, "required": ["b"], "maxProperties": 4}, key_order="any"),
]


@pytest.mark.parametrize("constraint", IN_COMPILED_LOOPS, ids=str)
def test_compiled_loops_read_most_schemas(constraint: Constraint) -> None:
    compiled = Compiler(all_bytes()).compile(constraint)
    assert compiled.backend == "native"
    assert isinstance(compiled.new_engine(), FrameEngine)


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        JsonSchema({"items": {"uniqueItems": True}}, key_order="any"),
    ],
    ids=str,
)
def test_no_other_engine_is_asked_where_registers_are_needed(constraint: Constraint) -> None:
    network = NetworkBackend(all_bytes())
    known = {"native": network}  # a look at another one would raise KeyError
    assert choose_backend(constraint, "auto", known).considered == (("native", ()),)
    assert isinstance(network.compile(constraint).new_engine(), FrameEngine)


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


@pytest.fixture
def two_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "auto" have a second engine for this tag."""
    monkeypatch.setattr(router, "candidates", lambda each, backend: ("native", "xgrammar")[: 2 if each is TAG else 1])


@pytest.mark.usefixtures("two_candidates")
def test_the_next_engine_is_taken_for_losses_of_the_first() -> None:
    chosen = choose_backend(TAG, "auto", backends(native=[A]))
    assert chosen.backend == "xgrammar"
    assert chosen.considered == (("native", (A,)), ("xgrammar", ()))
    assert chosen.reason == "enforces all of it; native would not enforce /properties/a (uniqueItems): not known"


@pytest.mark.parametrize("constraint", [JsonSchema({}), JsonObject()])
def test_a_backend_by_name_may_write_other_spellings(constraint: Constraint) -> None:
    known = backends()
    known["xgrammar"].canonical_spelling = False
    chosen = choose_backend(constraint, "xgrammar", known)
    assert (chosen.backend, chosen.spelling, chosen.losses) == ("xgrammar", "any", ())
    assert choose_backend(constraint, "auto", known).spelling == "canonical"
    assert choose_backend(Choice(["a"]), "auto", known).spelling is None


def test_explicit_backend() -> None:
    assert choose_backend(JsonSchema({}), "other", backends()).backend == "other"
    assert "by name" in choose_backend(JsonSchema({}), "other", backends()).reason
    with pytest.raises(
        UnsupportedConstraint, match=r"other does not enforce all .*: 1 keyword would not be enforced: /properties/a"
    ) as caught:
        choose_backend(JsonSchema({}), "other", backends(other=[A]))
    assert caught.value.pointers == ("/properties/a",)


@pytest.mark.usefixtures("two_candidates")
def test_of_backends_that_lose_equally_much_the_error_names_the_native_engine() -> None:
    """Its reasons say what is too hard about the schema."""
    hard = Loss("/properties/a", "multipleOf", "has too many remainders")
    with pytest.raises(UnsupportedConstraint, match="native is closest") as caught:
        choose_backend(TAG, "auto", backends(native=[hard], xgrammar=[A]))
    assert caught.value.losses == (hard,)


@pytest.mark.usefixtures("two_candidates")
def test_error_lists_the_losses_of_the_closest_backend() -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        choose_backend(TAG, "auto", backends(native=[A, B], xgrammar=[A]))
    assert caught.value.losses == (A,)
    text = str(caught.value)
    assert "xgrammar is closest: 1 keyword would not be enforced: /properties/a (uniqueItems)" in text
    assert "(of other backends, native: 2); change or remove it" in text
    assert "/properties/a (uniqueItems): not known" in text
    assert "on_unsupported" not in text  # a tag has no such option
    with pytest.raises(UnsupportedConstraint, match="on_unsupported"):
        choose_backend(JsonSchema({}), "auto", backends(native=[A]))


def test_error_names_five_keywords_and_counts_the_others() -> None:
    losses = tuple(Loss(f"/properties/{name}", "contains", "not known") for name in "abcdefg")
    with pytest.raises(UnsupportedConstraint, match="7 keywords would not be enforced") as caught:
        choose_backend(JsonSchema({}), "other", backends(other=losses))
    first, *below = str(caught.value).splitlines()
    assert "/properties/e (contains), 2 more; change or remove them, or wrap it" in first
    assert "/properties/f" not in first and len(below) == 7
    assert 'or choose another backend: backend="auto" tries them' in first


@pytest.mark.parametrize("mode", ["warn", "validate"])
def test_error_does_not_advise_an_option_that_is_already_set(mode: Any) -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        choose_backend(JsonSchema({}, on_unsupported=mode), "auto", backends(), {"native": (A,)})
    assert "on_unsupported" not in str(caught.value)


@pytest.mark.parametrize("mode", ["warn", "validate"])
@pytest.mark.parametrize("backend", ["auto", "native"])
def test_losses_may_be_allowed(mode: Any, backend: str) -> None:
    chosen = choose_backend(JsonSchema({}, on_unsupported=mode), backend, backends(native=[A, B]))
    assert (chosen.backend, chosen.losses) == ("native", (A, B))


@pytest.mark.usefixtures("two_candidates")
def test_backend_that_failed_to_compile_is_not_chosen_again() -> None:
    refused = {"native": (A,)}
    chosen = choose_backend(TAG, "auto", backends(), refused)
    assert (chosen.backend, chosen.considered[0]) == ("xgrammar", ("native", (A,)))
    with pytest.raises(UnsupportedConstraint):
        choose_backend(JsonSchema({}, on_unsupported="warn"), "auto", backends(), refused)


@pytest.mark.usefixtures("two_candidates")
def test_missing_backend_is_skipped_or_named() -> None:
    chosen = choose_backend(TAG, "auto", Missing(xgrammar=Fake("xgrammar")))
    assert chosen.backend == "xgrammar"
    assert "native is not installed" in chosen.reason
    for name in ("auto", "other"):
        with pytest.raises(BackendUnavailable, match="is not installed"):
            choose_backend(JsonSchema({}), name, Missing())


SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "T",
    "type": "object",
    "properties": {"a/b": {"type": "array", "uniqueItems": True, "x-note": 1}, "title": {"const": 1}},
}


@pytest.mark.parametrize("pointer", ["/properties/a~1b", "/properties/a~1b/uniqueItems"])
def test_audit_has_a_row_for_every_keyword(pointer: str) -> None:
    report = audit(JsonSchema(SCHEMA), "xgrammar", "why", [Loss(pointer, "uniqueItems", "not known")])
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
    assert lines[6].split() == ["/properties/a~1b/uniqueItems", "uniqueItems", "lost", "not", "known"]
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
