"""Samples the completions that TRL's trainer asks for: its model, its settings, and the constraint of each row."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import ProcessorMixin
from trl.models import unwrap_model_for_generation

from ..constraints.coerce import coerce
from ..constraints.values import Constraint
from ..errors import GenerationError, InvalidArgument, InvalidConstraint, UnsupportedModel
from ..generation.api import generate
from ..generation.guided_call import check_budgets, check_compiled, guide_for
from ..generation.prompts import Prompt, as_prompts, encoded, prepared
from ..generation.templates import TemplateOptions
from ..guide import calls_of
from ..hf.generation_settings import GenerationSettings
from ..session.options import SessionOptions
from ..session.reasoning import Reasoning
from ..session.result import GuidedResult
from ..vocabulary.bitmask import allocate_bitmask


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of how completions are sampled, beside the sampling settings of ``GRPOConfig``.

    Args:
        backend: "auto", or the name of a grammar engine.
        jump_forward: append text that the constraint leaves no choice about without running the model; these tokens
            are not choices of the policy, and have no gradient.
        reasoning: free text that completions have before their answer, see ``hg.Reasoning``.
        describe: whether the format of a completion is described in its prompt.
        batch_size: completions per ``generate`` call; None samples all of a step together.
    """

    backend: str = "auto"
    jump_forward: bool = True
    reasoning: Reasoning | None = None
    describe: bool = False
    batch_size: int | None = None


class Completions(NamedTuple):
    """Completions, one for each prompt.

    Args:
        prompts: with their tokens.
        constraints: of the completions.
        results: the completions, with log probabilities.
    """

    prompts: list[Prompt]
    constraints: list[Constraint | None]
    results: list[GuidedResult[Any]]

    @property
    def prompt_ids(self) -> list[list[int]]:
        """The tokens of the prompts."""
        return [list(prompt.tokens or ()) for prompt in self.prompts]

    def rollout(self) -> dict[str, Any]:
        """The return value of a ``rollout_func``."""
        return {
            "prompt_ids": self.prompt_ids,
            "completion_ids": [result.token_ids for result in self.results],
            "logprobs": [[entry.sampled_logprob for entry in result.logprobs or ()] for result in self.results],
        }


class GuidedSampler:
    """Samples for one trainer.

    Args:
        trainer: a ``GRPOTrainer``.
        settings: how completions are sampled.

    Raises:
        InvalidArgument, UnsupportedModel: the trainer samples in a way that cannot be guided here.
    """

    def __init__(self, trainer: Any, settings: RolloutSettings):
        check_arguments(trainer.args, trainer.processing_class, trainer.tools)
        if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
            raise UnsupportedModel(
                "guided completions need a model that is whole in every process, got one that FSDP or DeepSpeed holds "
                "in parts; train with plain data parallelism (torchrun, accelerate launch), or with a PEFT adapter"
            )
        self._trainer, self._settings = trainer, settings
        self._guide = guide_for(trainer.accelerator.unwrap_model(trainer.model), trainer.processing_class)
        self._kwargs = {name: value for name, value in trainer.generation_kwargs.items() if value is not None}
        if self._kwargs.get("num_return_sequences", 1) != 1:
            raise InvalidArgument(
                "generation_kwargs: expected no num_return_sequences, because each prompt comes num_generations times, "
                f"got {self._kwargs['num_return_sequences']}; leave it out",
                name="generation_kwargs",
            )

    @property
    def vocab_size(self) -> int:
        """The number of columns of the logits."""
        return self._guide.vocabulary.padded_size

    def check(self, constraint: Constraint) -> None:
        """Compile a constraint.

        Raises:
            HFGuidedError: it cannot be enforced, or not within ``max_completion_length`` tokens.
        """
        requests = calls_of(self._guide).requests([constraint], [None], self._settings.backend)
        check_compiled(requests)
        check_budgets(requests, GenerationSettings(self._trainer.model, self._kwargs), [()])

    def sample(self, prompts: Sequence[Any], constraints: Sequence[Constraint | None]) -> Completions:
        """Sample one completion for each prompt, from the current weights.

        Args:
            prompts: texts or chats; a prompt that stands several times gets as many completions.
            constraints: of each completion; None is free.

        Raises:
            HFGuidedError: a constraint cannot be enforced, or a completion left it.
        """
        trainer, settings = self._trainer, self._settings
        options = TemplateOptions(
            trainer.chat_template_kwargs,
            None,
            show_tools=True,
            describe=settings.describe,
            thinks=settings.reasoning is not None,
        )
        ready = []
        for prompt, constraint in zip(as_prompts(list(prompts)), constraints, strict=True):
            written = prepared(trainer.processing_class, prompt, constraint, options)
            ready.append(replace(written, tokens=encoded(self._guide.vocabulary, written, "")))
        # Without it, gradient checkpointing would keep generate() from using a cache.
        unwrapped = unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        )
        with unwrapped as model, torch.no_grad():
            results = generate(
                model,
                trainer.processing_class,
                ready,
                list(constraints),
                guide=self._guide,
                backend=settings.backend,
                jump_forward=settings.jump_forward,
                reasoning=settings.reasoning,
                batch_size=settings.batch_size or len(ready),
                logprobs=True,
                progress=False,
                **self._kwargs,
            )
        for number, result in enumerate(results):
            if result.finish_reason == "dead_end":
                raise GenerationError(
                    f"completion {number} of {len(results)} left its constraint after {result.text!r}: {result.error}; "
                    "leave out generation_kwargs that forbid tokens, or choose another backend"
                )
        return Completions(ready, list(constraints), results)

    def allowed(self, completions: Completions) -> list[Tensor]:
        """The tokens among which each token was chosen.

        Returns:
            For each completion (tokens, words) int32 on CPU: a bitmask for each of its tokens. A token of forced text
            has only itself.
        """
        guide, settings = self._guide, self._settings
        model = GenerationSettings(self._trainer.model, self._kwargs)
        stops = guide.vocabulary.stops_with_logits(model.stop_token_ids())
        free = [None] * len(completions.results)  # no prefixes
        requests = calls_of(guide).requests(completions.constraints, free, settings.backend, settings.reasoning)
        options = SessionOptions(settings.backend, stops, max_new_tokens=model.max_new_tokens(0))
        session = calls_of(guide).session_of(requests, options)
        masks = []
        for row, result in zip(session.begin(len(requests), completions.prompt_ids), completions.results, strict=True):
            bitmask = allocate_bitmask(len(result.token_ids), self.vocab_size)
            for place, entry in enumerate(result.logprobs or ()):
                if entry.forced:
                    bitmask[place] = torch.tensor(guide.vocabulary.bitmask_of([entry.token_id]))
                elif row.matcher is not None and not row.fill(bitmask, place, session.tokens_left(place)):
                    bitmask[place] = torch.tensor(guide.vocabulary.bitmask_of(stops))
                row.advance(entry.token_id)
            masks.append(bitmask)
        return masks


