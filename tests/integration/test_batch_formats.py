"""Data sets as JSONL, CSV, Parquet and folders of datasets: what goes in, what comes out, and what is refused."""

from __future__ import annotations

import csv
import datetime
import importlib.util
import json
import re
import shutil
import struct
import sys
from pathlib import Path
from typing import Any

import datasets
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_guided.checkpoints import load as model_source
from hf_guided.cli import commands as cli
from hf_guided.cli.batch.formats import ENDINGS, open_table
from hf_guided.cli.batch.tables import BadRow
from hf_guided.generation.row_answers import RowAnswers
from tests.integration.test_batch import kill_at_work

FORMATS = ("jsonl", "csv", "parquet", "datasets")
ROWS = [
    {"id": "a", "prompt": "first", "number": 3, "label": 'yes, "no"\nand é'},
    {"id": "b", "prompt": "second", "number": -1, "label": ""},
    {"id": "c", "prompt": "", "number": 7, "label": "its prompt is empty"},
    {"id": "d", "prompt": "fourth\nin two lines", "number": 0, "label": "日本"},
]


def ending(name: str) -> str:
    return next(ending for ending, format_name in ENDINGS.items() if format_name == name)


def save(rows: list[dict[str, Any]], folder: Path, format_name: str) -> Path:
    """By other libraries than those that read it here, where there is one."""
    path = folder / f"rows{ending(format_name)}"
    frame = pandas.DataFrame(rows)
    if format_name == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif format_name == "csv":
        frame.to_csv(path, index=False)
    elif format_name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    else:
        datasets.Dataset.from_list(rows).save_to_disk(path, num_shards=2)
    return path


def load(path: Path, format_name: str) -> list[dict[str, Any]]:
    if format_name == "jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if format_name == "csv":
        return pandas.read_csv(path, keep_default_na=False).to_dict("records")
    if format_name == "parquet":
        return pandas.read_parquet(path).to_dict("records")
    return datasets.load_from_disk(path).to_list()


def arguments(source: Path, target: Path, *more: str) -> list[str]:
    given = ["batch", "--model", "demo", "--device", "cpu", "--input", str(source), "--output", str(target)]
    return [*given, "--regex", "[a-z]{3}", "--batch-size", "3", *more]


