"""The files of a batch job: answers by row number in whole batches, with no row lost or written twice."""

from __future__ import annotations

import argparse
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.cli.batch.arguments import Shard, shard
from hf_guided.cli.batch.formats import format_of, open_table
from hf_guided.cli.batch.job import Job, digest
from hf_guided.cli.batch.lines import Answer
from hf_guided.cli.batch.outputs import Output
from hf_guided.cli.batch.parts import Parts
from hf_guided.cli.batch.places import LocalPlace, place_of
from hf_guided.cli.batch.rows import Rows
from hf_guided.cli.batch.run import identity
from hf_guided.cli.batch.tables import BadRow, JsonLinesTable, Table
from hf_guided.cli.batch.worker import Share
from hf_guided.constraints.json_text import is_json
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import UsageError
from tests.effort import repeats


def make_answer(row: int) -> Answer:
    text = ["plain", "é 日本 \u2028", 'quotes " and \\', "half of a pair \ud83d"][row % 4]
    return Answer(row, row % 3 != 2, {"text": text})


def expected_line(row: int) -> dict:
    return {"row": row} | make_answer(row).line


def write_batch(parts: Parts, *batch: int) -> None:
    writer = parts.writer(0)
    writer.write([make_answer(row) for row in batch])
    writer.close()


def finish(parts: Parts, rows: int) -> tuple[int, int]:
    """Finish a job whose input has no columns to copy."""
    empty = parts.folder.with_name("empty.jsonl")
    empty.touch()
    table = JsonLinesTable(empty)
    try:
        return parts.finish(rows, Output("jsonl", table, ()).write)
    finally:
        table.close()


def begin_job(folder: Path) -> Parts:
    parts = Parts(LocalPlace(folder / "out.jsonl"))
    begin(parts)
    return parts


def begin(parts: Parts, overwrite: bool = False, shard: Shard | None = None) -> None:
    with parts.beginning(overwrite, shard):
        pass


def read(file: Path) -> list[dict]:
    return [json.loads(expected_line) for expected_line in file.read_bytes().splitlines()] if file.exists() else []


@pytest.mark.parametrize("cut", range(0, 150, 3))
def test_job_resumes_from_a_truncated_file(tmp_path: Path, cut: int) -> None:
    parts = begin_job(tmp_path)
    first_writer = parts.writer(0)
    first_writer.write([make_answer(0), make_answer(1)])
    first_writer.write([make_answer(2), make_answer(3)])
    first_writer.close()
    [file] = parts.folder.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut] if cut else whole)
    complete_rows = whole[: len(whole) - cut].count(b"\n")
    locations = parts.locations(4)
    assert [location is not None for location in locations] == [row < complete_rows for row in range(4)]
    missing_batches = list(Share(0, 1).batches(locations, 2))
    assert missing_batches == [batch for batch in (range(2), range(2, 4)) if batch.stop > complete_rows]
    writer = parts.writer(0)
    for batch in missing_batches:
        writer.write([make_answer(row) for row in batch])
    writer.close()
    assert finish(parts, 4) == (3, 1)
    assert read(parts.output.path) == [expected_line(row) for row in (0, 1, 3)]
    assert read(parts.failures.path) == [expected_line(2)]
    assert not parts.folder.exists()


def nested_list(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [None, "half \ud83d", 1.5, {"a": [True, 10**30]}, nested_list(50)])
def test_json_values_survive_the_round_trip(tmp_path: Path, value: object) -> None:
    parts = begin_job(tmp_path)
    assert is_json(value)
    writer = parts.writer(0)
    writer.write([Answer(0, True, {"value": value})])
    writer.close()
    assert finish(parts, 1) == (1, 0)
    assert read(parts.output.path) == [{"row": 0, "value": value}]


@pytest.mark.parametrize(
    "value", [float("nan"), [-float("inf")], {"a": float("1e999")}, re.match("", ""), nested_list(9999)]
)
def test_values_outside_the_json_standard_are_not_json(value: object) -> None:
    assert not is_json(value)


def test_finish_writes_nothing_while_a_row_is_missing(tmp_path: Path) -> None:
    parts = begin_job(tmp_path)
    write_batch(parts, 0, 2)
    with pytest.raises(UsageError, match="1 of 3 rows have no answer yet, the first is 1"):
        finish(parts, 3)
    assert not parts.output.exists() and parts.folder.exists()
    parts.end()


