"""Answering one request to a route that generates: from its body to JSON, or to a stream of events.

Its body becomes a ``Call``; its prompts are rendered, its constraint compiled, its jobs submitted; the engine's events
are read into answers, and a writer puts these into the form of the route. A client that leaves ends its request,
streaming or not; so does the time limit. While a stream waits for its constraint or for its turn, it gets a comment
every few seconds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..constraints.tool_calls import ToolCalls
from ..generation.templates import own_variables
from .answers.answer import Answer, Delta
from .answers.response import ResponseWriter
from .answers.writers import HEARTBEAT, ChatWriter, CompletionWriter, Writer, new_id
from .bodies.chat import SWITCHES
from .bodies.generation import Defaults
from .engines.jobs import Engine, RunningJob
from .error_responses import RequestRefused, as_refused, log, shuts_down
from .guidance import Guidance
from .job import Call, Ended, Event, NewTokens
from .limits import Admission, ThreadPool, body_of, key_of, parsed
from .metrics import Metrics, Outcome
from .models import Rendered, ServedModel
from .options import ServeOptions

T = TypeVar("T")
_WRITERS: dict[str, type[Writer]] = {"chat": ChatWriter, "completion": CompletionWriter, "response": ResponseWriter}
_PROMPTS = {"chat": "messages", "completion": "prompt", "response": "input"}
_HEARTBEAT_S = 3.0
_LONGEST_ID = 128
# Tokens of an answer, where neither the request nor the model's config says how long it may be.
_MOST_NEW_TOKENS = 4096
_TOKENS_AT_ONCE = 16  # an answer that is not streamed is read in such steps; a stop string ends it so much later
# A client that reads slowly must not fill the memory: its answer is ended when so much waits for so long, or far more.
_MOST_TOKENS, _FULL_S, _FAR_MORE = 4096, 10.0, 16


class Answering:
    """Answers requests, and holds what they share."""

    def __init__(
        self, options: ServeOptions, served: ServedModel, engine: Engine, guidance: Guidance, metrics: Metrics
    ):
        self.served, self.engine, self.guidance, self.metrics = served, engine, guidance, metrics
        self.limits, self.valid_is_stop = options.limits, options.valid_is_stop
        self.admission = Admission(options.limits.max_queue)
        self.pool = ThreadPool(options.limits.render_timeout_s)
        self.defaults = Defaults(
            options,
            guidance.guide.vocabulary.padded_size,
            served.model.generation_config,
            takes_images=served.takes_media,
            template_variables=own_variables(served.templates),
            takes_any_arguments=served.takes_any_arguments,
        )
        # Variables of the template of every chat whose request does not set them.
        self.template_variables: dict[str, Any] = (
            {} if options.reasoning == "auto" else dict.fromkeys(SWITCHES, options.reasoning == "on")
        )
        self._has_keys = bool(options.api_keys)

    async def run(self, request: Request, work: Callable[[object], T]) -> T:
        """Read a request's JSON, and let ``work`` make the answer of it, on a thread.

        Raises:
            RequestRefused, HFGuidedError: no answer can be given.
        """
        with self.admission.request():
            body = await body_of(request, self.limits.request_timeout_s, self.admission.closed)
            return await self.pool.run(lambda: work(parsed(request, body)))

    async def answer(self, request: Request, read: Callable[[object, Defaults], Call]) -> Response:
        """The response to one request, whose body ``read`` makes a ``Call``.

        Raises:
            RequestRefused, HFGuidedError: no answer can be given.
        """
        with ExitStack() as held:
            held.enter_context(self.admission.request())
            deadline = _Deadline(self.limits.request_timeout_s)
            body = await body_of(request, deadline.left_s, self.admission.closed)
            call = await self.pool.run(lambda: read(parsed(request, body), self.defaults))
            live = _LiveRequest(self, call, _id_of(request), self._client_of(request))
            held.callback(live.end, "cancelled")
            if not call.stream:
                return await self._whole(request, live, deadline)
            begun = asyncio.ensure_future(live.begin())
            held.callback(begun.cancel)
            await asyncio.wait({begun}, timeout=min(_HEARTBEAT_S, deadline.left_s))
            if begun.done():
                begun.result()  # what is refused by now is refused with its own status
            return _EventStream(self._events(live, begun, deadline), held.pop_all())

    def _client_of(self, request: Request) -> str:
        """Name the client: by its key, where keys are needed; or else by its address."""
        if self._has_keys:
            return key_of(request.headers)
        return request.client.host if request.client else ""

    async def _whole(self, request: Request, live: _LiveRequest, deadline: _Deadline) -> Response:
        async def run() -> Response:
            await live.begin()
            while not live.is_over:
                await live.deltas(_HEARTBEAT_S)
            return JSONResponse(live.writer().whole(live.shown(), live.answers))

        answer = asyncio.ensure_future(run())
        left = asyncio.ensure_future(_disconnected(request))
        closed = asyncio.ensure_future(self.admission.closed.wait())
        try:
            await asyncio.wait({answer, left, closed}, timeout=deadline.left_s, return_when=asyncio.FIRST_COMPLETED)
            if closed.done() and live.has_begun:  # its engine ends it
                await asyncio.wait({answer, left}, timeout=deadline.left_s, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done() and not left.done():
                raise _late_answer() if live.has_begun or not closed.done() else shuts_down()
            if not answer.done():
                return Response(status_code=499)  # nobody reads it
            response = answer.result()
            live.end("finished")
            return response
        except Exception:
            live.end("failed")
            raise
        finally:
            for task in (answer, left, closed):
                task.cancel()

    async def _events(self, live: _LiveRequest, begun: asyncio.Future[None], deadline: _Deadline) -> AsyncIterator[str]:
        writer = None
        try:
            while not begun.done():
                yield HEARTBEAT
                await asyncio.wait({begun}, timeout=min(_HEARTBEAT_S, deadline.left_s))
                deadline.check()
                if self.admission.closed.is_set() and not begun.done():
                    raise shuts_down()
            begun.result()
            writer = live.writer()
            yield "".join(writer.begin())
            while not live.is_over:
                deltas = await live.deltas(min(_HEARTBEAT_S, deadline.left_s))
                events = [event for answer, delta in deltas for event in writer.add(answer.index, delta)]
                deadline.check()
                if events or not deltas:
                    yield "".join(events) or HEARTBEAT
            live.end("finished")
            yield "".join(writer.finish(live.answers))
        except Exception as error:
            live.end("failed")
            refused = as_refused(error)
            if refused.status == 500:
                log.error("a request failed", exc_info=error)
            if writer is None:
                writer = live.writer()
                yield "".join(writer.begin())
            yield "".join(writer.fail(refused))


class _EventStream(StreamingResponse):
    """A stream that ends its request when it ends, for any reason, even before its first event."""

    def __init__(self, events: AsyncIterator[str], held: ExitStack):
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


class _Deadline:
    """The time limit of one request, in seconds from now."""

    def __init__(self, seconds: float):
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time() + seconds

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - self._loop.time())

    def check(self) -> None:
        if not self.left_s:
            raise _late_answer()


def _id_of(request: Request) -> str:
    """The request's own id, or a new one."""
    given = request.headers.get("x-request-id", "")
    return given if given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_ID else new_id("req-")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _late_answer() -> RequestRefused:
    return RequestRefused(
        "no answer within the server's time limit; ask for less, or raise --request-timeout",
        status=504,
        code="request_timeout",
    )


