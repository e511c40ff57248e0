"""One process of a job, from its arguments to its end."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from tqdm.auto import tqdm

from ...checkpoints.load import ModelSource
from ...constraints.coerce import coerce
from ...constraints.json_text import is_json
from ...constraints.values import Constraint, laid_out
from ...errors import HFGuidedError, UsageError, cause, shown
from ...generation.row_answers import Outcome, RowAnswers, RowRequest, RowSettings, without_missing
from ..arguments import constraint_of
from .arguments import Shard
from .formats import DONE, FAILED, format_of, open_table, write
from .parts import Answer, Parts
from .places import Place, digest
from .tables import BadRow, Row, Table

T = TypeVar("T")

_PATIENCE = timedelta(days=30)  # one process may be done long before another
_CONSTRAINT_COLUMN = "response_format"  # where no other is named
_STOPPED = "finished rows are kept, and the same command continues the job"
# Arguments that do not determine the answers, or do so only by what is in their files.
_FREE = {"command", "input", "output", "format", "work_folder", "overwrite", "shard", "merge"}
_FREE |= {"schema", "regex", "choice", "grammar", "device", "device_map", "trust_remote_code"}


class _Job(NamedTuple):
    """A job, as far as it is known before a model is loaded."""

    settings: dict[str, Any]  # what determines the answers, as plain values
    parts: Parts
    source: Path  # the rows on this machine
    table: Table  # the same rows, to be read in order
    constraint: Constraint | None
    columns: list[str]  # copied from the input


def run(arguments: argparse.Namespace, program: str) -> int:
    """Run one process of a job, whose name in messages is ``program``, and return the exit code."""
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
    except (HFGuidedError, OSError) as error:  # a disk is full, read-only, or gone
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
    _settings_of(arguments)
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


def _settings_of(arguments: argparse.Namespace) -> RowSettings:
    return RowSettings(**{field.name: getattr(arguments, field.name) for field in fields(RowSettings)})


def _columns(arguments: argparse.Namespace, table: Table, output_format: str) -> list[str]:
    """The columns to be copied; raises UsageError where a column is not there, or does not hold what it is for."""
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
        from .arrow import check_copied, check_types

        check_types(table.schema, arguments.prompt_column, arguments.constraint_column or _CONSTRAINT_COLUMN)
        check_copied(table.schema, columns, output_format)
    return columns


def _begin(arguments: argparse.Namespace, job: _Job) -> None:
    with job.parts.beginning(arguments.overwrite, arguments.shard):
        source = ModelSource.of(arguments)

        def commits() -> dict[str, str | None]:
            pinned = source.pinned()
            return {"revision": pinned.revision, "tokenizer_revision": pinned.tokenizer_revision}

        job.parts.agree(job.settings, commits)


def _prepared(arguments: argparse.Namespace, job: _Job, share: Shard, state: Any) -> tuple[list[range], _Worker | None]:
    """Return the batches that this process has to answer, and what answers them."""
    source = replace(ModelSource.of(arguments), **job.parts.commits())
    rows = job.table.length
    todo = share.batches(rows, arguments.batch_size, job.parts.answered(rows))
    if not todo:
        return [], None
    if source.device == "auto":
        source = replace(source, device=str(state.device))
    return todo, _Worker(arguments, job, *source.load())


def _answer(job: _Job, share: Shard, todo: list[range], worker: _Worker | None, state: Any) -> tuple[int, int, float]:
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


class _Worker:
    """Answers batches of rows, in the rows' order."""

    def __init__(self, arguments: argparse.Namespace, job: _Job, model: Any, tokenizer: Any):
        if arguments.chat and not tokenizer.chat_template:
            raise UsageError("--chat: this tokenizer has no chat template; leave --chat out, and write prompts in full")
        self._arguments, self._job = arguments, job
        columns = arguments.prompt_column, arguments.constraint_column or _CONSTRAINT_COLUMN, arguments.documents_column
        self._rows = enumerate(job.table.rows(columns))
        self._answers = RowAnswers(model, tokenizer, job.constraint, _settings_of(arguments))
        self.spent = self._answers.spent  # the statistics of each call of ``generate``

    def answer(self, batch: range) -> list[Answer]:
        """Answer these rows; one that cannot be answered fails alone."""
        outcomes: dict[int, Outcome] = {}
        requests: dict[int, RowRequest] = {}
        for row in batch:
            changed = BadRow("the input has changed while the job ran: the row is not there any more")
            values = next((values for number, values in self._rows if number == row), changed)
            if self._job.table.schema is not None and isinstance(values, dict):
                values = {name: without_missing(value) for name, value in values.items()}
            try:
                requests[row] = request_of(values, self._arguments, self._job.constraint)
            except (BadRow, HFGuidedError) as error:
                outcomes[row] = error
        answers = self._answers.answer(list(requests.values()), list(requests))
        outcomes |= dict(zip(requests, answers, strict=True))
        return [_answered(row, outcomes[row]) for row in batch]


def request_of(values: Row, arguments: argparse.Namespace, default: Constraint | None) -> RowRequest:
    """Read the request of a row; ``default`` is the constraint of rows without one of their own.

    Raises:
        BadRow: it cannot be read, or there is no prompt.
        InvalidConstraint: its constraint is none.
    """
    if isinstance(values, BadRow):
        raise values
    prompt = values.get(arguments.prompt_column)
    if not isinstance(prompt, (str, list)) or not prompt:
        raise BadRow(
            f"expected a text or a list of messages as {arguments.prompt_column!r}, got {shown(prompt)}; "
            f"fields there are: {', '.join(map(repr, values))}"
        )
    own = values.get(arguments.constraint_column or _CONSTRAINT_COLUMN)
    is_given = own is not None and own != ""  # CSV has no other form for a missing value
    layout = arguments.whitespace, arguments.indent, arguments.spelling
    constraint = laid_out(coerce(own), *layout) if is_given else default
    if arguments.chat and isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    # A plain text has no template that would show documents: there the column is one of the row's own.
    documents = None if isinstance(prompt, str) else values.get(arguments.documents_column)
    if documents is not None and not (
        isinstance(documents, list) and all(isinstance(document, dict) for document in documents)
    ):
        raise BadRow(
            f"expected a list of objects as {arguments.documents_column!r}, got {shown(documents)}; "
            "--documents-column names another column"
        )
    return RowRequest(prompt, constraint, documents)


def _answered(row: int, result: Outcome) -> Answer:
    if isinstance(result, Exception):
        return Answer(row, False, {"error": cause(result)})
    line: dict[str, Any] = {"text": result.text}
    if is_json(result.value):  # the match of a pattern is not
        line["value"] = result.value
    line |= {"finish_reason": result.finish_reason, "tokens": len(result.token_ids)}
    line |= {"shortened": result.shortened, "thinking_cut": result.thinking_cut}
    if result.log_mass is not None:
        line["log_mass"] = result.log_mass
    if result.error is None and result.finish_reason == "stop":
        return Answer(row, True, line)
    line["error"] = result.error or f"the answer did not finish: {result.finish_reason}"
    return Answer(row, False, line)
