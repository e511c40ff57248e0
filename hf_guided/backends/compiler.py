"""Compiles on a few threads, or on that of a caller who waits; once per constraint, whose grammar or error is cached.

- A key is (``constraint.key``, backend requested). Per key at most one compile runs; later
  callers wait for the same one. Every caller gets a future of its own, so cancelling it takes nothing from the
  others; a compile that all its callers cancelled before it began is left out.
- Compiled constraints are kept in a cache bounded in bytes; one that is too large for it is found as long as a caller
  holds it. An error caused by the constraint is raised again at once; an error that may not recur (a package not
  installed, no memory, our bugs) is tried again.
- What may take long (cost_estimate.py) is compiled in the worker process (compile_gate.py). The thread that waits for
  it is not one of the threads that compile here, so other constraints do not wait.
- Threads are started when there is work and hold no reference to an idle compiler: when the last reference to it goes
  and the queue is empty, they end. They are daemons, so the interpreter's exit waits for no grammar.
- After a fork the child has none of the parent's threads, and its locks may be held for ever: it starts again, with an
  empty cache and backends of its own. A future taken before the fork does not finish in the child.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from ..automaton.limits import MovesToWorker, limited
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, JsonSchema
from ..errors import CompileLimitExceeded, Loss, UnsupportedConstraint
from ..options import AGAIN_CPU_S, CompilerOptions
from ..schema.audit import Audit, audit
from . import registry
from .attempts import Compilation, compile_with_first
from .base import Backend, CompiledConstraint
from .budget_search import with_budget
from .compile_gate import check_in_worker, compile_in_worker
from .compile_job import REPLAYED, Job, Key, T, Waiter, bare, for_one_caller, own
from .compile_pool import Pool
from .compile_warnings import CompileWarnings, warn_of_misspelt_names
from .cost_estimate import is_costly
from .engine_set import EngineSet, MarkedEngines
from .growing_cache import GrowingCache
from .router import AUTO, BackendChoice
from .subprocess_worker import JobKilled
from .vocabulary_coverage import check_writable

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_FEW_FRAMES = 50  # of the thousand that Python allows
_IN_WORKER = frozenset({AUTO, "llguidance", "xgrammar", "native", "lm_format_enforcer"})  # outlines is there anyway


@dataclass(frozen=True)
class CompilerStats:
    """The counts of a compiler so far; a snapshot.

    Args:
        hits: answered from the cache.
        joined: answered by a compile that was already running.
        misses: compiles begun.
        replays: failures raised again from memory.
        failures: compiles that failed.
        evictions: grammars dropped from the cache.
        entries: grammars in the cache now.
        nbytes: their size in bytes.
        compile_ms: time spent compiling, all threads together.
    """

    hits: int = 0
    joined: int = 0
    misses: int = 0
    replays: int = 0
    failures: int = 0
    evictions: int = 0
    entries: int = 0
    nbytes: int = 0
    compile_ms: float = 0.0


class Compiler:
    """Compiles constraints for one vocabulary. Thread safe.

    Args:
        vocabulary: what to compile for.
        options: workers, cache size, limits; None reads the defaults from the environment.
        backends: backends by name, made on demand from the registry when None.
    """

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
        self._reset()
        _live.add(self)

    def submit(self, constraint: Constraint, backend: str = AUTO) -> Future[CompiledConstraint]:
        """Compile in the background.

        Args:
            constraint: what to compile; with the same key it may be another's grammar that comes back, so
                parse texts with your own.
            backend: "auto", or the name of a backend.

        Returns:
            The caller's own future. It raises InvalidConstraint, UnsupportedConstraint, UnwritableConstraint or
            CompileLimitExceeded; the last also when ``result()`` has waited for 60 times ``cpu_s``.
        """
        return self._submit(constraint, backend, _compiled)

    def compile(self, constraint: Constraint, backend: str = AUTO) -> CompiledConstraint:
        """Compile and wait; see ``submit``.

        Where nothing else is compiled, that is done on the caller's thread: most compiles take less than a
        millisecond, and a fifth more on another core, whose caches have nothing of it.
        """
        job, waiter = Job((constraint.key, backend), constraint), None
        try:
            if not _is_shallow() or not self._begins_here(job):
                return self.submit(constraint, backend).result()
            try:
                outcome = self._outcome(job, in_worker=False, on_caller_thread=True)
            except MovesToWorker:
                job.waiters.append(waiter := Waiter(_compiled, self.options))
                self._run_in(self._worker_pool, job.key)
            else:
                self._finish(job, outcome)
        except BaseException:  # what interrupts the caller ends only its own waiting
            if self._in_flight.get(job.key) is job:
                self._run_in(self._pool, job.key)  # for those who joined it, if any did
            raise
        if waiter is not None:
            return waiter.result()
        if isinstance(outcome, Compilation):
            return outcome.compiled
        try:
            raise for_one_caller(outcome)
        finally:
            del outcome  # it holds the frames of the compile, and the error that is raised holds this frame

    def _begins_here(self, job: Job) -> bool:
        """Whether a compile is for the caller's thread; then it is under way."""
        key = job.key
        if key in self._cache or self._is_costly(job.constraint, key[1]):
            return False
        with self._lock:
            if self._in_flight or key in self._cache or key in self._failures or key in self._held:
                return False
            self._counts["misses"] += 1
            self._in_flight[key] = job
            return True

    def knows(self, constraint: Constraint, backend: str = AUTO) -> bool:
        """Whether ``submit`` would begin no compile: it is done, it has failed, or it is under way."""
        key = constraint.key, backend
        with self._lock:
            return key in self._cache or key in self._failures or key in self._in_flight or key in self._held

    def audit(self, constraint: Constraint, backend: str = AUTO) -> Audit:
        """The treatment of every keyword. Compiles too, so that the report and the compiler agree.

        Args:
            constraint: the request.
            backend: "auto", or the name of a backend.

        Raises:
            InvalidConstraint: it is malformed. What cannot be enforced is reported, not raised.
        """
        try:
            if isinstance(constraint, JsonSchema) and self._is_costly(constraint, backend):
                with limited(self.options):
                    check_in_worker(constraint)
            else:
                constraint.check()
            choice = self._submit(constraint, backend, lambda compilation: compilation.choice).result()
        except UnsupportedConstraint as error:
            return audit(constraint, None, str(error).partition("\n")[0], error.losses)
        except CompileLimitExceeded as error:
            return audit(constraint, None, str(error), [Loss("", constraint.kind, str(error))])
        return audit(constraint, choice.backend, choice.reason, choice.losses, choice.considered, choice.spelling)

    def close(self, timeout_s: float) -> bool:
        """Wait until the threads have finished their queues, and end them; more work would start others.

        The interpreter kills threads that still run when it ends; in the middle of an engine that takes the process
        with it.

        Args:
            timeout_s: how long to wait.

        Returns:
            Whether all threads have ended.
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

    def _submit(self, constraint: Constraint, backend: str, pick: Callable[[Compilation], T]) -> Future[T]:
        """See ``submit``."""
        key = constraint.key, backend
        waiter = Waiter(pick, self.options)
        in_worker = key not in self._cache and self._is_costly(constraint, backend)
        with self._lock:
            compilation = self._cache.get(key) or self._held_by_a_caller(key)
            failure = self._failures.get(key)
            job = self._in_flight.get(key)
            if compilation is not None:
                self._counts["hits"] += 1
            elif failure is not None:
                self._counts["replays"] += 1
                self._failures.move_to_end(key)
            elif job is not None:
                self._counts["joined"] += 1
                job.waiters.append(waiter)
            else:
                self._counts["misses"] += 1
                self._in_flight[key] = Job(key, constraint, [waiter])
                pool = self._worker_pool if in_worker else self._pool
                pool.submit(lambda: self._run(key, in_worker))
        if compilation is not None:
            waiter.finish(compilation)
        elif failure is not None:
            waiter.fail(failure)
        return waiter

    def _run(self, key: Key, in_worker: bool) -> None:
        """One compile, from the queue to its callers, on a thread of a pool."""
        with self._lock:
            job = self._in_flight.get(key)
            if job is None:
                return
            if all(waiter.cancelled() for waiter in job.waiters):
                del self._in_flight[key]
                self._counts["misses"] -= 1
                return
        try:
            self._finish(job, self._outcome(job, in_worker))
        except MovesToWorker:
            self._run_in(self._worker_pool, key)

    def _run_in(self, pool: Pool, key: Key) -> None:
        """Have a compile that is under way begun again on a thread of a pool."""
        with self._lock:
            pool.submit(lambda: self._run(key, in_worker=pool is self._worker_pool))

    def _outcome(self, job: Job, in_worker: bool, *, on_caller_thread: bool = False) -> Compilation | BaseException:
        """What comes of a compile.

        Args:
            job: what to compile.
            in_worker: whether the worker process does it.
            on_caller_thread: where what ends a thread is raised.

        Raises:
            MovesToWorker: it has to begin again there.
        """
        began = time.perf_counter()
        try:
            can_move = self._given is None and not in_worker
            with limited(self.options, can_move=can_move):
                compilation = self._compile(job.constraint, job.key[1], in_worker=in_worker)
            if self._is_too_large(compilation):
                self._warnings.too_large(job.key, compilation, self.options.cache_bytes)
        except MovesToWorker:  # no outcome, as all other exceptions are
            raise
        except BaseException as error:  # every exception goes to the callers; the thread continues
            if on_caller_thread and not isinstance(error, Exception):
                raise
            return own(error, job.constraint)
        finally:
            with self._lock:
                self._compile_s += time.perf_counter() - began
        return compilation

    def _finish(self, job: Job, outcome: Compilation | BaseException) -> None:
        """Keep what came of a compile, and give it to all who wait."""
        key = job.key
        if isinstance(outcome, Compilation):
            self._cache.put(key, outcome)  # before it leaves ``_in_flight``: no gap in which it would start again
        with self._lock:
            if self._in_flight.get(key) is not job:
                return  # two threads had it: one was interrupted while it gave it to the other
            if isinstance(outcome, BaseException):
                self._counts["failures"] += 1
                if isinstance(outcome, REPLAYED) and not isinstance(outcome, JobKilled):  # that is the machine's state
                    self._remember(key, outcome)
            elif self._is_too_large(outcome):
                self._held[key], self._choices[outcome.compiled] = outcome.compiled, outcome.choice
            del self._in_flight[key]  # from here on no caller joins, so the list of waiters is complete
        for waiter in job.waiters:
            if isinstance(outcome, BaseException):
                waiter.fail(outcome)
            else:
                waiter.finish(outcome)

    def _held_by_a_caller(self, key: Key) -> Compilation | None:
        """What is too large for the cache, but a call that is still running has."""
        compiled = self._held.get(key)
        return None if compiled is None else Compilation(compiled, self._choices[compiled])

    def _compile(self, constraint: Constraint, backend: str, *, in_worker: bool) -> Compilation:
        warn_of_misspelt_names(constraint)
        if isinstance(constraint, ToolCalls):
            constraint = constraint.structural_tag()  # the same texts, in a kind that backends know
        backends = self._backends if self._given is not None else self._marked.for_constraint(constraint)
        if in_worker:
            assert isinstance(backends, EngineSet), "given backends stay in this process"
            made = compile_in_worker(constraint, backend, backends)
            self._warnings.losses(constraint, made.choice)
            return made._replace(compiled=self._finished(*made))

        def compile(choice: BackendChoice, engine: Backend) -> CompiledConstraint:
            self._warnings.losses(constraint, choice)
            return self._finished(engine.compile(constraint), choice)

        return compile_with_first(constraint, backend, backends, compile)

    def _finished(
        self, compiled: CompiledConstraint, choice: BackendChoice, worker_s: float = 0.0
    ) -> CompiledConstraint:
        if worker_s > AGAIN_CPU_S:  # a dead end is still found while generating, and an end is not searched for
            return compiled
        check_writable(compiled, partial(registry.create, choice.backend))
        return with_budget(compiled)

    def _is_costly(self, constraint: Constraint, backend: str) -> bool:
        """Whether the constraint is compiled in the worker process."""
        return self._given is None and backend in _IN_WORKER and is_costly(constraint)

    def _is_too_large(self, compilation: Compilation) -> bool:
        return self.options.cache_bytes > 0 and self._cache.is_too_large(compilation)  # with 0 the user wants no cache

    def _remember(self, key: Key, failure: Exception) -> None:
        # Without its traceback, which would hold every frame of the compile.
        self._failures[key] = bare(failure)
        while len(self._failures) > self.options.max_failures:
            self._failures.popitem(last=False)

    def _reset(self) -> None:
        """Set the initial state, in the constructor and in the child of a fork."""
        self._lock = threading.Lock()
        engines = EngineSet(self._vocabulary)
        self._backends: Mapping[str, Backend] = engines if self._given is None else self._given
        self._marked = MarkedEngines(engines)
        self._warnings = CompileWarnings(self.options.max_failures)
        self._cache: GrowingCache[Compilation] = GrowingCache(self.options.cache_bytes)
        self._held: weakref.WeakValueDictionary[Key, CompiledConstraint] = weakref.WeakValueDictionary()
        self._choices: weakref.WeakKeyDictionary[CompiledConstraint, BackendChoice] = weakref.WeakKeyDictionary()
        self._failures: OrderedDict[Key, Exception] = OrderedDict()
        self._in_flight: dict[Key, Job] = {}
        self._counts = dict.fromkeys(("hits", "joined", "misses", "replays", "failures"), 0)
        self._compile_s = 0.0
        self._pool, self._worker_pool = Pool(self.options.workers, "compile"), Pool(1, "worker")
        if self._finalizer is not None:
            self._finalizer.detach()
        # It must hold the queues alone: the pools' owner could never be freed otherwise.
        queues = [self._pool.jobs] * self.options.workers + [self._worker_pool.jobs]
        self._finalizer = weakref.finalize(self, Pool.stop, queues)
        self._finalizer.atexit = False


def _compiled(compilation: Compilation) -> CompiledConstraint:
    return compilation.compiled


def _is_shallow() -> bool:
    """Whether the caller leaves nearly all of Python's stack to a compile: deep schemas and patterns need it."""
    frame: FrameType | None = sys._getframe()
    for _ in range(_FEW_FRAMES):
        if frame is None:
            return True
        frame = frame.f_back
    return False


_live: weakref.WeakSet[Compiler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for compiler in list(_live):
        compiler._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
