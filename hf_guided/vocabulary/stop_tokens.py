"""The stop tokens that a model can write."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import StopTokenError


def stops_with_logits(stop_token_ids: Iterable[int], width: int, num_surplus: int) -> tuple[int, ...]:
    """These stop tokens, sorted, without those that only the tokenizer knows.

    Args:
        stop_token_ids: one or more.
        width: columns of the model's logits.
        num_surplus: ids from ``width`` on that the tokenizer knows.

    Raises:
        StopTokenError: none is left, or one is known neither to the tokenizer nor to the model.
    """
    given = sorted({int(token_id) for token_id in stop_token_ids})
    stops = tuple(token_id for token_id in given if token_id < width)
    outside = [token_id for token_id in given if not 0 <= token_id < (width + num_surplus if stops else width)]
    if outside:
        raise StopTokenError(
            f"stop token {outside[0]} is outside the model's logits, which have {width} columns, so the model cannot "
            "write it; correct eos_token_id in the generation_config, or pass the tokenizer that belongs to the model"
        )
    return stops
