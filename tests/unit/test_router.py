"""The choice of a backend for a constraint, the errors if there is none, and the audit of the choice."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from hf_guided.backends import network, registry
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compiler import Compiler
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.network import NetworkBackend, NetworkEngine
from hf_guided.backends.router import choose_backend
from hf_guided.constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import BackendUnavailable, Loss, UnsupportedConstraint
from hf_guided.options import CompilerOptions
from hf_guided.schema.audit import audit
from tests.toy import all_bytes, letters

A = Loss("/properties/a", "uniqueItems", "not known")
B = Loss("/properties/b", "contains", "not known")
NO_AUTOMATON = (A, B, Loss("", "json_schema", "the schema refers to itself"))


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
    llguidance: Sequence[Loss] = (),
    xgrammar: Sequence[Loss] = (),
    automaton: Sequence[Loss] = NO_AUTOMATON,
    other: Sequence[Loss] = (),
) -> dict[str, Any]:
    lost = {"llguidance": llguidance, "automaton": automaton, "xgrammar": xgrammar, "other": other}
    return {name: Fake(name, *losses) for name, losses in lost.items()}


class FakeNetwork(Fake):
    """A network that is preferred for every constraint, or for none."""

    def __init__(self, *losses: Loss, preferred: bool = True) -> None:
        super().__init__("network", *losses)
        self.preferred = preferred

    def is_preferred(self, constraint: Constraint) -> bool:
        return self.preferred


@pytest.mark.parametrize("constraint", [JsonSchema({}), JsonObject(), JsonSchema({}, spelling="any", key_order="any")])
def test_auto_takes_a_preferred_backend_without_querying_others(constraint: Constraint) -> None:
    known = {**backends(), "network": FakeNetwork()}
    chosen = choose_backend(constraint, "auto", known)
    assert (chosen.backend, chosen.considered, chosen.losses) == ("network", (("network", ()),), ())
    assert (chosen.reason, chosen.spelling) == ("enforces all of it", constraint.spelling)
    assert not any(known[name].num_queries for name in ("llguidance", "xgrammar", "automaton"))


@pytest.mark.parametrize(
    ("constraint", "first", "options"),
    [
        (JsonSchema({}), FakeNetwork(preferred=False), {}),
        (JsonSchema({}), FakeNetwork(), {"refused": {"network": (A,)}}),
        (JsonSchema({}), FakeNetwork(), {"budget": True}),
        (JsonSchema({}), FakeNetwork(), {"prefer": False}),
        (JsonSchema({}, max_depth=3), FakeNetwork(), {}),
    ],
)
def test_where_the_network_does_not_go_first(
    constraint: Constraint, first: FakeNetwork, options: dict[str, Any]
) -> None:
    assert choose_backend(constraint, "auto", {**backends(), "network": first}, **options).backend == "llguidance"


NOT_PREFERRED = [
    JsonSchema({"properties": {"a": {}, "b": {}}}, key_order="any"),
    JsonSchema({"type": "string", "maxLength": 100}, spelling="any"),
    JsonSchema({"type": "array", "contains": {"type": "integer"}, "uniqueItems": True, "maxItems": 3}),
    JsonSchema({"type": 3}),
    JsonSchema({"allOf": [{"$ref": "#"}]}),
    JsonSchema({"enum": []}),
    Regex("a"),
    StructuralTag({"format": {"type": "any_text"}}),
]
PREFERRED = [
    JsonSchema({"type": "string", "maxLength": 100}),
    JsonSchema({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True}),
    JsonSchema({"properties": {"a": {"$ref": "#"}}}),
    JsonSchema({"type": "string", "maxLength": 9}, spelling="any"),
    JsonObject(),
]


@pytest.mark.parametrize("constraint", NOT_PREFERRED, ids=str)
def test_the_network_is_not_preferred(constraint: Constraint) -> None:
    assert not NetworkBackend(all_bytes()).is_preferred(constraint)


@pytest.mark.parametrize("constraint", PREFERRED, ids=str)
def test_the_network_is_preferred_where_the_compiled_loops_read_it(constraint: Constraint) -> None:
    compiled = Compiler(all_bytes()).compile(constraint)
    assert compiled.backend == "network"
    assert isinstance(compiled.new_engine(), FrameEngine)
    assert NetworkBackend(letters("abc{}[]0123456789")).is_preferred(constraint), (
        "bytes that are no tokens do not matter"
    )


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        JsonSchema({"type": "object", "minProperties": 3}, extra="allow"),
        JsonSchema({"items": {"uniqueItems": True}}, key_order="any"),
    ],
    ids=str,
)
def test_no_other_engine_is_asked_where_registers_are_needed(constraint: Constraint) -> None:
    network = NetworkBackend(all_bytes())
    known = {"network": network}  # a look at another one would raise KeyError
    assert choose_backend(constraint, "auto", known).considered == (("network", ()),)
    assert isinstance(network.compile(constraint).new_engine(), NetworkEngine)


HARD = [
    ({"pattern": "^(a|b)*a(a|b){18}$"}, "a" * 19),
    ({"allOf": [{"pattern": f"{a}.*{b}"} for a, b in ("ab", "cd", "ef", "gh", "kl", "mn", "op")]}, "abcdefghklmnop"),
    ({"pattern": "^(ab|cd){1,20000}$"}, "abcd"),
]


@pytest.mark.parametrize(("schema", "text"), HARD, ids=["choices before", "patterns together", "repetitions"])
def test_the_network_gives_way_to_who_is_ready_sooner(schema: dict[str, Any], text: str) -> None:
    compiler = Compiler(all_bytes(), CompilerOptions(tiering=False))
    compiled = compiler.compile(JsonSchema({"type": "string", **schema}))
    assert compiled.backend == "llguidance"
    matcher = compiled.matcher()
    assert all(map(matcher.accept_token, f'"{text}"'.encode())) and matcher.is_completed()


@pytest.mark.parametrize("on_unsupported", ["error", "warn", "validate"])
def test_the_network_takes_its_time_where_others_would_lose_something(
    on_unsupported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "NETWORK_QUICK_WORK", 10)
    recursive = {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "number", "multipleOf": 3.5}}}
    compiled = Compiler(all_bytes()).compile(JsonSchema(recursive, on_unsupported=on_unsupported))
    assert (compiled.backend, compiled.losses) == ("network", ())
    choice = Compiler(all_bytes()).audit(JsonSchema(recursive))
    assert choice.backend == "network"


def test_auto_takes_llguidance_without_querying_others() -> None:
    known = backends()
    chosen = choose_backend(JsonSchema({}), "auto", known)
    assert (chosen.backend, chosen.considered, chosen.losses) == ("llguidance", (("llguidance", ()),), ())
    assert chosen.reason == "enforces all of it"
    assert known["xgrammar"].num_queries == 0


def test_auto_takes_xgrammar_for_losses_of_llguidance() -> None:
    chosen = choose_backend(JsonSchema({}), "auto", backends(llguidance=[A]))
    assert chosen.backend == "xgrammar"
    assert chosen.considered == (("llguidance", (A,)), ("automaton", NO_AUTOMATON), ("xgrammar", ()))
    assert chosen.reason.startswith(
        "enforces all of it; llguidance would not enforce /properties/a (uniqueItems): not known;"
    )


def test_auto_takes_the_automaton_before_xgrammar() -> None:
    known = {**backends(llguidance=[A]), "automaton": Fake("automaton")}
    assert choose_backend(JsonSchema({}), "auto", known).backend == "automaton"
    assert known["xgrammar"].num_queries == 0


@pytest.mark.parametrize("constraint", [JsonSchema({}), JsonObject()])
def test_auto_requires_the_spelling_and_an_explicit_backend_does_not(constraint: Constraint) -> None:
    known = backends(llguidance=[A])
    known["xgrammar"].canonical_spelling = False
    with pytest.raises(
        UnsupportedConstraint,
        match=r"llguidance is closest: 1 keyword would not be enforced: /properties/a \(uniqueItems\)",
    ):
        choose_backend(constraint, "auto", known)
    chosen = choose_backend(constraint, "xgrammar", known)
    assert (chosen.backend, chosen.spelling, chosen.losses) == ("xgrammar", "any", ())
    assert choose_backend(constraint, "auto", backends()).spelling == "canonical"
    tag = StructuralTag({"format": {"type": "any_text"}})
    assert (choose_backend(tag, "auto", known).backend, choose_backend(tag, "auto", known).spelling) == (
        "xgrammar",
        "any",
    )


def test_any_spelling_permits_every_backend() -> None:
    known = backends(llguidance=[A])
    known["xgrammar"].canonical_spelling = False
    chosen = choose_backend(JsonSchema({}, spelling="any"), "auto", known)
    assert (chosen.backend, chosen.spelling) == ("xgrammar", "any")
    assert choose_backend(Choice(["a"]), "auto", known).spelling is None


def test_auto_takes_the_automaton_for_losses_of_both() -> None:
    chosen = choose_backend(Regex("a"), "auto", backends(llguidance=[A], xgrammar=[A, B], automaton=()))
    assert chosen.backend == "automaton"
    assert [name for name, _ in chosen.considered] == ["llguidance", "xgrammar", "automaton"]
    assert chosen.reason.startswith("enforces all of it; llguidance would not enforce /properties/a (uniqueItems)")


def test_structural_tags_go_to_the_network_and_then_to_xgrammar() -> None:
    tag, known = StructuralTag({"format": {"type": "any_text"}}), {**backends(), "network": Fake("network")}
    assert choose_backend(tag, "auto", known).considered == (("network", ()),)
    known["network"] = Fake("network", A)
    chosen = choose_backend(tag, "auto", known)
    assert (chosen.backend, chosen.considered) == ("xgrammar", (("network", (A,)), ("xgrammar", ())))
    assert not any(known[name].num_queries for name in ("llguidance", "automaton"))


def test_explicit_backend() -> None:
    assert choose_backend(JsonSchema({}), "other", backends()).backend == "other"
    assert "by name" in choose_backend(JsonSchema({}), "other", backends()).reason
    with pytest.raises(
        UnsupportedConstraint, match=r"other does not enforce all .*: 1 keyword would not be enforced: /properties/a"
    ) as caught:
        choose_backend(JsonSchema({}), "other", backends(other=[A]))
    assert caught.value.pointers == ("/properties/a",)


def test_of_backends_that_lose_equally_much_the_error_names_the_network() -> None:
    """The reasons of the network say what is too hard about the schema; it is tried after llguidance."""
    hard = Loss("/properties/a", "multipleOf", "has too many remainders")
    known = {**backends(llguidance=[A], automaton=[A], xgrammar=[A]), "network": Fake("network", hard)}
    with pytest.raises(UnsupportedConstraint, match="network is closest") as caught:
        choose_backend(JsonSchema({}), "auto", known)
    assert caught.value.losses == (hard,)


def test_error_lists_the_losses_of_the_closest_backend() -> None:
    with pytest.raises(UnsupportedConstraint) as caught:
        choose_backend(JsonSchema({}), "auto", backends(llguidance=[A, B], xgrammar=[A]))
    assert caught.value.losses == (A,)
    text = str(caught.value)
    assert "xgrammar is closest: 1 keyword would not be enforced: /properties/a (uniqueItems)" in text
    assert "(of other backends, llguidance: 2, automaton: 3); change or remove it, or wrap it" in text
    assert "/properties/a (uniqueItems): not known" in str(caught.value)
    assert "on_unsupported" in str(caught.value)
    with pytest.raises(UnsupportedConstraint) as caught:
        choose_backend(Choice(["a"]), "auto", backends(llguidance=[A], xgrammar=[B]))
    assert "on_unsupported" not in str(caught.value)  # a Choice has no such option


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
    known = backends(llguidance=[A], automaton=[A], xgrammar=[A])
    refused = {name: (A,) for name in known}
    with pytest.raises(UnsupportedConstraint) as caught:
        choose_backend(JsonSchema({}, on_unsupported=mode), "auto", known, refused)
    assert "on_unsupported" not in str(caught.value)


@pytest.mark.parametrize("mode", ["warn", "validate"])
def test_with_allowed_losses_the_backend_with_fewest_is_taken(mode: Any) -> None:
    constraint = JsonSchema({}, on_unsupported=mode)
    chosen = choose_backend(constraint, "auto", backends(llguidance=[A, B], xgrammar=[B]))
    assert (chosen.backend, chosen.losses) == ("xgrammar", (B,))
    assert choose_backend(constraint, "auto", backends(llguidance=[A], xgrammar=[B])).backend == "llguidance"
    assert choose_backend(constraint, "auto", backends(llguidance=[A])).backend == "xgrammar"


def test_backend_that_failed_to_compile_is_not_chosen_again() -> None:
    refused = {"llguidance": (A,)}
    chosen = choose_backend(JsonSchema({}), "auto", backends(), refused)
    assert (chosen.backend, chosen.considered[0]) == ("xgrammar", ("llguidance", (A,)))
    with pytest.raises(UnsupportedConstraint):
        choose_backend(
            JsonSchema({}, on_unsupported="warn"), "auto", backends(), {**refused, "automaton": (B,), "xgrammar": (B,)}
        )


def test_missing_backend_is_skipped_or_named() -> None:
    chosen = choose_backend(JsonSchema({}), "auto", Missing(xgrammar=Fake("xgrammar")))
    assert chosen.backend == "xgrammar"
    assert "llguidance is not installed" in chosen.reason
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


@pytest.mark.parametrize("backend", ["auto", "automaton"])
@pytest.mark.parametrize(("schema", "written"), NOT_FOR_LLGUIDANCE)
def test_what_llguidance_does_not_enforce_goes_to_our_engines(
    schema: dict[str, Any], written: str, backend: str
) -> None:
    compiled = Compiler(all_bytes()).compile(JsonSchema(schema), backend)
    assert compiled.backend == ("network" if backend == "auto" else "automaton")
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
