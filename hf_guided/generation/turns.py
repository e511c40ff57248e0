"""Jobs on one model, one after another, each on a thread and none of them holding up the event loop.

``model.generate`` is not made for two calls at a time: hooks, caches and processors of a model are shared. So every
model has a queue. Its thread lives while there are jobs, and takes the next when one has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from threading import Lock, Thread
from typing import Any
from weakref import WeakKeyDictionary

from ..hf.compat import layers

THREAD_NAME = "hf-guided-async"


class Turns:
    """The jobs of one model."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._working = False

    def add(self, job: Callable[[], None]) -> None:
        """Run a job when those before it have ended; it must not raise."""
        with self._lock:
            self._waiting.append(job)
            start, self._working = not self._working, True
        if start:
            Thread(target=self._work, name=THREAD_NAME, daemon=True).start()

    def remove(self, job: Callable[[], None]) -> bool:
        """Take back a job; returns whether it had not begun."""
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
    """The queue of a model, the same for its wrappers; what cannot be a model has one of its own, whose job fails."""
    *_, innermost = layers(model)
    try:
        with _turns_lock:
            return _turns.setdefault(innermost, Turns())
    except TypeError:  # no weak references, or no hash
        return Turns()


def call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function on the thread of an event loop, from any thread."""
    with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
        loop.call_soon_threadsafe(function, *arguments)


class Running:
    """One job that a task waits for. Made in the task, whose context variables the job sees.

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
        """What the job returned or raised; to be waited for with ``asyncio.wait``, which does not cancel it."""
        return self._ended

    async def end(self) -> None:
        """Wait until the job is over, whatever cancels the waiting; a job that has not begun never does.

        Raises:
            CancelledError: the task was cancelled while it waited; after the job is over.
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
            self._ended.exception()  # looked at, so that asyncio does not report it
        if cancelled is not None:
            raise cancelled

    def _run(self) -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._context.run(self._do)
        except StopIteration as stop:  # a future takes no such thing
            error = RuntimeError("generation raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # whatever it is, it is for the task
            error = raised
        call_soon(self._loop, self._settle, result, error)

    def _settle(self, result: Any, error: BaseException | None) -> None:
        if error is None:
            self._ended.set_result(result)
        else:
            self._ended.set_exception(error)
