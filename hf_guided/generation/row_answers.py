"""Answers rows of a data set in batches: a row that cannot be answered fails alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..constraints.values import Constraint
from ..errors import HFGuidedError, InvalidArgument, PromptError
from ..guide import Guide, calls_of
from ..hf.generation_settings import GenerationSettings, sampling_at
from ..hf.seeds import row_seed
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.result import GuidedResult
from ..session.stats import SessionStats
from .api import generate
from .guided_call import check_budgets, check_compiled
from .prompts import Prompt, as_prompts, encoded, prepared
from .templates import TemplateOptions


@dataclass(frozen=True)
class RowRequest:
    """A row of a batch: its prompt, and what constrains its answer."""

    prompt: Any  # a text, or a chat
    constraint: Constraint | None  # this row's; None is free
    documents: list[dict[str, Any]] | None = None  # its chat template's; None if it has none


@dataclass(frozen=True)
class RowSettings:
    """Settings of a batch, the same for all of its rows."""

    batch_size: int = 8  # rows per ``generate`` call
    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS  # the limit of each answer
    # The samples' temperature; 0 is greedy. None samples as the model's generation config says, else is greedy.
    temperature: float | None = None
    top_p: float | None = None  # the samples' top_p
    seed: int = 0  # the samples' seed; each row draws with a seed of its own
    backend: str = "auto"  # "auto", or the name of a grammar engine
    describe: bool = False  # whether the format of an answer is described in its prompt
    log_mass: bool = False  # whether each result has ``log_mass``
    chat_template_kwargs: Mapping[str, Any] | None = None  # arguments of the chat template

    def __post_init__(self) -> None:
        if self.top_p is not None and (self.temperature == 0 or not 0 < self.top_p <= 1):
            raise InvalidArgument(
                f"top_p: expected a number above 0 and up to 1, for samples, got {self.top_p} with "
                f"temperature={self.temperature}; correct it, or leave top_p out"
            )


Outcome = GuidedResult[Any] | Exception


def without_missing(prompt: Any) -> Any:
    """A chat from a typed column, without the keys that other rows have and its own messages do not.

    Arrow gives every message the keys of all messages, with null where there was no key. A chat template that tests
    ``'tool_calls' in message`` would take them for real. Anything but a chat is returned unchanged.
    """
    if not isinstance(prompt, list):
        return prompt
    chat = [_without_missing(message, keep=("content",)) for message in prompt]
    for message in chat:
        if isinstance(message, dict) and isinstance(parts := message.get("content"), list):
            message["content"] = [_without_missing(part) for part in parts]
    return chat


def _without_missing(item: Any, keep: Sequence[str] = ()) -> Any:
    if not isinstance(item, dict):
        return item
    return {key: value for key, value in item.items() if value is not None or key in keep}


class _Ready(NamedTuple):
    """A row that can be answered."""

    prompt: Prompt  # a prompt with its tokens
    constraint: Constraint | None  # the answer's; None is free
    max_new_tokens: int  # how many tokens the answer may have
    seed: int  # its samples' seed


class RowAnswers:
    """Answers rows with one model.

    ``default`` is the constraint of most rows, which is compiled at once; None if each has its own.

    Raises:
        HFGuidedError: the default cannot be enforced, or not within this number of tokens; or ``top_p`` is given for a
            greedy choice.
    """

    def __init__(self, model: Any, tokenizer: Any, default: Constraint | None, settings: RowSettings):
        self._model, self._tokenizer, self._settings = model, tokenizer, settings
        self._guide = Guide(model, tokenizer)
        self.spent: list[SessionStats] = []  # statistics of each call of ``generate``
        self._positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        if default is not None:
            requests = calls_of(self._guide).requests([default], [None], settings.backend)
            check_compiled(requests)
            check_budgets(requests, GenerationSettings(model, {"max_new_tokens": settings.max_new_tokens}), [()])
        self._sampling = sampling_at(settings.temperature, settings.top_p)
        # Whether answers are sampled, so that they depend on the numbers of the rows.
        self.samples = bool(GenerationSettings(model, self._sampling).get("do_sample"))
        if settings.top_p is not None and not self.samples:
            raise InvalidArgument(
                "top_p: expected samples, and the model's generation config is greedy; pass a temperature above 0, or "
                "leave top_p out"
            )

    def answer(self, requests: Sequence[RowRequest], rows: Sequence[int]) -> list[Outcome]:
        """Answer rows with these numbers, from which their seeds are made: a result, or why there is none, for each."""
        outcomes: dict[int, Outcome] = {}
        ready: dict[int, _Ready] = {}
        for place, (request, row) in enumerate(zip(requests, rows, strict=True)):
            try:
                ready[place] = self._ready(request, row)
            except Exception as error:  # a chat template may raise anything
                outcomes[place] = error
        # Rows with less room than the others run alone, so that no row is cut for another one's sake.
        short = [i for i, row in ready.items() if row.max_new_tokens < self._settings.max_new_tokens]
        for places in ([i for i in ready if i not in short], *([i] for i in short)):
            outcomes |= self._outcomes({i: ready[i] for i in places})
        return [outcomes[place] for place in range(len(requests))]

    def _outcomes(self, ready: dict[int, _Ready]) -> dict[int, Outcome]:
        if not ready:
            return {}
        try:
            return dict(zip(ready, self._results(list(ready.values())), strict=True))
        except (HFGuidedError, ValueError, TypeError) as error:
            if len(ready) == 1:
                return dict.fromkeys(ready, error)
            # One of them cannot be answered: each runs alone, and only that row fails.
            return {i: outcome for i, row in ready.items() for outcome in self._outcomes({i: row}).values()}

    def _ready(self, given: RowRequest, row: int) -> _Ready:
        """A row whose prompt is tokens, so that its chat is rendered once; any error says why it cannot be answered."""
        kwargs, describe = self._settings.chat_template_kwargs or {}, self._settings.describe
        if kwargs and isinstance(given.prompt, str):
            raise PromptError("chat_template_kwargs: expected a chat, got a text, which no template renders")
        options = TemplateOptions(kwargs, given.documents, show_tools=True, describe=describe, thinks=False)
        [text_or_chat] = as_prompts([given.prompt])
        prompt = prepared(self._tokenizer, text_or_chat, given.constraint, options)
        tokens = encoded(self._guide.vocabulary, prompt, "")
        most, length = self._settings.max_new_tokens, len(tokens)
        if self._positions is not None:  # after their last position models fail, or generate nonsense
            if length >= self._positions:
                raise PromptError(
                    f"a prompt of {length} tokens leaves no room: the model has {self._positions} positions"
                )
            most = min(most, int(self._positions) - length)
        return _Ready(replace(prompt, tokens=tokens), given.constraint, most, row_seed(self._settings.seed, row))

    def _results(self, ready: Sequence[_Ready]) -> list[GuidedResult[Any]]:
        results: list[GuidedResult[Any]] = generate(
            self._model,
            self._tokenizer,
            [row.prompt for row in ready],
            [row.constraint for row in ready],
            guide=self._guide,
            backend=self._settings.backend,
            batch_size=self._settings.batch_size,
            seed=[row.seed for row in ready],
            progress=False,
            log_mass=self._settings.log_mass,
            stats=self.spent.append,
            max_new_tokens=min(row.max_new_tokens for row in ready),
            **self._sampling,
        )
        return results
