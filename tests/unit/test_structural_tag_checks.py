"""Every field of a structural tag is checked, with its JSON pointer; xgrammar's own models decide what there is."""

from __future__ import annotations

import copy
import json
import typing
from typing import Any

import pytest
import xgrammar.structural_tag
from pydantic import ValidationError

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.structural_tag_checks import MAX_FORMATS, OPTIONAL, TagChecker
from tests import toy

MODELS = {
    model.model_fields["type"].default: model
    for model in typing.get_args(typing.get_args(xgrammar.structural_tag.Format)[0])
}
TEXT = {"type": "const_string", "value": "x"}
TOKEN = {"type": "token", "token": 97}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
JSON = {"type": "json_schema", "json_schema": SCHEMA}
TAG = {"type": "tag", "begin": "<a>", "content": TEXT, "end": ["</a>", "</b>"]}
TOKEN_TAG = {**TAG, "begin": TOKEN, "end": TOKEN}
FORMATS: list[dict[str, Any]] = [
    TEXT,
    {"type": "regex", "pattern": "a+"},
    {"type": "grammar", "grammar": 'root ::= "a"'},
    {"type": "any_text", "excludes": ["a"], "max_chars": 3},
    {**JSON, "style": "qwen_xml", "any_order": False, "max_whitespace_cnt": 2},
    {"type": "qwen_xml_parameter", "json_schema": SCHEMA},
    {"type": "sequence", "elements": [TEXT, JSON]},
    {"type": "or", "elements": [TEXT, JSON]},
    {"type": "optional", "content": TEXT},
    {"type": "plus", "content": TEXT},
    {"type": "star", "content": TEXT},
    {"type": "repeat", "min": 1, "max": -1, "content": TEXT},
    TAG,
    {"type": "triggered_tags", "triggers": ["<a"], "tags": [TAG], "at_least_one": True, "excludes": ["no"]},
    {"type": "tags_with_separator", "separator": ",", "tags": [TAG], "stop_after_first": True},
    {"type": "dispatch", "rules": [["<a>", TEXT]], "loop": False, "excludes": ["b"]},
    TOKEN,
    {"type": "exclude_token", "exclude_tokens": [98]},
    {"type": "any_tokens", "exclude_tokens": [98]},
    {"type": "token_triggered_tags", "trigger_tokens": [97], "tags": [TOKEN_TAG], "exclude_tokens": [98]},
    {"type": "token_dispatch", "rules": [[97, TEXT]], "loop": True, "exclude_tokens": [98]},
]
OLDER = {"structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f"]}
WRONG: tuple[Any, ...] = (None, 3, -1, 1.5, "", "no", [], {}, [3], [""], [None], {"type": "nope"}, 10**30)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


def test_formats_and_fields_are_those_of_xgrammar() -> None:
    fields = TagChecker(str, str).fields
    ours = {kind: {"type", *fields[kind]} for kind in fields}
    ours["json_schema"].remove("options")  # of hg.JsonSchema, for answers beside tools
    assert ours == {kind: set(model.model_fields) for kind, model in MODELS.items()}
    required = {kind: {*of} - OPTIONAL for kind, of in fields.items()}
    assert required == {
        kind: {name for name, field in model.model_fields.items() if field.is_required()}
        for kind, model in MODELS.items()
    }
    assert {part["type"] for part in FORMATS} == set(MODELS)


@pytest.mark.parametrize("part", FORMATS, ids=lambda part: str(part["type"]))
def test_every_format_compiles(compiler: Compiler, part: dict[str, Any]) -> None:
    """But for those of tokens, which both engines that take tags refuse."""
    tag = {"type": "structural_tag", "format": part}
    for form in (tag, json.dumps(tag), xgrammar.StructuralTag.model_validate(tag)):
        constraint = hg.StructuralTag(form)
        if "token" in part["type"]:
            for backend in ("auto", "xgrammar"):
                with pytest.raises(hg.UnsupportedConstraint) as caught:
                    compiler.compile(constraint, backend)
                assert (("/format", part["type"])) in [(loss.pointer, loss.keyword) for loss in caught.value.losses]
        else:
            assert compiler.compile(constraint, "xgrammar" if part["type"] == "dispatch" else "auto").matcher()


