"""Whatever ``guide.compile`` takes, ``hg.generate`` serves: complete and valid, however few tokens there may be.

The model is random and hot, so that only the token limit ends most texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any, NamedTuple, get_args

import jsonschema
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

import hf_guided as hg
from benchmarks.bench_schemas import Sample, load_samples
from benchmarks.common import data_folder
from benchmarks.modes import tiny_llama
from benchmarks.oracle import Oracle, Undecided
from hf_guided.constraints.json_style import KeyOrder, Spelling
from tests import vocabularies
from tests.effort import repeats
from tests.property.schema_examples import DRAFTS, Writer
from tests.property.test_regex import edge_patterns
from tests.property.test_tool_calls import as_tools
from tests.tool_families import FAMILIES

_SCHEMAS = data_folder() / "jsonschemabench" / "schemas.jsonl"
_more_tokens = st.sampled_from([0, 0, 1, 2, 5, 20, 60])  # than the stated minimum
_styles = st.fixed_dictionaries(
    {
        "key_order": st.sampled_from(get_args(KeyOrder)),
        "spelling": st.sampled_from(get_args(Spelling)),
        "whitespace": st.sampled_from(["compact", "flexible", "minified"]),
        "extra": st.sampled_from(["allow", "forbid"]),
    }
)


class Served(NamedTuple):
    """What generates."""

    model: LlamaForCausalLM
    tokenizer: Any
    guide: hg.Guide


@cache
def served() -> Served:
    tokenizer = vocabularies.demo()
    model = tiny_llama(len(tokenizer), seed=0, max_position_embeddings=8192)
    return Served(model, tokenizer, hg.Guide(model, tokenizer))


def check_served(constraint: Any, more: int, problem: Callable[[str], str]) -> None:
    """Two rows end, valid, with ``more`` tokens than the stated minimum; refused constraints do not count."""
    model, tokenizer, guide = served()
    try:
        minimum = guide.compile(constraint).matcher().min_tokens_to_finish()
    except (hg.ConstraintError, hg.CompileLimitExceeded):
        reject()
    assert minimum is not None
    options: dict[str, Any] = {"max_new_tokens": minimum + more, "seed": minimum + more, "temperature": 1.5}
    if isinstance(constraint, hg.ToolCalls):
        options["show_tools"] = False
    for result in hg.generate(model, tokenizer, ["a", "b"], constraint, guide=guide, do_sample=True, **options):
        assert result.finish_reason == "stop", (constraint, more, result)
        assert len(result.token_ids) <= minimum + more
        assert not problem(result.text), (constraint, result)


def judge(schema: Any) -> Callable[[str], str]:
    oracle = Oracle(schema)

    def problem(text: str) -> str:
        with suppress(Undecided):
            return oracle.problem(text.encode())
        return ""

    return problem


@settings(max_examples=repeats(15, 300))
@given(st.integers(0, 2**32), st.sampled_from([*DRAFTS]), _styles, _more_tokens)
def test_schemas(seed: int, draft: int, style: dict[str, Any], more: int) -> None:
    schema = Writer(Random(seed), draft).document()
    check_served(hg.JsonSchema(schema, **style), more, judge(schema))


@pytest.mark.skipif(not _SCHEMAS.exists(), reason=f"no {_SCHEMAS}; set HF_GUIDED_DATA to the folder that holds it")
@pytest.mark.filterwarnings("ignore:the schema has keywords that constrain nothing")  # one has "type:"
@settings(max_examples=repeats(8, 300))
@given(st.data(), _styles, _more_tokens)
def test_real_schemas(data: st.DataObject, style: dict[str, Any], more: int) -> None:
    sample = data.draw(st.sampled_from(samples()))
    check_served(hg.JsonSchema(sample.schema, **style), more, judge(sample.schema))


@cache
def samples() -> list[Sample]:
    return load_samples()


@given(edge_patterns, _more_tokens)
def test_regexes(pattern: str, more: int) -> None:
    compiled = re.compile(pattern)
    check_served(hg.Regex(pattern), more, lambda text: "" if compiled.fullmatch(text) else "no match")


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8, unique=True), _more_tokens)
def test_choices(options: list[str], more: int) -> None:
    check_served(hg.Choice(options), more, lambda text: "" if text in options else "none of the options")


@settings(max_examples=repeats(12, 100))
@given(st.integers(0, 2**32), st.sampled_from([*FAMILIES]), st.sampled_from(["auto", "required"]), _more_tokens)
def test_tool_calls(seed: int, family: str, choice: str, more: int) -> None:
    random = Random(seed)
    schemas = {
        name: {"type": "object", "properties": {"v": Writer(random, 2020).schema(2)}, "required": ["v"]}
        for name in ("first", "second")
    }
    constraint = hg.ToolCalls(as_tools(schemas), family, choice)

    def problem(text: str) -> str:
        calls = constraint.parse(text).calls
        for call in calls:
            try:
                jsonschema.Draft202012Validator(schemas[call.name]).validate(call.arguments)
            except jsonschema.ValidationError as error:
                return str(error)
        return "" if calls or choice == "auto" else "no call"

    check_served(constraint, more, problem)


@given(st.integers(0, 2**32), _more_tokens)
def test_structural_tags(seed: int, more: int) -> None:
    schema = Writer(Random(seed), 2020).schema(2)
    content = {"type": "json_schema", "json_schema": schema}
    tag = {"type": "tag", "begin": "<answer>", "content": content, "end": "</answer>"}
    constraint = hg.StructuralTag({"type": "structural_tag", "format": tag})
    of_schema = judge(schema)

    def problem(text: str) -> str:
        inside = re.fullmatch(r"<answer>(.*)</answer>", text, re.DOTALL)
        return of_schema(inside[1]) if inside else "no tag"

    check_served(constraint, more, problem)


def test_the_judge_judges() -> None:
    assert judge({"type": "integer"})(json.dumps("x"))
    with pytest.raises(AssertionError):
        check_served(hg.Choice(["a", "b"]), 5, lambda text: "wrong")
