"""The targets of references. The oracle is `jsonschema`: which values a schema with only the reference accepts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import InvalidConstraint
from hf_guided.schema.documents import Documents, Subschema
from tests.toy import all_bytes

DRAFT4, DRAFT6, DRAFT7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
DRAFT2019 = "https://json-schema.org/draft/2019-09/schema"
OTHERS = {
    "https://example.com/zip": {
        "type": "string",
        "maxLength": 2,
        "$defs": {"digit": {"$anchor": "digit", "enum": [1, 2]}, "back": {"$ref": "#digit"}},
    },
    "https://example.com/dir/list": {"items": {"$ref": "../zip"}, "type": "array"},
    "urn:old": {"$schema": DRAFT7, "items": [{"type": "null"}], "additionalItems": False},
}

# Each schema with values, of which at least one is valid and one is not.
REFERENCES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "a pointer": ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, [None, 1]),
    "a pointer with escapes": (
        {"$ref": "#/$defs/a~1b~0c%25d", "$defs": {"a/b~0c%d": {"type": "null"}, "a/b~c%d": {"const": 1}}},
        [None, 1],
    ),
    "a pointer into a list": ({"$ref": "#/anyOf/1/items", "anyOf": [{}, {"items": {"const": 1}}]}, [1, 2]),
    "the whole": ({"items": {"$ref": "#"}, "type": ["array", "null"]}, [[[None]], [[1]], 1]),
    "a place that is no keyword": ({"$ref": "#/components/a", "components": {"a": {"type": "null"}}}, [None, 1]),
    "an anchor": ({"$ref": "#there", "$defs": {"a": {"$anchor": "there", "type": "null"}}}, [None, 1]),
    "an anchor of draft 7": (
        {"$schema": DRAFT7, "$ref": "#there", "definitions": {"a": {"$id": "#there", "type": "null"}}},
        [None, 1],
    ),
    "an anchor of draft 4": (
        {"$schema": DRAFT4, "$ref": "#there", "definitions": {"a": {"id": "#there", "type": "null"}}},
        [None, 1],
    ),
    "an embedded resource": (
        {"$id": "https://x.example/root", "$ref": "inner", "$defs": {"a": {"$id": "inner", "type": "null"}}},
        [None, 1],
    ),
    "an embedded resource, from a root without a name": (
        {"$ref": "inner", "$defs": {"a": {"$id": "inner", "type": "null"}}},
        [None, 1],
    ),
    "a pointer inside an embedded resource": (
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"$id": "https://x.example/a", "$ref": "#/$defs/b", "$defs": {"b": {"type": "null"}}},
                "b": {"const": 1},
            },
        },
        [None, 1],
    ),
    "relative to an embedded resource": (
        {
            "$id": "https://x.example/dir/root",
            "items": {"$id": "deeper/here", "$ref": "there"},
            "$defs": {
                "a": {"$id": "deeper/there", "type": "null"},
                "b": {"$id": "there", "const": 1},
            },
        },
        [[None], [1]],
    ),
    "an anchor of an embedded resource": (
        {
            "$ref": "inner#there",
            "$defs": {
                "a": {"$id": "inner", "$defs": {"b": {"$anchor": "there", "type": "null"}}},
                "c": {"$anchor": "there", "const": 1},
            },
        },
        [None, 1],
    ),
    "a name that stands in a value names nothing": (
        {
            "$ref": "inner",
            "$defs": {"a": {"enum": [{"$id": "inner", "const": 1}]}, "b": {"$id": "inner", "type": "null"}},
        },
        [None, 1],
    ),
    "siblings count since 2019": (
        {"$schema": DRAFT2019, "$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"minimum": 1}}},
        [0, 1, 3, 4],
    ),
    "siblings do not count before": (
        {"$schema": DRAFT6, "items": {"$ref": "#/definitions/a", "maximum": 3}, "definitions": {"a": {"minimum": 1}}},
        [[0], [1], [4]],
    ),
    "the registry": ({"items": {"$ref": "https://example.com/zip"}}, [["ab"], ["abc"], [1]]),
    "an anchor in the registry": ({"$ref": "https://example.com/zip#digit"}, [1, 3]),
    "a pointer into the registry": ({"$ref": "https://example.com/zip#/$defs/back"}, [1, 3]),
    "from one document of the registry to another": (
        {"$ref": "https://example.com/dir/list"},
        [["ab"], ["abc"], "ab"],
    ),
    "relative to the root's own name": (
        {"$id": "https://example.com/dir/root", "items": {"$ref": "../zip"}},
        [["ab"], ["abc"]],
    ),
    "a document of an older draft": ({"$ref": "urn:old"}, [[None], [], [None, 1], [1]]),
    "a dynamic anchor there is one of": (
        {"$dynamicRef": "#node", "$defs": {"a": {"$dynamicAnchor": "node", "type": "null"}}},
        [None, 1],
    ),
    "a dynamic anchor of the root": (
        {
            "$id": "https://x.example/strict",
            "$dynamicAnchor": "node",
            "$ref": "tree",
            "unevaluatedProperties": False,
            "$defs": {
                "tree": {
                    "$id": "tree",
                    "$dynamicAnchor": "node",
                    "type": "object",
                    "properties": {"kids": {"type": "array", "items": {"$dynamicRef": "#node"}}},
                }
            },
        },
        [{"kids": []}, {"kids": [{}]}, {"kids": [{"x": 1}]}, {"x": 1}],
    ),
    "a dynamic reference to a plain anchor": (
        {
            "$id": "https://x.example/r",
            "$dynamicAnchor": "node",
            "items": {"$dynamicRef": "#plain"},
            "$defs": {"a": {"$anchor": "plain", "type": "null"}},
        },
        [[None], [[]]],
    ),
    "a recursive reference to a plain root": (
        {"$schema": DRAFT2019, "type": ["array", "null"], "items": {"$recursiveRef": "#"}},
        [None, [[None]], [1]],
    ),
    "a recursive reference to the outermost": (
        {
            "$schema": DRAFT2019,
            "$id": "https://x.example/strict",
            "$recursiveAnchor": True,
            "$ref": "tree",
            "maxProperties": 1,
            "$defs": {
                "tree": {
                    "$id": "tree",
                    "$recursiveAnchor": True,
                    "type": "object",
                    "properties": {"left": {"$recursiveRef": "#"}, "right": {"$recursiveRef": "#"}},
                }
            },
        },
        [{}, {"left": {"right": {}}}, {"left": {"left": {}, "right": {}}}, {"left": 1}],
    ),
}


@pytest.fixture(scope="module")
def backend() -> LLGuidanceBackend:
    return LLGuidanceBackend(all_bytes())


def accepts(backend: LLGuidanceBackend, constraint: JsonSchema, value: Any) -> bool:
    matcher = backend.compile(constraint).matcher()
    return all(map(matcher.accept_token, json.dumps(value).encode())) and matcher.is_completed()


@pytest.mark.parametrize("case", REFERENCES)
def test_references_resolve_as_in_jsonschema(case: str, backend: LLGuidanceBackend) -> None:
    schema, values = REFERENCES[case]
    documents = [
        (uri, Resource.from_contents(document, default_specification=DRAFT202012)) for uri, document in OTHERS.items()
    ]
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    oracle = cls(schema, registry=Registry().with_resources(documents))
    verdicts = [oracle.is_valid(value) for value in values]
    assert len(set(verdicts)) == 2, "expected valid and invalid values"
    constraint = JsonSchema(schema, extra="allow", registry=OTHERS)
    assert tuple(backend.losses(constraint)) == ()
    assert [accepts(backend, constraint, value) for value in values] == verdicts


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"$ref": "#/$defs", "$defs": []},
        {"$ref": "#none"},
        {"$ref": "https://example.com/zip#none"},
        {"$ref": "https://example.com/zip#/$defs/none"},
        {"$ref": "https://example.com/zip#/maxLength"},
        {"items": {"$ref": "inner#/none"}, "$defs": {"a": {"$id": "inner"}}},
    ],
)
def test_dangling_reference_is_an_error(schema: dict[str, Any], backend: LLGuidanceBackend) -> None:
    with pytest.raises(InvalidConstraint, match=r"refers to '[^']*' at .*, which (does not exist|is no schema)"):
        backend.compile(JsonSchema(schema, registry=OTHERS))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"not": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    ],
)
def test_reference_only_to_itself_is_an_error(schema: dict[str, Any], backend: LLGuidanceBackend) -> None:
    with pytest.raises(InvalidConstraint, match="only refers back to itself"):
        backend.compile(JsonSchema(schema))


@pytest.mark.parametrize("ref", ["https://example.com/other", "other", "urn:other#/$defs/a", "https://example.com/zi"])
def test_unknown_document_is_a_loss_and_is_not_fetched(ref: str, backend: LLGuidanceBackend) -> None:
    (loss,) = backend.losses(JsonSchema({"items": {"$ref": ref}}, registry=OTHERS))
    assert (loss.pointer, loss.keyword) == ("/items/$ref", "$ref")
    assert "nothing is fetched" in loss.reason and ref.partition("#")[0] in loss.reason


DYNAMIC = {
    "$id": "https://x.example/typical",
    "$ref": "list",
    "$defs": {
        "foo": {"$dynamicAnchor": "items", "type": "null"},
        "list": {
            "$id": "list",
            "items": {"$dynamicRef": "#items"},
            "$defs": {"items": {"$dynamicAnchor": "items", "const": 1}},
        },
    },
}
RECURSIVE = {
    "$schema": DRAFT2019,
    "$id": "https://x.example/root",
    "anyOf": [{"$ref": "one"}, {"$ref": "two"}],
    "$defs": {
        "one": {"$id": "one", "$recursiveAnchor": True, "type": "array", "$ref": "tree"},
        "two": {"$id": "two", "$recursiveAnchor": True, "maxItems": 1, "$ref": "tree"},
        "tree": {"$id": "tree", "$recursiveAnchor": True, "items": {"$recursiveRef": "#"}},
    },
}


@pytest.mark.parametrize(
    ("schema", "lost"),
    [
        (DYNAMIC, ("/$defs/list/items/$dynamicRef", "$dynamicRef")),
        (RECURSIVE, ("/$defs/tree/items/$recursiveRef", "$recursiveRef")),
    ],
)
def test_reference_that_depends_on_the_dynamic_scope_is_a_loss(
    schema: dict[str, Any], lost: tuple[str, str], backend: LLGuidanceBackend
) -> None:
    losses = backend.losses(JsonSchema(schema))
    assert [(loss.pointer, loss.keyword) for loss in losses] == [lost]
    assert "depending on what led there" in losses[0].reason


def read_documents(schema: Any, registry: Mapping[str, Any] | None = None) -> Documents:
    return Documents(JsonSchema(schema).schema_json, registry or {})


def child(documents: Documents, parent: Subschema, *steps: str) -> Subschema:
    schema: Any = parent.schema
    for step in steps:
        schema = schema[step]
    return documents.child(parent, schema, *steps)


def test_subschemas_have_pointers_bases_and_drafts() -> None:
    documents = read_documents(
        {
            "$id": "https://x.example/dir/root",
            "$defs": {"a/b": {"$id": "sub/", "$schema": DRAFT7, "items": {"$id": "leaf", "type": "null"}}},
        }
    )
    middle = child(documents, documents.root, "$defs", "a/b")
    leaf = child(documents, middle, "items")
    assert (documents.root.base, documents.root.dialect) == ("https://x.example/dir/root", 2020)
    assert (middle.pointer, middle.base, middle.dialect) == ("/$defs/a~1b", "https://x.example/dir/sub/", 7)
    assert (leaf.pointer, leaf.base, leaf.dialect) == ("/$defs/a~1b/items", "https://x.example/dir/sub/leaf", 7)
    assert documents.target(documents.root, "sub/leaf") is leaf


def test_pointer_into_another_document_has_its_uri() -> None:
    documents = read_documents({"$ref": "https://example.com/zip"}, OTHERS)
    target = documents.target(documents.root, "https://example.com/zip")
    for ref in ("#/$defs/digit", "#digit", "https://example.com/zip#/$defs/digit"):
        assert documents.target(target, ref).pointer == "https://example.com/zip#/$defs/digit"


@pytest.mark.parametrize(
    ("name", "dialect"),
    [(DRAFT4, 4), (DRAFT6, 6), (DRAFT7.rstrip("#"), 7), (DRAFT2019, 2019), ("https://example.com/unknown", 2020)],
)
def test_schema_keyword_selects_the_draft(name: str, dialect: int) -> None:
    documents = read_documents({"$schema": name})
    assert (documents.root.dialect, documents.names_dialect) == (dialect, True)
    assert not read_documents({}).names_dialect and read_documents(True).root.dialect == 2020


def test_error_for_a_child_that_is_no_schema_has_its_pointer() -> None:
    documents = read_documents({"items": 3})
    with pytest.raises(InvalidConstraint, match="at /items: expected a schema, got 3"):
        child(documents, documents.root, "items")
