"""The engine that runs one job after another, each with all of its answers in one call.

It has what shared batches do not have: forced text and confirmed drafts take no forward pass of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import Any

import torch

from ...generation.guided_call import GuidedCall
from ...generation.prompt_inputs import as_input
from ...generation.threads import Cancelled
from ...guide import Guide
from ...hf.compat import input_device
from ...hf.decode.call import DecodeOptions
from ...hf.generation_settings import GenerationSettings
from ...hf.listening import TokenListener
from ...session.logprobs import TokenLogprob
from ...session.options import SessionOptions
from ...session.stats import SessionStats
from ...vocabulary.tokens import Vocabulary
from ..job import Ended, NewTokens, ended, first_row
from .jobs import Engine, RunningJob, left_constraint
from .sampler import answer_seeds, generation_config, own_processors


class OneByOne(Engine):
    """Generates on one thread, which enters ``surroundings`` around each job; see ``Engine``."""

    def __init__(self, model: Any, guide: Guide, surroundings: Callable[[], AbstractContextManager[Any]] = nullcontext):
        super().__init__(model, "hf-guided-one-by-one")
        self._guide, self._surroundings = guide, surroundings
        self._thread.start()

    def _run(self) -> None:
        while (running := self._queue.get()) is not None:
            try:
                if running.open_answers:
                    with self._surroundings():
                        self._generate(running)
            except Cancelled:
                pass
            except Exception as error:
                running.fail(error)
            except BaseException as error:  # such as SystemExit, which must not end the engine
                running.fail(RuntimeError(f"{type(error).__name__} was raised while the answer was generated"))

    def _generate(self, running: RunningJob) -> None:
        """Generate all answers in one call; one after another where further inputs of the model belong to one row."""
        answers = range(running.job.num_answers)
        for group in [[answer] for answer in answers] if running.job.model_inputs else [list(answers)]:
            if running.open_answers.intersection(group):
                self._call(running, group)

    def _call(self, running: RunningJob, answers: Sequence[int]) -> None:
        job, model = running.job, self._model
        config, device = generation_config(model, job), input_device(model)
        prompt = () if model.config.is_encoder_decoder else job.prompt  # what the answers follow
        listener = _AnswerListener(running, answers, prompt, self._guide.vocabulary)
        _, budget = first_row(job, self._guide.vocabulary.stops_with_logits(job.stop_token_ids), prompt)
        loop = DecodeOptions(
            closes=budget is not None,  # an answer that cannot be closed is cut
            draft=None if config.do_sample else "prompt_lookup",
            streamer=listener,
            seeds=answer_seeds(job, answers),
            top_logprobs=job.top_logprobs,
        )
        options = SessionOptions(stop_token_ids=job.stop_token_ids, max_new_tokens=budget, log_mass=job.log_mass)
        requests, settings = [job.guided] * len(answers), GenerationSettings(model, {"generation_config": config})
        call = listener.call = GuidedCall(self._guide, requests, options, settings, loop)
        input_ids = torch.tensor([job.prompt] * len(answers), device=device)
        given = {name: as_input(value, model) for name, value in job.model_inputs.items()}
        try:
            call.run(
                model,
                **{"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids), **given},
                generation_config=config,
                logits_processor=own_processors(job, len(prompt) or 1),
            )
            listener.end_rows()
        finally:
            for field in fields(SessionStats):
                setattr(self.stats, field.name, getattr(self.stats, field.name) + getattr(call.stats, field.name))


class _AnswerListener(TokenListener):
    """Makes events of the rows of one call, of which each has the number of its answer, after a prompt."""

    def __init__(self, running: RunningJob, answers: Sequence[int], prompt: Sequence[int], vocabulary: Vocabulary):
        self.call: GuidedCall | None = None  # set before it runs
        self._running = running
        self._answers = answers
        self._prompt, self._vocabulary = prompt, vocabulary
        self._tokens: list[list[int]] = [[] for _ in answers]
        self._num_logprobs = [0] * len(answers)

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> bool:
        """See ``TokenListener``.

        Raises:
            Cancelled: no answer of the call is open.
        """
        if not self._running.open_answers.intersection(self._answers):
            raise Cancelled
        self._running.emit(NewTokens(self._answers[row], tuple(token_ids)))
        self._tokens[row] += token_ids
        self._end_if_complete(row)
        return not self._running.is_open(self._answers[row])

    def on_logprobs(self, row: int, entries: Sequence[TokenLogprob]) -> None:
        """See ``TokenListener``."""
        self._running.emit(NewTokens(self._answers[row], logprobs=tuple(entries)))
        self._num_logprobs[row] += len(entries)
        self._end_if_complete(row)

    def end_rows(self) -> None:
        """End the answers that are still open after the call."""
        for row in range(len(self._answers)):
            self._end(row)

    def _end_if_complete(self, row: int) -> None:
        job, tokens = self._running.job, self._tokens[row]
        if job.top_logprobs is not None and self._num_logprobs[row] < len(tokens):
            return
        if len(tokens) >= job.max_new_tokens or (tokens and tokens[-1] in job.stop_token_ids):
            self._end(row)

    def _end(self, row: int) -> None:
        answer = self._answers[row]
        if self._running.is_open(answer):
            try:
                self._running.emit(self._ended(row))
            except Exception as error:  # reading may call the constraint's own code
                self._running.fail(error, answer)

    def _ended(self, row: int) -> Ended:
        job, tokens, call = self._running.job, self._tokens[row], self.call
        assert call is not None
        if job.guided.compiled is not None:
            result = call.read(row, tokens, self._prompt)
            if result.finish_reason == "dead_end":
                raise left_constraint(result.error)
        steps, log_masses = call.seam.limit_steps(row, len(tokens)), call.seam.log_masses(row, len(tokens))
        return ended(self._answers[row], job, tokens, steps, log_masses, self._vocabulary)
