"""Do three ways to answer a data set in two processes give the same values, how fast, and do they survive a kill?

The ways are ``hf-guided batch`` under torchrun, Ray Data with two actors, and ``datasets.map`` in parts. The rows are
short: the demo model in float64 reads an age out of a sentence, greedily. Each way runs twice, from the start of its
first process to its last answer: once to the end, and once killed (SIGKILL to all its processes) when two fifths of the
rows are on disk, and then run again. Every run must have each row once, and the same value for it as one process of
``hg.generate``.

    python -m benchmarks.bench_jobs [--rows 10000] [--ways batch ray datasets]

Needs the environment of make test-frameworks, and psutil.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.common import ROOT, finish, installed, parser, table_of
from hf_guided import demo

PROCESSES = 2
BATCH = 32  # rows of one call of generate()
BLOCKS = 40  # of rows that are written together
LOADING = {"device": "cpu", "dtype": "float64"}
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 18, "maximum": 99}},
    "required": ["age"],
}
NAMES = ("Daria Pinto", "Cret Gomez", "Esther Price", "Camille Engel", "Peirat Moss", "Ines Okafor", "Jon Vale")
WORK = ("gardener", "cook", "potter", "baker", "teacher", "driver", "painter", "printer", "tailor", "sailor", "singer")
KILL_AT = 0.4  # of the rows
LOOK_S = 0.02


class Way(NamedTuple):
    package: str  # package whose version stands in the row
    command: str  # arguments of ``python -m`` that start the job, or continue it
    written: Callable[[Path], int]  # number of rows with an answer on disk
    values: Callable[[Path], Iterator[tuple[int, Any]]]  # the number and the value of each answer


def prompts(count: int) -> list[str]:
    texts = []
    for row in range(count):
        work, name, age = WORK[row % len(WORK)], NAMES[row % len(NAMES)], 18 + row % 71
        home = ("Fem", "Utrecht", "Gloo")[row % 3]
        texts.append(demo.make_prompt("person", f"Our {work} {name} of {home} is {age} years old."))
    return texts


def prepare(folder: Path, count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = prompts(count)
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    pq.write_table(pa.table({"row": range(count), "prompt": texts}), folder / "rows.parquet")


def written_by_batch(folder: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("out.jsonl.parts/*.jsonl"))


def values_of_batch(folder: Path) -> Iterator[tuple[int, Any]]:
    for line in (folder / "out.jsonl").read_text().splitlines():
        answer = json.loads(line)
        yield answer["row"], answer["value"]


def written_by_ray(folder: Path) -> int:
    """The rows of finished checkpoints; a file of answers without one may be half written."""
    finished = [file for file in folder.glob("checkpoint/*.parquet") if ".pending" not in file.name]
    return block_rows(folder) * len(finished)


def values_of_ray(folder: Path) -> Iterator[tuple[int, Any]]:
    import pyarrow.parquet as pq

    for file in folder.glob("answers/*.parquet"):
        for answer in pq.read_table(file).to_pylist():
            yield answer["row"], json.loads(answer["value"])


def written_by_map(folder: Path) -> int:
    return block_rows(folder) * len(list(folder.glob("parts/*.arrow")))


def values_of_map(folder: Path) -> Iterator[tuple[int, Any]]:
    import datasets

    for answer in datasets.load_from_disk(str(folder / "answered")):
        yield answer["row"], answer["value"]


LAUNCH = f"torch.distributed.run --standalone --nproc-per-node {PROCESSES} -m hf_guided.cli.batch"
FILES = "--input rows.jsonl --schema schema.json --output out.jsonl"
MODEL = f"--model demo --device {LOADING['device']} --dtype {LOADING['dtype']} --batch-size {BATCH}"
ANSWER = "benchmarks.bench_jobs --answer"
WAYS = {
    "batch": Way("hf-guided", f"{LAUNCH} {FILES} {MODEL}", written_by_batch, values_of_batch),
    "ray": Way("ray", f"{ANSWER} ray", written_by_ray, values_of_ray),
    "datasets": Way("datasets", f"{ANSWER} datasets", written_by_map, values_of_map),
}


def expected_values(texts: list[str]) -> list[Any]:
    """The values of one process, each checked against its sentence by the bounds of the schema."""
    import torch

    import hf_guided as hg

    model, tokenizer = demo.load()
    model.to(getattr(torch, LOADING["dtype"]))
    results = hg.generate(model, tokenizer, texts, SCHEMA, do_sample=False, batch_size=BATCH, progress=False)
    values = [json.loads(result.text) for result in results]
    assert all(list(value) == ["age"] and 18 <= value["age"] <= 99 for value in values)
    return values


def started(way: Way, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    with (folder / "log.txt").open("ab") as log:
        command = [sys.executable, "-m", *way.command.split()]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End the job and all processes it has started, at once."""
    children = psutil.Process(process.pid).children(recursive=True)
    for running in [process, *children]:
        with suppress(psutil.NoSuchProcess):
            running.kill()
    process.wait()
    psutil.wait_procs(children, timeout=60)


