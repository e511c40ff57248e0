"""The one service that compiles: on a few threads, or on that of a caller who waits; once per constraint.

- A key is (``constraint.key``, backend requested). Per key at most one compile runs; later callers wait for the same
  one. Every caller gets a future of its own, so cancelling it takes nothing from the others; a compile that all its
  callers cancelled before it began is left out.
- What it has become is kept (cache.py): results, and errors that the constraint caused. An error that may not recur (a
  package not installed, no memory, our bugs) is tried again.
- What a compile may take, and whose turn it is, is counted in automaton/limits.py. A compile that takes more than
  milliseconds makes room for another thread, so that others do not queue after it.
- Threads are started when there is work and hold no reference to an idle compiler: when the last reference to it goes
  and the queue is empty, they end. They are daemons, so the interpreter's exit waits for no grammar, but for a moment:
  one that it meets inside of numpy's C++ would take the process down with an abort, so compiles give up then.
- After a fork the child has none of the parent's threads, and its locks may be held for ever: it starts again, with an
  empty cache and backends of its own. A future taken before the fork does not finish in the child.
"""

from __future__ import annotations

import atexit
import copy
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..automaton.after_fork import renew_in_child
from ..automaton.limits import compiling, interpreter_ends
from ..constraints.base import replaced
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Choice, Constraint, JsonSchema
from ..errors import (
    BackendError,
    CompileLimitExceeded,
    HFGuidedError,
    InvalidConstraint,
    Line,
    Loss,
    UnsupportedConstraint,
    cause,
    shown,
    users_line,
    warn,
    warnings_at,
)
from ..options import WAIT_S, CompilerOptions
from ..schema.audit import Audit, AuditRow, audit, may_be_misspelt, misspelt_names
from .base import Backend, CompiledConstraint, held_spelling
from .budget_search import with_budget
from .cache import REPLAYED, Outcomes
from .refusals import reason, refusal
from .registry import AUTO, EngineSet, chosen

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_FEW_FRAMES = 50  # few among the thousand that Python allows
_MAX_SENTENCES = 10  # maximum number of sentences in a warning
_MOST_THREADS = 32  # maximum number of threads of a compiler, with those that take long
# The longest wait at the end of the interpreter, for engines that cannot give up: before 3.14, Python unwinds a thread
# that returns from native code after the end, and Rust and C++ then crash the process.
_PATIENCE_S = 10.0
_MOST_TOO_LARGE = 2  # schemas of one constraint that are tried alone, each for seconds
_DOES_NOT_COMPILE = (InvalidConstraint, UnsupportedConstraint, CompileLimitExceeded)
_busy: dict[threading.Thread, threading.Event] = {}  # set when the thread has nothing more to do


@dataclass(frozen=True)
class CompilerStats:
    """The counts of a compiler so far; a snapshot."""

    hits: int = 0  # answered from the cache
    joined: int = 0  # answered by a compile that was already running
    misses: int = 0  # compiles begun
    replays: int = 0  # failures raised again from memory
    failures: int = 0  # compiles that failed
    evictions: int = 0  # grammars dropped from the cache
    entries: int = 0  # grammars in the cache now
    nbytes: int = 0  # their size in bytes
    compile_ms: float = 0.0  # time spent compiling, all threads together


class Waiter(Future[CompiledConstraint]):
    """One caller's future."""

    def result(self, timeout: float | None = None) -> CompiledConstraint:
        """The result of the future; without a timeout of its own, the wait ends after ``WAIT_S``."""
        try:
            return super().result(WAIT_S if timeout is None else timeout)
        except FutureTimeoutError:
            if timeout is not None or self.done():
                raise
            raise CompileLimitExceeded(
                f"not compiled within {WAIT_S:g} s: the machine is busy with other work, or other constraints come "
                "first; try again later"
            ) from None

    def finish(self, outcome: CompiledConstraint | BaseException) -> None:
        """The compile has ended."""
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(outcome, CompiledConstraint):
            self.set_result(outcome)
        else:  # each caller raises a copy of its own: raising writes a traceback into it
            self.set_exception(copy.copy(outcome) if isinstance(outcome, REPLAYED) else outcome)


