"""Compiles on a few threads, or on that of a caller who waits; once per constraint, whose grammar or error is cached.

- A key is (``constraint.key``, backend requested). Per key at most one compile runs; later
  callers wait for the same one. Every caller gets a future of its own, so cancelling it takes nothing from the
  others; a compile that all its callers cancelled before it began is left out.
- Compiled constraints are kept in a cache bounded in bytes; one that is too large for it is found as long as a caller
  holds it. An error caused by the constraint is raised again at once; an error that may not recur (a package not
  installed, no memory, our bugs) is tried again.
- What may take long (cost_estimate.py) is compiled in the worker process (worker_compile.py). The thread that waits for
  it is not one of the threads that compile here, so other constraints do not wait.
- Threads are started when there is work and hold no reference to an idle compiler: when the last reference to it goes
  and the queue is empty, they end. They are daemons, so the interpreter's exit waits for no grammar.
- After a fork the child has none of the parent's threads, and its locks may be held for ever: it starts again, with an
  empty cache and backends of its own. A future taken before the fork does not finish in the child.
"""

from __future__ import annotations

import copy
import sys
import threading
import time
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..automaton.after_fork import renew_in_child
from ..automaton.limits import MovesToWorker, limited
from ..automaton.lru_bytes import ByteCache
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, JsonSchema
from ..errors import (
    BackendError,
    CompileLimitExceeded,
    ConstraintError,
    HFGuidedError,
    Loss,
    UnsupportedConstraint,
    cause,
    shown,
)
from ..options import AGAIN_CPU_S, CompilerOptions
from ..schema.audit import Audit, audit, may_be_misspelt, misspelt_names
from . import registry
from .base import Backend, CompiledConstraint
from .budget_search import with_budget
from .compile_pool import Pool
from .cost_estimate import is_costly
from .registry import EngineSet
from .router import AUTO, BackendChoice, compile_with_first
from .subprocess_worker import JobKilled
from .vocabulary_coverage import check_writable
from .worker_compile import check_in_worker, compile_in_worker

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_FEW_FRAMES = 50  # few among the thousand that Python allows
_IN_WORKER = frozenset({AUTO, "llguidance", "xgrammar", "native", "lm_format_enforcer"})  # outlines is there anyway
_REPLAYED = (ConstraintError, CompileLimitExceeded)  # caused by the constraint, so it will fail again
_MAX_SENTENCES = 10  # maximum number of sentences in a warning


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


class CompiledCache(ByteCache[CompiledConstraint]):
    """Compiled constraints, which grow while texts are read: each is weighed again when it has grown."""

    def put(self, key: Hashable, value: CompiledConstraint) -> None:
        """See ``ByteCache.put``; a growing value is put once under each key."""
        super().put(key, value)
        if value.growth is None:
            return
        cache = weakref.ref(self)  # values may be held longer than their cache

        def weigh() -> None:
            if (kept := cache()) is not None:
                kept._weigh(key)

        value.growth.watch(weigh)
        weigh()  # it may have grown since it was put

    def _weight(self, value: CompiledConstraint) -> int:
        return value.held_bytes

    def _weigh(self, key: Hashable) -> None:
        """Weigh what is held under a key, and drop what was used least recently if all have become too large."""
        with self._lock:
            if key not in self._entries:
                return
            value, before = self._entries[key]
            nbytes = self._weight(value)
            self._entries[key] = value, nbytes
            self._nbytes += nbytes - before
            dropped = [self._pop(key)] if nbytes > self.max_bytes else self._make_room()
        del dropped  # freed after the lock


