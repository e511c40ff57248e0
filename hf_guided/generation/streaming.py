"""``hg.generate(..., stream=True)``: answers while they are generated.

The model runs on a thread of its own, which puts new tokens into a queue. The iterating thread reads them, replays the
grammar and parses values, while the model works on the next step. When the iterator is closed, the listener raises at
the next token, which ends the call; the thread that began to iterate waits for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread, current_thread

import torch
from transformers.generation.configuration_utils import GenerationMode

from ..errors import InvalidArgument
from ..hf.compat import input_device
from ..hf.listening import TokenListener
from ..session.logprobs import TokenLogprob
from .cancellation import Cancellation, Cancelled
from .partial import Partial, PartialRow
from .plan import Plan
from .progress import Progress
from .run import Batch


def check_can_stream(plan: Plan) -> None:
    """Refuse calls that could change text after it was returned, or that return no text before their end.

    Raises:
        InvalidArgument: names the argument to leave out.
    """
    settings = plan.settings
    if plan.options.retries:
        raise InvalidArgument("stream, retries: a retry would replace text that was returned; leave retries out")
    if plan.route.continuous is not None:
        raise InvalidArgument(
            "stream, continuous_batching: leave continuous_batching out; or use guide.attach(manager), and "
            "manager.add_request(..., streaming=True) with manager.request_id_iter(...)"
        )
    if settings.get("num_beams") not in (None, 1):
        raise InvalidArgument(
            f"stream, num_beams={settings.get('num_beams')}: beams may change all of their text until they end; leave "
            "num_beams out, or stream"
        )
    if settings.generation_mode not in (
        GenerationMode.GREEDY_SEARCH,
        GenerationMode.SAMPLE,
        GenerationMode.ASSISTED_GENERATION,
    ):
        raise InvalidArgument(
            f"stream: expected greedy decoding, sampling or assisted generation, got {settings.generation_mode.value}; "
            "leave stream out"
        )
    given = plan.generate_kwargs
    for name in ("streamer", "custom_generate"):
        if given.get(name) is not None:
            raise InvalidArgument(
                f"stream, {name}: expected one of the two, because each of them takes the tokens; leave one out"
            )
    if settings.get("token_healing"):
        raise InvalidArgument(
            "stream, token_healing: it rewrites the prompt, so answers begin elsewhere; leave one out"
        )


@dataclass(frozen=True)
class _Begun:
    batch: Batch
    first: int  # index of its first row


@dataclass(frozen=True)
class _NewTokens:
    row: int
    token_ids: Sequence[int]


@dataclass(frozen=True)
class _NewLogprobs:
    row: int
    entries: Sequence[TokenLogprob]


@dataclass(frozen=True)
class _Ended:
    rows: list[list[int]]
    seconds: float


@dataclass(frozen=True)
class _Finished:
    error: BaseException | None


_Queue = SimpleQueue[_Begun | _NewTokens | _NewLogprobs | _Ended | _Finished]


class _QueueListener(TokenListener):
    def __init__(self, queue: _Queue, closing: Cancellation):
        self._queue = queue
        self._closing = closing

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        self._closing.check()
        self._queue.put(_NewTokens(row, token_ids))

    def on_logprobs(self, row: int, entries: Sequence[TokenLogprob]) -> None:
        self._closing.check()
        self._queue.put(_NewLogprobs(row, entries))


def stream_plan(plan: Plan) -> Generator[Partial, None, None]:
    """Run the batches one after another, and yield new text of each row as it comes.

    Args:
        plan: one that can be streamed.
    """
    queue: _Queue = SimpleQueue()
    closing = plan.cancellation or Cancellation()
    reader = current_thread()
    worker = Thread(
        target=copy_context().run,
        args=(_generate, plan, queue, closing, surroundings(input_device(plan.model).type)),
        name="hf-guided-stream",
        daemon=True,
    )
    worker.start()
    try:
        with Progress(len(plan.prompts), plan.route.step, plan.options.stats, plan.options.progress) as progress:
            yield from _partials(queue, progress)
    finally:
        closing.set()
        # Garbage collection may run on any thread: on the worker itself, or on one that the worker waits for.
        if current_thread() is reader:
            worker.join()


def _partials(queue: _Queue, progress: Progress) -> Iterator[Partial]:
    batch: Batch | None = None
    rows: list[PartialRow] = []
    while True:
        item = queue.get()
        if isinstance(item, _Begun):
            batch = item.batch
            rows = [
                PartialRow(item.first + row, batch.reader(row), logprobs=batch.records, traced=batch.traces)
                for row in range(batch.num_rows)
            ]
        elif isinstance(item, _NewTokens):
            partial = rows[item.row].add_tokens(item.token_ids)
            if partial is not None:
                yield partial
        elif isinstance(item, _NewLogprobs):
            partial = rows[item.row].on_logprobs(item.entries)
            if partial is not None:
                yield partial
        elif isinstance(item, _Ended):
            assert batch is not None
            progress.spent(batch.stats, item.seconds)
            for number, (row, token_ids) in enumerate(zip(rows, item.rows, strict=True)):
                if not row.ended:
                    last = row.end(token_ids, batch.logprobs(number), batch.dead_end(number))
                    assert last.result is not None
                    yield replace(last, result=batch.with_trace(number, last.result))
            progress.done(len(batch.indices))
        elif item.error is not None:
            raise item.error
        else:
            return


def _generate(
    plan: Plan, queue: _Queue, closing: Cancellation, surroundings: Callable[[], contextlib.ExitStack]
) -> None:
    """Run the batches, on the worker."""
    error: BaseException | None = None
    try:
        with surroundings():
            first = 0
            for indices in plan.batches():
                if closing.is_set():
                    break
                batch = Batch(plan, indices, _QueueListener(queue, closing))
                queue.put(_Begun(batch, first))
                rows, seconds = batch.run()
                queue.put(_Ended(rows, seconds))
                first += batch.num_rows
    except Cancelled:
        pass
    except BaseException as caught:  # the iterating thread raises it
        error = caught
    queue.put(_Finished(error))


def surroundings(kind: str) -> Callable[[], contextlib.ExitStack]:
    """The state that torch keeps for each thread, copied from this one; the returned function enters it on another.

    Args:
        kind: the device type.
    """
    cuda_stream = torch.cuda.current_stream() if kind == "cuda" else None
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    inference = torch.is_inference_mode_enabled()

    def entered() -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(torch.inference_mode(inference))
        if cuda_stream is not None:
            stack.enter_context(torch.cuda.stream(cuda_stream))
        if autocast is not None:
            stack.enter_context(torch.autocast(kind, dtype=autocast))
        return stack

    return entered
