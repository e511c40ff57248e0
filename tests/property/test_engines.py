"""Random constraints: what each engine says that it enforces is what ``jsonschema`` and ``re`` decide."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.values import Choice, Constraint, JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded, ConstraintError
from tests.fuzz import engines
from tests.property import strategies as draw
from tests.property.schema_examples import Writer
from tests.property.test_schema_language import accepts


@pytest.mark.parametrize("checks", [1500, pytest.param(200_000, marks=pytest.mark.slow)])
def test_engines_agree_with_jsonschema_and_re(checks: int) -> None:
    report = engines.run(checks, seed=checks)
    assert report.checks.total() >= checks
    assert not report.mistakes, report


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


@pytest.mark.parametrize("engine", ["xgrammar", "llguidance", "auto"])
def test_patterns_beside_listed_values(engine: str) -> None:
    """A prepared pattern names characters in a way that ``re`` does not read; ``re`` reads no \\p{L} at all."""
    compiler = Compiler(draw.single_bytes())
    compiled = compiler.compile(JsonSchema({"enum": ["h", "1", "2e"], "pattern": "[0-9]"}), engine)
    assert [text for text in ('"h"', '"1"', '"2e"') if accepts(compiled, text)] == ['"1"', '"2e"']
    schema = {"enum": ["h", {"a": 1}], "patternProperties": {r"^\p{L}$": {"type": "string"}}}
    compiled = compiler.compile(JsonSchema(schema, extra="allow"), engine)
    assert [text for text in ('"h"', '{"a": 1}') if accepts(compiled, text)] == ['"h"']


def random_constraint(random: Random, kind: str) -> Constraint:
    if kind == "schema":
        schema: Any = Writer(random, 2020).document()
        return JsonSchema(schema, whitespace=random.choice(("flexible", "compact")), extra="allow")
    if kind == "regex":
        return Regex(engines.pattern(random))
    return Choice(["".join(random.choices("ab{", k=random.randint(1, 5))) for _ in range(random.randint(1, 6))])


def compiled_by(name: str, constraint: Constraint) -> CompiledConstraint | None:
    """None where the engine does not hold all of it, and says so."""
    backend = draw.backend(name, draw.single_bytes())
    try:
        return None if backend.losses(constraint) else backend.compile(constraint)
    except (ConstraintError, CompileLimitExceeded):
        return None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("xgrammar", kind) for kind in ("schema", "regex", "choice")),
        *(("llguidance", kind) for kind in ("schema", "regex", "choice")),
        *((name, kind) for name in ("outlines", "lm_format_enforcer") for kind in ("regex", "choice")),
    ],
)
def test_masks_of_each_library_are_those_of_the_native_engine(name: str, kind: str) -> None:
    random, compared = Random(f"{name} {kind}"), 0
    whole_characters = name == "lm_format_enforcer"  # it never writes a part of one
    for _ in range(40):
        constraint = random_constraint(random, kind)
        theirs, ours = compiled_by(name, constraint), compiled_by("native", constraint)
        if theirs is None or ours is None or (whole_characters and not str(constraint).isascii()):
            continue
        matchers = [theirs.matcher(), ours.matcher()]
        for _ in range(30):
            tokens, expected = (
                [t for t in draw.allowed(m) if t < 128 or t > 255 or not whole_characters] for m in matchers
            )
            assert tokens == expected, (constraint, matchers[1].num_accepted)
            compared += 1
            if not tokens or (token := random.choice(tokens)) > 255:
                break
            assert all([matcher.accept_token(token) for matcher in matchers])
    assert compared > 60