class Waiter(Future[CompiledConstraint]):
    """One caller's future."""

    def __init__(self, options: CompilerOptions) -> None:
        super().__init__()
        self._options = options

    def result(self, timeout: float | None = None) -> CompiledConstraint:
        """The result of the future; without a timeout of its own, the wait ends after the compiler's ``wait_s``."""
        wait_s = self._options.wait_s
        try:
            return super().result(wait_s if timeout is None else timeout)
        except FutureTimeoutError:
            if timeout is not None or self.done():
                raise
            raise CompileLimitExceeded(
                f"not compiled within {wait_s:g} s, though a compile may take only {self._options.cpu_s:g} s of CPU "
                "time: the machine is busy with other work, or other constraints come first; try again later, or "
                "raise CompilerOptions.cpu_s"
            ) from None

    def finish(self, outcome: CompiledConstraint | BaseException) -> None:
        """The compile has ended."""
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(outcome, CompiledConstraint):
            self.set_result(outcome)
        else:  # each caller raises a copy of its own: raising writes a traceback into it
            self.set_exception(copy.copy(outcome) if isinstance(outcome, _REPLAYED) else outcome)


class Job(NamedTuple):
    """A compile and the callers that wait for it."""

    key: tuple[str, str]  # the key of the constraint, and the backend requested
    constraint: Constraint
    waiters: list[Waiter]


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
        ``result()`` has waited for 60 times ``cpu_s``.
        """
        waiter = Waiter(self.options)
        self._submit(Job((constraint.key, backend), constraint, [waiter]), False)
        return waiter

    def compile(self, constraint: Constraint, backend: str = AUTO) -> CompiledConstraint:
        """Compile and wait; see ``submit``.

        Where nothing else is compiled, that is done on the caller's thread: most compiles take less than a
        millisecond, and a fifth more on another core, whose caches have nothing of it.
        """
        waiter = Waiter(self.options)
        job = Job((constraint.key, backend), constraint, [waiter])
        try:
            if self._submit(job, _is_shallow()):
                self._run(job, in_worker=False, on_caller_thread=True)
        except BaseException:  # an interrupt of the caller ends only its own waiting
            waiter.cancel()
            with self._lock:
                if self._in_flight.get(job.key) is job:
                    self._queue(job, in_worker=False)  # for those who joined it, if any did
            raise
        try:
            return waiter.result()
        finally:
            del waiter, job  # they hold the error that is raised, which holds this frame

    def knows(self, constraint: Constraint, backend: str = AUTO) -> bool:
        """Whether ``submit`` would begin no compile: it is done, it has failed, or it is under way."""
        key = constraint.key, backend
        with self._lock:
            return key in self._cache or key in self._failures or key in self._in_flight or key in self._held

    def audit(self, constraint: Constraint, backend: str = AUTO) -> Audit:
        """The treatment of every keyword; compiles too, so that both agree. Only InvalidConstraint is raised."""
        try:
            if isinstance(constraint, JsonSchema) and self._is_costly(constraint, backend):
                with limited(self.options):
                    check_in_worker(constraint)
            else:
                constraint.check()
            choice = self.submit(constraint, backend).result().choice
        except UnsupportedConstraint as error:
            return audit(constraint, None, str(error).partition("\n")[0], error.losses)
        except CompileLimitExceeded as error:
            return audit(constraint, None, str(error), [Loss("", constraint.kind, str(error))])
        assert choice is not None, "the compiler notes it"
        return audit(constraint, choice.backend, choice.reason, choice.losses, choice.considered, choice.spelling)

    def close(self, timeout_s: float) -> bool:
        """Wait until the threads have finished their queues, and end them; more work would start others.

        The interpreter kills threads that still run when it ends; in the middle of an engine that takes the process
        with it. False where some have not ended in this time.
        """
        deadline = time.monotonic() + timeout_s
        ended = True
        for pool in (self._pool, self._worker_pool):  # the work of one may create work for the next
            with self._lock:
                threads = pool.end()
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
                ended &= not thread.is_alive()
        return ended

    def stats(self) -> CompilerStats:
        """The counts so far."""
        cache = self._cache.stats()
        with self._lock:
            return CompilerStats(
                **self._counts,
                evictions=cache.evictions,
                entries=cache.entries,
                nbytes=cache.nbytes,
                compile_ms=self._compile_s * 1e3,
            )

    def _submit(self, job: Job, may_be_here: bool) -> bool:
        """Answer the first caller of a job with what is known, or have it wait; True where it has to compile itself."""
        key, waiter = job.key, job.waiters[0]
        in_worker = key not in self._cache and self._is_costly(job.constraint, key[1])
        with self._lock:
            outcome = self._cache.get(key) or self._held.get(key) or self._failures.get(key)
            if isinstance(outcome, CompiledConstraint):
                self._counts["hits"] += 1
            elif outcome is not None:
                self._counts["replays"] += 1
                self._failures.move_to_end(key)
            elif key in self._in_flight:
                self._counts["joined"] += 1
                self._in_flight[key].waiters.append(waiter)
            else:
                is_here = may_be_here and not in_worker and not self._in_flight
                self._counts["misses"] += 1
                self._in_flight[key] = job
                if not is_here:
                    self._queue(job, in_worker)
                return is_here
        if outcome is not None:
            waiter.finish(outcome)
        return False

    def _queue(self, job: Job, in_worker: bool) -> None:
        """Have a compile that is under way begun, or begun again, on a thread of a pool; the lock is held."""
        pool = self._worker_pool if in_worker else self._pool
        pool.submit(lambda: self._run(job, in_worker))

    def _run(self, job: Job, in_worker: bool, *, on_caller_thread: bool = False) -> None:
        with self._lock:
            if self._in_flight.get(job.key) is not job:
                return
            if all(waiter.cancelled() for waiter in job.waiters):
                del self._in_flight[job.key]
                self._counts["misses"] -= 1
                return
        try:
            outcome = self._outcome(job, in_worker, on_caller_thread)
        except MovesToWorker:
            with self._lock:
                self._queue(job, in_worker=True)
        else:
            self._finish(job, outcome)

    def _outcome(self, job: Job, in_worker: bool, on_caller_thread: bool) -> CompiledConstraint | BaseException:
        """The result of a compile; raises MovesToWorker, and on the caller's thread what ends a thread."""
        began = time.perf_counter()
        try:
            can_move = self._given is None and not in_worker
            with limited(self.options, can_move=can_move):
                compiled = self._compile(job.constraint, job.key[1], in_worker=in_worker)
            if self._is_too_large(compiled):
                self._warn_once(
                    "/".join(job.key),
                    f"{compiled.constraint} takes {compiled.nbytes} bytes when compiled, and the cache of compiled "
                    f"constraints holds {self.options.cache_bytes} in all: every request compiles it again; raise "
                    f"CompilerOptions.cache_bytes to at least {compiled.nbytes}",
                )
            return compiled
        except MovesToWorker:  # no outcome, as all other exceptions are
            raise
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

    def _finish(self, job: Job, outcome: CompiledConstraint | BaseException) -> None:
        key = job.key
        if isinstance(outcome, CompiledConstraint):
            self._cache.put(key, outcome)  # before it leaves ``_in_flight``: no gap in which it would start again
        with self._lock:
            if self._in_flight.get(key) is not job:
                return  # two threads had it: one was interrupted while it gave it to the other
            if isinstance(outcome, BaseException):
                self._counts["failures"] += 1
                # JobKilled depends on the state of the machine.
                if isinstance(outcome, _REPLAYED) and not isinstance(outcome, JobKilled):
                    # Without its traceback, which would hold every frame of the compile.
                    _remember(self._failures, key, copy.copy(outcome), self.options.max_failures)
            elif self._is_too_large(outcome):
                self._held[key] = outcome
            del self._in_flight[key]  # from here on no caller joins, so the list of waiters is complete
        for waiter in job.waiters:
            waiter.finish(outcome)

    def _compile(self, constraint: Constraint, backend: str, *, in_worker: bool) -> CompiledConstraint:
        _warn_of_misspelt_names(constraint)
        if isinstance(constraint, ToolCalls):
            constraint = constraint.structural_tag()  # the same texts, in a kind that backends know
        if in_worker:
            compiled, worker_s = compile_in_worker(constraint, backend, self._engines.for_constraint(constraint))
            assert compiled.choice is not None
            self._warn_of_losses(constraint, compiled.choice)
            # What took long is not compiled once more: a dead end is still found while generating, and an end is not
            # searched for.
            return compiled if worker_s > AGAIN_CPU_S else _finished(compiled, compiled.choice)

        def compile(choice: BackendChoice, engine: Backend) -> CompiledConstraint:
            self._warn_of_losses(constraint, choice)
            return _finished(engine.compile(constraint), choice)

        backends = self._engines.for_constraint(constraint) if self._given is None else self._given
        return compile_with_first(constraint, backend, backends, compile)

    def _is_costly(self, constraint: Constraint, backend: str) -> bool:
        return self._given is None and backend in _IN_WORKER and is_costly(constraint)

    def _is_too_large(self, compiled: CompiledConstraint) -> bool:
        return self.options.cache_bytes > 0 and self._cache.is_too_large(compiled)  # with 0 the user wants no cache

    def _warn_of_losses(self, constraint: Constraint, choice: BackendChoice) -> None:
        if choice.losses and constraint.on_unsupported == "warn":
            lost = "\n  ".join(map(str, choice.losses))
            self._warn_once(constraint.key, f"{choice.backend} does not enforce all of the schema:\n  {lost}")

    def _warn_once(self, key: str, message: str) -> None:
        with self._lock:
            if key in self._warned:
                return
            _remember(self._warned, key, None, self.options.max_failures)
        warnings.warn(message, stacklevel=2)

    def after_fork(self) -> None:
        """Set the initial state, in the constructor and in the child of a fork."""
        self._lock = threading.Lock()
        self._engines = EngineSet(self._vocabulary)
        self._cache = CompiledCache(self.options.cache_bytes)
        # Those that are too large for the cache, as long as a caller has them.
        self._held: weakref.WeakValueDictionary[tuple[str, str], CompiledConstraint] = weakref.WeakValueDictionary()
        self._failures: OrderedDict[tuple[str, str], Exception] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()
        self._in_flight: dict[tuple[str, str], Job] = {}
        self._counts = dict.fromkeys(("hits", "joined", "misses", "replays", "failures"), 0)
        self._compile_s = 0.0
        self._pool, self._worker_pool = Pool(self.options.workers, "compile"), Pool(1, "worker")
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = weakref.finalize(self, _end, self._pool, self._worker_pool)
        self._finalizer.atexit = False


