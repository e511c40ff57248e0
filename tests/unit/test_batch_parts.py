"""The files of a batch job: answers by row number in whole batches, with no row lost or written twice."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import zipfile
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.cli.batch.arguments import Shard, add_arguments, shard
from hf_guided.cli.batch.formats import format_of, open_table
from hf_guided.cli.batch.parts import Answer, Parts
from hf_guided.cli.batch.places import Place
from hf_guided.cli.batch.run import identity, request_of
from hf_guided.cli.batch.tables import BadRow, write_lines
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
    with parts.writer(0) as write:
        write([make_answer(row) for row in batch])


def finish(parts: Parts, rows: int) -> int:
    """Finish a job whose input has no columns to copy."""
    source = parts.folder.with_name("rows.jsonl")
    source.write_text("{}\n" * rows)
    table = open_table(source, "jsonl")
    return parts.finish(rows, lambda path, answers, done: write_lines(path, table, (), answers, (), as_csv=False))


def begin_job(folder: Path) -> Parts:
    parts = Parts(Place(str(folder / "out.jsonl")))
    begin(parts)
    return parts


def begin(parts: Parts, overwrite: bool = False, shard: Shard | None = None) -> None:
    with parts.beginning(overwrite, shard):
        pass


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize("cut", range(0, 150, 3))
def test_job_resumes_from_a_truncated_file(tmp_path: Path, cut: int) -> None:
    parts = begin_job(tmp_path)
    with parts.writer(0) as write:
        write([make_answer(0), make_answer(1)])
        write([make_answer(2), make_answer(3)])
    [file] = parts.folder.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut] if cut else whole)
    complete_rows = whole[: len(whole) - cut].count(b"\n")
    assert parts.answered(4) == set(range(complete_rows))
    missing_batches = Shard(0, 1).batches(4, 2, parts.answered(4))
    assert missing_batches == [batch for batch in (range(2), range(2, 4)) if batch.stop > complete_rows]
    with parts.writer(0) as write:
        for batch in missing_batches:
            write([make_answer(row) for row in batch])
    assert finish(parts, 4) == 1
    assert read(parts.output.path) == [expected_line(row) for row in (0, 1, 3)]
    assert read(parts.failures.path) == [expected_line(2)]
    assert not parts.folder.exists()


def test_job_has_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    """Each process of each run has one."""
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    parts = begin_job(tmp_path)
    for row in range(200):
        write_batch(parts, row)
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 50, most))
    try:
        assert finish(parts, 200) == 66
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def nested_list(levels: int) -> list:
    value: list = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [None, "half \ud83d", 1.5, {"a": [True, 10**30]}, nested_list(50)])
def test_json_values_survive_the_round_trip(tmp_path: Path, value: object) -> None:
    parts = begin_job(tmp_path)
    assert is_json(value)
    with parts.writer(0) as write:
        write([Answer(0, True, {"value": value})])
    assert finish(parts, 1) == 0
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


def test_shards_work_beside_each_other_and_alone_otherwise(tmp_path: Path) -> None:
    whole, first, second, again = (Parts(Place(str(tmp_path / "out.jsonl"))) for _ in range(4))
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
    assert first.answered(2) == {0, 1}
    first.end()
    second.end()
    begin(whole)
    with pytest.raises(UsageError, match="another run is at work"):
        begin(first, shard=Shard(0, 2))
    first.end()
    assert finish(whole, 2) == 0


@pytest.mark.parametrize("text", ["", "1", "2/2", "-1/2", "a/b", "0/0", "1/2/3", "0 /2"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    assert shard("1/2") == Shard(1, 2)
    with pytest.raises(argparse.ArgumentTypeError, match="expected I/N"):
        shard(text)


def test_a_shard_that_begins_alone_may_correct_what_was_agreed_on(tmp_path: Path) -> None:
    parts = Parts(Place(str(tmp_path / "out.jsonl")))
    with parts.beginning(overwrite=False, shard=Shard(0, 2)):
        (parts.folder / "job.json").write_text("{}")
    other = Parts(Place(str(tmp_path / "out.jsonl")))
    begin(other, shard=Shard(1, 2))
    assert (parts.folder / "job.json").exists(), "two runs are at work, so it stays"
    other.end()
    parts.end()
    begin(other, shard=Shard(1, 2))
    assert not (parts.folder / "job.json").exists()
    other.end()


def test_answers_for_another_machine_are_kept_here_until_all_are_there(tmp_path: Path) -> None:
    place = Place(f"memory://{tmp_path.name}/out.jsonl")
    parts = Parts(place, tmp_path)
    assert parts.folder.parent == tmp_path
    assert Parts(Place(f"memory://{tmp_path.name}/elsewhere/out.jsonl"), tmp_path).folder != parts.folder
    begin(parts)
    write_batch(parts, 0, 1)
    assert not place.exists()
    assert finish(parts, 2) == 0
    assert place.exists()
    begin(parts, overwrite=True)
    assert not place.exists()
    parts.end()


def test_what_is_in_the_way_of_answers_on_another_machine(tmp_path: Path) -> None:
    files, name = MemoryFileSystem(), tmp_path.name
    failures = Parts(Place(f"memory://{name}/out/"), tmp_path).failures
    assert str(failures) == f"memory://{name}/out.failures"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("out.jsonl", "")
    with pytest.raises(UsageError, match="ends with the name"):
        Parts(Place(f"zip://out.jsonl::{tmp_path / 'a.zip'}"), tmp_path)
    files.pipe(f"/{name}/mine/notes.txt", b"dear")
    for output in (f"memory://{name}/mine", f"memory://{name}"):  # --overwrite would delete all of it
        with pytest.raises(UsageError, match="expected a name for the answers, got the folder"):
            Parts(Place(output), tmp_path)
    for saved in ("state.json", "dataset_info.json", "data-00000-of-00001.arrow"):
        files.pipe(f"/{name}/saved/{saved}", b"{}")
    parts = Parts(Place(f"memory://{name}/saved"), tmp_path)
    begin(parts, overwrite=True)
    assert not files.exists(f"/{name}/saved") and files.exists(f"/{name}/mine/notes.txt")
    parts.end()
    with pytest.raises(UsageError, match="is the input"):
        Parts(Place(f"memory://{name}/a.jsonl"), tmp_path).check_apart(Place(f"memory:///{name}/a.jsonl"))


def test_a_url_of_this_machine_is_a_path(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}")
    place = Place(rows.as_uri())
    assert place.local == rows
    with pytest.raises(UsageError, match="is the input"):
        Parts(place).check_apart(Place(str(rows)))
    assert Parts(place).folder.parent == tmp_path


def test_a_storage_that_fails_at_the_end_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(Place(f"memory://{tmp_path.name}/out.jsonl"), tmp_path)
    begin(parts)
    write_batch(parts, 0)
    with monkeypatch.context() as broken:
        broken.setattr(MemoryFileSystem, "put_file", lambda *a, **k: 1 / 0)
        with pytest.raises(OSError, match="cannot reach memory://.*division by zero"):
            finish(parts, 1)
    parts.end()
    begin(parts)
    assert finish(parts, 1) == 0


@settings(max_examples=repeats(66, 200), deadline=None)
@given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 7), st.data())
def test_each_missing_batch_is_assigned_to_one_process(
    rows: int, size: int, processes: int, data: st.DataObject
) -> None:
    done = data.draw(st.sets(st.sampled_from(range(rows)))) if rows else set()
    shares = [Shard(i, processes).batches(rows, size, done) for i in range(processes)]
    batches = sorted((batch for share in shares for batch in share), key=lambda batch: batch.start)
    all_batches = [range(first, min(first + size, rows)) for first in range(0, rows, size)]
    assert batches == [batch for batch in all_batches if not done.issuperset(batch)]


def test_blank_lines_are_not_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(
        b'\n{"prompt": "\xc3\xa9"}\r\n  \n{"prompt": 5}\n[1]\n{"prompt"\n\xff\n{"text": "x"}\n'
        b'{"prompt": "x", "schema": {"type": "null"}}'
    )
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = "--model demo --input a --output b --choice a --chat --constraint-column schema".split()
    arguments = parser.parse_args(options)
    table = open_table(file, "jsonl")
    rows = list(table.rows([]))
    assert table.length == len(rows) == 7
    first = request_of(rows[0], arguments, hg.Choice(["a"]))
    assert first.prompt == [{"role": "user", "content": "é"}] and first.constraint == hg.Choice(["a"])
    for row, why in (
        (1, "list of messages as 'prompt', got 5"),
        (2, "JSON object, got list"),
        (3, "line of JSON"),
        (4, "line of JSON"),
        (5, "fields there are: 'text'"),
    ):
        with pytest.raises(BadRow, match=why):
            request_of(rows[row], arguments, None)
    with pytest.raises(BadRow, match=r"list of objects as 'documents', got datetime.date\(2024"):
        request_of({"prompt": [{"role": "user"}], "documents": datetime.date(2024, 1, 1)}, arguments, None)
    assert request_of(rows[6], arguments, None).constraint == hg.JsonSchema({"type": "null"})


@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_folder_is_not_deleted(tmp_path: Path, overwrite: bool) -> None:
    for name in ("out", "out.failures"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "thesis.txt").write_text("years of work")
        with pytest.raises(UsageError, match="expected a name for the answers, got the folder"):
            begin(Parts(Place(str(tmp_path / "out"))), overwrite)
        assert (folder / "thesis.txt").read_text() == "years of work"
        (folder / "thesis.txt").unlink()
        folder.rmdir()


def test_constraints_with_equal_repr_have_different_identities() -> None:
    schema = {"type": "object", "properties": {f"property_{i}": {"type": "string"} for i in range(20)}}
    optional, required = JsonSchema(schema), JsonSchema({**schema, "required": ["property_19"]})
    assert repr(optional) == repr(required) and identity(optional) != identity(required)
    assert identity(optional) != identity(JsonSchema(schema, max_depth=3)) and identity(None) != identity(optional)


def test_resuming_with_other_arguments_is_refused(tmp_path: Path) -> None:
    parts = begin_job(tmp_path)
    begun = {"input_digest": "x", "temperature": None, "columns": ["a"]}
    parts.agree(begun, lambda: {"revision": "1"})
    parts.agree(begun, lambda: {"revision": "2"})
    assert parts.commits() == {"revision": "1"}
    with pytest.raises(UsageError, match=r"the content of --input has changed; temperature was None, is 0\.7"):
        parts.agree({**begun, "input_digest": "y", "temperature": 0.7}, dict)
    parts.end()


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
        open_table(file, format_of(file, None, "--input"))


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
    table = open_table(file, format_of(file, None, "--input"))
    found = list(table.rows([]))
    assert table.length == len(found) == rows
    if '{"prompt": "Hi"}' in content:
        assert {"prompt": "Hi"} in found