def test_second_run_and_existing_output_are_refused(tmp_path: Path) -> None:
    parts = begin_job(tmp_path)
    other = Parts(parts.output)
    with pytest.raises(UsageError, match="another run is at work"):
        begin(other)
    other.end()
    write_batch(parts, 0)
    finish(parts, 1)
    with pytest.raises(UsageError, match="is there already"):
        begin(Parts(parts.output))
    overwriting = Parts(parts.output)
    begin(overwriting, overwrite=True)
    assert not parts.output.exists() and overwriting.locations(1) == [None]
    overwriting.end()


def test_shards_work_beside_each_other_and_alone_otherwise(tmp_path: Path) -> None:
    whole, first, second, again = (Parts(LocalPlace(tmp_path / "out.jsonl")) for _ in range(4))
    begin(first, shard=Shard(0, 2))
    write_batch(first, 0)
    begin(second, shard=Shard(1, 2))
    with pytest.raises(UsageError, match="another run answers the shard 0/2"):
        begin(again, shard=Shard(0, 2))
    again.end()
    with pytest.raises(UsageError, match="another run is at work"):
        begin(whole)
    whole.end()
    write_batch(second, 1)
    first.end()
    begin(first, shard=Shard(0, 2))  # stopped, and started again
    assert [location is not None for location in first.locations(2)] == [True, True]
    first.end()
    second.end()
    begin(whole)
    with pytest.raises(UsageError, match="another run is at work"):
        begin(first, shard=Shard(0, 2))
    first.end()
    assert finish(whole, 2) == (2, 0)


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "a/b", "0/0", "1/2/3", "0 /2"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    assert shard("1/2") == Shard(1, 2)
    with pytest.raises(argparse.ArgumentTypeError, match="expected I/N"):
        shard(text)


def test_a_shard_that_begins_alone_may_correct_what_was_agreed_on(tmp_path: Path) -> None:
    parts = Parts(LocalPlace(tmp_path / "out.jsonl"))
    with parts.beginning(overwrite=False, shard=Shard(0, 2)):
        (parts.folder / "job.json").write_text("{}")
    other = Parts(LocalPlace(tmp_path / "out.jsonl"))
    begin(other, shard=Shard(1, 2))
    assert (parts.folder / "job.json").exists(), "two runs are at work, so it stays"
    other.end()
    parts.end()
    begin(other, shard=Shard(1, 2))
    assert not (parts.folder / "job.json").exists()
    other.end()


def test_answers_for_another_machine_are_kept_here_until_all_are_there(tmp_path: Path) -> None:
    place = place_of(f"memory://{tmp_path.name}/out.jsonl")
    parts = Parts(place, tmp_path)
    assert parts.folder.parent == tmp_path
    begin(parts)
    write_batch(parts, 0, 1)
    assert not place.exists()
    assert finish(parts, 2) == (2, 0)
    assert read(place.fetch(tmp_path)) == [expected_line(0), expected_line(1)]
    with pytest.raises(UsageError, match="is there already"):
        begin(Parts(place, tmp_path))
    overwriting = Parts(place, tmp_path)
    begin(overwriting, overwrite=True)
    assert not place.exists()
    overwriting.end()
    other = Parts(place_of(f"memory://{tmp_path.name}/elsewhere/out.jsonl"), tmp_path)
    assert other.folder != parts.folder
    with pytest.raises(UsageError, match="--output: memory://.* is the input"):
        parts.check_apart(place_of(f"memory://{tmp_path.name}/out.jsonl"))