class _LiveRequest:
    """A request while it is answered; on the event loop."""

    def __init__(self, shared: Answering, call: Call, request_id: str, client: str):
        self._shared, self.call, self._request_id, self._client = shared, call, request_id, client
        self.answers: list[Answer] = []
        self._open: set[Answer] = set()
        self._jobs: list[RunningJob] = []
        self._events = Events(asyncio.get_running_loop(), self._end_jobs, 1 if call.stream else _TOKENS_AT_ONCE)
        self._guided = False
        self._ended = False
        self._counted = True  # there is nothing to count yet
        self._num_prompt_tokens = 0
        self._echoes = [""] * len(call.prompts)

    async def begin(self) -> None:
        """Render, compile, check and submit the request.

        Raises:
            RequestRefused, HFGuidedError: it cannot be answered.
        """
        shared, call = self._shared, self.call
        prompts = await shared.pool.run(self._rendered)
        lengths = [self._max_new_tokens(len(token_ids)) for token_ids, _ in prompts]
        jobs = await shared.guidance.jobs(call, prompts, lengths, self._client, self._request_id)
        if self._ended:  # before Python 3.12, wait_for may lose the cancellation
            raise asyncio.CancelledError
        self._guided = jobs[0].guided.constraint is not None
        if call.echo:
            self._echoes = [
                given if isinstance(given, str) else shared.served.tokenizer.decode(job.prompt)
                for given, job in zip(call.prompts, jobs, strict=True)
            ]
        self._num_prompt_tokens = sum(len(job.prompt) for job in jobs)
        self.answers = [
            Answer(number * call.best_of + index, job, shared.guidance.guide)
            for number, job in enumerate(jobs)
            for index in range(call.best_of)
        ]
        self._open = set(self.answers)
        shared.metrics.count("text_tokens", "prompt", self._num_prompt_tokens)
        if self._guided:
            shared.metrics.count("generations_running")
        self._counted = False
        for number, job in enumerate(jobs):
            self._jobs.append(shared.engine.submit(job, self._events.taker(number)))

    @property
    def has_begun(self) -> bool:
        """Whether the jobs of the request are in the engine."""
        return bool(self._jobs)

    @property
    def is_over(self) -> bool:
        """Whether all answers have ended."""
        return not self._open

    def writer(self) -> Writer:
        """The writer of the response; before ``begin`` only for one that fails."""
        kind, name = _WRITERS[self.call.kind], self._shared.served.name
        return kind(self.call, name, self._request_id, self._num_prompt_tokens, self._echoes)

    async def deltas(self, timeout_s: float) -> list[tuple[Answer, Delta]]:
        """Read the next events, or wait for one; each adds to an answer.

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
        """End the request, and count it; only the first call counts. Nothing more is submitted."""
        self._ended = True
        self._end_jobs()
        if not self._counted:
            self._counted, metrics = True, self._shared.metrics
            metrics.count("text_tokens", "answer", sum(answer.num_tokens for answer in self.answers))
            if self._guided:
                metrics.count("generations_running", number=-1)
                metrics.count("generations", outcome)

    def _rendered(self) -> list[Rendered]:
        shared = self._shared
        thinks, calls = shared.guidance.thinks(self.call), isinstance(self.call.constraint, ToolCalls)
        limits = (shared.limits.max_prompt_tokens, _minus(shared.engine.max_tokens, 1))
        most = min((limit for limit in limits if limit is not None), default=None)
        prompts = []
        for prompt in self.call.prompts:
            prompts.append(shared.served.render(prompt, shared.template_variables, thinks=thinks, calls=calls))
            num_tokens = len(prompts[-1][0])
            if most is not None and num_tokens > most:
                raise RequestRefused(
                    f"expected a prompt of at most {most} tokens, got {num_tokens}; shorten it",
                    code="context_length_exceeded",
                    param=_PROMPTS[self.call.kind],
                )
        return prompts

    def _max_new_tokens(self, prompt_length: int) -> int:
        if self.call.max_new_tokens is not None:
            return self.call.max_new_tokens
        limits = (self._shared.limits.max_answer_tokens, _minus(self._shared.engine.max_tokens, prompt_length))
        return min((limit for limit in limits if limit is not None), default=_MOST_NEW_TOKENS)

    def _read(self, number: int, event: Event) -> Iterator[tuple[Answer, Delta]]:
        answer = self.answers[number * self.call.best_of + event.answer]
        if answer not in self._open:
            return
        if isinstance(event, Ended):
            if event.error is not None:
                raise event.error
            reason = "length" if event.squeezed and not self._shared.valid_is_stop else event.reason
            if event.log_mass is not None:
                self._shared.metrics.observe_log_mass(event.log_mass)
            log_mass = None if answer.stopped or self.call.logprobs is None else event.log_mass
            delta = answer.end("stop" if answer.stopped else reason, shortened=event.shortened, log_mass=log_mass)
        else:
            delta = answer.take(event.token_ids, event.logprobs)
            if answer.stopped and answer.has_all_logprobs:
                self._jobs[number].cancel(event.answer)
                last = answer.end("stop")
                delta = last._replace(parts=delta.parts + last.parts, logprobs=delta.logprobs + last.logprobs)
        if answer.finish_reason is not None:
            self._open.discard(answer)
        yield answer, delta

    def _end_jobs(self) -> None:
        for job in list(self._jobs):
            job.cancel()


def _minus(number: int | None, less: int) -> int | None:
    return None if number is None else number - less


class Events:
    """The events of one request's jobs, from the engine's threads to the event loop; never blocks an engine.

    Args:
        loop: on which the events are read.
        on_overflow: called once, on an engine's thread, when too much waits; no further events are kept then.
        num_tokens: number of waiting tokens that wakes the reader; the end of an answer wakes it too. More than 1 where
            a reader cannot see single tokens: each wake-up takes time from the thread that generates.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_overflow: Callable[[], None], num_tokens: int = 1):
        self._loop = loop
        self._on_overflow = on_overflow
        self._enough_tokens = num_tokens
        self._woken = False
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, Event]] = deque()
        self._num_tokens = 0
        self._full_since: float | None = None
        self._arrived = asyncio.Event()
        self.overflowed = False

    def taker(self, job: int) -> Callable[[Event], None]:
        """The function that takes the events of a job, which has this number in the request."""

        def take(event: Event) -> None:
            with self._lock:
                if not self.overflowed:
                    self._pending.append((job, event))
                    self._num_tokens += _size(event)
                overflows = not self.overflowed and self._overflows()
                self.overflowed |= overflows
                enough = isinstance(event, Ended) or self._num_tokens >= self._enough_tokens
                wakes = overflows or (enough and not self._woken)
                self._woken |= wakes
            if overflows:
                self._on_overflow()
            if wakes:
                try:
                    self._loop.call_soon_threadsafe(self._arrived.set)
                except RuntimeError:  # the loop has ended
                    self._on_overflow()

        return take

    async def get(self, timeout_s: float) -> list[tuple[int, Event]]:
        """Take all waiting events, with the numbers of their jobs; none after the timeout, or after an overflow."""
        deadline = self._loop.time() + timeout_s
        while True:
            with self._lock:
                self._arrived.clear()
                self._woken = False
                events, self._num_tokens, self._full_since = list(self._pending), 0, None
                self._pending.clear()
            if events or self.overflowed:
                return events
            try:
                await asyncio.wait_for(self._arrived.wait(), deadline - self._loop.time())
            except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
                return []

    def _overflows(self) -> bool:
        if self._num_tokens < _MOST_TOKENS:
            return False
        now = time.monotonic()
        self._full_since = self._full_since or now
        return now - self._full_since > _FULL_S or self._num_tokens > _FAR_MORE * _MOST_TOKENS


def _size(event: Event) -> int:
    """Size of an event in tokens, roughly: a token with alternatives takes as much as several."""
    if isinstance(event, Ended):
        return 1
    assert isinstance(event, NewTokens)
    return len(event.token_ids) + sum(1 + len(token.top.raw) for token in event.logprobs)
