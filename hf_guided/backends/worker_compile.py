"""The part of a compile that runs in the worker process: the engines there, and what of their results can travel.

Engines are made once for a vocabulary, and kept. What they take for that is not counted, neither time nor memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..constraints.values import Constraint
from ..errors import Loss
from ..options import AGAIN_BYTES, AGAIN_CPU_S
from . import registry
from .adapter import PortableAdapter
from .attempts import compile_with_first
from .base import Backend, CompiledConstraint
from .router import BackendChoice, candidates
from .subprocess_child import Limits, not_counted, part, report, used_s

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

_MAX_VOCABULARIES = 2
_LARGE = {"xgrammar": "xgrammar", "lm_format_enforcer": "lmformatenforcer"}  # libraries that import torch
_AGAIN = "more is not spent on what has to be made once more outside of the worker process; make the constraint smaller"
TRAVEL = frozenset({"native", "xgrammar"})  # engines whose results do


class UnknownVocabulary(Exception):
    """The worker has to be sent it first."""


class Packed(NamedTuple):
    """A compile's result on its way to another process.

    Args:
        choice: of the backend.
        losses: of the compiled constraint.
        packed: what ``PortableAdapter.packed`` gives.
        used_s: CPU time that it took.
    """

    choice: BackendChoice
    losses: tuple[Loss, ...]
    packed: Any
    used_s: float


class _Engines(Mapping[str, Backend]):
    """The built-in engines for one vocabulary; each tells the parent when its turn comes."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._made: dict[str, Backend] = {}

    def __getitem__(self, name: str) -> Backend:
        if name not in self._made:
            with not_counted(memory=False), suppress(ImportError):  # it is reported when the engine is made
                import_module(_LARGE.get(name, "sys"))
            with not_counted():
                self._made[name] = registry.create(name, self.vocabulary)
        report(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(registry.BUILT_IN)

    def __len__(self) -> int:
        return len(registry.BUILT_IN)


_held: OrderedDict[str, _Engines] = OrderedDict()


def hold_vocabulary(fingerprint: str, vocabulary: Vocabulary) -> None:
    """Keep a vocabulary for later jobs; without its tokenizer, which no engine needs."""
    _held[fingerprint] = _Engines(vocabulary)
    while len(_held) > _MAX_VOCABULARIES:
        _held.popitem(last=False)


def compile_packed(
    fingerprint: str,
    constraint: Constraint,
    backend: str,
    refused: Mapping[str, tuple[Loss, ...]],
    cpu_s: float | None,
) -> Packed:
    """Compile, as ``compile_with_first`` does.

    Args:
        fingerprint: of a vocabulary that is held.
        constraint: what to compile.
        backend: "auto", or the name of a backend.
        refused: engines that have given up already.
        cpu_s: of the job. Every engine but the last may take half of the rest.

    Raises:
        UnknownVocabulary: it is not held.
    """
    if fingerprint not in _held:
        raise UnknownVocabulary
    _held.move_to_end(fingerprint)
    engines = _held[fingerprint]
    last = candidates(constraint, backend)[-1]

    def compile(choice: BackendChoice, engine: Backend) -> CompiledConstraint:
        share = 1.0 if choice.backend == last else 0.5
        limits = Limits(None if cpu_s is None else max(share * (cpu_s - used_s()), 0.001))
        if choice.backend in TRAVEL:
            with part(choice.backend, limits):
                return engine.compile(constraint)
        again = AGAIN_CPU_S if limits.cpu_s is None else min(AGAIN_CPU_S, limits.cpu_s)
        with part(choice.backend, Limits(again, AGAIN_BYTES), _AGAIN):
            return engine.compile(constraint)

    compiled, choice, _ = compile_with_first(constraint, backend, engines, compile, refused)
    engine = engines[choice.backend]
    packed = engine.packed(compiled) if isinstance(engine, PortableAdapter) else None
    return Packed(choice, tuple(compiled.losses), packed, used_s())


def check(constraint: Constraint) -> None:
    """As ``Constraint.check``."""
    constraint.check()
