"""``accelerate launch -m hf_guided.batch``: a file of rows in, a file of answers out.

Exit codes: 0 every row is in the output or among the failures; 2 a mistake in what was asked. Anything else stopped it
in the middle: the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, parse_flag_from_env
from tqdm.auto import tqdm

from ..arguments import Mistake, add_chat_options, add_constraint, constraint_of, load, positive
from ..constraints import Constraint
from ..errors import HFGuidedError
from ..generation_plan import DEFAULT_MAX_NEW_TOKENS
from .job import Job, digest
from .parts import Parts
from .rows import Rows
from .worker import Share, Worker

T = TypeVar("T")

# One process may be done long before another.
_PATIENCE = timedelta(days=30)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one process of a job.

    Args:
        argv: arguments without the program's name; None takes the process's.

    Returns:
        The exit code.
    """
    arguments = _parser().parse_args(argv)
    cpu = arguments.device == "cpu" or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()
    state = PartialState(cpu=cpu, timeout=_PATIENCE)
    try:
        code = _run(arguments, state)
    except Mistake as error:
        if state.is_main_process:
            print(f"hf_guided.batch: error: {error}", file=sys.stderr)
        code = 2
    state.destroy_process_group()
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="accelerate launch -m hf_guided.batch",
        description="Answer every row of a file in the language you ask for; stopped, it goes on where it was.",
    )
    parser.add_argument("--model", required=True, metavar="PATH", help="a model's directory, or 'demo'")
    parser.add_argument("--tokenizer", metavar="PATH", help="a tokenizer's directory, if it is not the model's")
    parser.add_argument("--input", required=True, type=Path, metavar="FILE", help="JSONL, a row a line")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE", help="JSONL, in the rows' order")
    add_constraint(parser)
    parser.add_argument(
        "--prompt-field", default="prompt", metavar="NAME", help="a row's text, or list of messages (%(default)s)"
    )
    parser.add_argument(
        "--constraint-field",
        default="response_format",
        metavar="NAME",
        help="a row's own JSON Schema or response_format, if it has one (%(default)s)",
    )
    parser.add_argument("--chat", action="store_true", help="send texts as a user's message, by the chat template")
    add_chat_options(parser)
    parser.add_argument(
        "--documents-field", default="documents", metavar="NAME", help="a row's documents, for its chat (%(default)s)"
    )
    parser.add_argument("--batch-size", type=positive(int), default=8, metavar="N", help="rows at once (%(default)s)")
    parser.add_argument("--max-new-tokens", type=positive(int), default=DEFAULT_MAX_NEW_TOKENS, metavar="N")
    parser.add_argument("--temperature", type=positive(float), help="sample at this temperature; greedy without it")
    parser.add_argument("--top-p", type=positive(float), help="of the samples")
    parser.add_argument("--seed", type=int, default=0, help="of the samples (%(default)s)")
    parser.add_argument("--backend", default="auto", help="auto, or the name of a grammar engine (%(default)s)")
    parser.add_argument("--dtype", default="auto", help="of the weights (%(default)s: as they are stored)")
    parser.add_argument("--device", help="where the model runs (default: what accelerate gives this process)")
    parser.add_argument("--device-map", metavar="MAP", help="spread the model over all devices of one process: 'auto'")
    parser.add_argument("--overwrite", action="store_true", help="begin anew, and lose what is there")
    return parser


def _run(arguments: argparse.Namespace, state: Any) -> int:
    constraint, job, parts = _agreed(lambda: _asked(arguments))
    rows = Rows(arguments.input, job.prompt_field, job.constraint_field, job.documents_field, constraint, job.chat)
    try:
        _agreed(lambda: _begin(arguments, state, job, parts))
        share = Share(state.process_index, state.num_processes)
        todo, worker = _agreed(lambda: _prepared(arguments, state, job, rows, parts, share))
        # Everybody's answers are on disk when everybody is here.
        spent = gather_object([_answer(state, rows, parts, share, todo, worker)])
        if state.is_main_process:
            _finish(parts, len(rows), spent)
    finally:
        rows.close()
        parts.end()
    return 0


def _agreed(do: Callable[[], T]) -> T:
    """What each process does by itself, if it went well in all of them.

    Raises:
        Mistake: what was wrong in the first process in which something was; in all of them.
    """
    done: T | None = None
    mine: Exception | None = None
    try:
        done = do()
    except (HFGuidedError, Mistake) as error:
        mine = error
    said = [one for one in gather_object([mine and str(mine)]) if one is not None]
    if said:
        raise Mistake(said[0]) from mine
    return done  # type: ignore[return-value]  # it went well


def _asked(arguments: argparse.Namespace) -> tuple[Constraint | None, Job, Parts]:
    constraint = constraint_of(arguments)
    if arguments.top_p is not None and (arguments.temperature is None or arguments.top_p > 1):
        raise Mistake("--top-p: expected a number up to 1, beside --temperature; greedy answers need neither")
    job = _job(arguments, constraint)
    parts = Parts(arguments.output)
    parts.check_apart(arguments.input)
    return constraint, job, parts


def _job(arguments: argparse.Namespace, constraint: Constraint | None) -> Job:
    try:
        rows = digest(arguments.input)
    except OSError as error:
        raise Mistake(f"cannot read {arguments.input}: {error.strerror or error}") from error
    given = {name: value for name, value in vars(arguments).items() if name in Job.__dataclass_fields__}
    return Job(**given, input_digest=rows, constraint=repr(constraint))


def _begin(arguments: argparse.Namespace, state: Any, job: Job, parts: Parts) -> None:
    if state.is_main_process:
        parts.begin(arguments.overwrite)
        job.agree(parts.folder / "job.json")


def _prepared(
    arguments: argparse.Namespace, state: Any, job: Job, rows: Rows, parts: Parts, share: Share
) -> tuple[list[range], Worker | None]:
    """This process's batches, and what answers them."""
    if not (parts.folder / "job.json").exists():
        raise Mistake(
            f"process {share.process} does not see {parts.folder}: --output has to be on a disk that all share"
        )
    todo = list(share.batches(parts.places(len(rows)), job.batch_size))
    if not todo:
        return [], None
    device = arguments.device or str(state.device)
    return todo, Worker(job, rows, *load(job.model, job.tokenizer, device, job.dtype, arguments.device_map))


def _answer(
    state: Any, rows: Rows, parts: Parts, share: Share, todo: Sequence[range], worker: Worker | None
) -> dict[str, float]:
    """Answer these batches; what they took."""
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
        "tokens": sum(one.tokens for one in spent),
        "row_forwards": sum(one.row_forwards for one in spent),
        "seconds": time.perf_counter() - began,
    }


def _finish(parts: Parts, rows: int, spent: Sequence[dict[str, float]]) -> None:
    done, failed = parts.finish(rows)
    tokens = sum(one["tokens"] for one in spent)
    seconds = max(one["seconds"] for one in spent)
    told = {
        "rows": rows,
        "answered": done,
        "failed": failed,
        "this_run": {
            "processes": len(spent),
            "tokens": tokens,
            "seconds": round(seconds, 3),
            "tokens_per_second": round(tokens / seconds, 1) if seconds else 0.0,
            "row_forwards_per_token": round(sum(one["row_forwards"] for one in spent) / tokens, 3) if tokens else 0.0,
        },
    }
    print(json.dumps(told))
    if failed:
        print(f"hf_guided.batch: {failed} of {rows} rows failed, see {parts.failures}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
