"""Builds an Index of outlines-core, and traverses it once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_BUCKET = 9  # bytes of a hash table's bucket: token, state, and one of the table's own
_TABLE = 64  # bytes of a table in addition
_FORCED = 100  # bytes of an entry in the dict of forced bytes


class BuiltIndex(NamedTuple):
    """The part that the engines of one constraint share."""

    index: Any  # an ``outlines_core.Index``; its tokens are the vocabulary's, and ``first_byte + b`` for each byte b
    start: int  # the state at the beginning of the text
    states: int  # how many there are
    forced: dict[int, int]  # the one byte that every continuation of a state begins with, for states that have one
    nbytes: int  # memory of the index


def build_index(pattern: str, mark: int, tokens: Mapping[int, bytes], letters: bytes, first_byte: int) -> BuiltIndex:
    """Build the Index of a plain pattern between two marks; raises ValueError where outlines-core gives up.

    The mark is an ASCII character in no text of the pattern; ``tokens`` may be of use, with ids below ``first_byte``,
    the id of byte 0 as a token; ``letters`` are the bytes of the pattern's texts.
    """
    import outlines_core

    ids: dict[bytes, list[int]] = {}
    for token_id, data in (*tokens.items(), *((first_byte + byte, bytes([byte])) for byte in (mark, *letters))):
        ids.setdefault(data, []).append(token_id)
    marked = f"\\x{mark:02x}"
    end_of_sequence = first_byte + 256  # the Index requires one, and allows it only after the second mark
    index = outlines_core.Index(f"{marked}(?:{pattern}){marked}", outlines_core.Vocabulary(end_of_sequence, ids))
    start = index.get_next_state(index.get_initial_state(), first_byte + mark)
    forced: dict[int, int] = {}
    nbytes = 0
    states, seen = [start], {start}
    for state in states:  # it grows
        # A Rust hash table has a power of two slots, an eighth of them empty.
        nbytes += _TABLE + (_BUCKET << max(2, (len(index.get_allowed_tokens(state)) * 8 // 7).bit_length()))
        steps = [(byte, index.get_next_state(state, first_byte + byte)) for byte in letters]
        steps = [(byte, after) for byte, after in steps if after is not None]
        if len(steps) == 1 and index.get_next_state(state, first_byte + mark) is None:
            forced[state] = steps[0][0]
        new = {after for _, after in steps} - seen
        seen |= new
        states += new
    return BuiltIndex(index, start, len(states), forced, nbytes + _FORCED * len(forced))
