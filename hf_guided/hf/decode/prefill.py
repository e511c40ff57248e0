"""The start of both loops: the prompts run, and their rows are created at the beginning of their constraints.

While constraints compile, the model runs the prompts. If they are compiled already, the same pass also runs the text
with which every answer has to begin.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from ...errors import VocabularySizeError
from ...session.session import Session
from .cache_slots import CacheSlots
from .sequence_state import SequenceState
from .streamers import TokenListener


def prefill(
    session: Session,
    slots: CacheSlots,
    prompts: Sequence[Sequence[int]],
    jump: Callable[[SequenceState], None] | None,
    listener: TokenListener | None,
    *,
    text_too: bool = True,
) -> tuple[list[SequenceState], Tensor]:
    """Run the prompts.

    Args:
        session: the constraints.
        slots: the model and its cache.
        prompts: token ids of each row, padding included.
        jump: appends the forced beginning to a row; None leaves it to sampling.
        listener: of the rows; or None.
        text_too: whether forced text may run in the same pass, which then returns only the logits after it.

    Returns:
        The rows; (rows, vocab) float32 logits after the last token that was run of each.

    Raises:
        VocabularySizeError: the guide was built for another number of columns than the logits have.
    """

    def start_rows() -> list[SequenceState]:
        rows = session.begin(len(prompts), prompts)
        on_tokens = None if listener is None else listener.on_tokens
        sequences = [
            SequenceState(
                row,
                list(ids),
                len(ids),
                num_reported=len(ids),
                listener=None if on_tokens is None else partial(on_tokens, i),
            )
            for i, (row, ids) in enumerate(zip(rows, prompts, strict=True))
        ]
        if jump is not None:
            for sequence in sequences:
                jump(sequence)
        return sequences

    ready = start_rows() if text_too and jump is not None and session.compiled and slots.prompt_can_grow else []
    width = min((sequence.unfed for sequence in ready), default=0)  # a pass has one width for all rows
    if ready and all(sequence.finished for sequence in ready):
        width -= 1  # no token follows the last one, and a cache or the model may have no position left for it
    began = time.perf_counter_ns()
    logits = slots.prefill([sequence.token_ids[sequence.prompt_length :][:width] for sequence in ready])
    session.forwarded(began, range(len(prompts)))
    if logits.shape[-1] != session.vocabulary.padded_size:
        raise VocabularySizeError.of_logits(logits.shape[-1], session.vocabulary.padded_size)
    for sequence in ready:
        sequence.unfed -= width
    return ready or start_rows(), logits
