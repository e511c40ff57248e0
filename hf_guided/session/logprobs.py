"""Log probabilities of a generated token: of the model, under its mask, and of the sampler's input."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple, TypeAlias

from ..errors import InvalidArgument, shown

Alternatives: TypeAlias = "tuple[tuple[int, float], ...]"


class TopLogprobs(NamedTuple):
    """The most likely tokens at one position, as (token id, log probability), the most likely first.

    Tokens with probability 0 are left out, so a list may be shorter than was requested.

    Args:
        raw: of the model's logits.
        masked: of the same logits under the mask.
        sampled: of the sampler's input; for forced text only the written token.
    """

    raw: Alternatives = ()
    masked: Alternatives = ()
    sampled: Alternatives = ()


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token and its natural log probabilities, given the prompt and all tokens before it.

    Args:
        token_id: the token.
        logprob: log softmax of the model's logits, before any processor, mask or warper.
        masked_logprob: log softmax of the same logits over the tokens that the constraint allows at this position;
            equal to ``logprob`` in a free row, -inf for a token that the mask forbids but another processor forced. For
            forced text it is computed in the same way, so it is 0.0 only where a single token is allowed.
        sampled_logprob: log softmax of the scores from which the token was chosen: after the mask, after all
            processors and warpers (temperature, top-k, top-p ...). 0.0 for forced text.
        forced: whether it was appended because the constraint allowed only one continuation of the text.
        top: the k most likely tokens of each of the three distributions; empty lists with ``logprobs=True``.
    """

    token_id: int
    logprob: float
    masked_logprob: float
    sampled_logprob: float
    forced: bool
    top: TopLogprobs = TopLogprobs()


def num_top(logprobs: bool | int | None) -> int | None:
    """How many alternatives ``logprobs`` requests: 0 for True, k for k; None for False and None.

    Raises:
        InvalidArgument: another value.
    """
    if logprobs is None or logprobs is False:
        return None
    if logprobs is True:
        return 0
    if not isinstance(logprobs, Integral) or logprobs < 1:
        raise InvalidArgument(
            f"logprobs: expected True, False or an int of 1 or more, got {shown(logprobs)}; True gives the log "
            "probabilities of the generated tokens alone"
        )
    return int(logprobs)