@dataclass(eq=False)
class Job:
    """A compile and the callers that wait for it."""

    key: tuple[str, str]  # the key of the constraint, and the backend requested
    constraint: Constraint
    waiters: list[Waiter]
    line: Line | None = None  # the line of the first caller's code; None until it begins


class Compiler:
    """Compiles constraints for one vocabulary; thread safe. None takes options from the environment, all backends."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        options: CompilerOptions | None = None,
        backends: Mapping[str, Backend] | None = None,
    ) -> None:
        self.options = CompilerOptions.from_env() if options is None else options
        self._vocabulary = vocabulary
        self._given = backends
        self._finalizer: weakref.finalize[..., Compiler] | None = None
        self.after_fork()
        renew_in_child(self)

    def submit(self, constraint: Constraint, backend: str = AUTO) -> Future[CompiledConstraint]:
        """Compile in the background, with a named backend or the choice of "auto"; the future is the caller's own.

        The result may hold another constraint with the same key, so parse texts with your own. The future raises
        InvalidConstraint, UnsupportedConstraint, UnwritableConstraint or CompileLimitExceeded; the last also when
        ``result()`` has waited for ``WAIT_S``.
        """
        waiter = Waiter()
        self._submit(Job((constraint.key, backend), constraint, [waiter]), on_caller_thread=False)
        return waiter

    def compile(self, constraint: Constraint, backend: str = AUTO) -> CompiledConstraint:
        """Compile and wait; see ``submit``.

        Where nothing else is compiled, that is done on the caller's thread: most compiles take a millisecond or two,
        and 6 % more on another core, whose caches have nothing of it.
        """
        waiter = Waiter()
        job = Job((constraint.key, backend), constraint, [waiter])
        try:
            if self._submit(job, on_caller_thread=_is_shallow()):
                self._run(job, on_caller_thread=True)
        except BaseException:  # an interrupt of the caller ends only its own waiting
            waiter.cancel()
            with self._lock:
                if self._in_flight.get(job.key) is job:
                    self._pool.submit(partial(self._run, job))  # for those who joined it, if any did
            raise
        try:
            return waiter.result()
        finally:
            del waiter, job  # both hold the error that is raised, which holds this frame

    def knows(self, constraint: Constraint, backend: str = AUTO) -> bool:
        """Whether ``submit`` would begin no compile: it is done, it has failed, or it is under way."""
        key = constraint.key, backend
        with self._lock:
            return key in self._outcomes or key in self._in_flight

    def audit(self, constraint: Constraint, backend: str = AUTO) -> Audit:
        """The treatment of every keyword; compiles too, so that both agree. Only InvalidConstraint is raised."""
        try:
            with compiling():
                constraint.check()
            compiled = self.submit(constraint, backend).result()
        except (UnsupportedConstraint, CompileLimitExceeded) as error:
            losses = getattr(error, "losses", ()) or (Loss("", constraint.kind, str(error)),)
            name, engine = self._engine(constraint, backend)
            spelling = held_spelling(engine, constraint)
            return audit(constraint, None, str(error).partition("\n")[0], losses, spelling, asked=name)
        losses = compiled.losses
        found = audit(constraint, compiled.backend, reason(backend, losses), losses, compiled.spelling)
        return replace(found, rows=(*found.rows, *self._read_as_calls(constraint, backend)))

    def _read_as_calls(self, constraint: Constraint, backend: str) -> Iterator[AuditRow]:
        """A row for each way to begin a call in which an answer may begin too."""
        if not isinstance(constraint, ToolCalls) or not constraint.ambiguous_starts:
            return
        assert constraint.answer is not None
        matcher = self.submit(constraint.answer, backend).result().matcher()
        for start in constraint.ambiguous_starts:
            token_ids = self._vocabulary.encode_bytes(start.encode())
            if matcher.validate_tokens(token_ids) == len(token_ids):
                detail = (
                    f"an answer may begin with {shown(start)}, as a call does; a text that is both is read as a call"
                )
                yield AuditRow("", "answer", "ambiguous", detail)

    def close(self, timeout_s: float) -> bool:
        """Wait until the threads have finished their queues, and end them; more work would start others.

        The interpreter kills threads that still run when it ends; in the middle of an engine that takes the process
        with it. False where some have not ended in this time.
        """
        deadline = time.monotonic() + timeout_s
        with self._lock:
            threads = self._pool.end()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def stats(self) -> CompilerStats:
        """The counts so far."""
        cache = self._outcomes.results.stats()
        with self._lock:
            return CompilerStats(
                **self._counts,
                evictions=cache.evictions,
                entries=cache.entries,
                nbytes=cache.nbytes,
                compile_ms=self._compile_s * 1e3,
            )

    def _submit(self, job: Job, *, on_caller_thread: bool) -> bool:
        """Answer the first caller of a job with what is known, or have it wait; True where it has to compile itself."""
        key, waiter = job.key, job.waiters[0]
        with self._lock:
            outcome = self._outcomes.get(key)
            if isinstance(outcome, CompiledConstraint):
                self._counts["hits"] += 1
            elif outcome is not None:
                self._counts["replays"] += 1
            elif key in self._in_flight:
                self._counts["joined"] += 1
                self._in_flight[key].waiters.append(waiter)
            else:
                on_caller_thread &= not self._in_flight
                self._counts["misses"] += 1
                job.line = users_line()
                self._in_flight[key] = job
                try:
                    if not on_caller_thread:
                        self._pool.submit(partial(self._run, job))
                except RuntimeError:  # no thread could be started: others would wait for this job for ever
                    del self._in_flight[key]
                    raise
                return on_caller_thread
        if outcome is not None:
            waiter.finish(outcome)
        return False

    def _run(self, job: Job, *, on_caller_thread: bool = False) -> None:
        with self._lock:
            if self._in_flight.get(job.key) is not job:
                return
            if all(waiter.cancelled() for waiter in job.waiters):
                del self._in_flight[job.key]
                self._counts["misses"] -= 1
                return
        self._finish(job, self._outcome(job, on_caller_thread))

    def _outcome(self, job: Job, on_caller_thread: bool) -> CompiledConstraint | BaseException:
        """The result of a compile; raises what ends a thread, on the caller's thread only."""
        began = time.perf_counter()
        not_short = 0

        def when_not_short() -> None:
            nonlocal not_short
            not_short = 1
            with self._lock:
                self._pool.grow(1)

        try:
            with warnings_at(job.line), compiling(when_not_short):
                compiled = self._compile(job.constraint, job.key[1])
            # With a cache of 0 bytes the user wants none.
            if self.options.cache_bytes > 0 and self._outcomes.results.is_too_large(compiled):
                warn(
                    f"{compiled.constraint} takes {compiled.nbytes} bytes when compiled, and the cache of compiled "
                    f"constraints holds {self.options.cache_bytes} in all: every request compiles it again; raise "
                    f"CompilerOptions.cache_bytes to at least {compiled.nbytes}"
                )
            return compiled
        except BaseException as error:  # every exception goes to the callers; the thread continues
            if isinstance(error, HFGuidedError):
                return error
            if not isinstance(error, Exception):
                if on_caller_thread:
                    raise
                return error
            own = BackendError(f"the compile of {shown(job.constraint)} failed: {cause(error)}; please report it")
            own.__cause__ = error
            return own
        finally:
            with self._lock:
                self._compile_s += time.perf_counter() - began
                self._pool.grow(-not_short)

    def _finish(self, job: Job, outcome: CompiledConstraint | BaseException) -> None:
        key = job.key
        with self._lock:
            if self._in_flight.get(key) is not job:
                return  # two threads had it: one was interrupted while it gave it to the other
            self._outcomes.put(key, outcome)  # with the next step: no gap in which it would start again
            self._counts["failures"] += isinstance(outcome, BaseException)
            del self._in_flight[key]  # from here on no caller joins, so the list of waiters is complete
        for waiter in job.waiters:
            waiter.finish(outcome)

    def _compile(self, constraint: Constraint, backend: str) -> CompiledConstraint:
        _warn_of_misspelt_names(constraint)
        try:
            return self._compile_exactly(constraint, backend)
        except _DOES_NOT_COMPILE as error:
            for wider, names in self._with_any_object(constraint, backend, error):
                with suppress(*_DOES_NOT_COMPILE):
                    compiled = self._compile_exactly(wider, backend)
                    what = ", ".join([name or "the answer" for name in names])
                    lost = f'any object is allowed for {what}, which says "strict": false and cannot be enforced'
                    warn(f"{lost}: {error}")
                    return replace(compiled, losses=(*compiled.losses, Loss("", "strict", lost)))
            raise

    def _with_any_object(
        self, constraint: Constraint, backend: str, error: Exception
    ) -> Iterator[tuple[Constraint, list[str | None]]]:
        """The constraint with any object in place of lenient schemas that do not compile, and their tools' names.

        First in place of those that do not compile alone, then of all, if together they are too large. None stands for
        the answer.
        """
        if isinstance(constraint, JsonSchema) and constraint.lenient:
            yield constraint.any_object(), [None]
        if not isinstance(constraint, ToolCalls):
            return
        num_too_large = 0

        def fails(part: Constraint) -> bool:
            nonlocal num_too_large
            try:
                if num_too_large < _MOST_TOO_LARGE:
                    self._compile_exactly(part, backend)
            except _DOES_NOT_COMPILE as reason:
                num_too_large += isinstance(reason, CompileLimitExceeded)
                return True
            return num_too_large >= _MOST_TOO_LARGE

        answer = constraint.answer
        lenient: dict[str | None, Constraint] = {name: constraint.only(name) for name in constraint.lenient}
        if isinstance(answer, JsonSchema) and answer.lenient:
            lenient[None] = answer
        alone = [name for name, part in lenient.items() if fails(part)]
        for names in (alone, [*lenient]) if isinstance(error, CompileLimitExceeded) else (alone,):
            if names:
                wider = constraint.with_any_object([name for name in names if name is not None])
                if isinstance(answer, JsonSchema) and None in names:
                    wider = replaced(wider, answer=answer.any_object())
                yield wider, names

    def _engine(self, constraint: Constraint, backend: str) -> tuple[str, Backend]:
        """The name of the engine for a constraint, and the engine."""
        backends = self._engines.for_constraint(constraint) if self._given is None else self._given
        name = chosen(constraint, backend)
        return name, backends[name]

    def _compile_exactly(self, constraint: Constraint, backend: str) -> CompiledConstraint:
        if isinstance(constraint, ToolCalls):
            constraint = constraint.structural_tag()  # the same texts, in a kind that backends know
        if isinstance(constraint, Choice) and len(self._vocabulary.writable_bytes) < 256:
            for option in constraint.options:  # an engine would leave out those that no tokens write
                self._vocabulary.encode_bytes(option.encode())
        name, engine = self._engine(constraint, backend)
        if losses := tuple(engine.losses(constraint)):
            if constraint.on_unsupported == "error":
                raise refusal(constraint, backend, losses)
            if constraint.on_unsupported == "warn":
                lost = "\n  ".join(map(str, losses))
                warn(f"{name} does not enforce all of the schema:\n  {lost}")
        try:
            compiled = engine.compile(constraint)
        except UnsupportedConstraint as error:  # it shows only in a compile
            seen = error.losses or (Loss("", constraint.kind, str(error)),)
            raise refusal(constraint, backend, seen) from error
        return with_budget(compiled)

    def after_fork(self) -> None:
        """Set the initial state, in the constructor and in the child of a fork."""
        self._lock = threading.RLock()  # entered again where a signal's handler compiles
        self._engines = EngineSet(self._vocabulary)
        self._outcomes = Outcomes(self.options.cache_bytes, self.options.max_failures)
        self._in_flight: dict[tuple[str, str], Job] = {}
        self._counts = dict.fromkeys(("hits", "joined", "misses", "replays", "failures"), 0)
        self._compile_s = 0.0
        self._pool = Pool(self.options.workers)
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, self._pool.end)
        self._finalizer.atexit = False


