"""A compile and the callers that wait for it, each with a future of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..constraints.values import Constraint
from ..errors import BackendError, CompileLimitExceeded, ConstraintError, HFGuidedError, cause, shown
from ..options import CompilerOptions
from .attempts import Compilation

Key = tuple[str, str]  # of a constraint, and the backend requested
T = TypeVar("T")
REPLAYED = (ConstraintError, CompileLimitExceeded)  # caused by the constraint, so it will fail again


@dataclass
class Job:
    """A running compile and its waiting callers."""

    key: Key
    constraint: Constraint
    waiters: list[Waiter[Any]] = field(default_factory=list)


class Waiter(Future[T], Generic[T]):
    """One caller's future."""

    def __init__(self, pick: Callable[[Compilation], T], options: CompilerOptions) -> None:
        super().__init__()
        self._pick = pick
        self._options = options

    def result(self, timeout: float | None = None) -> T:
        """As Future.result; without a timeout of its own it gives up after the compiler's."""
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

    def finish(self, compilation: Compilation) -> None:
        """The compile has succeeded."""
        if self.set_running_or_notify_cancel():
            self.set_result(self._pick(compilation))

    def fail(self, error: BaseException) -> None:
        """The compile has failed."""
        if self.set_running_or_notify_cancel():
            self.set_exception(for_one_caller(error))


def own(error: BaseException, constraint: Constraint) -> BaseException:
    """An engine's exception as an error of this package; what ends a thread (SystemExit ...) as it is."""
    if isinstance(error, HFGuidedError) or not isinstance(error, Exception):
        return error
    own = BackendError(f"the compile of {shown(constraint)} failed: {cause(error)}; please report it")
    own.__cause__ = error
    return own


def for_one_caller(error: BaseException) -> BaseException:
    """An error for one of several callers: each raises a copy of its own, for raising writes a traceback into it."""
    return bare(error) if isinstance(error, REPLAYED) else error


def bare(error: Exception) -> Exception:
    """The same error without its traceback and causes, and so without the frames they hold."""
    return copy.copy(error)
