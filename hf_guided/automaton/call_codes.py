"""Calls of other components, while an automaton is built: bytes that no UTF-8 text has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .core import CORE, address

_FIRST = 0xF5  # bytes from here on are in no UTF-8 text
_DIGITS = 256 - _FIRST


@lru_cache(maxsize=256)
def call_codes(callees: int) -> tuple[bytes, ...]:
    """The bytes that stand for each callee, as many for each."""
    width = 1
    while _DIGITS**width < callees:
        width += 1
    return tuple(bytes(_FIRST + callee // _DIGITS**i % _DIGITS for i in range(width)) for callee in range(callees))


def take_calls(dfa: ByteDfa, codes: Sequence[bytes]) -> NDArray[np.int32]:
    """Take the calls out of an automaton, which nothing else has yet: it is written in place.

    A byte of texts that leads wherever a call does is of the same class as that call's code, and its moves stay.

    Args:
        dfa: the automaton, in which no other bytes are codes.
        codes: of each callee.

    Returns:
        (callees, states) the state after each call; 0 where there is none.
    """
    if not codes:
        return np.empty((0, dfa.states), np.int32)
    after_calls: NDArray[np.int32] = np.empty((len(codes), dfa.states), np.int32)
    narrow, wide = (address(dfa.table), None) if dfa.table.dtype == np.uint16 else (None, address(dfa.table))
    automaton = narrow, wide, *dfa.table.shape, address(dfa.byte_class)
    CORE.take_calls(*automaton, b"".join(codes), len(codes), len(codes[0]), address(after_calls))
    return after_calls
