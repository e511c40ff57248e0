"""One process of a job, from its arguments to its end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from tqdm.auto import tqdm

from ...checkpoints.arguments import constraint_of
from ...checkpoints.load import ModelSource
from ...constraints.values import Constraint
from ...errors import HFGuidedError, UsageError, cause
from .arguments import Shard
from .formats import DONE, FAILED, format_of, is_text, open_table, write
from .parts import Parts
from .places import Place, digest
from .tables import Table
from .worker import CONSTRAINT_COLUMN, Worker, settings_of

T = TypeVar("T")

_PATIENCE = timedelta(days=30)  # one process may be done long before another
_STOPPED = "finished rows are kept, and the same command continues the job"
# Arguments that do not determine the answers, or do so only by what is in their files.
_FREE = {"command", "input", "output", "format", "work_folder", "overwrite", "shard", "merge"}
_FREE |= {"schema", "regex", "choice", "grammar", "device", "device_map", "trust_remote_code"}


class _Job(NamedTuple):
    """A job, as far as it is known before a model is loaded."""

    settings: dict[str, Any]  # what determines the answers, as plain values
    parts: Parts
    source: Path  # the rows on this machine
    table: Table  # the same
    constraint: Constraint | None
    columns: list[str]  # copied from the input


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
        with TemporaryDirectory() as scratch:  # for copies of what is on other machines
            _run(arguments, state, Path(scratch), program)
        return 0
    except UsageError as error:
        if state.is_main_process:
            print(f"{program}: error: {error}", file=sys.stderr)
        return 2
    except (HFGuidedError, OSError) as error:  # of a disk: it is full, read-only, or gone
        print(f"{program}: error: {error}; {_STOPPED}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted; {_STOPPED}", file=sys.stderr)
        return 130
    finally:
        state.destroy_process_group()


def _run(arguments: argparse.Namespace, state: Any, scratch: Path, program: str) -> None:
    job = _agreed(lambda: _validated(arguments, scratch))
    share = Shard(state.process_index, state.num_processes)
    if arguments.shard is not None:
        share = share.within(arguments.shard)
    try:
        _agreed(lambda: _begin(arguments, job) if state.is_main_process else None)
        spent: list[tuple[int, int, float]] = []
        if not arguments.merge:
            todo, worker = _agreed(lambda: _prepared(arguments, job, share, state))
            # Everybody's answers are on disk when everybody is here.
            spent = gather_object([_answer(job, share, todo, worker, state)])
        if state.is_main_process:
            _end(arguments, job, spent, program)
    finally:
        job.parts.end()


def identity(constraint: Constraint | None) -> str:
    """A text that identifies a constraint; its repr is shortened for people."""
    return "none" if constraint is None else f"{constraint!r}, key {constraint.key}"


def _agreed(do: Callable[[], T]) -> T:
    """Return what each process does by itself, if it went well in all of them.

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


def _validated(arguments: argparse.Namespace, scratch: Path) -> _Job:
    """Find the mistakes that can be seen before a model is loaded."""
    if arguments.overwrite and (arguments.shard or arguments.merge):
        raise UsageError("--overwrite: one shard cannot know whether others have begun; delete the answers instead")
    constraint = constraint_of(arguments)
    settings_of(arguments)
    source = Place(arguments.input)
    parts = Parts(Place(arguments.output), arguments.work_folder)
    parts.check_apart(source)
    output_format = format_of(parts.output.path, arguments.output_format or arguments.format, "--output")
    path = source.fetch(scratch)
    try:
        input_digest = digest(path)
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror or error}") from error
    input_format = format_of(path, arguments.input_format or arguments.format, "--input")
    table = open_table(path, input_format)
    settings = {name: value for name, value in vars(arguments).items() if name not in _FREE} | {
        "constraint": identity(constraint),
        "input_digest": input_digest,
        "input_format": input_format,
        "output_format": output_format,
    }
    return _Job(settings, parts, path, table, constraint, _columns(arguments, table, output_format))


