"""The compiler's cache against a plain model: its bound in bytes, one compile per key, failures, cancelled callers.

One worker thread, whose backend waits until the machine says how a compile ends: so every state is known.
"""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler, CompilerStats
from hf_guided.constraints.values import Choice, Constraint
from hf_guided.errors import BackendError, CompileLimitExceeded, InvalidConstraint
from hf_guided.options import CompilerOptions
from tests.effort import repeats
from tests.unit.test_compiler import BYTES, TIMEOUT_S, Fake

SIZES = {"a": 30, "b": 40, "c": 60, "d": 100, "e": 0}
CACHE_BYTES, MAX_FAILURES = 100, 2
ERRORS: list[Any] = [InvalidConstraint, CompileLimitExceeded, MemoryError]  # the last one may not come again


class Scripted(Fake):
    """Ends each compile as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: SimpleQueue[Constraint] = SimpleQueue()
        self.outcomes: SimpleQueue[Any] = SimpleQueue()

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        self.begun.put(constraint)
        error = self.outcomes.get(timeout=TIMEOUT_S)
        if error is not None:
            raise error("scripted")
        assert isinstance(constraint, Choice)
        return replace(super().compile(constraint), nbytes=SIZES[constraint.options[0]])


class Cache(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.backend = Scripted()
        options = CompilerOptions(workers=1, cache_bytes=CACHE_BYTES, max_failures=MAX_FAILURES)
        self.compiler = Compiler(BYTES, options, {"llguidance": self.backend})
        self.counts = dict.fromkeys(("hits", "joined", "misses", "replays", "failures", "evictions"), 0)
        self.cached: OrderedDict[str, int] = OrderedDict()
        self.failed: OrderedDict[str, Any] = OrderedDict()
        self.waiting: dict[str, list[Future[CompiledConstraint]]] = {}  # by key: queued or running
        self.queue: deque[str] = deque()  # the first one runs

    def teardown(self) -> None:
        while self.queue:
            self.finish(None)
        assert self.compiler.close(TIMEOUT_S)

    @rule(name=st.sampled_from(sorted(SIZES)))
    def submit(self, name: str) -> None:
        future = self.compiler.submit(Choice([name]), "llguidance")
        if name in self.cached:
            self.counts["hits"] += 1
            self.cached.move_to_end(name)
            assert future.result().constraint == Choice([name])
        elif name in self.failed:
            self.counts["replays"] += 1
            self.failed.move_to_end(name)
            assert isinstance(future.exception(), self.failed[name])
        else:
            self.counts["joined" if name in self.waiting else "misses"] += 1
            self.waiting.setdefault(name, []).append(future)
            if name not in self.queue:
                self.queue.append(name)
                if len(self.queue) == 1:
                    self.begins()

    def begins(self) -> None:
        """The thread takes the next compile that anyone still waits for."""
        while self.queue:
            if any(not future.cancelled() for future in self.waiting[self.queue[0]]):
                assert self.backend.begun.get(timeout=TIMEOUT_S) == Choice([self.queue[0]])
                return
            del self.waiting[self.queue.popleft()]
            self.counts["misses"] -= 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Also a caller of the compile that runs, which goes on for the others, or for the cache."""
        futures = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        assert futures[data.draw(st.integers(0, len(futures) - 1))].cancel()

    @precondition(lambda self: self.queue)
    @rule(error=st.sampled_from([None, None, *ERRORS]))
    def finish(self, error: Any) -> None:
        name = self.queue.popleft()
        futures = self.waiting.pop(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.backend.outcomes.put(error)
            self.check(name, futures, error)
        self.begins()

    def check(self, name: str, futures: list[Future[CompiledConstraint]], error: Any) -> None:
        live = [future for future in futures if not future.cancelled()]
        if error is None:
            assert len({id(future.result(TIMEOUT_S)) for future in live}) <= 1
            self.cached[name] = SIZES[name]
            while sum(self.cached.values()) > CACHE_BYTES:
                self.cached.popitem(last=False)
                self.counts["evictions"] += 1
            return
        kind = BackendError if error is MemoryError else error
        assert all(isinstance(future.exception(TIMEOUT_S), kind) for future in live)
        self.counts["failures"] += 1
        if error is not MemoryError:
            self.failed[name] = error
            while len(self.failed) > MAX_FAILURES:
                self.failed.popitem(last=False)

    @invariant()
    def counts_are_those_of_the_model(self) -> None:
        expected = CompilerStats(**self.counts, entries=len(self.cached), nbytes=sum(self.cached.values()))
        ends = time.monotonic() + TIMEOUT_S
        while replace(self.compiler.stats(), compile_ms=0.0) != expected and time.monotonic() < ends:
            time.sleep(0.001)  # a compile that all have cancelled ends without a future
        assert replace(self.compiler.stats(), compile_ms=0.0) == expected


Cache.TestCase.settings = settings(max_examples=repeats(40, 300), stateful_step_count=25)
TestCache = pytest.mark.filterwarnings("ignore::RuntimeWarning")(Cache.TestCase)
