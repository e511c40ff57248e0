"""Reading a constraint takes work that is linear in its text, or ends at a bound with the right refusal."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

import hf_guided as hg
from hf_guided.constraints import json_text, values
from hf_guided.constraints.json_schema_keywords import NormalForm
from hf_guided.errors import InvalidConstraint, Loss, UnsupportedConstraint
from hf_guided.regex.parse import MAX_LENGTH, MAX_SIGNS
from hf_guided.schema import audit as audits
from hf_guided.schema.audit import audit
from hf_guided.schema.readers import MAX_DIGITS
from tests import vocabularies
from tests.integration.hostile_constraints import chain
from tests.pairs import once_each
from tests.property.strategies import backend, tiny


@pytest.mark.parametrize("where", ["#/$defs/d0", "#/$defs/d7", "#/$defs/none"])
def test_wrong_references_are_still_found(where: str) -> None:
    with pytest.raises(InvalidConstraint, match="refers back to itself|does not exist"):
        backend("native", tiny()).compile(hg.JsonSchema(chain(10, {"$ref": where})))


@pytest.mark.parametrize(
    ("keyword", "backend"),
    once_each(["minimum", "maximum", "exclusiveMinimum", "multipleOf"], ["auto", "native", "llguidance"]),
)
def test_numbers_with_too_many_digits_are_refused_with_their_pointer(keyword: str, backend: str) -> None:
    tokenizer = vocabularies.demo()
    guide = hg.Guide(len(tokenizer), tokenizer)
    with pytest.raises(UnsupportedConstraint, match=f"more than {MAX_DIGITS} digits") as caught:
        guide.compile({"properties": {"a": {"type": "integer", keyword: 10**MAX_DIGITS}}}, backend)
    assert caught.value.pointers == (f"/properties/a/{keyword}",)
    if keyword != "multipleOf":
        sign = 1 if keyword == "maximum" else -1
        assert guide.compile({"type": "integer", keyword: sign * (10**MAX_DIGITS - 1)}, backend)


def test_document_with_too_long_paths_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_POINTERS", 10_000)
    monkeypatch.setattr(json_text, "_SHORT", 90)  # their pointers have fewer characters than that
    names: dict[str, Any] = {str(i): True for i in range(10)}
    assert hg.JsonSchema({"properties": {"k" * 100: {"properties": names}}})
    with pytest.raises(InvalidConstraint, match="names around its values are too long"):
        hg.JsonSchema({"properties": {"k" * 1000: {"properties": names}}})


def test_wrong_key_is_named_with_its_path() -> None:
    with pytest.raises(InvalidConstraint, match=r"the key 1 at /properties/a/anyOf/0 is a int, not a string"):
        hg.JsonSchema({"properties": {"a": {"anyOf": [{1: 2}]}}})


@pytest.mark.parametrize("pattern", ["a" * (MAX_LENGTH + 1), "a?" * (MAX_SIGNS + 1), "a|" * (MAX_SIGNS + 1)])
def test_pattern_that_is_too_long_is_not_compiled(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    never = SimpleNamespace(Pattern=re.Pattern, compile=lambda *_: pytest.fail("it was compiled"))
    monkeypatch.setattr(values, "re", never)
    with pytest.raises(UnsupportedConstraint, match="too long") as caught:
        hg.Regex(pattern)
    assert caught.value.losses


def test_only_some_unknown_keywords_are_compared_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "MOST_LOOKED_AT", 5)
    schema = {f"requred{i}": True for i in range(9)}
    assert len(list(audits.misspelt_names(schema))) == 5


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"maxItem": 3}}},
        {"dependencies": {"a": ["b"], "b": {"anyOf": [{"maxItem": 3}]}}},
        {"$defs": {"a": {"default": {"maxItem": 3}}}, "$ref": "#/$defs/a/default"},
        {"$defs": {"a": [{"maxItem": 3}]}, "$ref": "#/$defs/a/0"},
        {"definitions": {"a": {"enum": [{"maxItem": 3}]}}, "items": {"$ref": "#/definitions/a/enum/0"}},
        {"x-schemas": {"a": {"maxItem": 3}}, "$ref": "#/x-schemas/a"},
    ],
)
def test_a_misspelt_keyword_is_found_wherever_a_schema_is(schema: dict[str, Any]) -> None:
    assert audits.may_be_misspelt(NormalForm.of(json.dumps(schema)))
    (sentence,) = audits.misspelt_names(schema)
    assert "maxItem" in sentence
    known = json.loads(json.dumps(schema).replace("maxItem", "maxItems"))
    assert not list(audits.misspelt_names(known))


def test_every_loss_finds_its_row() -> None:
    schema = hg.JsonSchema({"properties": {f"p{i}": {"minLength": i, "maxLength": 9} for i in range(50)}})
    losses = [Loss(f"/properties/p{i}/minLength", "minLength", f"no {i}") for i in range(0, 50, 2)]
    losses += [
        Loss("/properties/p1/maxLength", "maxLength", "first"),
        Loss("/properties/p1/maxLength", "maxLength", "second"),
    ]
    losses.append(Loss("", "json_schema", "of no keyword"))
    lost = {row.pointer: row.detail for row in audit(schema, "x", "", losses).lost}
    assert len(lost) == 27
    assert lost["/properties/p48/minLength"] == "no 48"
    assert set(lost["/properties/p1/maxLength"].split("; ")) == {"first", "second"}
    assert lost[""] == "of no keyword"
