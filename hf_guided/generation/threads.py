"""Calls on other threads: their turns on a model, torch's state there, and their cancellation.

``model.generate`` is not made for two calls at a time: hooks, caches and processors of a model are shared. So every
model has a queue, whose thread lives while there are jobs; none of them blocks the event loop.

A call checks a flag after each chosen token, and ends when another thread has set it: our own loops check it in a
listener, transformers' loops in a logits processor.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import LogitsProcessor

from ..errors import Line, reading, warnings_at
from ..hf.compat import layers
from ..hf.listening import TokenListener


class Cancelled(BaseException):
    """The caller no longer wants the answer. Not an Exception, so that no handler takes it for an error."""


class Cancellation(Event):
    """A flag that any thread may set."""

    def check(self) -> None:
        """Raise ``Cancelled`` if the flag is set."""
        if self.is_set():
            raise Cancelled


@dataclass(eq=False)
class CancelledListener(TokenListener):
    """Checks the flag at the tokens of our own loops."""

    cancellation: Cancellation

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        """See ``TokenListener``."""
        self.cancellation.check()


@dataclass(eq=False)
class CancelledProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Checks the flag in transformers' own loops, beam search included; returns the scores unchanged."""

    cancellation: Cancellation

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), unchanged."""
        self.cancellation.check()
        return scores


THREAD_NAME = "hf-guided-async"


class Turns:
    """The jobs of one model."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._working = False

    def add(self, job: Callable[[], Any]) -> Future[Any]:
        """Run a job after those before it; one whose future is cancelled before it begins never begins."""
        future: Future[Any] = Future()
        with self._lock:
            self._waiting.append((future, job))
            start, self._working = not self._working, True
        if start:
            Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                future, job = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except StopIteration as stop:  # a future of asyncio cannot hold it
                error = RuntimeError("generation raised StopIteration")
                error.__cause__ = stop
                future.set_exception(error)
            except BaseException as raised:  # any error is for the task
                future.set_exception(raised)


_turns: WeakKeyDictionary[Any, Turns] = WeakKeyDictionary()
_turns_lock = Lock()


def turns_of(model: Any) -> Turns:
    """The queue of a model, the same for its wrappers; an object that cannot be a model gets a new queue."""
    *_, innermost = layers(model)
    try:
        with _turns_lock:
            return _turns.setdefault(innermost, Turns())
    except Exception:  # no weak references, no hash, or one that raises
        return Turns()


@contextlib.asynccontextmanager
async def running(model: Any, call: Callable[[Cancellation], Any], line: Line) -> AsyncIterator[asyncio.Future[Any]]:
    """Have a call made on the thread of a model, with the context variables of the task and the state of its thread.

    At the end of the context the call is cancelled, and has ended, even if the task is cancelled while it waits for
    that.

    Args:
        model: the model.
        call: is given what cancels it.
        line: of the user's code, for warnings.

    Yields:
        What the call returns or raises; to be waited for with ``asyncio.wait``, which does not cancel it.
    """
    with reading("agenerate"):
        entered = surroundings(getattr(getattr(model, "device", None), "type", "cpu"))
    cancellation = Cancellation()

    def job() -> Any:
        with entered(), warnings_at(line):
            return call(cancellation)

    future = turns_of(model).add(partial(copy_context().run, job))
    ended = asyncio.wrap_future(future)
    try:
        yield ended
    finally:
        cancellation.set()
        future.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:
                cancelled = error
        if not ended.cancelled():
            ended.exception()  # retrieved, so that asyncio does not report it
        if cancelled is not None:
            raise cancelled


def surroundings(kind: str) -> Callable[[], contextlib.ExitStack]:
    """The state that torch keeps for each thread and type of device; the returned function enters it on another."""
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