@pytest.mark.parametrize("part", FORMATS, ids=lambda part: str(part["type"]))
def test_what_xgrammar_refuses_is_refused_with_its_pointer(compiler: Compiler, part: dict[str, Any]) -> None:
    """Each field in turn with wrong values, or left out: never a foreign exception, and xgrammar is never stricter."""
    for name in part:
        for wrong in (..., *WRONG):
            changed = copy.deepcopy(part)
            if wrong is ...:
                del changed[name]
            else:
                changed[name] = wrong
            tag = {"type": "structural_tag", "format": changed}
            try:
                constraint = hg.StructuralTag(tag)
            except hg.InvalidConstraint as error:
                assert error.pointers[0].startswith(f"/format/{name}"), error
                assert str(error).startswith(f"StructuralTag: at /format/{name}")
                continue
            try:
                xgrammar.StructuralTag.model_validate(tag)
            except ValidationError:
                pytest.fail(f"xgrammar's model refuses {tag}")
            try:
                compiler.compile(constraint)
            except hg.HFGuidedError:
                pass  # what the vocabulary or the engines refuse


@pytest.mark.parametrize(
    ("part", "pointer", "message"),
    [
        ({"type": "any_text", "max_char": 3}, "/format/max_char", "did you mean 'max_chars'"),
        ({"type": "sequense", "elements": [TEXT]}, "/format/type", "did you mean 'sequence'"),
        ({**JSON, "style": "qwen_xm"}, "/format/style", "did you mean 'qwen_xml'"),
        ({**TAG, "content": {**TEXT, "val/ue": 1}}, "/format/content/val~1ue", "expected one of the fields"),
        ({"type": "sequence", "elements": []}, "/format/elements", "not empty"),
        ({"type": "or", "elements": []}, "/format/elements", "not empty"),
        ({**TAG, "end": []}, "/format/end", "not empty"),
        ({**TAG, "begin": TEXT}, "/format/begin/type", "expected a token"),
        ({"type": "repeat", "min": 3, "max": 2, "content": TEXT}, "/format/max", "at least min"),
        ({"type": "repeat", "min": 0, "max": -2, "content": TEXT}, "/format/max", "an integer from 0"),
        ({"type": "repeat", "min": True, "max": 2, "content": TEXT}, "/format/min", "an integer from 0"),
        (
            {"type": "triggered_tags", "triggers": ["<a"], "tags": [TAG], "at_least_one": "no"},
            "/format/at_least_one",
            "",
        ),
        ({"type": "triggered_tags", "triggers": [], "tags": [TAG]}, "/format/triggers", "not empty"),
        ({"type": "triggered_tags", "triggers": ["<b"], "tags": [TAG]}, "/format/tags/0/begin", "none of them"),
        ({"type": "triggered_tags", "triggers": ["<", "<a"], "tags": [TAG]}, "/format/tags/0/begin", "2 of them"),
        ({"type": "triggered_tags", "triggers": ["<a", "<b"], "tags": [TAG]}, "/format/triggers/1", "begins with"),
        ({"type": "triggered_tags", "triggers": ["<a"], "tags": [TOKEN_TAG]}, "/format/tags/0/begin", "a string"),
        ({"type": "triggered_tags", "triggers": ["<a"], "tags": [TEXT]}, "/format/tags/0/type", "a tag"),
        ({"type": "token_triggered_tags", "trigger_tokens": [97], "tags": [TAG]}, "/format/tags/0/begin", "a token"),
        ({"type": "dispatch", "rules": [["<a>"]]}, "/format/rules/0", "a pair"),
        ({"type": "dispatch", "rules": [["", TEXT]]}, "/format/rules/0/0", "not empty"),
        ({"type": "regex", "pattern": "("}, "/format/pattern", "does not compile"),
        ({"type": "regex", "pattern": "(?m)a"}, "/format/pattern", "MULTILINE"),
        ({"type": "any_text", "excludes": ["a", ""]}, "/format/excludes/1", "not empty"),
    ],
)
def test_refusals_name_the_place_and_the_remedy(part: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(hg.InvalidConstraint, match="StructuralTag: at ") as caught:
        hg.StructuralTag({"format": part})
    assert caught.value.pointers == (pointer,)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"structures": []}, "/structures"),
        ({"triggers": ["<g"]}, "/structures/0/begin"),
        ({"structures": [{**OLDER["structures"][0], "schema": 5}]}, "/structures/0/schema"),
        ({"structures": [{**OLDER["structures"][0], "schema": "{"}]}, "/structures/0/schema"),
        ({"structures": [{**OLDER["structures"][0], "ends": ""}]}, "/structures/0/ends"),
        ({"at_least_one": True}, "/at_least_one"),
    ],
)
def test_older_form(change: dict[str, Any], pointer: str) -> None:
    hg.StructuralTag(OLDER)
    hg.StructuralTag({**OLDER, "structures": [{**OLDER["structures"][0], "schema": json.dumps(SCHEMA)}]})
    with pytest.raises(hg.InvalidConstraint) as caught:
        hg.StructuralTag({**OLDER, **change})
    assert caught.value.pointers == (pointer,)


