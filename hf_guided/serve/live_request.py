"""One request while it is answered: rendered, constrained, given to the engine, and read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..constraints.tool_calls import ToolCalls
from .answers.answer import Answer, Delta
from .answers.chat import ChatShape
from .answers.completion import CompletionShape
from .answers.response import ResponseShape
from .answers.shape import Reply, Shape
from .call import Call
from .error_responses import RequestRefused
from .events import Events
from .guidance import Guidance
from .job import Ended, Engine, Event, Job, Running
from .limits import ServeLimits
from .metrics import Metrics, Outcome
from .models import ServedModel
from .rendering import Rendered, render
from .thread_pool import ThreadPool

_SHAPES: dict[str, Any] = {"chat": ChatShape, "completion": CompletionShape, "response": ResponseShape}
_PROMPTS = {"chat": "messages", "completion": "prompt", "response": "input"}
# Of an answer, where neither the request nor the model's config says how long it may be.
_MOST_NEW_TOKENS = 4096
_TOKENS_AT_ONCE = 16  # an answer that is not streamed is read in such steps; a stop string ends it so much later


@dataclass(frozen=True)
class Backstage:
    """What all requests of a server share.

    Args:
        served: the model.
        engine: generates.
        guidance: compiles.
        pool: runs templates.
        limits: of a request.
        metrics: counts.
        template_variables: of every chat, where its request does not set them.
    """

    served: ServedModel
    engine: Engine
    guidance: Guidance
    pool: ThreadPool
    limits: ServeLimits
    metrics: Metrics
    template_variables: dict[str, Any]


class LiveRequest:
    """One request; on the event loop.

    Args:
        backstage: see there.
        call: the request.
        request_id: its id, also of the response.
        client: who asks.
    """

    def __init__(self, backstage: Backstage, call: Call, request_id: str, client: str):
        self._backstage, self.call, self._request_id, self._client = backstage, call, request_id, client
        self.answers: list[Answer] = []
        self._open: set[Answer] = set()
        self._jobs: list[Running] = []
        self._events = Events(asyncio.get_running_loop(), self._end_jobs, 1 if call.stream else _TOKENS_AT_ONCE)
        self._guided = False
        self._ended = False
        self._counted = True  # there is nothing to count yet
        self._reply = Reply(call, backstage.served.name, request_id, prompt_tokens=0)

    async def begin(self) -> None:
        """Render, compile, check and submit it.

        Raises:
            RequestRefused, HFGuidedError: it cannot be answered.
        """
        backstage, call = self._backstage, self.call
        prompts = await backstage.pool.run(self._rendered)
        lengths = [self._max_new_tokens(len(prompt.token_ids)) for prompt in prompts]
        guided = await backstage.guidance.read(call, self._client, lengths)
        if self._ended:  # before Python 3.12, wait_for may lose the cancellation
            raise asyncio.CancelledError
        self._guided = guided.format.constraint is not None
        ranks = call.best_of > call.num_answers
        top_logprobs = 0 if ranks and call.logprobs is None else call.logprobs
        tokenizer = backstage.served.tokenizer
        echoes = [
            "" if not call.echo else given if isinstance(given, str) else tokenizer.decode(prompt.token_ids)
            for given, prompt in zip(call.prompts, prompts, strict=True)
        ]
        num_prompt_tokens = sum(len(prompt.token_ids) for prompt in prompts)
        self._reply = Reply(call, backstage.served.name, self._request_id, num_prompt_tokens, tuple(echoes))
        jobs = [
            Job(
                request_id=f"{self._request_id}/{number}",
                prompt=prompt.token_ids,
                guided=guided.request,
                sampling=call.sampling,
                max_new_tokens=length,
                stop_token_ids=tuple(sorted(guided.format.stop_token_ids)),
                num_answers=call.best_of,
                top_logprobs=top_logprobs,
                model_inputs=prompt.model_inputs,
            )
            for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
        ]
        for number, job in enumerate(jobs):
            self.answers += [
                Answer(number * call.best_of + index, guided.format, job.prompt, top_logprobs)
                for index in range(call.best_of)
            ]
        self._open = set(self.answers)
        backstage.metrics.tokens(prompt=num_prompt_tokens)
        if self._guided:
            backstage.metrics.begun()
        self._counted = False
        for number, job in enumerate(jobs):
            self._jobs.append(backstage.engine.submit(job, self._events.taker(number)))

    @property
    def has_begun(self) -> bool:
        """Whether its jobs are in the engine."""
        return bool(self._jobs)

    @property
    def is_over(self) -> bool:
        """Whether all answers have ended."""
        return not self._open

    def shape(self) -> Shape:
        """Of its response; before ``begin`` only for one that fails."""
        made: Shape = _SHAPES[self.call.kind](self._reply)
        return made

    async def deltas(self, timeout_s: float) -> list[tuple[Answer, Delta]]:
        """What the next events add to answers; an answer whose finish reason is set has ended with it.

        Args:
            timeout_s: how long to wait for one.

        Raises:
            Exception: an engine's error, or the client reads too slowly.
        """
        events = await self._events.get(timeout_s)
        if self._events.overflowed:
            raise RequestRefused("expected a client that reads its answer; it is cancelled", code="client_too_slow")
        return [delta for job, event in events for delta in self._read(job, event)]

    def shown(self) -> list[Answer]:
        """The answers of the response: of each prompt the likeliest, in their order."""
        size, num = self.call.best_of, self.call.num_answers
        groups = [self.answers[start : start + size] for start in range(0, len(self.answers), size)]
        best = [
            sorted(group, key=lambda answer: -answer.mean_logprob)[:num] if num < size else group for group in groups
        ]
        return [answer for group in best for answer in sorted(group, key=lambda answer: answer.index)]

    def end(self, outcome: Outcome) -> None:
        """End it, and count it; only the first call counts. Nothing more is submitted."""
        self._ended = True
        self._end_jobs()
        if not self._counted:
            self._counted = True
            self._backstage.metrics.tokens(answer=sum(answer.num_tokens for answer in self.answers))
            if self._guided:
                self._backstage.metrics.ended(outcome)

    def _rendered(self) -> list[Rendered]:
        backstage = self._backstage
        thinks, calls = backstage.guidance.thinks(self.call), isinstance(self.call.constraint, ToolCalls)
        prompts = []
        for prompt in self.call.prompts:
            rendered = render(backstage.served, prompt, backstage.template_variables, thinks=thinks, calls=calls)
            prompts.append(rendered)
            self._check_length(len(prompts[-1].token_ids))
        return prompts

    def _check_length(self, num_tokens: int) -> None:
        most, room = self._backstage.limits.max_prompt_tokens, self._backstage.engine.max_tokens
        limits = [limit for limit in (most, None if room is None else room - 1) if limit is not None]
        if limits and num_tokens > min(limits):
            raise RequestRefused(
                f"expected a prompt of at most {min(limits)} tokens, got {num_tokens}; shorten it",
                code="context_length_exceeded",
                param=_PROMPTS[self.call.kind],
            )

    def _max_new_tokens(self, prompt_length: int) -> int:
        if self.call.max_new_tokens is not None:
            return self.call.max_new_tokens
        most, room = self._backstage.limits.max_answer_tokens, self._backstage.engine.max_tokens
        limits = [limit for limit in (most, None if room is None else room - prompt_length) if limit is not None]
        return min(limits, default=_MOST_NEW_TOKENS)

    def _read(self, number: int, event: Event) -> Iterator[tuple[Answer, Delta]]:
        answer = self.answers[number * self.call.best_of + event.answer]
        if answer not in self._open:
            return
        if isinstance(event, Ended):
            if event.error is not None:
                raise event.error
            delta = answer.end("stop" if answer.stopped else event.reason)
        else:
            delta = answer.take(event.token_ids, event.logprobs)
            if answer.stopped and answer.has_all_logprobs:
                self._jobs[number].cancel(event.answer)
                last = answer.end("stop")
                delta = Delta(delta.parts + last.parts, delta.logprobs + last.logprobs)
        if answer.finish_reason is not None:
            self._open.discard(answer)
        yield answer, delta

    def _end_jobs(self) -> None:
        for job in list(self._jobs):
            job.cancel()
