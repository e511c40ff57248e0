"""Which tokens keep a text valid UTF-8: a guard for engines that let overlong or surrogate bytes through."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

COMPLETE = 0
INVALID = -1

# Unicode 15, table 3-7. state -> (first byte, last byte, next state)
_TAIL_1, _TAIL_2, _TAIL_3 = 1, 2, 3  # one, two, three continuation bytes to come
_AFTER_E0, _AFTER_ED, _AFTER_F0, _AFTER_F4 = 4, 5, 6, 7
_STEPS = (
    (
        *((0x00, 0x7F, COMPLETE), (0xC2, 0xDF, _TAIL_1), (0xE0, 0xE0, _AFTER_E0), (0xE1, 0xEC, _TAIL_2)),
        *((0xED, 0xED, _AFTER_ED), (0xEE, 0xEF, _TAIL_2), (0xF0, 0xF0, _AFTER_F0), (0xF1, 0xF3, _TAIL_3)),
        (0xF4, 0xF4, _AFTER_F4),
    ),
    ((0x80, 0xBF, COMPLETE),),
    ((0x80, 0xBF, _TAIL_1),),
    ((0x80, 0xBF, _TAIL_2),),
    ((0xA0, 0xBF, _TAIL_1),),
    ((0x80, 0x9F, _TAIL_1),),
    ((0x90, 0xBF, _TAIL_2),),
    ((0x80, 0x8F, _TAIL_2),),
)
_TABLE = tuple(
    tuple(next((to for first, last, to in steps if first <= byte <= last), INVALID) for byte in range(256))
    for steps in _STEPS
)


def advance(state: int, data: bytes) -> int:
    """The state after these bytes, INVALID if they do not fit."""
    for byte in data:
        state = _TABLE[state][byte]
        if state == INVALID:
            break
    return state


@lru_cache(maxsize=8)
def token_masks(vocabulary: Vocabulary) -> tuple[NDArray[np.int32], ...]:
    """For each state, the bitmask row of the tokens that fit; 0.1 s for 131k tokens, then kept."""
    whole: list[int] = []
    pieces: list[int] = []
    for token_id, data in enumerate(vocabulary.token_bytes):
        if data is not None:
            (whole if _is_text(data) else pieces).append(token_id)
    fitting: list[list[int]] = [whole, *([] for _ in _TABLE[1:])]
    for token_id in pieces:
        data = vocabulary.token_bytes[token_id] or b""
        for state, tokens in enumerate(fitting):
            if advance(state, data) != INVALID:
                tokens.append(token_id)
    return tuple(vocabulary.bitmask_of(tokens) for tokens in fitting)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
