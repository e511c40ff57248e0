"""The jobs of bench_jobs.py that are programs: Ray Data with two actors, and ``datasets.map`` in two processes.

Both answer rows.parquet of the current folder. Stopped, the same command continues.

    python -m benchmarks.job_worker ray|datasets
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

PROCESSES = 2
BATCH = 32  # rows of one call of generate()
BLOCKS = 40  # of rows that are written together
LOADING = {"device": "cpu", "dtype": "float64"}
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 18, "maximum": 99}},
    "required": ["age"],
}


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
    command = [sys.executable, "-m", "benchmarks.job_worker", "datasets"]
    processes = [subprocess.Popen([*command, str(rank)]) for rank in range(PROCESSES)]
    failed = [process.wait() for process in processes]
    if any(failed):
        raise SystemExit(f"the processes ended with {failed}")
    parts = parts_of(folder, range(part_count(folder)))  # all are finished: this reads their files
    datasets.concatenate_datasets(parts).save_to_disk(str(folder / "answered"))


def parts_of(folder: Path, numbers: Any) -> list[Any]:
    """Parts of the data set with their answers; those that are finished come from their files."""
    import datasets

    from hf_guided.integrations.datasets import extract

    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_parquet(str(folder / "rows.parquet"), cache_dir=str(folder / "cache"))
    step = extract("demo", constraint=SCHEMA, column="prompt", loading=LOADING, batch_size=BATCH)
    size = block_rows(folder)
    parts = []
    for number in numbers:
        part = rows.select(range(number * size, min((number + 1) * size, len(rows))))
        file = str(folder / "parts" / f"{number:05d}.arrow")
        parts.append(part.map(step, batched=True, batch_size=size, features=step.features(rows), cache_file_name=file))
    return parts


def part_count(folder: Path) -> int:
    """How many parts the rows make."""
    import pyarrow.parquet as pq

    rows: int = pq.read_metadata(folder / "rows.parquet").num_rows
    return -(-rows // block_rows(folder))


if __name__ == "__main__":
    if sys.argv[1] == "ray":
        run_ray(Path.cwd())
    elif len(sys.argv) > 2:
        parts_of(Path.cwd(), range(int(sys.argv[2]), part_count(Path.cwd()), PROCESSES))
    else:
        run_datasets(Path.cwd())
