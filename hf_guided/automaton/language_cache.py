"""Automata of whole languages that are kept for other constraints: the same values appear in every schema."""

from __future__ import annotations

from typing import NamedTuple

from ..regex import Node
from .byte_dfa import ByteDfa
from .limits import WorkMeter
from .lru_bytes import ByteCache
from .nfa import NfaBuilder

_BYTES = 16 * 2**20  # of all of them; a string or a number has a few kilobytes


class _Kept(NamedTuple):
    """An automaton, and the steps that it took to make it."""

    dfa: ByteDfa
    work: int

    @property
    def nbytes(self) -> int:
        return self.dfa.nbytes + 1024


_kept: ByteCache[_Kept] = ByteCache(_BYTES)


def language_dfa(node: Node, meter: WorkMeter) -> ByteDfa:
    """The minimal automaton of a language; the same one for as long as it is kept.

    Args:
        node: the language.
        meter: counts the same work whether it was kept or not: earlier compiles must not decide what is served.

    Raises:
        CompileLimitExceeded: it is too large.
    """
    kept = _kept.get((node, meter.limits))
    if kept is None:
        part = meter.part()
        builder = NfaBuilder(part)
        start = builder.state()
        kept = _Kept(builder.dfa(start, builder.regex(node, start)), part.work)
        _kept.put((node, meter.limits), kept)
    meter.spend(kept.work)
    return kept.dfa
