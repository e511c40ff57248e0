"""One ``model.generate`` call with constraints: through the fast loop, or through transformers' own."""

from __future__ import annotations

from typing import Any

from .decoder import GuidedDecoder
from .logits_processor import GuidedLogitsProcessor


def guided_call(model: Any, seam: GuidedDecoder | GuidedLogitsProcessor, **generate_kwargs: Any) -> Any:
    """What ``model.generate`` returns; the caller's own processors and criteria are used too.

    Args:
        model: a transformers model that can generate.
        seam: what brings the constraints in; a processor brings its companion.
        **generate_kwargs: for ``model.generate``.
    """
    processors = list(generate_kwargs.pop("logits_processor", None) or [])
    criteria = list(generate_kwargs.pop("stopping_criteria", None) or [])
    if isinstance(seam, GuidedDecoder):
        generate_kwargs["custom_generate"] = seam
    else:
        processors.append(seam)
        criteria.append(seam.companion)
    return model.generate(**generate_kwargs, logits_processor=processors, stopping_criteria=criteria)