def test_what_is_in_the_way_of_answers_on_another_machine(tmp_path: Path) -> None:
    files, name = MemoryFileSystem(), tmp_path.name
    failures = Parts(place_of(f"memory://{name}/out/"), tmp_path).failures
    assert str(failures) == f"memory://{name}/out.failures"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("out.jsonl", "")
    with pytest.raises(UsageError, match="ends with the name"):
        Parts(place_of(f"zip://out.jsonl::{tmp_path / 'a.zip'}"), tmp_path)
    files.pipe(f"/{name}/mine/notes.txt", b"dear")
    for output in (f"memory://{name}/mine", f"memory://{name}"):  # --overwrite would delete all of it
        with pytest.raises(UsageError, match="expected a name for the answers, got the folder"):
            Parts(place_of(output), tmp_path)
    for saved in ("state.json", "dataset_info.json", "data-00000-of-00001.arrow"):
        files.pipe(f"/{name}/saved/{saved}", b"{}")
    parts = Parts(place_of(f"memory://{name}/saved"), tmp_path)
    begin(parts, overwrite=True)
    assert not files.exists(f"/{name}/saved") and files.exists(f"/{name}/mine/notes.txt")
    parts.end()
    with pytest.raises(UsageError, match="is the input"):
        Parts(place_of(f"memory://{name}/a.jsonl"), tmp_path).check_apart(place_of(f"memory:///{name}/a.jsonl"))


def test_a_url_of_this_machine_is_a_path(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}")
    place = place_of(rows.as_uri())
    assert isinstance(place, LocalPlace) and place.path == rows
    with pytest.raises(UsageError, match="is the input"):
        Parts(place).check_apart(place_of(str(rows)))
    assert Parts(place).folder.parent == tmp_path


def test_a_storage_that_fails_at_the_end_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(place_of(f"memory://{tmp_path.name}/out.jsonl"), tmp_path)
    begin(parts)
    write_batch(parts, 0)
    with monkeypatch.context() as broken:
        broken.setattr(MemoryFileSystem, "put_file", lambda *a, **k: 1 / 0)
        with pytest.raises(OSError, match="cannot reach memory://.*division by zero"):
            finish(parts, 1)
    parts.end()
    begin(parts)
    assert finish(parts, 1) == (1, 0)


@pytest.mark.parametrize(
    "url, why", [("nothing://a/b.jsonl", "nothing://a/b.jsonl: "), ("memory://no/rows.jsonl", "FileNotFoundError")]
)
def test_a_url_that_cannot_be_read_says_so(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"cannot reach {url}.*|{why}"):
        place_of(url).fetch(tmp_path)


def test_kill_during_finish_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = begin_job(tmp_path)
    write_batch(parts, *range(6))
    replace, moved = Path.replace, []

    def replace_once(file: Path, target: Path) -> Path:
        if moved:
            raise KeyboardInterrupt
        moved.append(target)
        return replace(file, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace_once)
        with pytest.raises(KeyboardInterrupt):
            finish(parts, 6)
    parts.end()
    resumed = begin_job(tmp_path)
    assert not list(Share(0, 1).batches(resumed.locations(6), 2))
    assert finish(resumed, 6) == (4, 2)
    assert read(resumed.output.path) + read(resumed.failures.path) == [expected_line(row) for row in (0, 1, 3, 4, 2, 5)]


@settings(max_examples=repeats(66, 200), deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 7), st.data())
def test_each_missing_batch_is_assigned_to_one_process(
    rows: int, size: int, processes: int, data: st.DataObject
) -> None:
    done = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    locations = [object() if is_done else None for is_done in done]
    shares = [list(Share(i, processes).batches(locations, size)) for i in range(processes)]
    batches = sorted((batch for share in shares for batch in share), key=lambda batch: batch.start)
    all_batches = [range(first, min(first + size, rows)) for first in range(0, rows, size)]
    assert batches == [batch for batch in all_batches if not all(done[row] for row in batch)]


def test_blank_lines_are_not_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(
        b'\n{"prompt": "\xc3\xa9"}\r\n  \n{"prompt": 5}\n[1]\n{"prompt"\n\xff\n{"text": "x"}\n'
        b'{"prompt": "x", "schema": {"type": "null"}}'
    )
    rows = Rows(JsonLinesTable(file), "prompt", "schema", "documents", hg.Choice(["a"]), chat=True)
    assert len(rows) == 7
    first = rows.request(0)
    assert first.prompt == [{"role": "user", "content": "é"}] and first.constraint == hg.Choice(["a"])
    with pytest.raises(BadRow, match="list of messages as 'prompt', got 5"):
        rows.request(1)
    for row, why in (2, "JSON object, got list"), (3, "line of JSON"), (4, "line of JSON"):
        with pytest.raises(BadRow, match=why):
            rows.request(row)
    with pytest.raises(BadRow, match="fields there are: 'text'"):
        rows.request(5)
    last = rows.request(6)
    assert last.constraint == hg.JsonSchema({"type": "null"})
    rows.close()


