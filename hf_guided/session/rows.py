"""A step of many rows: the engines of one constraint take it in one call.

What an engine raises ends its row alone: where such a call raises, each of its rows is asked by itself. The work of
such a call is bounded by the engine.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..backends.base import Engine, Stepper
from .row import Row


def advance(rows: Sequence[Row], token_ids: Sequence[int]) -> list[int]:
    """Give each of some different rows one token; see ``Row.advance``.

    Returns:
        The indices of the rows that their token took out of their grammar, ascending.
    """
    refused: list[int] = []
    together: dict[Stepper, list[int]] = {}
    for i, (row, token_id) in enumerate(zip(rows, token_ids, strict=True)):
        stepper = row.stepper
        if stepper is not None and row.is_open and token_id not in row.stop_token_ids:
            together.setdefault(stepper, []).append(i)
        elif not row.advance(token_id):
            refused.append(i)
    for stepper, taking in together.items():
        try:
            accepted = stepper.accept(_engines(rows, taking), [token_ids[i] for i in taking])
        except Exception:  # nothing has changed: each row meets its own error again, and ends by it
            refused += [i for i in taking if not rows[i].advance(token_ids[i])]
            continue
        for i, is_accepted in zip(taking, accepted, strict=True):
            if is_accepted:
                rows[i].took(token_ids[i])
            else:
                rows[i].leave(token_ids[i])
                refused.append(i)
    refused.sort()
    return refused


def mask_keys(rows: Sequence[Row], tokens_left: Sequence[int | None]) -> list[Hashable | None]:
    """The keys of the masks of rows; see ``Row.mask_key``."""
    keys: list[Hashable | None] = [None] * len(rows)
    together: dict[Stepper, list[int]] = {}
    for i, row in enumerate(rows):
        stepper = row.stepper
        if stepper is not None and row.is_open:
            together.setdefault(stepper, []).append(i)
        else:
            keys[i] = row.mask_key(tokens_left[i])
    for stepper, asking in together.items():
        try:
            found = stepper.mask_keys(_engines(rows, asking), [tokens_left[i] for i in asking])
        except Exception:  # likewise
            found = [rows[i].mask_key(tokens_left[i]) for i in asking]
        for i, key in zip(asking, found, strict=True):
            keys[i] = key
    return keys


def _engines(rows: Sequence[Row], indices: Sequence[int]) -> list[Engine]:
    return [rows[i].engine for i in indices]
