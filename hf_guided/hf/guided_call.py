"""One ``model.generate`` call with constraints: through the fast loop, or through transformers' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..constraints import Constraint
from ..guide import Guide
from ..session import SessionStats
from .decoder import GuidedDecoder
from .logits_processor import GuidedLogitsProcessor


class GuidedCall:
    """Calls ``model.generate`` once.

    Args:
        guide: compiles, and makes the seam.
        constraints: one for each prompt; None is a free row.
        fast: whether to use the fast loop, for which ``jump_forward`` and ``draft`` are.
        jump_forward: see ``Guide.decoder``.
        draft: see ``Guide.decoder``.
        **session: the other arguments of ``Guide.logits_processor``.
    """

    def __init__(
        self,
        guide: Guide,
        constraints: Sequence[Constraint | None],
        *,
        fast: bool,
        jump_forward: bool,
        draft: Any,
        **session: Any,
    ):
        self._seam: GuidedDecoder | GuidedLogitsProcessor = (
            guide.decoder(list(constraints), jump_forward=jump_forward, draft=draft, **session)
            if fast
            else guide.logits_processor(list(constraints), **session)
        )

    @property
    def stats(self) -> SessionStats:
        """What the call has spent."""
        return self._seam.stats

    def __call__(self, model: Any, **generate_kwargs: Any) -> Any:
        """What ``model.generate`` returns; the caller's own processors and criteria are used too."""
        processors = list(generate_kwargs.pop("logits_processor", None) or [])
        criteria = list(generate_kwargs.pop("stopping_criteria", None) or [])
        if isinstance(self._seam, GuidedDecoder):
            generate_kwargs["custom_generate"] = self._seam
        else:
            processors.append(self._seam)
            criteria.append(self._seam.companion)
        return model.generate(**generate_kwargs, logits_processor=processors, stopping_criteria=criteria)