@pytest.mark.parametrize(
    "schema", [{"type": "objekt"}, False, {"type": "string", "minLength": 3, "maxLength": 2}, {"$ref": []}]
)
def test_wrong_schema_is_refused_with_its_pointer_when_compiled(compiler: Compiler, schema: Any) -> None:
    tag = hg.StructuralTag({"format": {**TAG, "content": {**JSON, "json_schema": schema}}})
    for backend in ("auto", "native", "xgrammar"):
        with pytest.raises(hg.InvalidConstraint, match="StructuralTag: at /format/content/json_schema: ") as caught:
            compiler.compile(tag, backend)
        assert caught.value.pointers[0].startswith("/format/content/json_schema")


def test_depth_is_bounded(compiler: Compiler) -> None:
    def nested(levels: int) -> dict[str, Any]:
        part: dict[str, Any] = TEXT
        for _ in range(levels):
            part = {"type": "optional", "content": part}
        return {"format": part}

    assert compiler.compile(hg.StructuralTag(nested(MAX_FORMATS - 1))).matcher().validate_tokens([*b"x", 256]) == 2
    with pytest.raises(hg.InvalidConstraint, match="inside each other"):
        hg.StructuralTag(nested(MAX_FORMATS))


@pytest.mark.parametrize("option", [{"any_order": True}, {"excludes": ["ab"]}])
def test_options_that_xgrammar_does_not_enforce_are_losses(compiler: Compiler, option: dict[str, Any]) -> None:
    """With any_order its matcher takes a member twice; with excludes it drops the length of a string."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2}}, "required": ["a"]}
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema, **option}}
    audit = compiler.audit(hg.StructuralTag(tag), "xgrammar")
    (keyword,) = option
    lost = [(row.pointer, row.keyword, row.outcome) for row in audit.lost]
    assert lost == [(f"/format/{keyword}", keyword, "lost")]


def test_a_pattern_means_the_same_to_both_engines(compiler: Compiler) -> None:
    tag = hg.StructuralTag({"format": {"type": "regex", "pattern": r"^(?i:k)\d[^a]$"}})
    texts = [first + digit + last for first in "kKx" for digit in "1a" for last in "ab\n"]
    verdicts = []
    for backend in ("native", "xgrammar"):
        matcher = compiler.compile(tag, backend).matcher()
        verdicts.append([text for text in texts if matcher.validate_tokens([*text.encode(), 256]) == 4])
    assert verdicts == [["k1b", "k1\n", "K1b", "K1\n"]] * 2


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ({"type": "any_text", "max_chars": 1, "excludes": ["z"]}, "/format/max_chars"),
        (
            {"type": "tag", "begin": "<", "content": {"type": "any_text", "max_chars": 1}, "end": ">"},
            "/format/content/max_chars",
        ),
    ],
)
def test_characters_that_xgrammar_counts_as_bytes(compiler: Compiler, part: dict[str, Any], pointer: str) -> None:
    """Its matcher takes the first byte of a character, and then none of the others."""
    tag = hg.StructuralTag({"format": part})
    assert [(row.pointer, row.keyword) for row in compiler.audit(tag, "xgrammar").lost] == [(pointer, "max_chars")]
    text = "<é>" if part["type"] == "tag" else "é"
    for allowed, longer in ((text, False), (text.replace("é", "éé"), True)):
        token_ids = [*allowed.encode(), 256]
        matcher = compiler.compile(tag).matcher()
        assert (matcher.validate_tokens(token_ids) == len(token_ids)) is not longer
