"""What one call of a decoder is given: by generate(), and by the caller who has made the decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, MaxLengthCriteria, StoppingCriteriaList

from ...constraints.argument_checks import FLAG, MOST_TOKENS, STREAMER, TEXTS, Rule, check, check_each
from ...errors import InvalidArgument
from ..compat import with_cache_argument
from ..listening import TokenListener
from ..seeds import as_int64

_SEEDS = Rule(
    "a list of ints, one for each row",
    lambda value: isinstance(value, Sequence) and not isinstance(value, str) and len(value) <= MOST_TOKENS,
    "pass [seed]; hg.generate(..., seed=...) takes one int",
)


@dataclass(frozen=True)
class GenerateCall:
    """What generate() passes to a decoding method, with every default filled in."""

    model: Any
    input_ids: Tensor  # (rows, length) int64, the prompts, padded left; for an encoder-decoder the decoder's start
    processors: LogitsProcessorList  # generate()'s and the caller's
    criteria: StoppingCriteriaList  # generate()'s and the caller's
    config: GenerationConfig
    model_kwargs: dict[str, Any]  # the loop that runs the call takes them over, and changes them

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


def prepare_call(
    model: Any, inputs: Mapping[str, Tensor], generate_kwargs: Mapping[str, Any], use: Callable[[GenerateCall], None]
) -> None:
    """Have generate() prepare a call, which ``use`` takes in place of a decoding method; no token is decoded."""

    def method(
        model: Any,
        input_ids: Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        generation_config: GenerationConfig,
        **model_kwargs: Any,
    ) -> Tensor:
        use(GenerateCall(model, input_ids, logits_processor, stopping_criteria, generation_config, model_kwargs))
        return input_ids

    model.generate(**inputs, **with_cache_argument(model, generate_kwargs), custom_generate=method)


@dataclass(frozen=True)
class DecodeOptions:
    """Options of a decoder, beside those of its masks; described in ``Guide.decoder``.

    Raises:
        InvalidArgument: ``draft`` together with ``retokenize``; or ``seeds`` that are not ints of 64 bits.
    """

    jump_forward: bool = True
    retokenize: bool = False
    draft: Any = None  # a source of draft tokens, in any form that ``Guide.decoder`` takes; None drafts nothing
    streamer: Any = None  # gets the prompt and each new token of one row; or a TokenListener
    stop_strings: str | Sequence[str] = ()
    seeds: Sequence[int] | None = None
    top_logprobs: int | None = None  # how many alternatives are recorded; None records no log probabilities
    # Whether rows close their text within the limit of the generate() call; otherwise only within that of the session,
    # and the call cuts them.
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