def check_arguments(args: Any, processing_class: Any, tools: Any) -> None:
    """Check the arguments of a trainer that would sample in another way.

    Args:
        args: a ``GRPOConfig``.
        processing_class: the tokenizer.
        tools: that the trainer calls between turns.

    Raises:
        InvalidArgument: one of them.
    """
    if args.use_vllm:
        raise InvalidArgument(
            "use_vllm: expected False, because vLLM would sample in another engine, without these masks; leave it out. "
            "Or keep vLLM without hf-guided's trainer, with generation_kwargs={'structured_outputs': "
            "guide.to_vllm(constraint)}",
            name="use_vllm",
        )
    if args.use_transformers_continuous_batching:
        raise InvalidArgument(
            "use_transformers_continuous_batching: expected False, because generate() runs the masks; leave it out",
            name="use_transformers_continuous_batching",
        )
    if isinstance(processing_class, ProcessorMixin):
        raise InvalidArgument(
            "processing_class: expected a tokenizer, got a processor; completions to images are not guided here",
            name="processing_class",
        )
    if tools:
        raise InvalidArgument(
            "tools, environment_factory: expected none, because TRL samples the turns after a tool's answer by itself, "
            "without a constraint; leave them out, or train single turns that call a tool with hg.ToolCalls",
            name="tools",
        )


class RowConstraints:
    """Finds the constraint of a row.

    Args:
        constraint: of rows without one of their own, in any form that ``hg.generate`` takes; or a function that returns
            the constraint of a prompt.
        column: of the data set; may hold a row's own constraint, such as a JSON Schema as JSON text.

    Raises:
        InvalidConstraint: the constraint is malformed.
    """

    def __init__(self, constraint: Any, column: str | None = None):
        is_function = inspect.isroutine(constraint) or isinstance(constraint, partial)
        self._of_prompt = constraint if is_function else None
        self.default: Constraint | None = None if is_function else coerce(constraint)
        self._column = column

    def of_row(self, row: Mapping[str, Any]) -> Constraint | None:
        """The constraint of a row; None is free.

        Raises:
            InvalidArgument: the row has no such column.
            InvalidConstraint: its constraint is malformed.
        """
        if self._column is None:
            return self.of_prompt(row["prompt"])
        self.check_column(row)
        own = row[self._column]
        if own is None or own == "":
            return self.of_prompt(row["prompt"])
        try:
            return coerce(own)
        except InvalidConstraint as error:
            raise InvalidConstraint(f"column {self._column!r}: {error}", pointers=error.pointers) from error

    def of_prompt(self, prompt: Any) -> Constraint | None:
        """The constraint of a row without one of its own.

        Raises:
            InvalidConstraint: what the caller's function has returned is no constraint.
        """
        return self.default if self._of_prompt is None else coerce(self._of_prompt(prompt))

    def check_column(self, columns: Any) -> None:
        """Raise InvalidArgument if the column is not among these; a data set that does not know its columns is None."""
        if self._column is not None and columns is not None and self._column not in columns:
            raise InvalidArgument(
                f"constraint_column: no column {self._column!r}; the columns are {', '.join(columns)}. Correct the "
                "name, and leave remove_unused_columns=False",
                name="constraint_column",
            )
