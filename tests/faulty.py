"""A backend whose methods raise when a test asks for it: the native engine, but for that.

It is found through the entry points, as a package of others would be. Only constraints that a ``Fault`` names fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hf_guided.backends import registry
from hf_guided.backends.base import CompiledConstraint, Engine
from hf_guided.backends.frame_engine import FrameEngine
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Constraint
from hf_guided.errors import HFGuidedError, Loss, UnsupportedTokenizer

NAME = "faulty"
METHODS = (
    "new_engine",
    "accept",
    "validate",
    "rollback",
    "fork",
    "mask",
    "is_completed",
    "jump_forward_bytes",
    "min_tokens_to_finish",
)


class Hostile(Exception):
    """Whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


ERRORS: dict[str, Callable[[], Exception]] = {
    "RuntimeError": lambda: RuntimeError("the engine broke"),
    "HFGuidedError": lambda: UnsupportedTokenizer("the engine broke"),
    "MemoryError": lambda: MemoryError("the engine broke"),
    "Hostile": Hostile,
}
REPORTED = {"RuntimeError": "the engine broke", "HFGuidedError": "the engine broke", "MemoryError": "the engine broke"}
REPORTED["Hostile"] = "Hostile"


@dataclass
class Fault:
    """Which call raises what.

    Args:
        key: of the constraint that fails.
        method: one of ``METHODS``, or "compile" or "losses".
        call: the number of the call of this method that raises first, from 0.
        error: makes what it raises.
        lasting: whether later calls raise too.
        after: whether it raises after the method has done its work.
    """

    key: str
    method: str
    call: int
    error: Callable[[], Exception]
    lasting: bool = False
    after: bool = False
    calls: int = 0
    fired: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, method: str, work: Callable[[], Any]) -> Any:
        raises = False
        if method == self.method:
            with self.lock:
                raises = self.calls == self.call or (self.lasting and self.calls > self.call)
                self.calls += 1
                self.fired += raises
        if raises and not self.after:
            raise self.error()
        result = work()
        if raises:
            raise self.error()
        return result


_armed: list[Fault] = []


@contextmanager
def armed(fault: Fault) -> Iterator[Fault]:
    """Let this fault happen."""
    _armed.append(fault)
    try:
        yield fault
    finally:
        _armed.remove(fault)


def _run(key: str, method: str, work: Callable[[], Any]) -> Any:
    for fault in _armed:
        if fault.key == key:
            return fault.run(method, work)
    return work()


class FaultyEngine(FrameEngine):
    """The native engine of one constraint."""

    def __init__(self, key: str, engine: FrameEngine):
        position = engine._numbers, engine._taken, engine._generation
        super().__init__(engine._masks, engine.network, position)
        self._key = key

    def accept(self, token_id: int) -> bool:
        return bool(_run(self._key, "accept", lambda: super(FaultyEngine, self).accept(token_id)))

    def validate(self, token_ids: Sequence[int]) -> int:
        return int(_run(self._key, "validate", lambda: super(FaultyEngine, self).validate(token_ids)))

    def rollback(self, num_tokens: int) -> None:
        _run(self._key, "rollback", lambda: super(FaultyEngine, self).rollback(num_tokens))

    def fork(self) -> FaultyEngine:
        fork = super().fork
        twin: FrameEngine = _run(self._key, "fork", fork)
        return FaultyEngine(self._key, twin)

    def write_mask(self, words: NDArray[np.int32], tokens_left: int | None = None) -> bool:
        return bool(_run(self._key, "mask", lambda: super(FaultyEngine, self).write_mask(words, tokens_left)))

    @property
    def stepper(self) -> None:  # type: ignore[override]  # its own steps are those that fail
        return None

    def is_completed(self) -> bool:
        return bool(_run(self._key, "is_completed", super().is_completed))

    def jump_forward_bytes(self) -> bytes:
        return bytes(_run(self._key, "jump_forward_bytes", super().jump_forward_bytes))

    def min_tokens_to_finish(self) -> int:
        return int(_run(self._key, "min_tokens_to_finish", super().min_tokens_to_finish))

    def can_finish_in(self, tokens_left: int) -> bool:
        return self.min_tokens_to_finish() <= tokens_left


class FaultyBackend(NetworkBackend):
    """See the module."""

    name = NAME

    def losses(self, constraint: Constraint) -> Sequence[Loss]:
        losses: Sequence[Loss] = _run(constraint.key, "losses", lambda: super(FaultyBackend, self).losses(constraint))
        return losses

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        key = constraint.key
        compiled: CompiledConstraint = _run(key, "compile", lambda: super(FaultyBackend, self).compile(constraint))

        def new_engine() -> Engine:
            engine: Any = _run(key, "new_engine", compiled.new_engine)
            return FaultyEngine(key, engine)

        return replace(compiled, new_engine=new_engine)


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``backend="faulty"`` known for the length of a test."""
    point = EntryPoint(name=NAME, value="tests.faulty:FaultyBackend", group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])


def is_reported(error: Exception | str | None, name: str) -> bool:
    """Whether a user can read in this error what an engine raised."""
    assert isinstance(error, (HFGuidedError, str)), repr(type(error))
    return REPORTED[name] in str(error)
