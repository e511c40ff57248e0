"""``extract`` for ``datasets.Dataset.map``: the values of ``hg.generate``, in columns with its types."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any, Literal

import datasets
import pydantic
import pytest

import hf_guided as hg
from hf_guided import demo
from hf_guided.integrations.dataset_features import column_of
from hf_guided.integrations.datasets import extract

LOADING = {"device": "cpu", "dtype": "float64"}


class Contact(pydantic.BaseModel):
    email: str | None = None
    tags: list[Literal["work", "home"]] = pydantic.Field(max_length=2)


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=0, le=120)
    score: float | None
    kind: Literal["guest", "staff"]
    contact: Contact


STRUCT = {
    "name": datasets.Value("string"),
    "age": datasets.Value("int64"),
    "score": datasets.Value("float64"),
    "kind": datasets.Value("string"),
    "contact": {"email": datasets.Value("string"), "tags": datasets.List(datasets.Value("string"))},
}


@pytest.fixture(scope="module", autouse=True)
def silent() -> Any:
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


def rows(count: int = 5) -> datasets.Dataset:
    texts = [demo.EXAMPLES[i % len(demo.EXAMPLES)].prompt for i in range(count)]
    return datasets.Dataset.from_dict({"text": texts, "kind": [i % 2 for i in range(count)]})


def mapped(step: extract, table: datasets.Dataset, **options: Any) -> datasets.Dataset:
    return table.map(step, batched=True, features=step.features(table), load_from_cache_file=False, **options)


def test_values_are_those_of_generate_with_their_types() -> None:
    table = rows()
    step = extract("demo", constraint=Person, column="text", prompt="{}Answer: ", loading=LOADING, max_new_tokens=200)
    answered = mapped(step, table, batch_size=2)
    assert answered.features == {**table.features, "value": STRUCT, "error": datasets.Value("string")}
    import torch

    model, tokenizer = demo.load()
    prompts = [f"{text}Answer: " for text in table["text"]]
    results = hg.generate(model.to(torch.float64), tokenizer, prompts, Person, do_sample=False, max_new_tokens=200)
    for result, found in zip(results, answered, strict=True):
        assert result.value is not None
        assert Person.model_validate(found["value"]) == result.value and found["error"] is None
    shards = mapped(step, table, batch_size=2, num_proc=2)
    assert shards[:] == answered[:], "each process loads the model itself"
    again = mapped(pickle.loads(pickle.dumps(step)), table, batch_size=5)
    assert again[:] == answered[:]


def test_a_model_that_is_loaded_already_and_rows_that_fail() -> None:
    model, tokenizer = demo.load()
    table = datasets.Dataset.from_dict({"text": [demo.EXAMPLES[0].prompt, "", None, demo.EXAMPLES[1].prompt]})
    step = extract(model, tokenizer, ["yes", "no"], column="text", into="answer", errors="why", class_labels=True)
    answered = mapped(step, table)
    assert answered.features["answer"] == datasets.ClassLabel(names=["yes", "no"])
    assert [value is None for value in answered["answer"]] == [False, True, True, False]
    assert [why and why.split(":")[0] for why in answered["why"]] == [None, "PromptError", "PromptError", None]


def test_samples_are_drawn_by_the_numbers_of_rows(tmp_path: Path) -> None:
    step = extract("demo", constraint=Contact, column="text", temperature=1.3, seed=3, loading=LOADING)
    table = rows(4)
    with pytest.raises(hg.InvalidArgument, match="with_indices=True"):
        mapped(step, table)
    answered = mapped(step, table, with_indices=True, batch_size=3)
    assert mapped(step, table, with_indices=True, batch_size=1)["value"][:] == answered["value"][:]
    job = ["--model", "demo", "--device", "cpu", "--dtype", "float64", "--temperature", "1.3", "--seed", "3"]
    (tmp_path / "schema.json").write_text(json.dumps(Contact.model_json_schema()))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in table["text"]))
    job += ["--schema", str(tmp_path / "schema.json"), "--input", str(tmp_path / "rows.jsonl")]
    from hf_guided.cli.batch.__main__ import main

    assert main([*job, "--output", str(tmp_path / "out.jsonl")]) == 0
    found = [json.loads(line)["value"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [value["tags"] for value in answered["value"]] == [value["tags"] for value in found]


def test_a_job_in_parts_continues_and_gives_the_values_of_the_whole(tmp_path: Path) -> None:
    """A program that maps part after part, stopped by an error in the third, and run again."""
    table = rows(7).add_column("row", list(range(7)))
    options: dict[str, Any] = {"column": "text", "temperature": 1.3, "seed": 3, "loading": LOADING}
    step = extract("demo", constraint=Contact, row_column="row", **options)
    answered: list[int] = []

    def program(stops_at: int | None) -> datasets.Dataset:
        def counted(batch: Any) -> Any:
            answered.extend(batch["row"])
            assert stops_at not in batch["row"], "stopped"
            return step(batch)

        parts = [
            table.shard(4, index, contiguous=True).map(
                counted,
                batched=True,
                batch_size=1,
                features=step.features(table),
                cache_file_name=str(tmp_path / f"{index:05d}.arrow"),
            )
            for index in range(4)
        ]
        return datasets.concatenate_datasets(parts)

    with pytest.raises(AssertionError, match="stopped"):
        program(stops_at=5)
    assert answered == [0, 1, 2, 3, 4, 5]
    answered.clear()
    in_parts = program(stops_at=None)
    assert answered == [4, 5, 6], "finished parts are not answered again"
    whole = mapped(extract("demo", constraint=Contact, **options), table, with_indices=True)
    assert in_parts[:] == whole[:]


NODE: dict[str, Any] = {
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
}


@pytest.mark.parametrize(
    ("schema", "feature", "value", "cell"),
    [
        ({"type": "integer"}, "int64", 3, 3),
        ({"type": ["number", "null"]}, "float64", 1, 1),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "bool", True, True),
        ({"enum": [1, 2.5, None]}, "float64", 2.5, 2.5),
        ({"enum": ["a", 1]}, "string", "a", '"a"'),
        ({"type": ["string", "integer"]}, "string", 1, "1"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "string", {"é": 1}, '{"é": 1}'),
        ({"properties": {"a": {}}, "type": "object", "additionalProperties": True}, "string", {"a": 1}, '{"a": 1}'),
        (True, "string", [1], "[1]"),
    ],
)
def test_types_of_columns(schema: Any, feature: str, value: Any, cell: Any) -> None:
    column = column_of(hg.JsonSchema(schema))
    assert column.feature == datasets.Value(feature) and column.cell(value) == cell
    datasets.Features({"value": column.feature}).encode_example({"value": column.cell(value)})


def test_recursion_ends_in_json_and_lists_may_hold_null() -> None:
    column = column_of(hg.JsonSchema(NODE))
    assert column.feature == {"next": datasets.Value("string")}
    assert column.cell({"next": {"next": {}}}) == {"next": '{"next": {}}'}
    lists = column_of(hg.JsonSchema({"type": "array", "items": {"type": ["integer", "null"]}}))
    assert lists.feature == datasets.List(datasets.Value("int64")) and lists.cell([1, None]) == [1, None]


B = {"type": "object", "properties": {"b": {"type": "integer"}}}
A = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    "schema",
    [
        A | {"allOf": [B]},
        A | {"anyOf": [B, {"type": "null"}]},
        {"$defs": {"b": B}, "$ref": "#/$defs/b"} | A,
        A | {"if": {"required": ["a"]}, "then": B},
        A | {"dependentSchemas": {"a": B}},
        A | {"required": ["b"]},
    ],
)
def test_no_member_is_lost_where_a_schema_is_composed(schema: Any) -> None:
    assert column_of(hg.JsonSchema(schema)).cell({"a": 1, "b": 2}) == '{"a": 1, "b": 2}'


def test_a_value_that_its_column_cannot_hold_is_an_error() -> None:
    anchored = {"$defs": {"x": {"$anchor": "b"} | B}, "type": "object", "properties": {"a": {"$ref": "#b"}}}
    assert column_of(hg.JsonSchema(anchored)).cell({"a": {"b": 1}}) == {"a": '{"b": 1}'}
    for schema, value in (
        (A, {"a": 1, "b": 2}),
        ({"type": "number"}, 2**53 + 1),
        ({"type": "number"}, True),
        ({"type": "string"}, 1),
        ({"type": "boolean"}, 1),
        ({"type": "integer"}, "1"),
    ):
        with pytest.raises(hg.InvalidArgument):
            column_of(hg.JsonSchema(schema)).cell(value)
    large = {"type": "number", "minimum": 2**53 + 1, "maximum": 2**53 + 1}
    [found] = mapped(extract("demo", constraint=large, column="text", loading=LOADING), rows(1))
    assert found["value"] is None and "expected a number that 64 bits hold" in found["error"]


def test_columns_are_checked_before_a_model_runs() -> None:
    table = rows(1)
    for names, why in (
        ({"column": "mail"}, "column: no column 'mail'; the columns are text"),
        ({"column": "text", "row_column": "number"}, "row_column: no column 'number'"),
        ({"column": "text", "into": "text"}, "into: expected the name of a new column"),
        ({"column": "text", "errors": "text"}, "errors: expected the name of a new column"),
    ):
        step = extract("no such model", constraint=["a"], temperature=1.0, **names)
        for use in (lambda step=step: step.features(table), lambda step=step: step(table[:])):
            with pytest.raises(hg.InvalidArgument, match=why):
                use()
    with pytest.raises(hg.InvalidArgument, match="into, errors: expected two columns"):
        extract("demo", column="text", into="a", errors="a")
    numbers = datasets.Dataset.from_dict({"text": [3]})
    [found] = mapped(extract("demo", constraint=["a"], column="text", loading=LOADING), numbers)
    assert "expected a text or a list of messages as 'text', got 3" in found["error"]


def test_what_does_not_fit_is_said() -> None:
    table = rows(1)
    step = extract("demo", constraint={"const": 2**70}, column="text", loading=LOADING)
    [found] = mapped(step, table)
    assert found["value"] is None and "expected an integer of 64 bits" in found["error"]
    for arguments, why in (
        ({"model": "demo", "tokenizer": object(), "column": "a"}, "tokenizer: "),
        ({"model": object(), "column": "a"}, "tokenizer: "),
        ({"model": "demo", "column": "a", "prompt": "no place"}, "prompt: "),
        ({"model": "demo", "column": "a", "top_p": 0.5, "temperature": 0}, "top_p: "),
    ):
        with pytest.raises(hg.InvalidArgument, match=why):
            extract(**arguments)
    with pytest.raises(TypeError, match="max_tokens"):
        extract("demo", column="text", max_tokens=3)
