"""What generate() passes to a decoding method, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList


@dataclass(frozen=True)
class GenerateCall:
    """One call of generate().

    Args:
        model: a transformers model that can generate.
        input_ids: (rows, length) int64, the prompts, padded left; for an encoder-decoder the decoder's start.
        processors: those of generate() and of the caller.
        criteria: those of generate() and of the caller.
        config: with every default filled in.
        model_kwargs: for the model; the loop that runs the call takes them over, and changes them.
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

    @property
    def max_new_tokens(self) -> int | None:
        """After how many tokens the call cuts its rows; None if it does not.

        generate() has made a criterion of ``max_new_tokens``, of ``max_length`` or of its own default; the caller's
        criteria may be stricter.
        """
        lengths = [criterion.max_length for criterion in self.criteria if isinstance(criterion, MaxLengthCriteria)]
        return min(lengths) - self.prompt_length if lengths else None

    @property
    def pad_token_id(self) -> int:
        """What fills finished rows; 0 if the call names none."""
        pad = self.config._pad_token_tensor
        return 0 if pad is None else int(pad)