def _end(*pools: Pool) -> None:
    for pool in pools:
        pool.end()


def _remember(known: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    known[key] = value
    while len(known) > most:
        known.popitem(last=False)


def _finished(compiled: CompiledConstraint, choice: BackendChoice) -> CompiledConstraint:
    check_writable(compiled, partial(registry.create, choice.backend))
    return with_budget(compiled)


def _warn_of_misspelt_names(constraint: Constraint) -> None:
    schemas: list[Any] = []
    if isinstance(constraint, JsonSchema) and may_be_misspelt(constraint.normal_form):
        schemas = [constraint.schema]
    elif isinstance(constraint, ToolCalls):
        schemas = list(constraint.parameters.values())
    if misspelt := [sentence for schema in schemas for sentence in misspelt_names(schema)]:
        if len(misspelt) > _MAX_SENTENCES:
            misspelt[_MAX_SENTENCES:] = [f"{len(misspelt) - _MAX_SENTENCES} more"]
        warnings.warn("the schema has keywords that constrain nothing:\n  " + "\n  ".join(misspelt), stacklevel=2)


def _is_shallow() -> bool:
    """Whether the caller leaves nearly all of Python's stack to a compile: deep schemas and patterns need it."""
    frame: FrameType | None = sys._getframe()
    for _ in range(_FEW_FRAMES):
        if frame is None:
            return True
        frame = frame.f_back
    return False
