"""One process of a job, from its arguments to its end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from tqdm.auto import tqdm

from ...checkpoints.arguments import constraint_of
from ...checkpoints.load import ModelSource
from ...constraints.values import Constraint
from ...errors import HFGuidedError, UsageError, cause
from .formats import format_of, open_table
from .job import Job, digest, read_state, write_state
from .outputs import Output
from .parts import Parts
from .places import place_of
from .rows import CONSTRAINT_COLUMN, Rows
from .worker import Share, Worker

T = TypeVar("T")

# One process may be done long before another.
_PATIENCE = timedelta(days=30)
_COMMITS = "commits.json"  # of the Hub's repositories, in the folder of the parts
_STOPPED = "finished rows are kept, and the same command continues the job"


def run(arguments: argparse.Namespace, program: str) -> int:
    """Run one process of a job.

    Args:
        arguments: those of ``arguments.add_arguments``.
        program: its name, for messages.

    Returns:
        The exit code.
    """
    cpu = arguments.device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    state = PartialState(cpu=cpu, timeout=_PATIENCE)
    try:
        code = _run(arguments, state, program)
    except UsageError as error:
        if state.is_main_process:
            print(f"{program}: error: {error}", file=sys.stderr)
        code = 2
    except (HFGuidedError, OSError) as error:  # of a disk: it is full, read-only, or gone
        print(f"{program}: error: {error}; {_STOPPED}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted; {_STOPPED}", file=sys.stderr)
        code = 130
    finally:
        state.destroy_process_group()
    return code


def _run(arguments: argparse.Namespace, state: Any, program: str) -> int:
    with TemporaryDirectory() as scratch:  # for copies of what is on other machines
        job, parts, rows, output = _agreed(lambda: _validated(arguments, Path(scratch)))
        try:
            _agreed(lambda: _begin(arguments, state, job, parts))
            if not arguments.merge:
                share = Share(state.process_index, state.num_processes).of_shard(arguments.shard)
                todo, worker = _agreed(lambda: _prepared(arguments, state, job, rows, parts, share))
                # Everybody's answers are on disk when everybody is here.
                spent = gather_object([_answer(state, rows, parts, share, todo, worker)])
            if state.is_main_process:
                _end(arguments, parts, rows, output, [] if arguments.merge else spent, program)
        finally:
            rows.close()
            parts.end()
    return 0


def identity(constraint: Constraint | None) -> str:
    """What identifies a constraint; its repr is shortened for people."""
    return "none" if constraint is None else f"{constraint!r}, key {constraint.key}"


def _agreed(do: Callable[[], T]) -> T:
    """What each process does by itself, if it went well in all of them.

    Raises:
        UsageError: what was wrong in the first process in which something was; in all of them.
    """
    done: T | None = None
    mine: Exception | None = None
    try:
        done = do()
    except Exception as error:  # also an unexpected one: the other processes wait for this one's word
        mine = error
    errors = [
        message
        for message in gather_object([mine and (str(mine) if isinstance(mine, HFGuidedError) else cause(mine))])
        if message is not None
    ]
    if mine is not None and not isinstance(mine, HFGuidedError):
        raise mine
    if errors:
        raise UsageError(errors[0]) from mine
    return done  # type: ignore[return-value]  # it went well


def _validated(arguments: argparse.Namespace, scratch: Path) -> tuple[Job, Parts, Rows, Output]:
    """All that can be seen to be wrong before a model is loaded."""
    if arguments.overwrite and (arguments.shard or arguments.merge):
        raise UsageError("--overwrite: one shard cannot know whether others have begun; delete the answers instead")
    constraint = constraint_of(arguments)
    if arguments.top_p is not None and (arguments.temperature == 0 or arguments.top_p > 1):
        raise UsageError("--top-p: expected a number up to 1, and --temperature above 0 or left out")
    source = place_of(arguments.input)
    parts = Parts(place_of(arguments.output), arguments.work_folder)
    parts.check_apart(source)
    output_format = format_of(parts.output.path, arguments.output_format or arguments.format, "--output")
    table_path = source.fetch(scratch)
    try:
        rows_digest = digest(table_path)
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}") from error
    formats = {
        "input_format": format_of(table_path, arguments.input_format or arguments.format, "--input"),
        "output_format": output_format,
    }
    given = {name: value for name, value in vars(arguments).items() if name in Job.__dataclass_fields__} | formats
    job = Job(**given, input_digest=rows_digest, constraint=identity(constraint))
    table = open_table(
        table_path,
        job.input_format,
        (job.prompt_column, job.constraint_column or CONSTRAINT_COLUMN, job.documents_column),
    )
    try:
        layout = job.whitespace, job.indent, job.spelling
        rows = Rows(table, job.prompt_column, job.constraint_column, job.documents_column, constraint, job.chat, layout)
        rows.check()
        return job, parts, rows, Output.of(job.output_format, table, job.columns)
    except UsageError:
        table.close()
        raise


def _begin(arguments: argparse.Namespace, state: Any, job: Job, parts: Parts) -> None:
    if state.is_main_process:
        with parts.beginning(arguments.overwrite, arguments.shard):
            job.agree(parts.folder / "job.json")
            commits = parts.folder / _COMMITS
            if not commits.exists():
                source = ModelSource.of(arguments).pinned()
                write_state(commits, {"revision": source.revision, "tokenizer_revision": source.tokenizer_revision})


def _prepared(
    arguments: argparse.Namespace, state: Any, job: Job, rows: Rows, parts: Parts, share: Share
) -> tuple[list[range], Worker | None]:
    """This process's batches, and what answers them."""
    if not (parts.folder / "job.json").exists():
        raise UsageError(
            f"process {share.process} does not see {parts.folder}: --output has to be on a disk that all share"
        )
    todo = list(share.batches(parts.locations(len(rows)), job.batch_size))
    if not todo:
        return [], None
    # A branch may move while the job is stopped: all of its answers are those of one commit.
    commits = read_state(parts.folder / _COMMITS, {"revision": (str, NoneType), "tokenizer_revision": (str, NoneType)})
    source = replace(ModelSource.of(arguments), **commits)
    if source.device == "auto":
        source = replace(source, device=str(state.device))
    return todo, Worker(job, rows, *source.load())


