"""Tries the engines of a constraint in order, until one compiles it: the same in this process and in the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ..constraints.values import Constraint
from ..errors import CompileLimitExceeded, Loss, UnsupportedConstraint
from .base import Backend, CompiledConstraint
from .router import AUTO, BackendChoice, choose_backend

if TYPE_CHECKING:
    from ..automaton.growth import Growth


class Compilation(NamedTuple):
    """A compiled constraint and the choice of its backend.

    Args:
        compiled: the constraint.
        choice: of its backend.
        worker_s: CPU time that the worker process took for it; 0 where it was compiled in this process.
    """

    compiled: CompiledConstraint
    choice: BackendChoice
    worker_s: float = 0.0

    @property
    def nbytes(self) -> int:
        """Bytes held so far."""
        return self.compiled.held_bytes

    @property
    def growth(self) -> Growth | None:
        """What tells when it holds more."""
        return self.compiled.growth

    @property
    def most_bytes(self) -> int:
        """Bytes held at most."""
        return self.compiled.nbytes


def compile_with_first(
    constraint: Constraint,
    backend: str,
    backends: Mapping[str, Backend],
    compile: Callable[[BackendChoice, Backend], CompiledConstraint],
    refused: Mapping[str, tuple[Loss, ...]] | None = None,
) -> Compilation:
    """Compile with the first engine that enforces all of a constraint and does not give up.

    Args:
        constraint: what to compile.
        backend: "auto", or the name of a backend.
        backends: by name.
        compile: called with each choice and its backend.
        refused: engines that have given up already, with the reason.

    Raises:
        InvalidConstraint, UnsupportedConstraint, UnwritableConstraint: as ``Compiler.submit``.
        CompileLimitExceeded: an engine gave up that would enforce all of it if it were smaller.
    """
    refused = dict(refused or {})
    limit: CompileLimitExceeded | None = None
    while True:
        try:
            chosen = choose_backend(constraint, backend, backends, refused)
        except UnsupportedConstraint as error:
            if limit is None:
                raise
            if len(refused) == 1:
                raise limit from None
            # A backend would enforce it if it were smaller.
            raise CompileLimitExceeded(str(error)) from limit
        try:
            return Compilation(compile(chosen, backends[chosen.backend]), chosen)
        except (UnsupportedConstraint, CompileLimitExceeded) as error:
            if backend != AUTO:
                raise
            losses = error.losses if isinstance(error, UnsupportedConstraint) else ()
            limit = error if isinstance(error, CompileLimitExceeded) else limit
            refused[chosen.backend] = losses or (Loss("", constraint.kind, str(error)),)