def _warn_of_misspelt_names(constraint: Constraint) -> None:
    schemas: list[Any] = []
    if isinstance(constraint, JsonSchema) and may_be_misspelt(constraint.normal_form):
        schemas = [constraint.schema]
    elif isinstance(constraint, ToolCalls):
        schemas = list(constraint.parameters.values())
        if isinstance(constraint.answer, JsonSchema):
            schemas.append(constraint.answer.schema)
    if misspelt := [sentence for schema in schemas for sentence in misspelt_names(schema)]:
        if len(misspelt) > _MAX_SENTENCES:
            misspelt[_MAX_SENTENCES:] = [f"{len(misspelt) - _MAX_SENTENCES} more"]
        warn("the schema has keywords that constrain nothing:\n  " + "\n  ".join(misspelt))


def _is_shallow() -> bool:
    """Whether the caller leaves nearly all of Python's stack to a compile: deep schemas and patterns need it."""
    frame: FrameType | None = sys._getframe()
    for _ in range(_FEW_FRAMES):
        if frame is None:
            return True
        frame = frame.f_back
    return False


class Pool:
    """Daemon threads, up to ``workers``, started when there is more work than idle ones."""

    def __init__(self, workers: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._workers = workers
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job; the caller holds the compiler's lock."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False):
            self._start()

    def grow(self, workers: int) -> None:
        """Have more threads, or fewer from the next start on; the caller holds the compiler's lock."""
        self._workers += workers
        if not self._jobs.empty():
            self._start()

    def _start(self) -> None:
        if len(self._threads) < min(self._workers, _MOST_THREADS):
            name = f"hf_guided-compile-{len(self._threads) + 1}"
            thread = threading.Thread(target=_work, args=(self._jobs, self._idle), name=name, daemon=True)
            thread.start()  # raises where the system has no more threads
            self._threads.append(thread)

    def end(self) -> list[threading.Thread]:
        """Let every thread end after the queued work; the caller holds the compiler's lock, or is the last one."""
        jobs, self._jobs = self._jobs, queue.SimpleQueue()
        for _ in self._threads:
            jobs.put(None)
        threads, self._threads, self._idle = self._threads, [], threading.Semaphore(0)
        return threads


def _work(jobs: queue.SimpleQueue[Callable[[], None] | None], idle: threading.Semaphore) -> None:
    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            idle.release()  # a thread is idle only while it waits here
            job = jobs.get()
        thread, over = threading.current_thread(), threading.Event()
        _busy[thread] = over
        try:
            while job is not None:
                job()
                del job  # a job holds the compiler, which could not be freed while this thread waits for the next one
                job = jobs.get_nowait()  # a thread is busy as long as there are jobs: the end waits for all of them
        except queue.Empty:
            continue
        finally:
            del _busy[thread]
            over.set()
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_busy.clear)  # else the end of a child waits for threads of its parent


@atexit.register
def _end() -> None:
    interpreter_ends.set()
    deadline = time.monotonic() + _PATIENCE_S
    # The threads themselves do not end: they wait for more jobs.
    while (jobs := list(_busy.values())) and (left := deadline - time.monotonic()) > 0:
        jobs[0].wait(left)
