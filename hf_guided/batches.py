"""Runs the prompts of a plan, a batch at a time, and reads what comes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from .generation_plan import DEFAULT_MAX_NEW_TOKENS, Plan
from .hf.decoder import GuidedDecoder
from .hf.guided_call import guided_call
from .hf.listening import RowListener, RowStreamer
from .hf.logits_processor import GuidedLogitsProcessor
from .result import GuidedResult, RowReader
from .seeds import row_seed
from .stats import SessionStats
from .together import Ask, Together


class Ran(NamedTuple):
    """What came of one call.

    Args:
        results: of each prompt, one or more.
        stats: what was spent on guidance.
        seconds: how long it took.
    """

    results: list[list[GuidedResult]]
    stats: SessionStats
    seconds: float


def run_batch(plan: Plan, places: Sequence[int], attempt: int = 0) -> Ran:
    """Run the prompts at these places in one call, so many times before which they were run already."""
    if plan.route.together is not None:
        return _run_together(plan, places, plan.route.together)
    batch = Batch(plan, places, attempt=attempt)
    rows, seconds = batch.run()
    results: list[list[GuidedResult]] = [[] for _ in places]
    for row, token_ids in enumerate(rows):
        results[row // batch.copies].append(batch.traced(row, batch.reader(row).read(token_ids)))
    return Ran(results, batch.stats, seconds)


class Batch:
    """One ``model.generate`` call.

    Args:
        plan: what is asked.
        places: the prompts.
        listener: hears of every row while it is being written, on the thread that runs the batch; or None.
        attempt: how often these prompts were run before; it makes other samples of the same seeds.
    """

    def __init__(self, plan: Plan, places: Sequence[int], listener: RowListener | None = None, attempt: int = 0):
        self.places = places
        self.copies = int(plan.settings.get("num_return_sequences") or 1)
        self._plan = plan
        expand = self.copies if any(plan.prompts[i].media for i in places) and plan.settings.samples else 1
        self._prompts, self._inputs = plan.inputs.batch(places, expand)
        if (plan.settings.get("num_beams") or 1) > 1:
            plan.inputs.check_repeated(self._inputs)
        start = 1 if plan.model.config.is_encoder_decoder else self._inputs["input_ids"].shape[1]
        self._start = start
        self._sequences: Tensor | None = None  # (rows, length), once it has run
        self._budget = plan.settings.max_new_tokens(start) or DEFAULT_MAX_NEW_TOKENS
        governing = [plan.constraints[i] for i in places]
        session: dict[str, Any] = {
            "backend": plan.backend,
            "prefix": [plan.prefixes[i] for i in places],
            "stop_token_ids": plan.stop_token_ids,
            "on_violation": plan.on_violation,
            "max_new_tokens": self._budget,
            "reasoning": plan.reasoning,
            "trace": plan.trace,
        }
        route = plan.route
        how = {"jump_forward": route.jump_forward, "draft": route.draft, "device_lane": route.device_lane}
        self._generate_kwargs = dict(plan.generate_kwargs)
        if expand > 1:
            self._generate_kwargs = plan.settings.over(plan.generate_kwargs, num_return_sequences=1)
        self._seam: GuidedDecoder | GuidedLogitsProcessor
        if route.fast:
            seeds = plan.seeds and [
                row_seed(plan.seeds[i], copy, attempt) for i in places for copy in range(self.copies)
            ]
            self._seam = plan.guide.decoder(governing, streamer=listener, seeds=seeds, **how, **session)
        else:
            self._seam = plan.guide.logits_processor(governing, **session)
            if listener is not None:
                self._generate_kwargs["streamer"] = RowStreamer(listener, plan.stop_token_ids)

    @property
    def stats(self) -> SessionStats:
        """What has been spent so far."""
        return self._seam.stats

    @property
    def num_rows(self) -> int:
        """How many rows there are; those of one prompt stand beside each other."""
        return len(self.places) * self.copies

    def run(self) -> tuple[list[list[int]], float]:
        """The output tokens of each row, and how many seconds they took."""
        began = time.perf_counter()
        output = guided_call(self._plan.model, self._seam, **self._inputs, **self._generate_kwargs)
        sequences: Tensor = output if isinstance(output, Tensor) else output.sequences
        self._sequences = sequences
        return sequences[:, self._start :].tolist(), time.perf_counter() - began

    def reader(self, row: int) -> RowReader:
        """Reads a row."""
        prompt = row // self.copies
        return _reader(self._plan, self.places[prompt], self._budget, self.stats, self._prompts[prompt])

    def traced(self, row: int, result: GuidedResult) -> GuidedResult:
        """A row's result with its trace, if one is wanted; behind ``run``."""
        if not self._plan.trace:
            return result
        assert self._sequences is not None
        place = self.places[row // self.copies]
        trace = self._plan.guide.trace(
            self._seam,
            self._sequences,
            row,
            constraint=self._plan.constraints[place],
            prefix=self._plan.prefixes[place],
            reasoning=self._plan.reasoning,
            length=len(result.token_ids),
        )
        return replace(result, trace=trace)


def _run_together(plan: Plan, places: Sequence[int], together: Together) -> Ran:
    """All of these prompts in one manager."""
    asks = []
    for i in places:
        ids = plan.encoded(i)
        budget = plan.settings.max_new_tokens(len(ids)) or DEFAULT_MAX_NEW_TOKENS
        asks.append(Ask(ids, plan.constraints[i], plan.prefixes[i], budget))
    began = time.perf_counter()
    answers, stats = together.run(asks, plan.backend, plan.stop_token_ids)
    seconds = time.perf_counter() - began
    results = [
        [_reader(plan, i, ask.max_new_tokens, stats, ask.input_ids).read(row) for row in rows]
        for i, ask, rows in zip(places, asks, answers, strict=True)
    ]
    return Ran(results, stats, seconds)


def _reader(plan: Plan, place: int, budget: int, stats: SessionStats, prompt: list[int]) -> RowReader:
    return plan.guide.reader(
        plan.constraints[place],
        backend=plan.backend,
        prefix=plan.prefixes[place],
        stop_token_ids=plan.stop_token_ids,
        pad_token_id=plan.pad_token_id,
        max_new_tokens=budget,
        stats=stats,
        reasoning=plan.reasoning,
        prompt=plan.in_front(prompt),
    )
