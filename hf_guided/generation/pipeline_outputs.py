"""The output tensors of a pipeline, in the order of its prompts."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from ..errors import InvalidArgument


def regrouped(outputs: dict[str, Any], copies: int) -> dict[str, Any]:
    """The outputs of copies of prompts, (prompts * copies, 1, ...), as those of prompts: (prompts, copies, ...)."""
    rows = len(outputs["input_ids"])
    fields = {
        name: value.reshape(rows // copies, copies, *value.shape[2:])
        for name, value in outputs.items()
        if name != "input_ids" and isinstance(value, torch.Tensor) and value.shape[:2] == (rows, 1)
    }
    return {**outputs, **fields, "input_ids": outputs["input_ids"][::copies]}


def joined(parts: list[dict[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """The outputs of several calls as those of one call: answers are padded at their end, prompts at their beginning.

    Raises:
        InvalidArgument: there are outputs other than tokens.
    """
    names = {"generated_sequence", "input_ids", "prompt_text", "results"}
    if more := sorted({name for part in parts for name in part} - names):
        raise InvalidArgument(
            f"{', '.join(more)}: prompts of several kinds (texts, chats, chats with images) run in calls of their own, "
            "and these outputs cannot be joined; pass batch_size=1"
        )
    widest = max(part["input_ids"].shape[-1] for part in parts)
    longest = max(part["generated_sequence"].shape[-1] - part["input_ids"].shape[-1] for part in parts)
    outputs: dict[str, Any] = {"generated_sequence": [], "input_ids": [], "prompt_text": [], "results": []}
    for part in parts:
        prompts, sequences = part["input_ids"], part["generated_sequence"]
        before = widest - prompts.shape[-1]
        after = longest - (sequences.shape[-1] - prompts.shape[-1])
        outputs["input_ids"].append(pad(prompts, (before, 0), value=pad_token_id))
        outputs["generated_sequence"].append(pad(sequences, (before, after), value=pad_token_id))
        outputs["prompt_text"] += part["prompt_text"]
        outputs["results"] += part["results"]
    return outputs | {name: torch.cat(outputs[name]) for name in ("input_ids", "generated_sequence")}
