"""Compiles in the worker process what may take long, and brings back what can travel.

The worker runs everything: reading the schema, the engines that "auto" tries, the first mask. Automata and xgrammar's
grammars come back whole. llguidance's matchers cannot, so its grammar does, and the matcher is made again here: the
worker has seen that this takes little. An engine that reached a limit, or crashed, ends the process; the next one of
"auto" gets another process, and what is left of the compile's CPU time.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ..automaton.limits import allowance
from ..constraints.values import Constraint, JsonSchema, set_fields
from ..errors import CompileLimitExceeded, Loss, UnsupportedConstraint
from .adapter import PortableAdapter
from .attempts import Compilation
from .base import Backend
from .router import AUTO
from .subprocess_worker import SHARED, JobKilled, job_limits
from .worker_compile import Packed, UnknownVocabulary, check, compile_packed, hold_vocabulary

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_MOST_SENDS = 5  # of a vocabulary, for one compile
_TITLE = "reading the constraint"  # what the worker does before the first engine's turn


class Engines(Protocol):
    """Engines by name, and their vocabulary."""

    vocabulary: Vocabulary

    def __getitem__(self, name: str) -> Backend:
        """The engine."""
        ...


def compile_in_worker(constraint: Constraint, backend: str, engines: Engines) -> Compilation:
    """Compile in the worker; see ``compile_with_first``.

    Args:
        constraint: what to compile.
        backend: "auto", or the name of a built-in backend.
        engines: of this process.

    Raises:
        InvalidConstraint, UnsupportedConstraint, UnwritableConstraint: as ``Compiler.submit``.
        CompileLimitExceeded: the compile took more CPU time or memory than it may.
    """
    packed = _packed(constraint, backend, engines.vocabulary)
    engine = engines[packed.choice.backend]
    if isinstance(engine, PortableAdapter):
        compiled = engine.unpacked(constraint, packed.packed, packed.losses)
    else:
        compiled = engine.compile(constraint)
    return Compilation(compiled, packed.choice, packed.used_s)


def check_in_worker(constraint: Constraint) -> None:
    """As ``Constraint.check``, within the limits of a compile."""
    try:
        SHARED.run("checking the constraint", job_limits(allowance()), check, _portable(constraint))
    except JobKilled as killed:
        raise CompileLimitExceeded(str(killed)) from None


def _packed(constraint: Constraint, backend: str, vocabulary: Vocabulary) -> Packed:
    refused: dict[str, tuple[Loss, ...]] = {}
    limit: JobKilled | None = None
    name, portable, allowed = vocabulary.fingerprint, _portable(constraint), allowance()
    while True:
        limits = job_limits(allowed)
        job = partial(SHARED.run, _TITLE, limits, compile_packed)
        try:
            for last in (*[False] * _MOST_SENDS, True):
                try:
                    packed = job(name, portable, backend, refused, limits.cpu_s)
                    break
                except UnknownVocabulary:  # a new worker, or one that has been sent others meanwhile
                    if last:
                        raise
                    unlimited = limits._replace(cpu_s=None, nbytes=None)
                    SHARED.run(_TITLE, unlimited, hold_vocabulary, name, vocabulary.bare())
        except JobKilled as killed:
            if allowed is not None:
                allowed.spend(killed.used_s)
            if not killed.may_recur:
                raise
            left_s = 1.0 if allowed is None or allowed.left_s is None else allowed.left_s
            if backend != AUTO or killed.title == _TITLE or killed.title in refused or left_s <= 0:
                raise CompileLimitExceeded(str(killed)) from None
            refused[killed.title] = (Loss("", constraint.kind, str(killed)),)
            limit = killed
        except UnsupportedConstraint as error:
            if limit is None:
                raise
            # An engine would enforce it if it were smaller.
            raise CompileLimitExceeded(str(error)) from None
        else:
            if allowed is not None:
                allowed.spend(packed.used_s)
            return packed


def _portable(constraint: Constraint) -> Constraint:
    """The constraint without its Python type, which another process may not be able to import."""
    if not isinstance(constraint, JsonSchema) or constraint.python_type is None:
        return constraint
    bare = copy.copy(constraint)
    set_fields(bare, python_type=object, type_notes=(), described_json=None)
    return bare