def _answer(
    state: Any, rows: Rows, parts: Parts, share: Share, todo: Sequence[range], worker: Worker | None
) -> dict[str, float]:
    """Answer these batches; return their statistics."""
    began = time.perf_counter()
    if worker is not None:
        writer = parts.writer(share.process)
        bar = tqdm(total=len(rows), unit="row", disable=None if state.is_main_process else True)
        try:
            for batch in todo:
                writer.write(worker.answer(batch))
                if not bar.disable:
                    bar.update(min(parts.lines(), len(rows)) - bar.n)
        finally:
            bar.close()
            writer.close()
    spent = [] if worker is None else worker.spent
    return {
        "tokens": sum(process_stats.tokens for process_stats in spent),
        "row_forwards": sum(process_stats.row_forwards for process_stats in spent),
        "seconds": time.perf_counter() - began,
    }


def _end(
    arguments: argparse.Namespace,
    parts: Parts,
    rows: Rows,
    output: Output,
    spent: Sequence[dict[str, float]],
    program: str,
) -> None:
    """Write the output, or leave that to the run that merges the shards; and say how many rows there are."""
    if arguments.shard is None:
        done, failed = parts.finish(len(rows), output.write)
        summary: dict[str, Any] = {"rows": len(rows), "answered": done, "failed": failed}
        if failed:
            print(f"{program}: {failed} of {len(rows)} rows failed, see {parts.failures}", file=sys.stderr)
    else:
        answered = sum(location is not None for location in parts.locations(len(rows)))
        summary = {"shard": str(arguments.shard), "rows": len(rows), "left": len(rows) - answered}
    print(json.dumps(summary | _this_run(spent)))


def _this_run(spent: Sequence[dict[str, float]]) -> dict[str, Any]:
    """What the processes of this run did; nothing for a run that only merges."""
    if not spent:
        return {}
    tokens = sum(process_stats["tokens"] for process_stats in spent)
    seconds = max(process_stats["seconds"] for process_stats in spent)
    row_forwards = sum(process_stats["row_forwards"] for process_stats in spent)
    return {
        "this_run": {
            "processes": len(spent),
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "tokens_per_second": round(tokens / seconds, 1) if seconds else 0.0,
            "row_forwards_per_token": round(row_forwards / tokens, 3) if tokens else 0.0,
        }
    }
