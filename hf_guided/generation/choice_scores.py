"""The result of ``hg.score`` for one prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class OptionScore(NamedTuple):
    """How likely one option is.

    Args:
        probability: that ``hg.generate`` samples it; between ``low`` and ``high``, and equal to both if the search was
            complete.
        low: a lower bound of the probability.
        high: an upper bound of the probability.
        logprob: natural log probability that the model gives to the option's text as the tokenizer writes it after the
            prompt, without a mask and without a stop token.
    """

    probability: float
    low: float
    high: float
    logprob: float


@dataclass(frozen=True)
class ChoiceScores:
    """The options of one prompt and the probability of each.

    Args:
        options: the score of each option, in the caller's order.
        unresolved: probability of the token prefixes that were not expanded, because ``max_prefixes`` was reached; 0.0
            if the search was complete.
        num_prefixes: number of expanded token prefixes.
    """

    options: Mapping[str, OptionScore]
    unresolved: float
    num_prefixes: int

    @property
    def best(self) -> str:
        """The most probable option; among equals the first."""
        return max(self.options, key=lambda option: self.options[option].probability)

    @property
    def probabilities(self) -> dict[str, float]:
        """The probability of each option; they sum to 1."""
        return {option: score.probability for option, score in self.options.items()}

    @property
    def logprobs(self) -> dict[str, float]:
        """The model's own log probability of each option's usual tokenization."""
        return {option: score.logprob for option, score in self.options.items()}
