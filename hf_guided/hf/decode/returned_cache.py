"""Brings a cache into the form in which generate() returns it, so that a next turn can continue from it.

Slot j then holds column j of the returned tokens, for every column but the last: generate() never runs the last one.
To save passes, our loops do not run a row's last tokens, and leave holes between slots. Running these tokens takes one
more forward pass; one for each of them where a pass takes one token per row.
"""

from __future__ import annotations

from collections.abc import Sequence

from .cache_slots import CacheSlots
from .sequence_state import SequenceState


def complete_cache(slots: CacheSlots, sequences: Sequence[SequenceState]) -> None:
    """Run the tokens that are not in the cache yet, and close its holes.

    Args:
        slots: after the last step of a loop.
        sequences: the finished rows; written.
    """
    end = max(len(sequence.token_ids) for sequence in sequences) - 1
    while True:
        blocks = [sequence.token_ids[len(sequence.token_ids) - sequence.unfed : end] for sequence in sequences]
        if not any(blocks):
            break
        if not slots.holes and not slots.wide:
            blocks = [block[:1] for block in blocks]
        slots.run(blocks)
        for sequence, block in zip(sequences, blocks, strict=True):
            sequence.unfed -= len(block)
    if slots.holes:
        slots.close_holes(end - sequences[0].prompt_length)
