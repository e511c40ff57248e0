"""Compiles in the worker process what may take long, and brings back what can travel.

The worker runs everything: reading the schema, the engines that "auto" tries, the first mask. Automata and xgrammar's
grammars come back whole. llguidance's matchers cannot, so its grammar does, and the matcher is made again here: the
worker has seen that this takes little. An engine that reached a limit, or crashed, ends the process; the next one of
"auto" gets another process, and what is left of the compile's CPU time.

There, engines are made once for a vocabulary, and kept; the time and the memory that this takes are not counted.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from operator import methodcaller
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import override

from ..automaton.limits import allowance
from ..constraints.values import Constraint, JsonSchema, set_fields
from ..errors import CompileLimitExceeded, InternalError, Loss, UnsupportedConstraint
from ..options import AGAIN_BYTES, AGAIN_CPU_S
from .adapter import Adapter
from .base import Backend, CompiledConstraint
from .registry import EngineSet
from .router import AUTO, BackendChoice, candidates, compile_with_first
from .subprocess_child import Limits, not_counted, part, report, used_s
from .subprocess_worker import SHARED, JobKilled, job_limits

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_MOST_SENDS = 5  # maximum number of times that a vocabulary is sent for one compile
_TITLE = "reading the constraint"  # the worker's step before the first engine's turn
_MAX_VOCABULARIES = 2
_LARGE = {"xgrammar": "xgrammar", "lm_format_enforcer": "lmformatenforcer"}  # libraries that import torch
_AGAIN = "more is not spent on what has to be made once more outside of the worker process; make the constraint smaller"
_TRAVEL = frozenset({"native", "xgrammar"})  # engines whose results do

# -- in this process


def compile_in_worker(constraint: Constraint, backend: str, engines: EngineSet) -> tuple[CompiledConstraint, float]:
    """``compile_with_first`` in the worker, within limits, and the seconds of CPU time that it took there."""
    refused: dict[str, tuple[Loss, ...]] = {}
    limit: JobKilled | None = None
    vocabulary, portable, allowed = engines.vocabulary, _portable(constraint), allowance()
    name = vocabulary.fingerprint

    def job(limits: Limits) -> tuple[BackendChoice, Any, float]:
        for _ in range(1 + _MOST_SENDS):
            made = SHARED.run(_TITLE, limits, compile_packed, name, portable, backend, refused, limits.cpu_s)
            if made is not None:
                return made
            # A new worker, or one that has been sent others meanwhile.
            SHARED.run(_TITLE, limits._replace(cpu_s=None, nbytes=None), hold_vocabulary, name, vocabulary.bare())
        raise InternalError(f"the worker process has lost the vocabulary {_MOST_SENDS} times; please report it")

    while True:
        try:
            made = job(job_limits(allowed))
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
            break
    choice, packed, worker_s = made
    if allowed is not None:
        allowed.spend(worker_s)
    engine = cast(Adapter, engines[choice.backend])
    compiled = engine.compile(constraint) if packed is None else engine.unpacked(constraint, packed, choice.losses)
    return replace(compiled, choice=choice), worker_s


def check_in_worker(constraint: Constraint) -> None:
    """Run ``Constraint.check`` within the limits of a compile."""
    try:
        SHARED.run("checking the constraint", job_limits(allowance()), methodcaller("check"), _portable(constraint))
    except JobKilled as killed:
        raise CompileLimitExceeded(str(killed)) from None


def _portable(constraint: Constraint) -> Constraint:
    """The constraint without its Python type, which another process may not be able to import."""
    if not isinstance(constraint, JsonSchema) or constraint.python_type is None:
        return constraint
    bare = copy.copy(constraint)
    set_fields(bare, python_type=object, type_notes=(), described_json=None)
    return bare


# -- in the worker process


class _WorkerEngines(EngineSet):
    """The engines for one vocabulary; each tells the parent when its turn comes."""

    @override
    def __missing__(self, name: str) -> Backend:
        with not_counted(memory=False), suppress(ImportError):  # it is reported when the engine is made
            import_module(_LARGE.get(name, "sys"))
        with not_counted():
            return super().__missing__(name)

    @override
    def __getitem__(self, name: str) -> Backend:
        engine = super().__getitem__(name)
        report(name)
        return engine


_held: OrderedDict[str, _WorkerEngines] = OrderedDict()


def hold_vocabulary(fingerprint: str, vocabulary: Vocabulary) -> None:
    """Keep a vocabulary for later jobs; without its tokenizer, which no engine needs."""
    _held[fingerprint] = _WorkerEngines(vocabulary)
    while len(_held) > _MAX_VOCABULARIES:
        _held.popitem(last=False)


def compile_packed(
    fingerprint: str,
    constraint: Constraint,
    backend: str,
    refused: Mapping[str, tuple[Loss, ...]],
    cpu_s: float | None,
) -> tuple[BackendChoice, Any, float] | None:
    """``compile_with_first`` in the worker: the choice, ``Adapter.packed`` of the result, and the seconds of CPU time.

    None where the vocabulary with this fingerprint has to be sent first. ``refused`` are engines that have given up
    already; every engine but the last may take half of the rest of the job's ``cpu_s``.
    """
    if fingerprint not in _held:
        return None
    _held.move_to_end(fingerprint)
    engines = _held[fingerprint]
    last = candidates(constraint, backend)[-1]

    def compile(choice: BackendChoice, engine: Backend) -> CompiledConstraint:
        share = 1.0 if choice.backend == last else 0.5
        limits = Limits(None if cpu_s is None else max(share * (cpu_s - used_s()), 0.001))
        if choice.backend in _TRAVEL:
            with part(choice.backend, limits):
                return engine.compile(constraint)
        again = AGAIN_CPU_S if limits.cpu_s is None else min(AGAIN_CPU_S, limits.cpu_s)
        with part(choice.backend, Limits(again, AGAIN_BYTES), _AGAIN):
            return engine.compile(constraint)

    compiled = compile_with_first(constraint, backend, engines, compile, refused)
    assert compiled.choice is not None
    return compiled.choice, cast(Adapter, engines[compiled.backend]).packed(compiled), used_s()
