"""Runs the prompts of a plan, one batch after another, and reads the answers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from torch import Tensor
from tqdm.auto import tqdm

from ..errors import warn
from ..hf.decode.call import DecodeOptions
from ..hf.decode.plain_loop import record_output
from ..hf.decoder import GuidedDecoder
from ..hf.listening import RowStreamer, TokenListener
from ..hf.seeds import row_seed
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.logprobs import TokenLogprob
from ..session.result import GuidedResult, RowReader
from ..session.stats import SessionStats
from .continuous import run_continuous
from .guided_call import GuidedCall
from .plan import Plan
from .threads import CancelledListener, CancelledProcessor


def run_plan(plan: Plan) -> list[GuidedResult[Any]]:
    """Run all prompts, then again those with refused values; the results, in order."""
    results: list[list[GuidedResult]] = []
    with closing(Progress(plan)) as progress:
        for indices in plan.batches():
            results += _run_batch(plan, indices, progress)
            progress.done(len(indices))
        for attempt in range(1, plan.options.retries + 1):
            failed = [i for i, copies in enumerate(results) if any(map(_was_refused, copies))]
            if not failed:
                break
            for indices in plan.batches(failed):
                for i, retried in zip(indices, _run_batch(plan, indices, progress, attempt), strict=True):
                    results[i] = [
                        new if _was_refused(old) else old for old, new in zip(results[i], retried, strict=True)
                    ]
    flat = [result for copies in results for result in copies]
    warn_of_shortened(plan, flat)
    return flat


def warn_of_shortened(plan: Plan, results: Sequence[GuidedResult]) -> None:
    """Warn if the token limit has changed answers, which look finished."""
    number, settings = sum(bool(result.shortened) for result in results), plan.settings
    if number:
        longest, most = settings.get("max_length"), settings.given_max_new_tokens
        limit = (
            f"max_length={longest}" if most is None and longest else f"max_new_tokens={most or DEFAULT_MAX_NEW_TOKENS}"
        )
        warn(
            f"{limit} shortened {number} of {len(results)} answers: near this limit, the model had to write something "
            "else than it would have written, so that the text ends in time; raise it (result.shortened says which)"
        )


def _was_refused(result: GuidedResult) -> bool:
    return result.finish_reason == "stop" and result.error is not None


def _run_batch(
    plan: Plan, indices: Sequence[int], progress: Progress, attempt: int = 0
) -> list[list[GuidedResult[Any]]]:
    """Run some prompts in one call, and report it; the results of each prompt, one or more."""
    if plan.options.continuous_batching:
        results, stats, seconds = run_continuous(plan, indices)
    else:
        batch = Batch(plan, indices, attempt=attempt)
        rows, seconds = batch.run()
        results, stats = [[] for _ in indices], batch.call.stats
        for row, token_ids in enumerate(rows):
            results[row // batch.copies].append(batch.read(row, token_ids))
    progress.spent(stats, seconds)
    return results


class Batch:
    """One ``model.generate`` call for the prompts with these indices.

    ``listener`` gets the tokens of every row as they come, on the thread that runs the batch. ``attempt`` is how often
    these prompts were run before; the same seeds then give other samples.
    """

    def __init__(self, plan: Plan, indices: Sequence[int], listener: TokenListener | None = None, attempt: int = 0):
        self.indices = indices
        self.copies = int(plan.settings.get("num_return_sequences") or 1)
        self._plan = plan
        self.num_rows = len(indices) * self.copies  # the rows of one prompt are neighbours
        self._prompts, self._inputs, self._expand = plan.inputs.of_call(indices, plan.settings)
        self._start = plan.start_of_output(self._inputs)  # as expected; ``run`` measures it
        self._sequences: Tensor | None = None  # (rows, length), once it has run
        self._logprobs: list[list[TokenLogprob]] | None = None  # entries of each row, once the row has run
        self._generate_kwargs = dict(plan.generate_kwargs)
        if self._expand > 1:
            self._generate_kwargs = plan.settings.over(plan.generate_kwargs, num_return_sequences=1)
        loop = self._fast_loop(listener, attempt) if plan.fast else None
        if loop is None:
            self._listen(listener)
        requests, options = [plan.requests[i] for i in indices], plan.session_options(self._start)
        self.call = GuidedCall(plan.guide, requests, options, plan.settings, loop)

    def _fast_loop(self, listener: TokenListener | None, attempt: int) -> DecodeOptions:
        """The options of the fast loop: its rows' seeds, and who gets their tokens."""
        plan = self._plan
        seeds = plan.seeds and [
            row_seed(plan.seeds[i], copy, attempt) for i in self.indices for copy in range(self.copies)
        ]
        if listener is None and plan.cancellation is not None:
            listener = CancelledListener(plan.cancellation)
        return plan.options.decode(streamer=listener, seeds=seeds)

    def _listen(self, listener: TokenListener | None) -> None:
        """Have transformers' own loop hand over its tokens, or ask whether it is cancelled."""
        if listener is not None:
            self._generate_kwargs["streamer"] = RowStreamer(listener, self._plan.stop_token_ids)
        elif self._plan.cancellation is not None:
            given = self._generate_kwargs.get("logits_processor") or []
            self._generate_kwargs["logits_processor"] = [CancelledProcessor(self._plan.cancellation), *given]

    def run(self) -> tuple[list[list[int]], float]:
        """The output tokens of each row, and how many seconds they took."""
        if self._plan.cancellation is not None:
            self._plan.cancellation.check()
        began = time.perf_counter()
        output = self.call.run(self._plan.model, **self._inputs, **self._generate_kwargs)
        sequences: Tensor = output if isinstance(output, Tensor) else output.sequences
        self._sequences, self._start = sequences, self.call.seam.prompt_length or self._start
        self._logprobs = self._recorded(output, sequences)
        return sequences[:, self._start :].tolist(), time.perf_counter() - began

    def reader(self, row: int) -> RowReader:
        """Reads a row."""
        return self.call.reader(row, *self._around(row))

    def _around(self, row: int) -> tuple[list[int], int]:
        """The tokens before a row, and the padding after it."""
        prompt = row // self.copies
        before = self._plan.prompt_of_output(self._prompts[prompt], self._inputs, prompt * self._expand)
        return before, self._plan.pad_token_id

    def logprobs(self, row: int) -> list[TokenLogprob] | None:
        """Entries for every token of a row (more if it has left its constraint); None if they are not requested."""
        return None if self._logprobs is None else self._logprobs[row]

    def read(self, row: int, token_ids: Sequence[int]) -> GuidedResult:
        """A row's result with its log probabilities and its trace, if they are requested; after ``run``."""
        result = self.call.read(row, token_ids, *self._around(row))
        if self._logprobs is not None:
            result = replace(result, logprobs=self._logprobs[row][: len(result.token_ids)])
        return self.with_trace(row, result)

    def with_trace(self, row: int, result: GuidedResult) -> GuidedResult:
        """A row's result with its trace, if it is requested; after ``run``."""
        if not self._plan.options.trace:
            return result
        assert self._sequences is not None
        index = self.indices[row // self.copies]
        trace = self._plan.guide.trace(
            self.call.seam,
            self._sequences,
            row,
            constraint=self._plan.requests[index].constraint,
            length=len(result.token_ids),
        )
        return replace(result, trace=replace(trace, thinking_cut=result.thinking_cut))

    def _recorded(self, output: Any, sequences: Tensor) -> list[list[TokenLogprob]] | None:
        """The log probabilities of each row, from the fast loop or from what transformers' own loop has kept."""
        top = self._plan.options.top_logprobs
        if top is None:
            return None
        if isinstance(self.call.seam, GuidedDecoder):
            return self.call.seam.logprobs
        # Another session: the rows of the processor's session are at their end.
        recorder = self.call.new_session().logprob_recorder(sequences[:, : self._start].tolist(), top)
        record_output(recorder, output, self._start, self._plan.stop_token_ids)
        return recorder.entries


class Progress:
    """The progress of a call: a bar, which may be hidden, and statistics of each batch."""

    def __init__(self, plan: Plan):
        prompts, shown = len(plan.requests), plan.options.progress
        self._stats = plan.options.stats
        silent = (prompts <= plan.step and self._stats is not True) if shown is None else not shown
        self._bar = tqdm(total=prompts, unit="prompt", disable=silent or (None if shown is None else False))

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()

    def spent(self, stats: SessionStats, seconds: float) -> None:
        """Report a finished call."""
        if self._stats is True and stats.forwards:
            self._bar.set_postfix_str(
                f"{stats.tokens / seconds:.0f} tokens/s, {stats.row_forwards / stats.tokens:.2f} forwards/token"
            )
        elif callable(self._stats):
            self._stats(stats)

    def done(self, prompts: int) -> None:
        """Report that this many more prompts have their results."""
        self._bar.update(prompts)
