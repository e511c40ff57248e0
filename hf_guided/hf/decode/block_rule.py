"""Whether a call may run several tokens of a row in one pass, decided before its first pass.

The fast loop is exact where several tokens in one pass are known to equal the same tokens one by one. Elsewhere one
token a pass is exact as long as the model's inputs are prepared as in generate(). All other calls run in transformers'
own loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import DynamicCache, GenerationMixin

from ..compat import cache_in
from .block_trial import trial_reason
from .cache_kinds import cache_reason, counts_slots, grows, takes_holes
from .foreign_code import foreign_code_reason, has_foreign_modules
from .generate_call import GenerateCall
from .input_preparation import has_virtual_tokens, is_common
from .rope_switches import rope_reason


@dataclass(frozen=True)
class BlockRule:
    """How a call may run.

    Args:
        blocks: whether our loops may run several tokens of a row in one pass.
        plain_reason: why transformers' own loop has to run the call; empty if ours may.
    """

    blocks: bool
    plain_reason: str = ""

    @classmethod
    def of(cls, call: GenerateCall, text_ids: Sequence[int]) -> BlockRule:
        """The rule for a call, before its first pass.

        Args:
            call: in a generation mode that both loops serve.
            text_ids: five tokens of plain text, for models that have to be tried.
        """
        model, kwargs = call.model, call.model_kwargs
        if reason := _known_reason(call):
            return cls._plain(model, reason)
        if has_virtual_tokens(model) or counts_slots(model):
            return cls(blocks=False)
        if is_common(model) and not has_foreign_modules(model):
            return cls(blocks=True)
        cache = cache_in(kwargs)
        holes = takes_holes(model, cache, kwargs.get("position_ids"))
        wide = len(call.input_ids) == 1 and type(cache) is DynamicCache and grows(cache)
        if model.config.is_encoder_decoder or not (holes or wide):
            return cls(blocks=False)  # one token a pass needs no trial
        if reason := trial_reason(call, text_ids, holes=holes):
            return cls._plain(model, reason)
        return cls(blocks=True)

    @classmethod
    def _plain(cls, model: Any, reason: str) -> BlockRule:
        return cls(blocks=False, plain_reason=f"{type(model).__name__}: {reason}")


def _known_reason(call: GenerateCall) -> str:
    """Why transformers' own loop has to run the call, without a trial; empty if it need not."""
    model = call.model
    return (
        _own_loop_reason(model)
        or cache_reason(cache_in(call.model_kwargs))
        or _length_reason(call)
        or _checkpointing_reason(model)
        or foreign_code_reason(model)
    )


def _own_loop_reason(model: Any) -> str:
    return "" if getattr(model._sample, "__func__", None) is GenerationMixin._sample else "it has a loop of its own"


def _checkpointing_reason(model: Any) -> str:
    checkpointing = model.training and any(getattr(part, "gradient_checkpointing", False) for part in model.modules())
    return "gradient checkpointing computes activations again, and keeps no cache" if checkpointing else ""


def _length_reason(call: GenerateCall) -> str:
    if call.model.config.is_encoder_decoder:
        return ""
    prompt, position_ids = call.prompt_length, call.model_kwargs.get("position_ids")
    positions = prompt if position_ids is None else int(position_ids.max()) + 1
    # The last token of a row does not run.
    most = call.config.max_length
    longest = None if most is None else max(prompt, positions) + most - prompt - 1
    return rope_reason(call.model, prompt, positions, longest)
