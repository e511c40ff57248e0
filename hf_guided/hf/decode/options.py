"""Options of the fast loop for one call, in one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...constraints.argument_checks import FLAG, MOST_TOKENS, STREAMER, TEXTS, Rule, check, check_each
from ...errors import InvalidArgument
from ..seeds import as_int64
from .streamers import TokenListener

_SEEDS = Rule(
    "a list of ints, one for each row",
    lambda value: isinstance(value, Sequence) and not isinstance(value, str) and len(value) <= MOST_TOKENS,
    "pass [seed]; hg.generate(..., seed=...) takes one int",
)


@dataclass(frozen=True)
class DecodeOptions:
    """Options of ``GuidedDecoder``; described in ``Guide.decoder``.

    Args:
        jump_forward: append forced text without a forward pass for each token.
        retokenize: with jump_forward, tokenize again where the sampled token meets forced text.
        draft: a source of draft tokens, in any form that ``Guide.decoder`` takes; None drafts nothing.
        streamer: gets the prompt and each new token of one row; or a TokenListener.
        stop_strings: a text, or texts, that end a row.
        seeds: one for each row's random numbers; None draws with torch's generator.
        top_logprobs: record log probabilities, with this many alternatives; None records nothing.
        closes: whether rows close their text within the limit of the generate() call; otherwise only within that of
            the session, and the call cuts them.

    Raises:
        InvalidArgument: ``draft`` together with ``retokenize``; or ``seeds`` that are not ints
            of 64 bits.
    """

    jump_forward: bool = True
    retokenize: bool = False
    draft: Any = None
    streamer: Any = None
    stop_strings: str | Sequence[str] = ()
    seeds: Sequence[int] | None = None
    top_logprobs: int | None = None
    closes: bool = True

    def __post_init__(self) -> None:
        if self.retokenize and self.draft is not None:
            raise InvalidArgument("retokenize, draft: expected one of the two; a confirmed token cannot be replaced")
        check("stop_strings", self.stop_strings, TEXTS)
        check("jump_forward", self.jump_forward, FLAG)
        check("retokenize", self.retokenize, FLAG)
        if not isinstance(self.streamer, TokenListener):
            check_each({"streamer": self.streamer}, {"streamer": STREAMER})
        check_each({"seeds": self.seeds}, {"seeds": _SEEDS})
        for seed in self.seeds or ():
            as_int64(seed)
