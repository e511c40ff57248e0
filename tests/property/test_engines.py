"""Random constraints: what each engine says that it enforces is what ``jsonschema`` and ``re`` decide."""

from __future__ import annotations

import pytest

from hf_guided.backends.compile import Compiler
from hf_guided.constraints.values import JsonSchema, Regex
from hf_guided.errors import InvalidConstraint
from tests.fuzz.engines import run
from tests.property import strategies as draw
from tests.property.test_schema_language import accepts


@pytest.mark.parametrize("checks", [1500, pytest.param(200_000, marks=pytest.mark.slow)])
def test_engines_agree_with_jsonschema_and_re(checks: int) -> None:
    report = run(checks, seed=checks)
    assert report.checks.total() >= checks
    assert not report.mistakes, report


def test_older_forms_of_keywords_are_not_dropped() -> None:
    backend = draw.backend("xgrammar", draw.single_bytes())
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "array", "items": [{"type": "boolean"}]}
    assert [loss.pointer for loss in backend.losses(JsonSchema(schema, extra="allow"))]
    bound = {"type": "integer", "minimum": 1, "exclusiveMinimum": True}
    schema = {"$schema": "http://json-schema.org/draft-04/schema#", **bound}
    losses = backend.losses(JsonSchema(schema, extra="allow"))
    assert "exclusiveMinimum" in [loss.keyword for loss in losses]


@pytest.mark.parametrize("engine", ["xgrammar", "llguidance", "native"])
@pytest.mark.parametrize("text", ['"ab"', "[]", "[1]", "true", '{"a": 2}', "-1.5"])
def test_keywords_of_one_type_leave_the_others_free(engine: str, text: str) -> None:
    backend = draw.backend(engine, draw.single_bytes())
    constraint = JsonSchema({"maxItems": 0}, extra="allow", spelling="any")
    if not backend.losses(constraint):
        assert accepts(backend.compile(constraint), text) == (text != "[1]")


def test_classes_of_characters_hold_controls_too() -> None:
    backend = draw.backend("lm_format_enforcer", draw.single_bytes())
    for pattern in ("[^a]", "(?s:.)", r"\W"):
        assert accepts(backend.compile(Regex(pattern)), "\n")


@pytest.mark.parametrize("engine", ["xgrammar", "auto"])
def test_patterns_beside_listed_values(engine: str) -> None:
    """A prepared pattern names characters in a way that ``re`` does not read; ``re`` reads no \\p{L} at all."""
    compiler = Compiler(draw.single_bytes())
    compiled = compiler.compile(JsonSchema({"enum": ["h", "1", "2e"], "pattern": "[0-9]"}), engine)
    assert [text for text in ('"h"', '"1"', '"2e"') if accepts(compiled, text)] == ['"1"', '"2e"']
    schema = {"enum": ["h", {"a": 1}], "patternProperties": {r"^\p{L}$": {"type": "string"}}}
    compiled = compiler.compile(JsonSchema(schema, extra="allow"), engine)
    assert [text for text in ('"h"', '{"a": 1}') if accepts(compiled, text)] == ['"h"']


def test_values_beside_a_reference_to_itself_are_a_loss() -> None:
    """`jsonschema` follows the reference without an end; the other engines refuse the schema."""
    schema = {"$defs": {"a": {"oneOf": [{"$ref": "#/$defs/a"}]}}, "enum": [1, "x"], "allOf": [{"$ref": "#/$defs/a"}]}
    losses = draw.backend("xgrammar", draw.single_bytes()).losses(JsonSchema(schema))
    assert ("", "enum") in [(loss.pointer, loss.keyword) for loss in losses]
    with pytest.raises(InvalidConstraint, match="refers back to itself"):
        Compiler(draw.single_bytes()).compile(JsonSchema(schema))
