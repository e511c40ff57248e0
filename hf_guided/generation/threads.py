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
from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Event, Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import LogitsProcessor

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


class CancelledListener(TokenListener):
    """Checks the flag at the tokens of our own loops."""

    def __init__(self, cancellation: Cancellation):
        self._cancellation = cancellation

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        """See ``TokenListener``."""
        self._cancellation.check()


class CancelledProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Checks the flag in transformers' own loops, beam search included; returns the scores unchanged."""

    def __init__(self, cancellation: Cancellation):
        self._cancellation = cancellation

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), unchanged."""
        self._cancellation.check()
        return scores


THREAD_NAME = "hf-guided-async"


class Turns:
    """The jobs of one model."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._working = False

    def add(self, job: Callable[[], None]) -> None:
        """Run a job after those before it; it must not raise."""
        with self._lock:
            self._waiting.append(job)
            start, self._working = not self._working, True
        if start:
            Thread(target=self._work, name=THREAD_NAME, daemon=True).start()

    def remove(self, job: Callable[[], None]) -> bool:
        """Remove a job that has not begun; returns whether there was one."""
        with self._lock:
            waits = job in self._waiting
            if waits:
                self._waiting.remove(job)
        return waits

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._working = False
                    return
                job = self._waiting.popleft()
            job()


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


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function on the thread of an event loop, from any thread."""
    with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
        loop.call_soon_threadsafe(function, *arguments)


class Running:
    """One job that a task waits for. The task makes it, and the job sees the task's context variables.

    Args:
        turns: where the job waits for its turn.
        do: the job; called on a thread.
    """

    def __init__(self, turns: Turns, do: Callable[[], Any]):
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Any] = self._loop.create_future()
        self._turns = turns
        self._do = do
        self._context = copy_context()
        turns.add(self._run)

    @property
    def ended(self) -> asyncio.Future[Any]:
        """The result or error of the job; wait for it with ``asyncio.wait``, which does not cancel it."""
        return self._ended

    async def end(self) -> None:
        """Wait until the job has ended, even if the wait is cancelled; a job that has not begun is removed.

        Raises:
            CancelledError: the task was cancelled while it waited; raised after the job has ended.
        """
        if self._turns.remove(self._run):
            self._ended.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not self._ended.done():
            try:
                await asyncio.wait([self._ended])
            except asyncio.CancelledError as error:
                cancelled = error
        if not self._ended.cancelled():
            self._ended.exception()  # retrieved, so that asyncio does not report it
        if cancelled is not None:
            raise cancelled

    def _run(self) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._context.run(self._do)
        except StopIteration as stop:  # a future cannot hold it
            error = RuntimeError("generation raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # any error is for the task
            error = raised
        call_soon(self._loop, self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._ended.set_result(result)
        else:
            self._ended.set_exception(error)


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
