"""Jobs for the server's engines, and a client that collects their events."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import hf_guided as hg
from hf_guided.guide import calls_of
from hf_guided.serve.engines.jobs import Engine, RunningJob
from hf_guided.serve.job import Ended, Event, Job, NewTokens, Sampling
from hf_guided.session.logprobs import TokenLogprob
from hf_guided.session.reasoning import Reasoning

_SAMPLING = {field.name for field in fields(Sampling)}
WAIT_S = 120


def job(
    guide: hg.Guide,
    prompt: Sequence[int],
    constraint: Any = None,
    *,
    reasoning: Reasoning | None = None,
    name: str = "job",
    **settings: Any,
) -> Job:
    """A job whose settings are those of ``Sampling`` and of ``Job``."""
    [request] = calls_of(guide).requests([constraint], [None], "native", reasoning)
    if request.compiled is not None:
        request.compiled.result()
    sampling = Sampling(**{key: settings.pop(key) for key in _SAMPLING & settings.keys()})
    return Job(
        name,
        tuple(prompt),
        request,
        sampling,
        settings.pop("max_new_tokens", 60),
        settings.pop("stop_token_ids", tuple(guide.vocabulary.stop_token_ids)),
        **settings,
    )


class Client:
    """Collects the events of one job, and checks that they come in order.

    Args:
        engine: generates.
        job: what.
        cancel_after: answers, each with the number of its tokens after which it is cancelled.
    """

    def __init__(self, engine: Engine, job: Job, cancel_after: dict[int, int] | None = None):
        self.job = job
        self.tokens: list[list[int]] = [[] for _ in range(job.num_answers)]
        self.logprobs: list[list[TokenLogprob]] = [[] for _ in range(job.num_answers)]
        self.ends: dict[int, Ended] = {}
        self.cancelled: set[int] = set()
        self._cancel_after = cancel_after or {}
        self._changed = threading.Condition()
        self._begun = threading.Event()
        self.running: RunningJob = engine.submit(job, self.emit)
        self._begun.set()

    def emit(self, event: Event) -> None:
        assert self._begun.wait(WAIT_S)  # a cancellation needs ``running``
        with self._changed:
            answer = event.answer
            assert answer not in self.ends and answer not in self.cancelled, "an event after the end"
            if isinstance(event, NewTokens):
                self.tokens[answer] += event.token_ids
                self.logprobs[answer] += event.logprobs
                assert [entry.token_id for entry in self.logprobs[answer]] == self.tokens[answer][
                    : len(self.logprobs[answer])
                ]
                if len(self.tokens[answer]) >= self._cancel_after.get(answer, 1 << 30):
                    self.cancelled.add(answer)
                    self.running.cancel(answer)
            else:
                self.ends[answer] = event
            self._changed.notify_all()

    def cancel(self) -> None:
        """Cancel all answers that have not ended; no event may come afterwards."""
        self.running.cancel()
        with self._changed:
            self.cancelled |= set(range(self.job.num_answers)) - self.ends.keys()
            self._changed.notify_all()

    def wait_for_tokens(self, number: int) -> None:
        """Wait until one of the answers has so many tokens."""
        with self._changed:
            assert self._changed.wait_for(lambda: max(map(len, self.tokens)) >= number, WAIT_S)

    def wait(self) -> Client:
        """Wait until every answer has ended or was cancelled."""
        with self._changed:
            whole = range(self.job.num_answers)
            assert self._changed.wait_for(lambda: {*self.ends, *self.cancelled} == {*whole}, WAIT_S), self.ends
        return self

    def finished(self) -> list[list[int]]:
        """The tokens of all answers, each of which has ended by itself and rightly."""
        self.wait()
        for answer, end in self.ends.items():
            if end.error is not None:
                raise end.error
            tokens = self.tokens[answer]
            if self.job.top_logprobs is not None:
                assert len(self.logprobs[answer]) == len(tokens)
            assert len(tokens) <= self.job.max_new_tokens
            stops = [i for i, token_id in enumerate(tokens) if token_id in self.job.stop_token_ids]
            if end.reason == "stop":
                assert stops == [len(tokens) - 1]
            else:
                assert not stops and len(tokens) == self.job.max_new_tokens
        return self.tokens

    def error(self) -> Exception:
        """The error with which the only answer has ended."""
        error = self.wait().ends[0].error
        assert error is not None
        return error


def finished(engine: Engine, job: Job) -> list[list[int]]:
    """The answers of a job."""
    return Client(engine, job).finished()
