"""Rotary embeddings whose frequencies depend on the length of the text, not on positions alone.

With ``dynamic`` RoPE, the greatest position of a pass sets the frequencies of all tokens in it, once it exceeds the
length of pretraining. With ``longrope``, frequencies change once, at the length of pretraining, and Phi-3 then computes
its cache again. Beyond such a switch, several tokens in one pass do not give the same result as one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def rope_reason(model: Any, slots: int, positions: int, longest: int | None) -> str:
    """Why the length of a call changes its frequencies; empty if it does not.

    Args:
        model: a decoder of transformers.
        slots: columns of the prompts, padding included.
        positions: the greatest position of the prompts, plus one.
        longest: the greatest number of columns, and of positions, that any pass may reach; None without a limit.
    """
    for kind, length in _switches(model.config.get_text_config(decoder=True)):
        # With "dynamic", a pass shorter than the length of pretraining resets frequencies that an earlier call changed.
        # A pass of exactly this length does not reset them, so it counts as changed.
        first = length if "dynamic" in kind else length + 1
        passed_at_once = kind == "longrope" and min(slots, positions) >= first
        if (longest is None or longest >= first) and not passed_at_once:
            reach = "this call has no greatest length" if longest is None else f"this call may reach {longest}"
            return f"its {kind} RoPE changes at {length} tokens, and {reach}"
    return ""


def _switches(config: Any) -> Iterator[tuple[str, int]]:
    """The kinds of RoPE that depend on length, each with the length of pretraining."""
    pretrained = getattr(config, "max_position_embeddings", None)
    for parameters in _rope_parameters(config):
        kind = str(parameters.get("rope_type") or parameters.get("type"))
        if kind == "longrope":
            original = getattr(config, "original_max_position_embeddings", None) or pretrained
            yield kind, int(parameters.get("original_max_position_embeddings") or original or 0)
        elif "dynamic" in kind:
            yield kind, int(pretrained or 0)


def _rope_parameters(config: Any) -> Iterator[dict[str, Any]]:
    """The parameters of every kind of layer; a model may have one dict for all of them, or a dict of dicts."""
    for name in ("rope_parameters", "rope_scaling"):  # the second in remote code
        parameters = getattr(config, name, None) or {}
        for value in (parameters, *parameters.values()):
            if isinstance(value, dict):
                yield value
