"""``hf-guided batch`` reads its input from S3 and writes its output there; moto is the S3 server, on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import jsonschema
import pytest

from hf_guided import demo
from hf_guided.cli.batch.__main__ import main

server = pytest.importorskip("moto.server", reason="needs moto: make test-frameworks")
s3fs = pytest.importorskip("s3fs", reason="needs s3fs: make test-frameworks")

# botocore's own call, and what aiobotocore leaves to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning", "ignore::ResourceWarning")
SCHEMA = demo.SCHEMAS["person"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """An empty bucket; the variables say where it is, as for a user."""
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    url = "http://{}:{}".format(*running.get_host_and_port())
    urlopen(f"{url}/moto-api/reset", data=b"").close()  # all servers of a process have the same buckets
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdir("bucket")
    yield files
    s3fs.S3FileSystem.clear_instance_cache()
    running.stop()


def command(folder: Path, **changes: str) -> list[str]:
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    options = {"model": "demo", "device": "cpu", "schema": str(folder / "schema.json"), **changes}
    return [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]


def test_a_job_from_s3_to_s3(bucket: s3fs.S3FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = [example.prompt for example in demo.EXAMPLES[:3]] + [""]  # the last one fails
    bucket.pipe("bucket/in/rows.jsonl", "".join(json.dumps({"prompt": text}) + "\n" for text in prompts).encode())
    options = {"input": "s3://bucket/in/rows.jsonl", "output": "s3://bucket/out/answers.jsonl"}
    work = {"work_folder": str(tmp_path / "work")}
    assert main(command(tmp_path, **options, **work)) == 0
    done = [json.loads(line) for line in bucket.cat("bucket/out/answers.jsonl").splitlines()]
    failed = [json.loads(line) for line in bucket.cat("bucket/out/answers.failures.jsonl").splitlines()]
    assert [one["row"] for one in done] == [0, 1, 2] and [one["row"] for one in failed] == [3]
    for one in done:
        jsonschema.validate(one["value"], SCHEMA)
    assert not list((tmp_path / "work").iterdir())

    local = tmp_path / "rows.jsonl"
    local.write_bytes(bucket.cat("bucket/in/rows.jsonl"))
    assert main(command(tmp_path, input=str(local), output=str(tmp_path / "answers.jsonl"))) == 0
    assert (tmp_path / "answers.jsonl").read_bytes() == bucket.cat("bucket/out/answers.jsonl")

    capsys.readouterr()
    missing = options | {"input": "s3://bucket/in/nothing.jsonl", "output": "s3://bucket/out/other.jsonl"}
    assert main(command(tmp_path, **missing, **work)) == 2
    assert "cannot reach s3://bucket/in/nothing.jsonl" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_written_by_the_next_run(
    bucket: s3fs.S3FileSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": demo.EXAMPLES[0].prompt}) + "\n")
    options = {"input": str(rows), "output": "s3://later/answers.parquet", "work_folder": str(tmp_path / "work")}
    assert main(command(tmp_path, **options)) == 1
    assert "cannot reach s3://later/answers" in capsys.readouterr().err
    bucket.mkdir("later")
    assert main(command(tmp_path, **options)) == 0
    assert json.loads(capsys.readouterr().out)["this_run"]["tokens"] == 0, "no row is answered again"
    with bucket.open("later/answers.parquet") as file:
        [row] = pq.read_table(file).to_pylist()
    assert row["row"] == 0 and row["finish_reason"] == "stop"
