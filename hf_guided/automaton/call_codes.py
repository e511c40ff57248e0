"""Calls of other components, while an automaton is built: bytes that no UTF-8 text has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from . import core
from .byte_dfa import ByteDfa
from .core import address

_FIRST = 0xF5  # bytes from here on are in no UTF-8 text
_DIGITS = 256 - _FIRST
_NEVER = 0xC0  # another byte that is in no UTF-8 text, and no code


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
    width, joined = len(codes[0]), b"".join(codes)
    if core.CORE is not None and dfa.byte_class.dtype == np.uint8:
        made: NDArray[np.int32] = np.empty((len(codes), dfa.states), np.int32)
        arrays = (address(dfa.table), None) if dfa.table.dtype == np.uint16 else (None, address(dfa.table))
        core.CORE.take_calls(
            *arrays, *dfa.table.shape, address(dfa.byte_class), joined, len(codes), width, address(made)
        )
        return made
    first, *others = dfa.byte_class[np.frombuffer(joined, np.uint8).reshape(-1, width).T]
    after_calls: NDArray[np.int32] = dfa.table.T[first].astype(np.int32)  # of the digits so far
    for classes in others:
        after_calls = dfa.table[after_calls, classes[:, None]].astype(np.int32)
    of_codes = dfa.byte_class[_FIRST:]
    dfa.table[:, np.setdiff1d(of_codes, dfa.byte_class[:_FIRST])] = 0
    of_codes[:] = dfa.byte_class[_NEVER]
    return after_calls