def _columns(arguments: argparse.Namespace, table: Table, output_format: str) -> list[str]:
    """The columns to be copied.

    Raises:
        UsageError: a column is not there, or does not hold what it is for.
    """
    table.check([arguments.prompt_column], "--prompt-column")
    if arguments.constraint_column is not None:
        table.check([arguments.constraint_column], "--constraint-column")
    if arguments.columns is not None:
        columns = list(dict.fromkeys(arguments.columns))
        table.check(columns, "--columns")
    else:
        columns = ["id"] if "id" in table.names() else []
    if taken := [name for name in columns if name in ("row", *DONE, *FAILED)]:
        raise UsageError(f"--columns {', '.join(taken)}: answers have columns of that name; rename it in the input")
    if table.schema is not None:
        from .arrow import check_types

        of_json = columns if is_text(output_format) else ()
        check_types(table.schema, arguments.prompt_column, arguments.constraint_column or CONSTRAINT_COLUMN, of_json)
    return columns


def _begin(arguments: argparse.Namespace, job: _Job) -> None:
    with job.parts.beginning(arguments.overwrite, arguments.shard):
        source = ModelSource.of(arguments)

        def commits() -> dict[str, str | None]:
            pinned = source.pinned()
            return {"revision": pinned.revision, "tokenizer_revision": pinned.tokenizer_revision}

        job.parts.agree(job.settings, commits)


def _prepared(arguments: argparse.Namespace, job: _Job, share: Shard, state: Any) -> tuple[list[range], Worker | None]:
    """Return the batches that this process has to answer, and what answers them."""
    source = replace(ModelSource.of(arguments), **job.parts.commits())
    rows = job.table.length
    todo = share.batches(rows, arguments.batch_size, job.parts.answered(rows))
    if not todo:
        return [], None
    if source.device == "auto":
        source = replace(source, device=str(state.device))
    return todo, Worker(arguments, job.table, job.constraint, *source.load())


def _answer(job: _Job, share: Shard, todo: list[range], worker: Worker | None, state: Any) -> tuple[int, int, float]:
    """Answer these batches; return the number of tokens, of rows' forward passes, and of seconds."""
    began = time.perf_counter()
    if worker is not None:
        rows = sum(map(len, todo))
        with (
            job.parts.writer(share.number) as write,
            tqdm(total=rows, unit="row", disable=None if state.is_main_process else True) as bar,
        ):
            for batch in todo:
                write(worker.answer(batch))
                bar.update(len(batch))
    spent = [] if worker is None else worker.spent
    tokens, row_forwards = sum(stats.tokens for stats in spent), sum(stats.row_forwards for stats in spent)
    return tokens, row_forwards, time.perf_counter() - began


def _end(arguments: argparse.Namespace, job: _Job, spent: list[tuple[int, int, float]], program: str) -> None:
    """Write the output, or leave that to the run that merges the shards; and say how many rows there are."""
    rows = job.table.length
    if arguments.shard is None:
        if digest(job.source) != job.settings["input_digest"]:
            raise UsageError(
                "the content of --input has changed while the job ran, so that its answers may not be to these rows; "
                "start again with --overwrite"
            )
        output_format = job.settings["output_format"]
        failed = job.parts.finish(
            rows, lambda path, answers, done: write(path, output_format, job.table, job.columns, answers, done)
        )
        summary: dict[str, Any] = {"rows": rows, "answered": rows - failed, "failed": failed}
        if failed:
            print(f"{program}: {failed} of {rows} rows failed, see {job.parts.failures}", file=sys.stderr)
    else:
        summary = {"shard": str(arguments.shard), "rows": rows, "left": rows - len(job.parts.answered(rows))}
    if spent:
        tokens, row_forwards = sum(process[0] for process in spent), sum(process[1] for process in spent)
        seconds = max(process[2] for process in spent)
        summary["this_run"] = {
            "processes": len(spent),
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "tokens_per_second": round(tokens / seconds, 1) if seconds else 0.0,
            "row_forwards_per_token": round(row_forwards / tokens, 3) if tokens else 0.0,
        }
    print(json.dumps(summary))
