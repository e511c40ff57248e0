"""How both loops begin: the prompts run, and their rows stand at the beginning of their constraints.

While constraints compile, the model reads the prompts. Where they are compiled already, it reads the text with which
every answer has to begin in the same pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor

from ...session.session import Session
from .cache_slots import CacheSlots
from .sequence_state import Line
from .streamers import RowListener


def prefill(
    session: Session,
    slots: CacheSlots,
    prompts: Sequence[Sequence[int]],
    jump: Callable[[Line], None] | None,
    listener: RowListener | None,
    *,
    text_too: bool = True,
) -> tuple[list[Line], Tensor]:
    """Run the prompts.

    Args:
        session: the constraints.
        slots: the model and its cache.
        prompts: token ids of each row, padding included.
        jump: appends to a row what it has to begin with; None where that is chosen like all other text.
        listener: of the rows; or None.
        text_too: whether forced text may run in the same pass, whose logits are then those after it alone.

    Returns:
        The rows; (rows, vocab) float32 logits behind the last tokens that were run of each.
    """

    def begun() -> list[Line]:
        rows = session.begin(len(prompts), prompts)
        hears = None if listener is None else listener.hear
        lines = [
            Line(row, list(ids), len(ids), told=len(ids), listener=None if hears is None else partial(hears, i))
            for i, (row, ids) in enumerate(zip(rows, prompts, strict=True))
        ]
        if jump is not None:
            for line in lines:
                jump(line)
        return lines

    ready = begun() if text_too and jump is not None and session.compiled and slots.prompt_can_grow else []
    width = min((line.unfed for line in ready), default=0)  # a pass has one width: what all rows have
    if ready and all(line.over for line in ready):
        width -= 1  # nothing comes behind the last token: there may be no room for it in a cache, nor a position
    began = time.perf_counter_ns()
    logits = slots.prefill([line.token_ids[line.prompt_length :][:width] for line in ready])
    session.forwarded(began, range(len(prompts)))
    for line in ready:
        line.unfed -= width
    return ready or begun(), logits
