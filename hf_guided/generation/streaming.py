"""``hg.generate(..., stream=True)``: answers while they are generated.

The model runs on a thread of its own, which puts new tokens into a queue. The iterating thread reads them, replays the
grammar and parses values, while the model works on the next step. When the iterator is closed, the listener raises at
the next token, which ends the call; the thread that began to iterate waits for that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from threading import Thread, current_thread

from ..errors import users_line, warnings_at
from ..hf.compat import input_device
from ..hf.listening import TokenListener
from ..session.logprobs import TokenLogprob
from ..session.result import GuidedResult
from .partial import Partial, PartialRow
from .plan import Plan
from .run import Batch, Progress, warn_of_shortened
from .threads import Cancellation, Cancelled, surroundings


class _Rows:
    """The rows of the current batch, on the thread that iterates; each method yields the Partials that are new."""

    def __init__(self, plan: Plan, progress: Progress):
        self._options = plan.options
        self._progress = progress
        self._rows: list[PartialRow] = []

    def begin(self, batch: Batch, first: int) -> Iterable[Partial]:
        """A batch begins, whose first row has this index among all answers."""
        logprobs, traced = self._options.top_logprobs is not None, self._options.trace
        self._rows = [
            PartialRow(
                first + row,
                batch.reader(row),
                logprobs=logprobs,
                traced=traced,
                with_limit=partial(batch.call.with_limit, row),
            )
            for row in range(batch.num_rows)
        ]
        return ()

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> Iterator[Partial]:
        """A row has new tokens."""
        if (partial := self._rows[row].add_tokens(token_ids)) is not None:
            yield partial

    def on_logprobs(self, row: int, entries: Sequence[TokenLogprob]) -> Iterator[Partial]:
        """The log probabilities of a row's next tokens are known."""
        if (partial := self._rows[row].on_logprobs(entries)) is not None:
            yield partial

    def end(self, batch: Batch, token_ids: Sequence[list[int]], seconds: float) -> Iterator[Partial]:
        """The batch has ended with these tokens of its rows."""
        self._progress.spent(batch.call.stats, seconds)
        for number, row in enumerate(self._rows):
            if not row.ended:
                last = row.end(token_ids[number], batch.logprobs(number), batch.call.seam.dead_ends.get(number))
                assert last.result is not None
                yield replace(last, result=batch.with_trace(number, last.result))
        self._progress.done(len(batch.indices))


# Calls of methods of _Rows, for the iterating thread; an exception, which it raises; None at the end.
_Queue = SimpleQueue[Callable[[_Rows], Iterable[Partial]] | BaseException | None]


class _QueueListener(TokenListener):
    def __init__(self, queue: _Queue, closing: Cancellation):
        self._queue = queue
        self._closing = closing

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        self._closing.check()
        self._queue.put(lambda rows: rows.on_tokens(row, token_ids))

    def on_logprobs(self, row: int, entries: Sequence[TokenLogprob]) -> None:
        self._closing.check()
        self._queue.put(lambda rows: rows.on_logprobs(row, entries))


def stream_plan(plan: Plan) -> Generator[Partial, None, None]:
    """Run the batches one after another, and yield new text of each row as it comes."""
    queue: _Queue = SimpleQueue()
    closing = plan.cancellation or Cancellation()
    reader = current_thread()
    worker = Thread(
        target=copy_context().run,
        args=(warnings_at(users_line())(_generate), plan, queue, closing, surroundings(input_device(plan.model).type)),
        name="hf-guided-stream",
        daemon=True,
    )
    worker.start()
    try:
        with contextlib.closing(Progress(plan)) as progress:
            rows, results = _Rows(plan, progress), list[GuidedResult]()
            while (item := queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                for new in item(rows):
                    if new.result is not None:
                        results.append(new.result)
                    yield new
            warn_of_shortened(plan, results)
    finally:
        closing.set()
        # Garbage collection may run on any thread: on the worker itself, or on one that the worker waits for.
        if current_thread() is reader:
            worker.join()


def _generate(
    plan: Plan, queue: _Queue, closing: Cancellation, surroundings: Callable[[], contextlib.ExitStack]
) -> None:
    """Run the batches, on the worker."""
    last: BaseException | None = None
    try:
        with surroundings():
            first = 0
            for indices in plan.batches():
                if closing.is_set():
                    break
                batch = Batch(plan, indices, _QueueListener(queue, closing))
                queue.put(partial(_Rows.begin, batch=batch, first=first))
                token_ids, seconds = batch.run()
                queue.put(partial(_Rows.end, batch=batch, token_ids=token_ids, seconds=seconds))
                first += batch.num_rows
    except Cancelled:
        pass
    except BaseException as error:  # the iterating thread raises it
        last = error
    queue.put(last)