def make_job(rows: Path) -> Job:
    return Job(
        model="demo",
        tokenizer=None,
        revision=None,
        tokenizer_revision=None,
        quantization=None,
        input_digest=digest(rows),
        constraint="Choice",
        batch_size=8,
        max_new_tokens=64,
        temperature=None,
        top_p=None,
        seed=0,
        backend="auto",
        dtype="auto",
        chat=False,
        prompt_column="p",
        constraint_column=None,
        documents_column="d",
        columns=["a"],
        input_format="jsonl",
        output_format="csv",
        describe=False,
        chat_template_kwargs={},
    )


@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_folder_is_not_deleted(tmp_path: Path, overwrite: bool) -> None:
    for name in ("out", "out.failures"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "thesis.txt").write_text("years of work")
        with pytest.raises(UsageError, match="expected a name for the answers, got the folder"):
            begin(Parts(LocalPlace(tmp_path / "out")), overwrite)
        assert (folder / "thesis.txt").read_text() == "years of work"
        (folder / "thesis.txt").unlink()
        folder.rmdir()


def test_constraints_with_equal_repr_have_different_identities() -> None:
    schema = {"type": "object", "properties": {f"property_{i}": {"type": "string"} for i in range(20)}}
    optional, required = JsonSchema(schema), JsonSchema({**schema, "required": ["property_19"]})
    assert repr(optional) == repr(required) and identity(optional) != identity(required)
    assert identity(optional) != identity(JsonSchema(schema, max_depth=3)) and identity(None) != identity(optional)


def test_resuming_with_other_arguments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("x")
    job = make_job(tmp_path / "rows")
    job.agree(tmp_path / "job.json")
    job.agree(tmp_path / "job.json")
    (tmp_path / "rows").write_text("y")
    other = replace(make_job(tmp_path / "rows"), temperature=0.7)
    with pytest.raises(UsageError, match=r"the content of --input has changed; temperature was None, is 0\.7"):
        other.agree(tmp_path / "job.json")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", "prompt,id\nHi,1\nHo,2\n", r"line 1 looks like the header of CSV: 'prompt,id'.*--format csv"),
        ("rows.jsonl", "\n\ufeffprompt\nHi\n", "line 2 looks like the header of CSV: 'prompt'.*--format csv"),
        ("rows.jsonl", '"the prompt","id"\n"Hi, you",1\n', "line 1 looks like the header of CSV.*--format csv"),
        ("rows.jsonl", '[\n  {"prompt": "Hi"}\n]\n', r"line 1 is '\[', JSON over several lines; write one"),
        ("rows.csv", '{"prompt": "Hi, you", "id": 1}\n{"prompt": "Ho"}\n', "line 1 is JSON: .*--format jsonl"),
        ("rows.csv", '\ufeff[{"prompt": "Hi"}]\n', "line 1 is JSON: .*--format jsonl"),
    ],
)
def test_error_for_a_wrong_format_names_the_line_and_the_option(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        open_table(file, format_of(file, None, "--input"), [])


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("rows.jsonl", 'broken, row\n{"prompt": "Hi"}\n', 2),
        ("rows.jsonl", '{"prompt": \n{"prompt": "Hi"}\n', 2),
        ("rows.jsonl", '"Hi"\n"Ho"\n', 2),
        ("rows.jsonl", '\n\n{"prompt": "Hi"}\n\n{"prompt": "Ho"}\n', 2),
        ("rows.jsonl", "", 0),
        ("rows.csv", '"{x}",id\nHi,1\n', 1),
        ("rows.csv", "prompt\nHi\n{}\n", 2),
    ],
)
def test_malformed_row_does_not_affect_other_rows(tmp_path: Path, name: str, content: str, rows: int) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    table = open_table(file, format_of(file, None, "--input"), [])
    assert len(table) == rows
    if '{"prompt": "Hi"}' in content:
        assert {"prompt": "Hi"} in [fields_or_none(table, row) for row in range(rows)]
    table.close()


def fields_or_none(table: Table, row: int) -> dict | None:
    try:
        return table.fields(row)
    except BadRow:
        return None