def wait_to_end(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.wait() != 0:
        raise SystemExit(f"the job failed:\n{(folder / 'log.txt').read_text()[-3000:]}")


def wait_for(rows: int, way: Way, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Return when this number of rows is on disk, or the job has ended."""
    while process.poll() is None and way.written(folder) < rows:
        time.sleep(LOOK_S)


def check(way: Way, folder: Path, expected: list[Any]) -> None:
    answers = list(way.values(folder))
    counts = Counter(row for row, _ in answers)
    lost, doubled = set(range(len(expected))) - set(counts), [row for row, count in counts.items() if count > 1]
    other = [row for row, value in answers if value != expected[row]]
    if lost or doubled or other:
        raise SystemExit(f"{len(lost)} rows are lost, {len(doubled)} doubled, {len(other)} have another value")


def whole_run(way: Way, folder: Path, expected: list[Any]) -> dict[str, str]:
    begin = time.perf_counter()
    process = started(way, folder)
    wait_for(1, way, process, folder)
    first = time.perf_counter() - begin
    wait_to_end(process, folder)
    seconds = time.perf_counter() - begin
    check(way, folder, expected)
    return {
        "seconds": f"{seconds:.1f}",
        "rows_per_s": f"{len(expected) / seconds:.1f}",
        "first_rows_after_s": f"{first:.1f}",
    }


def killed_run(way: Way, folder: Path, expected: list[Any]) -> dict[str, str]:
    process = started(way, folder)
    wait_for(int(KILL_AT * len(expected)), way, process, folder)
    if process.poll() is not None:
        raise SystemExit(f"the job ended before it was killed:\n{(folder / 'log.txt').read_text()[-3000:]}")
    kill(process)
    at = way.written(folder)
    assert 0 < at < len(expected), f"killed with {at} of {len(expected)} rows; pass a larger --rows"
    begin = time.perf_counter()
    wait_to_end(started(way, folder), folder)
    seconds = time.perf_counter() - begin
    check(way, folder, expected)
    return {"killed_at_row": str(at), "continued_s": f"{seconds:.1f}"}


# -- the jobs that are programs; stopped, the same command continues ---------------------------------------------------


def block_rows(folder: Path) -> int:
    """How many rows are written together."""
    import pyarrow.parquet as pq

    count: int = pq.read_metadata(folder / "rows.parquet").num_rows
    return max(1, count // BLOCKS)


def run_ray(folder: Path) -> None:
    """Answer the rows with two actors."""
    import ray
    import ray.data
    from ray.data.checkpoint import CheckpointConfig

    from hf_guided.integrations.ray import GuidedPredictor

    # A CPU for each actor, one to read and one to write.
    ray.init(num_cpus=PROCESSES + 2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.checkpoint_config = CheckpointConfig(id_column="row", checkpoint_path=str(folder / "checkpoint"))
    rows = ray.data.read_parquet(str(folder / "rows.parquet"))
    answers = rows.repartition(target_num_rows_per_block=block_rows(folder)).map_batches(
        GuidedPredictor,
        fn_constructor_kwargs={"model": "demo", "constraint": SCHEMA, "loading": LOADING, "batch_size": BATCH},
        batch_size=block_rows(folder),
        compute=ray.data.ActorPoolStrategy(size=PROCESSES),
    )
    answers.write_parquet(str(folder / "answers"))


def run_datasets(folder: Path) -> None:
    """Answer the rows in two processes, and write them as one data set."""
    import datasets

    (folder / "parts").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.bench_jobs", "--answer"]
    processes = [subprocess.Popen([*command, str(rank)]) for rank in range(PROCESSES)]
    failed = [process.wait() for process in processes]
    if any(failed):
        raise SystemExit(f"the processes ended with {failed}")
    parts = parts_of(folder, 0, 1)  # all are finished: this reads their files
    datasets.concatenate_datasets(parts).save_to_disk(str(folder / "answered"))


def parts_of(folder: Path, first: int, step: int) -> list[Any]:
    """Groups of parts of the data set with their answers; those that are finished come from their files."""
    import datasets

    from hf_guided.integrations.datasets import extract

    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"))
    answered = extract("demo", constraint=SCHEMA, column="prompt", loading=LOADING, batch_size=BATCH)
    size = block_rows(folder)
    settings = {"batched": True, "batch_size": size, "features": answered.features(rows)}
    parts = []
    for number in range(first, -(-len(rows) // size), step):
        part = rows.select(range(number * size, min((number + 1) * size, len(rows))))
        file = str(folder / "parts" / f"{number:05d}.arrow")
        parts.append(part.map(answered, cache_file_name=file, **settings))
    return parts


def answer(how: str, folder: Path) -> None:
    """Answer rows.parquet of a folder: with Ray, with ``datasets.map``, or every second part of the latter."""
    if how == "ray":
        run_ray(folder)
    elif how == "datasets":
        run_datasets(folder)
    else:
        parts_of(folder, int(how), PROCESSES)


def main() -> None:
    made = parser(__doc__, "jobs.csv")
    made.add_argument("--rows", type=int, default=10_000)
    made.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    made.add_argument("--answer", help="answer the rows of this folder: by ray, datasets or a process of datasets")
    options = made.parse_args()
    if options.answer:
        answer(options.answer, Path.cwd())
        return
    expected = expected_values(prompts(options.rows))
    distinct = len({json.dumps(value) for value in expected})
    rows = []
    for name in options.ways:
        way = WAYS[name]
        row = {"way": name, "version": installed(way.package), "rows": str(options.rows), "processes": str(PROCESSES)}
        for run in (whole_run, killed_run):
            with tempfile.TemporaryDirectory() as scratch:
                prepare(Path(scratch), options.rows)
                row |= run(way, Path(scratch), expected)
        rows.append({**row, "distinct_values": str(distinct), "verdict": "same values"})
        print(json.dumps(rows[-1]), flush=True)
    finish(options, rows, table_of(rows), whole=options.ways == list(WAYS))


if __name__ == "__main__":
    main()
