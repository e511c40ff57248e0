"""What generate() passes to a decoding method, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList


@dataclass(frozen=True)
class GenerateCall:
    """One call of generate().

    Args:
        model: a transformers model that can generate.
        input_ids: (rows, length) int64, the prompts, padded left; for an encoder-decoder the decoder's start.
        processors: those of generate() and of the caller.
        criteria: those of generate() and of the caller.
        config: complete.
        model_kwargs: for the model.
    """

    model: Any
    input_ids: Tensor
    processors: LogitsProcessorList
    criteria: StoppingCriteriaList
    config: GenerationConfig
    model_kwargs: dict[str, Any]

    @property
    def prompt_length(self) -> int:
        """Columns of the prompts, padding included."""
        return int(self.input_ids.shape[1])
