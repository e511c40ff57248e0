"""Actors of Ray answer as ``hf-guided batch`` does, row by row; and Ray goes on with a run that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hf_guided import demo
from hf_guided.cli.batch.__main__ import main

ray = pytest.importorskip("ray", reason="needs Ray: make test-frameworks")

SCHEMA = demo.SCHEMAS["person"]
ROOT = Path(__file__).parents[2]

RUN = """
import json, os, sys, time
from pathlib import Path
import ray, ray.data
from hf_guided.integrations.ray import GuidedPredictor

folder, kind = Path(sys.argv[1]), sys.argv[2]
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False)  # one for reading
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False


class Watched(GuidedPredictor):
    calls = 0

    def __call__(self, batch):
        self.calls += 1
        (folder / "actors" / str(os.getpid())).touch()
        while not self.may_answer():
            time.sleep(0.01)
        return super().__call__(batch)

    def may_answer(self):
        if kind == "plain":  # both actors answer rows
            return len(list((folder / "actors").iterdir())) >= 2
        return self.calls <= 2 or not (folder / "hold").exists()


if kind == "kept":
    from ray.data.checkpoint import CheckpointConfig

    context.checkpoint_config = CheckpointConfig(id_column="row", checkpoint_path=str(folder / "checkpoint"))
rows = ray.data.read_parquet(str(folder / "rows")).repartition(target_num_rows_per_block=4)
settings = json.loads((folder / "settings.json").read_text())
two = ray.data.ActorPoolStrategy(size=2)
answers = rows.map_batches(Watched, fn_constructor_kwargs=settings, batch_size=4, compute=two)
answers.write_parquet(str(folder / "answers"))
"""


def prepared(folder: Path, rows: int, **settings: Any) -> list[str]:
    """Write the rows for both, and return the arguments of ``hf-guided batch``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    prompts = [demo.EXAMPLES[i % len(demo.EXAMPLES)].prompt for i in range(rows)]
    prompts[1] = ""
    (folder / "rows").mkdir()
    (folder / "actors").mkdir()
    for first in range(0, rows, 4):
        part = pa.table({"row": range(first, first + 4), "prompt": prompts[first : first + 4]})
        pq.write_table(part, folder / "rows" / f"{first:04d}.parquet")
    given = {"model": "demo", "constraint": SCHEMA, "loading": {"device": "cpu", "dtype": "float64"}, **settings}
    (folder / "settings.json").write_text(json.dumps(given))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "run.py").write_text(RUN)
    files = {"input": folder / "rows.jsonl", "schema": folder / "schema.json", "output": folder / "out.jsonl"}
    asked = {"model": "demo", "device": "cpu", "dtype": "float64", **files}
    return [part for name, value in asked.items() for part in (f"--{name}", str(value))]


def started(folder: Path, kind: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    command = [sys.executable, str(folder / "run.py"), str(folder), kind]
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)


def answers_of(folder: Path) -> dict[int, dict[str, Any]]:
    import pyarrow.parquet as pq

    found = [row for file in folder.glob("answers/*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len({row["row"] for row in found}) == len(found), "no row is there twice"
    return {row["row"]: row for row in found}


def finished_files(folder: Path) -> dict[str, int]:
    """The files of answers which Ray's checkpoint has, and when each was written."""
    ids = {file.stem for file in folder.glob("checkpoint/*.parquet") if ".pending" not in file.name}
    return {name: time_ns for name, time_ns in files(folder).items() if name.rpartition("-")[0] in ids}


def files(folder: Path) -> dict[str, int]:
    """The files of answers, and when each was written."""
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("answers/*.parquet")}


def check(folder: Path, rows: int) -> None:
    done = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    failed = [json.loads(line) for line in (folder / "out.failures.jsonl").read_text().splitlines()]
    found = answers_of(folder)
    assert sorted(found) == list(range(rows)) == sorted(one["row"] for one in (*done, *failed))
    for one in done:
        mine = found[one["row"]]
        assert (mine["text"], mine["tokens"], mine["error"]) == (one["text"], one["tokens"], None)
        assert json.loads(mine["value"]) == one["value"]
    for one in failed:
        assert found[one["row"]]["error"] and found[one["row"]]["value"] is None


def test_two_actors_answer_as_batch_does(tmp_path: Path) -> None:
    job = prepared(tmp_path, 24, row_column="row", temperature=1.2, seed=5)
    process = started(tmp_path, "plain")
    assert process.wait(timeout=900) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    assert len(list((tmp_path / "actors").iterdir())) == 2
    assert main([*job, "--temperature", "1.2", "--seed", "5"]) == 0
    check(tmp_path, 24)


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    job = prepared(tmp_path, 40)
    (tmp_path / "hold").touch()  # each actor answers two blocks of four rows, and waits
    process = started(tmp_path, "kept")
    while len(finished_files(tmp_path)) < 2 and process.poll() is None:
        time.sleep(0.05)
    assert process.poll() is None, (tmp_path / "log.txt").read_text()[-3000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = finished_files(tmp_path)
    assert 2 <= len(before) <= 4
    (tmp_path / "hold").unlink()
    assert started(tmp_path, "kept").wait(timeout=900) == 0, (tmp_path / "log.txt").read_text()[-3000:]
    assert before.items() <= files(tmp_path).items(), "finished rows are not answered again"
    assert main(job) == 0
    check(tmp_path, 40)
