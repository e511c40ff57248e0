"""The options of one ``hg.generate`` call, apart from model, prompts, constraints and generate()'s own settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.generation.configuration_utils import ContinuousBatchingConfig

from ..constraints.argument_checks import CALL, FLAG, Rule, check
from ..hf.decode.call import DecodeOptions
from ..session.logprobs import num_top
from ..session.options import OnViolation, SessionOptions
from ..session.reasoning import Reasoning
from ..session.stats import SessionStats

_CONTINUOUS = Rule(
    "True, False or a ContinuousBatchingConfig",
    lambda value: FLAG.holds(value) or isinstance(value, ContinuousBatchingConfig),
)


@dataclass(frozen=True)
class GenerateOptions:
    """The arguments of ``hg.generate`` under their own names, where they are described.

    Raises:
        InvalidArgument: a value that the argument cannot have.
    """

    backend: str = "auto"
    prefix: str | Sequence[str | None] | None = None
    on_violation: OnViolation = "close"
    batch_size: int = 8
    retries: int = 0
    jump_forward: bool = True
    draft: Any = "auto"
    continuous_batching: bool | ContinuousBatchingConfig = False
    stats: bool | Callable[[SessionStats], None] = False
    progress: bool | None = None
    reasoning: Reasoning | None = None
    trace: bool = False
    logprobs: bool | int = False
    seed: int | Sequence[int] | None = None
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Any] | None = None
    show_tools: bool = True
    describe: bool = False

    def __post_init__(self) -> None:
        for name, rule in CALL.items():
            value = getattr(self, name, False)  # "stream" is not among these
            if value is not None or name != "progress":
                check(name, value, rule)
        check("continuous_batching", self.continuous_batching, _CONTINUOUS)

    @property
    def top_logprobs(self) -> int | None:
        """How many alternatives to record beside the log probability of each token; None records nothing."""
        return num_top(self.logprobs)

    def session(self, stop_token_ids: Sequence[int], max_new_tokens: int) -> SessionOptions:
        """The options of a batch's masks.

        Args:
            stop_token_ids: tokens that end a row.
            max_new_tokens: budget of each row.
        """
        return SessionOptions(
            self.backend,
            stop_token_ids,
            self.on_violation,
            max_new_tokens,
            reasoning=self.reasoning,
            trace=self.trace,
        )

    def decode(self, *, streamer: Any, seeds: Sequence[int] | None) -> DecodeOptions:
        """The options of a batch's fast loop, once ``draft`` is decided.

        Args:
            streamer: gets the tokens.
            seeds: one for each row.
        """
        return DecodeOptions(
            self.jump_forward,
            draft=self.draft,
            streamer=streamer,
            seeds=seeds,
            top_logprobs=self.top_logprobs,
        )