@pytest.mark.parametrize(("source", "target"), [*zip(FORMATS, (*FORMATS[1:], "jsonl"), strict=True), ("csv", "csv")])
def test_every_format_in_and_out(source: str, target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = save(ROWS, tmp_path, source)
    out = tmp_path / f"out{ending(target)}"
    assert cli.main(arguments(rows, out, "--columns", "id", "number", "label")) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == 1
    done, failed = load(out, target), load(tmp_path / f"out.failures{ending(target)}", target)
    text = str if source == "csv" and target != "csv" else lambda value: value  # CSV has nothing but texts
    for found, expected in zip([*done, *failed], [ROWS[i] for i in (0, 1, 3, 2)], strict=True):
        assert found["row"] == ROWS.index(expected)
        assert (found["id"], found["label"]) == (expected["id"], expected["label"])
        assert found["number"] == text(expected["number"])
    for found in done:
        assert len(found["text"]) == 3 and found["finish_reason"] == "stop" and found["tokens"] >= 1
        assert found["shortened"] is False
        assert found["thinking_cut"] is False
    assert "prompt" in failed[0]["error"]


def test_a_format_may_be_named(tmp_path: Path) -> None:
    save(ROWS, tmp_path, "csv").rename(tmp_path / "rows.txt")
    named = ("--input-format", "csv", "--output-format", "jsonl")
    assert cli.main(arguments(tmp_path / "rows.txt", tmp_path / "answers", *named)) == 0
    assert cli.main(arguments(tmp_path / "rows.txt", tmp_path / "answers.txt", "--format", "csv")) == 0
    texts = [row["text"] for row in load(tmp_path / "answers", "jsonl")]
    assert texts == [row["text"] for row in load(tmp_path / "answers.txt", "csv")] and len(texts) == 3


def test_columns_keep_their_types(tmp_path: Path) -> None:
    when = datetime.datetime(2024, 2, 29, 12, 30, 0, 123456)
    rows = [{"text in": f"row {i}", "when": when, "bytes": b"\xff", "nested": {"a": [i]}} for i in range(5)]
    table = pa.Table.from_pylist(rows)
    table = table.append_column("kind", pa.array(["x", "y", "x", "y", "x"]).dictionary_encode())
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    columns = ["when", "bytes", "nested", "kind"]
    given = ("--prompt-column", "text in", "--columns", *columns)
    assert cli.main(arguments(tmp_path / "rows.parquet", tmp_path / "out.parquet", *given)) == 0
    out = pq.read_table(tmp_path / "out.parquet")
    for name in columns:
        assert out.schema.field(name).type == table.schema.field(name).type
        assert out[name].to_pylist() == table[name].to_pylist()
    assert out.column_names == [
        "row",
        *columns,
        "text",
        "value",
        "finish_reason",
        "tokens",
        "shortened",
        "thinking_cut",
        "log_mass",
    ]
    assert out["value"].to_pylist() == [None] * 5, "the match of a pattern is no JSON"

    features = datasets.Features(
        {"prompt": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    saved = datasets.Dataset.from_dict({"prompt": ["a", "b"], "label": [1, 0]}, features=features)
    saved.save_to_disk(tmp_path / "saved")
    assert cli.main(arguments(tmp_path / "saved", tmp_path / "out", "--columns", "label")) == 0
    found = datasets.load_from_disk(tmp_path / "out")
    assert found.features["label"] == features["label"] and found["label"][:] == [1, 0]


def damaged(folder: Path, way: str) -> Path:
    """A Parquet file of six rows of which some cannot be read: a value that is no UTF-8, or a page."""
    file = folder / "rows.parquet"
    texts = [f"prompt {number}" for number in range(6)]
    if way == "a value":
        data, offsets = b"a" * 3 + b"\xff" + b"a" * 2, struct.pack("<7i", *range(7))
        column = pa.Array.from_buffers(pa.string(), 6, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        pq.write_table(pa.table({"prompt": column}), file)
        return file
    pq.write_table(pa.table({"prompt": texts}), file, row_group_size=2, compression="snappy", use_dictionary=False)
    column = pq.ParquetFile(file).metadata.row_group(1).column(0)
    content = bytearray(file.read_bytes())
    end = column.data_page_offset + column.total_compressed_size
    content[end - 12 : end] = b"\xff" * 12
    file.write_bytes(content)
    return file


@pytest.mark.parametrize(("way", "bad"), [("a value", [3]), ("a page", [2, 3])])
def test_damage_costs_its_own_rows(way: str, bad: list[int], tmp_path: Path) -> None:
    assert cli.main(arguments(damaged(tmp_path, way), tmp_path / "out.jsonl")) == 0
    done, failed = load(tmp_path / "out.jsonl", "jsonl"), load(tmp_path / "out.failures.jsonl", "jsonl")
    assert [row["row"] for row in failed] == bad and all("cannot be read" in row["error"] for row in failed)
    assert [row["row"] for row in done] == [number for number in range(6) if number not in bad]


def test_columns_of_json_become_types_where_all_rows_agree(tmp_path: Path) -> None:
    values = {
        "flag": [True, None, False],
        "whole": [1, -(2**63), 2**63 - 1],
        "large": [1, 2**63, 0],
        "real": [0.5, None, 1e300],
        "text": ["a", "", "half \ud83d"],
        "mixed": ["a", 1, [None, {"b": 2}]],
        "sometimes": [None, None, "x"],
        "empty": [None, None, None],
    }
    lines = [{"prompt": "p"} | {f"c_{name}": column[i] for name, column in values.items()} for i in range(3)]
    del lines[0]["c_sometimes"]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = ("--columns", *(f"c_{name}" for name in values))
    assert cli.main(arguments(tmp_path / "rows.jsonl", tmp_path / "out.parquet", *given)) == 0
    out = pq.read_table(tmp_path / "out.parquet")
    types = {name: str(out.schema.field(f"c_{name}").type) for name in values}
    assert types == {"flag": "bool", "whole": "int64", "real": "double"} | dict.fromkeys(
        ("large", "text", "mixed", "sometimes", "empty"), "string"
    )
    for name in ("flag", "whole", "real", "sometimes", "empty"):
        assert out[f"c_{name}"].to_pylist() == values[name]
    assert out["c_text"].to_pylist() == ["a", "", "half \\ud83d"], "UTF-8 has no half of a pair"
    assert out["c_large"].to_pylist() == ["1", str(2**63), "0"]
    assert out["c_mixed"].to_pylist() == ["a", "1", '[null, {"b": 2}]']


@pytest.mark.parametrize("list_of", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2)])
def test_chats_in_a_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, list_of: Any) -> None:
    hi = {"role": "user", "content": "hi"}
    chats = [[hi, hi], [hi, {"role": "assistant", "content": None, "name": "x"}]]
    column = pa.array(chats)
    column = column.cast(list_of(column.type.value_type))
    pq.write_table(pa.table({"chat": column}), tmp_path / "rows.parquet")
    received = []

    def answer(self: Any, requests: Any, rows: Any) -> Any:
        received.extend(request.prompt for request in requests)
        return [ValueError("not answered")] * len(requests)

    monkeypatch.setattr(RowAnswers, "answer", answer)
    given = arguments(tmp_path / "rows.parquet", tmp_path / "none.jsonl", "--prompt-column", "chat")
    assert cli.main(given) == 0
    assert received == chats, "no key that Arrow has put in"


def test_constraints_in_a_column(tmp_path: Path) -> None:
    own = [None, json.dumps({"enum": ["only this"]})]
    pq.write_table(pa.table({"prompt": ["a", "b"], "response_format": own}), tmp_path / "rows.parquet")
    assert cli.main(arguments(tmp_path / "rows.parquet", tmp_path / "out.jsonl")) == 0
    first, second = load(tmp_path / "out.jsonl", "jsonl")
    assert len(first["text"]) == 3 and second["value"] == "only this"
    (tmp_path / "rows.csv").write_text('prompt,response_format\na,\nb,"{""type"": ""null""}"\n')
    assert cli.main(arguments(tmp_path / "rows.csv", tmp_path / "out.csv")) == 0
    assert [row["text"] for row in load(tmp_path / "out.csv", "csv")] == [first["text"], "null"]


def test_csv_is_read_as_python_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    content = '\ufeffprompt,"a ""b"""\r\n"x\r\ny",1\r\n\r\nz,"2,3"\nshort\n"' + "long" * 50_000 + '",é'
    file.write_bytes(content.encode())
    table = open_table(file, "csv")
    with file.open(encoding="utf-8-sig", newline="") as stream:
        header, *expected = [row for row in csv.reader(stream) if row]
    rows = list(table.rows([]))
    assert table.names() == header == ["prompt", 'a "b"'] and table.length == len(rows) == len(expected) == 4
    bad = rows.pop(2), expected.pop(2)
    assert isinstance(bad[0], BadRow) and str(bad[0]) == "expected 2 values, as the header has, got 1"
    assert rows == [dict(zip(header, values, strict=True)) for values in expected]


def test_csv_keeps_every_character(tmp_path: Path) -> None:
    texts = ["a\tb,c", "\r", "a\rb", "a\r\nb\n", ' "', "'", "\u2028", ""]
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.csv"
    source.write_text("".join(json.dumps({"prompt": "x", "id": text}) + "\n" for text in texts))
    assert cli.main(arguments(source, target)) == 0
    with target.open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == texts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ["--input", "{folder}/rows.txt"],
            r"--input .*rows.txt: the ending '.txt' is none of .jsonl, .* --input-format",
        ),
        (["--output", "{folder}/out.xlsx"], "--output-format jsonl|csv|parquet|datasets"),
        (["--input-format", "parquet"], "cannot read .*rows.csv as parquet: "),
        (["--input-format", "datasets"], "cannot read .*rows.csv as datasets: "),
        (["--input", "{folder}/not.parquet"], "cannot read .*not.parquet as parquet: "),
        (["--input", "{folder}/binary.csv"], "cannot read .*binary.csv as csv: .*utf-8"),
        (["--input", "{folder}/empty.csv"], "expected a header"),
        (["--input", "{folder}/twice.csv"], "has a name twice"),
        (["--input", "{folder}/twice.parquet"], "a name stands for two columns: prompt, prompt"),
        (["--input", "{folder}"], "cannot read .* as datasets: .*neither"),
        (["--input", "{folder}/splits"], "has the splits train, test; give the folder of one"),
        (["--prompt-column", "question"], "--prompt-column question: no such column; the columns are prompt, number"),
        (["--constraint-column", "schema"], "--constraint-column schema: no such column"),
        (["--columns", "number", "when"], "--columns when: no such column"),
        (["--input", "{folder}/taken.csv", "--columns", "text", "tokens"], "--columns text, tokens: answers have"),
        (["--input", "{folder}/rows.jsonl", "--prompt-column", "question"], "--prompt-column question: no such column"),
        (["--input", "{folder}/typed.parquet", "--prompt-column", "when"], "expected texts or lists of messages, got"),
        (["--input", "{folder}/typed.parquet", "--constraint-column", "nested"], "expected JSON as text, got a column"),
        (["--input", "{folder}/typed.parquet", "--columns", "when"], "--columns when: JSON and CSV have no timestamp"),
        (
            ["--input", "{folder}/typed.parquet", "--columns", "pairs", "--output-format", "datasets"],
            "--columns pairs: Arrow type map.* write Parquet, or drop it",
        ),
    ],
)
def test_mistakes_are_found_before_a_model_is_loaded(
    change: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_source.ModelSource, "load", None)
    (tmp_path / "rows.csv").write_text("prompt,number\nx,1\n")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "x"}\n{"prompt": "y", "number": 1}\n')
    (tmp_path / "taken.csv").write_text("prompt,text,tokens\nx,1,2\n")
    (tmp_path / "rows.txt").write_text("prompt\nx\n")
    (tmp_path / "not.parquet").write_text("prompt\nx\n")
    (tmp_path / "binary.csv").write_bytes(b"prompt\n\xff\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "twice.csv").write_text("prompt,a,a\nx,1,2\n")
    pq.write_table(pa.table([["a"], ["b"]], names=["prompt", "prompt"]), tmp_path / "twice.parquet")
    typed = {"prompt": ["x"], "when": [datetime.datetime(2024, 1, 1)], "nested": [{"type": "null"}]}
    pairs = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table(typed).append_column("pairs", pairs), tmp_path / "typed.parquet")
    split = datasets.Dataset.from_dict({"prompt": ["x"]})
    datasets.DatasetDict({"train": split, "test": split}).save_to_disk(tmp_path / "splits")
    capsys.readouterr()
    given = [argument.format(folder=tmp_path) for argument in change]
    assert cli.main([*arguments(tmp_path / "rows.csv", tmp_path / "out.csv"), *given]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("hf-guided batch: error: ")
    assert re.search(message, line), line
    assert not (tmp_path / "out.csv.parts").exists()


@pytest.mark.parametrize(("format_name", "package"), [("parquet", "pyarrow"), ("datasets", "datasets")])
def test_a_missing_package_is_named_with_its_extra(
    format_name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("hf_guided.cli.batch.formats.find_spec", lambda name: None if name == package else find(name))
    rows = save(ROWS, tmp_path, "csv")
    assert cli.main(arguments(rows, tmp_path / f"out{ending(format_name)}")) == 2
    message = capsys.readouterr().err
    assert f"needs the package {package}" in message and "pip install 'hf-guided[data]'" in message
    assert not list(tmp_path.glob("out*"))


def test_a_folder_that_is_no_data_set_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = save(ROWS[:1], tmp_path, "csv")
    target = tmp_path / "out"
    assert cli.main(arguments(rows, target)) == 0
    assert cli.main(arguments(rows, target)) == 2
    assert "is there already" in capsys.readouterr().err
    assert cli.main(arguments(rows, target, "--overwrite")) == 0
    assert len(load(target, "datasets")) == 1
    (target / "my notes").write_text("keep")
    assert cli.main(arguments(rows, target, "--overwrite")) == 2
    assert "got the folder" in capsys.readouterr().err
    assert (target / "my notes").read_text() == "keep"


def test_an_empty_data_set(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("prompt\n")
    for name in FORMATS:
        out = tmp_path / f"out{ending(name)}"
        assert cli.main(arguments(tmp_path / "rows.csv", out)) == 0
        assert load(out, name) == []
    assert not list(tmp_path.glob("*failures*"))


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in ([path] if path.is_file() else path.iterdir())}


@pytest.mark.slow  # the test below, and those of parts, have kills at every point
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_job_killed_twice_ends_in_the_same_bytes(format_name: str, tmp_path: Path) -> None:
    prompts = [{"id": i, "prompt": ROWS[i % 4]["prompt"] + str(i)} for i in range(150)]
    source = save(prompts, tmp_path, format_name)
    target = tmp_path / f"out{ending(format_name)}"
    given = arguments(source, target, "--temperature", "2", "--seed", "5")
    parts = tmp_path / f"{target.name}.parts"
    for _ in range(2):
        kill_at_work([sys.executable, "-m", "hf_guided", *given], parts, 150)
        assert not target.exists()
    assert cli.main(given) == 0
    assert not parts.exists()
    (tmp_path / "whole").mkdir()
    whole = tmp_path / "whole" / target.name
    assert cli.main(arguments(source, whole, "--temperature", "2", "--seed", "5")) == 0
    assert content(target) == content(whole)
    assert len(load(target, format_name)) == 150


@pytest.mark.parametrize("format_name", ["parquet", "datasets"])
@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_kill_while_the_outputs_are_made_loses_nothing(
    format_name: str, moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(ROWS, tmp_path, "csv")
    target = tmp_path / f"out{ending(format_name)}"
    replace, delete, moved = Path.replace, shutil.rmtree, []

    def killed(file: Path, to: Path) -> Path:
        if not to.name.startswith("out"):
            return replace(file, to)  # of the job, when it begins
        if len(moved) == moves:
            raise KeyboardInterrupt
        moved.append(to)
        return replace(file, to)

    def killed_at_the_end(folder: Path, **options: Any) -> None:
        if Path(folder).suffix == ".parts":
            raise KeyboardInterrupt
        delete(folder, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        if moves == 2:
            patch.setattr("shutil.rmtree", killed_at_the_end)
        assert cli.main(arguments(source, target)) == 130
    assert cli.main(arguments(source, target)) == 0
    (tmp_path / "whole").mkdir()
    assert cli.main(arguments(source, tmp_path / "whole" / target.name)) == 0
    for name in (target.name, f"out.failures{target.suffix}"):
        assert content(tmp_path / name) == content(tmp_path / "whole" / name)
