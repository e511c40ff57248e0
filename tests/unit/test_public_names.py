"""The names that users, plug-ins and Hub repositories depend on. Every change of these lists affects them."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.metadata import entry_points

import pytest

import hf_guided as hg
from hf_guided import demo

PUBLIC = """
Audit BackendError BackendUnavailable BatchSizeError BitmaskShapeError BudgetTooSmall Choice ChoiceScores
CompileLimitExceeded CompilerOptions Constraint ConstraintError EmptyIntersection GenerationError Grammar Guide
GuidedResult HFGuidedError InternalError InvalidArgument InvalidConstraint JsonObject JsonSchema Loss Model NoValue
OptionScore Partial PromptError Reasoning Regex Samples SessionStats StopTokenError StructuralTag TokenLogprob
TokenRejected TokenizerError ToolAnswer ToolCall ToolCalls ToolFormat TopLogprobs Trace UnknownArgument
UnsupportedConstraint UnsupportedModel UnsupportedTokenizer UnwritableConstraint UsageError VocabularySizeError
agenerate describe generate register sample score
""".split()
# class -> the base class by which callers may catch it
ERRORS = {
    "BackendError": "HFGuidedError",
    "BackendUnavailable": "BackendError",
    "BudgetTooSmall": "ConstraintError",
    "CompileLimitExceeded": "BackendError",
    "ConstraintError": "HFGuidedError",
    "GenerationError": "HFGuidedError",
    "InvalidConstraint": "ConstraintError",
    "UnsupportedConstraint": "ConstraintError",
    "UnwritableConstraint": "ConstraintError",
}
MODULES = {
    "hf_guided.backends.adapter": [],
    "hf_guided.backends.base": ["Backend", "CompiledConstraint", "Engine", "Matcher"],
    "hf_guided.vocabulary.bitmask": ["allocate_bitmask", "pack", "unpack"],
    "hf_guided.cli": ["main"],
    "hf_guided.constraints": ["Choice", "Constraint", "Grammar", "JsonObject", "JsonSchema", "Regex", "StructuralTag"],
    "hf_guided.demo": ["load"],
    "hf_guided.hf.drafts": ["Draft", "DraftSource"],
    "hf_guided.errors": ["HFGuidedError"],
    "hf_guided.generation.custom_generate": ["generate"],
    "hf_guided.hf.listening": ["TokenListener"],
    "hf_guided.schema.formats": ["NARROWER"],
    "hf_guided.integrations.smolagents": ["GuidedTransformersModel"],
    "hf_guided.vocabulary": ["Vocabulary"],
}
METHODS = {
    "Guide": "attach audit compile decoder logits_processor read reader session stats submit to_sglang to_vllm warm_up",
    "GuidedResult": "error finish_reason logprobs stats text token_ids value",
}


def test_public_names() -> None:
    assert sorted(hg.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert getattr(hg, name).__module__.startswith("hf_guided"), name


def test_errors_keep_their_base_classes() -> None:
    classes = {name: getattr(hg, name) for name in PUBLIC if inspect.isclass(getattr(hg, name))}
    errors = [name for name, cls in classes.items() if issubclass(cls, Exception)]
    assert {"ValueError"} <= {base.__name__ for base in hg.InvalidArgument.__mro__}
    for name, base in ERRORS.items():
        assert issubclass(getattr(hg, name), getattr(hg, base)), name
    for name in errors:
        assert issubclass(getattr(hg, name), hg.HFGuidedError), name


@pytest.mark.parametrize("module", MODULES)
def test_import_paths_exist(module: str) -> None:
    loaded = import_module(module)
    for name in MODULES[module]:
        assert hasattr(loaded, name), name


@pytest.mark.parametrize("name", METHODS)
def test_public_methods_exist(name: str) -> None:
    known = {*dir(getattr(hg, name)), *getattr(getattr(hg, name), "__dataclass_fields__", {})}
    assert set(METHODS[name].split()) <= known


def test_a_guide_shows_only_what_users_call() -> None:
    guide = hg.Guide(*demo.load())
    shown = {name for name in dir(guide) if not name.startswith("_")}
    assert shown == {*METHODS["Guide"].split(), "close", "tokenizer", "trace", "vocabulary"}


def test_the_repr_of_an_audit_fits_a_screen() -> None:
    guide = hg.Guide(*demo.load())
    long = {"a" * 70: {"type": "array", "contains": {"const": 1}, "uniqueItems": True}}
    many = {f"name {i}": {"type": "integer", "minimum": i, "description": "x" * 300} for i in range(300)}
    for schema in ({}, {"type": "integer"}, {"properties": {**many, **long}}, {"properties": long}):
        for backend in ("auto", "outlines"):
            audit = guide.audit({"type": "object", **schema}, backend=backend)
            lines = repr(audit).splitlines()
            assert len(lines) <= 24 and max(map(len, lines)) <= 100
            assert all(row.keyword in repr(audit) for row in audit.lost[:10])
            assert len(lines) > len(audit.rows) or f"{len(audit.rows) - 20} more rows; print(audit)" in lines[-1]


def test_command_line_entry_point() -> None:
    assert {entry.value for entry in entry_points(group="console_scripts", name="hf-guided")} == {"hf_guided.cli:main"}
