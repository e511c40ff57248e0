"""Compiles and checks the constraints of requests, before anything runs; decides whose turn it is for that."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ..constraints.chat_families import thinking_markers
from ..constraints.json_style import json_style
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..errors import CompileLimitExceeded, ConstraintError, InvalidArgument, InvalidConstraint
from ..generation.guided_call import check_budgets, check_compiled
from ..guide import Guide, calls_of
from ..hf.generation_settings import GenerationSettings
from ..options import WAIT_S, CompilerOptions
from ..session.reasoning import Reasoning
from ..session.requests import Request
from .error_responses import RequestRefused, busy, naming
from .job import Call, Chat, Job
from .metrics import Metrics
from .models import Rendered, ServedModel
from .options import ServeOptions

# Also on a machine with one core: a slow schema then delays the others, but does not block them. A compile may take
# hundreds of megabytes, so there are no more workers than that.
_LEAST_WORKERS = 2


class Guidance:
    """The guide of a server's model, and the constraints of its requests; on the event loop.

    Raises:
        InvalidConstraint: whitespace, indent or spelling of the options is unknown, or they do not go together.
        InvalidArgument: ``reasoning="on"`` for a model whose markers of thinking are not known.
    """

    def __init__(self, served: ServedModel, options: ServeOptions, metrics: Metrics):
        # Raises now, not with the first request.
        json_style(options.whitespace or "flexible", options.indent, options.spelling or "canonical")
        compiler = CompilerOptions.from_env()
        compiler = replace(
            compiler,
            workers=max(compiler.workers, _LEAST_WORKERS),
            cache_bytes=options.compile_cache_bytes,
        )
        self.guide = Guide(served.model, served.templates, options=compiler)
        self._model = served.model
        self._strict_budget = options.strict_budget
        self._may_think = options.reasoning != "off"
        markers = thinking_markers(served.templates)
        if markers is None and options.reasoning == "on":
            raise InvalidArgument(
                "reasoning: expected a model that thinks for 'on', got one whose chat template has no known markers of "
                "thinking; use 'auto'"
            )
        self._reasoning = None if markers is None else Reasoning(*markers, options.max_thinking_tokens)
        calls_of(self.guide).gate(self._reasoning)  # raises now, too
        self._metrics = metrics
        self.queue = CompileQueue(compiler.workers)

    async def jobs(
        self, call: Call, prompts: Sequence[Rendered], max_new_tokens: Sequence[int], client: str, request_id: str
    ) -> list[Job]:
        """The jobs of a client's request, one for each prompt; waits for compilation.

        Raises:
            RequestRefused: no answer that keeps to the constraint can be promised.
        """
        with naming(call.param):
            reasoning = self._reasoning if self.thinks(call) else None
            settings = self._settings(call, min(max_new_tokens))
            constraint = self._bound(call)
            [guided] = calls_of(self.guide).requests([None], [None], reasoning=reasoning)
            if constraint is not None:
                try:
                    guided = await self._compiled(constraint, reasoning, client)
                except ConstraintError:
                    if isinstance(constraint, ToolCalls) and constraint.answer is not None:
                        # Names the field, and the places in its schema, where the format alone is the reason.
                        with naming("text.format" if call.kind == "response" else "response_format"):
                            await self._compiled(constraint.answer, None, client)
                    raise
                await asyncio.to_thread(lambda: settings.check_against(check_compiled([guided])))
                if self._strict_budget:
                    await asyncio.to_thread(check_budgets, [guided], settings, [()])
        self._metrics.count("requests", "free" if constraint is None else constraint.kind)
        ranks = call.best_of > call.num_answers  # by log probability
        return [
            Job(
                request_id=f"{request_id}/{number}",
                prompt=token_ids,
                guided=guided,
                sampling=call.sampling,
                max_new_tokens=length,
                stop_token_ids=settings.stop_token_ids(),
                num_answers=call.best_of,
                top_logprobs=0 if ranks and call.logprobs is None else call.logprobs,
                model_inputs=model_inputs,
                stop=call.stop,
            )
            for number, ((token_ids, model_inputs), length) in enumerate(zip(prompts, max_new_tokens, strict=True))
        ]

    def thinks(self, call: Call) -> bool:
        """Whether the answers to a request begin after thinking.

        Raises:
            RequestRefused: it asks for thinking, which the server has switched off.
        """
        if call.kind == "completion" or call.think is False or self._reasoning is None:
            return False
        if call.think and not self._may_think:
            raise RequestRefused(
                "expected a request without thinking, which this server has switched off", code="unsupported_field"
            )
        return self._may_think

    def _bound(self, call: Call) -> Constraint | None:
        """The constraint with the model's own notation of tool calls, numbered after those of the chat."""
        constraint = call.constraint
        if constraint is None:
            return None
        try:
            bound = constraint.for_tokenizer(self.guide.tokenizer)
            if isinstance(bound, ToolCalls) and isinstance(prompt := call.prompts[0], Chat):
                return bound.after(prompt.messages)
            return bound
        except InvalidConstraint:
            if isinstance(constraint, ToolCalls) and constraint.choice == "none":
                return None  # it is not known what a call of this model looks like, so none can be forbidden
            raise

    async def _compiled(self, constraint: Constraint, reasoning: Reasoning | None, client: str) -> Request:
        """The constraint as a request, compiled.

        Raises:
            CompileLimitExceeded: it takes too long.
            RequestRefused: others come first for too long.
        """
        requests: list[Request] = []

        def submit() -> Future[Any]:
            requests[:] = calls_of(self.guide).requests([constraint], [None], reasoning=reasoning)
            assert requests[0].compiled is not None
            return requests[0].compiled

        known = calls_of(self.guide).compiler.knows(calls_of(self.guide).required(constraint))
        self._metrics.count("compile_cache_hits" if known else "compile_cache_misses")
        future = submit() if known else await self.queue.begin(client, submit)
        done = asyncio.wrap_future(future)
        done.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is known, even if nobody waits
        try:  # a client that leaves does not end the compile, which holds its place in the queue until it is over
            await asyncio.wait_for(asyncio.shield(done), WAIT_S)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise CompileLimitExceeded(
                f"not compiled within {WAIT_S:g} s: the machine is busy with other work; try again later"
            ) from None
        return requests[0]

    def _settings(self, call: Call, max_new_tokens: int) -> GenerationSettings:
        config = copy.deepcopy(self._model.generation_config)
        stops = GenerationSettings(self._model, {"generation_config": config}).stop_token_ids()
        config.update(max_new_tokens=max_new_tokens, eos_token_id=sorted({*stops, *call.stop_token_ids}))
        return GenerationSettings(self._model, {"generation_config": config})


_MOST_WAITING = 128
_WAIT_S = 60.0  # how long a constraint waits for its turn
_RETRY_S = 10


class CompileQueue:
    """Decides which constraint is compiled next: clients in turn, and each client's in their order; on the event loop.

    The compiler has a few threads, and one constraint may take seconds. What it knows already does not wait here. A
    client that sends many constraints never holds all threads: one of them is left for the others.
    """

    def __init__(self, threads: int):
        self._threads = max(_LEAST_WORKERS, threads)
        self._running: Counter[str] = Counter()  # compiles of each client
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next client first

    @property
    def num_waiting(self) -> int:
        """Constraints that wait for their turn."""
        return sum(map(len, self._waiting.values()))

    async def begin(self, client: str, submit: Callable[[], Future[Any]]) -> Future[Any]:
        """Call ``submit`` when it is this client's turn, and return its future.

        Raises:
            RequestRefused: others come first for too long (503).
        """
        await self._turn(client)
        try:
            future = submit()
        except BaseException:
            self._end(client)
            raise
        loop = asyncio.get_running_loop()

        def ended(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end, client)

        future.add_done_callback(ended)
        return future

    async def _turn(self, client: str) -> None:
        if not self._waiting and self._has_room(client):
            self._running[client] += 1
            return
        if self.num_waiting >= _MOST_WAITING:
            raise busy("constraints", "compiler_busy", _RETRY_S)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._next()
        try:
            await asyncio.wait_for(asyncio.shield(turn), _WAIT_S)
        except BaseException as error:
            if turn.done():
                self._end(client)
            else:
                self._waiting[client].remove(turn)
                self._forget(client)
            if isinstance(error, asyncio.TimeoutError):
                raise busy("constraints", "compiler_busy", _RETRY_S) from None
            raise

    def _has_room(self, client: str) -> bool:
        return self._running.total() < self._threads and self._running[client] < self._threads - 1

    def _end(self, client: str) -> None:
        self._running[client] -= 1
        self._running += Counter()  # without the clients that have none
        self._next()

    def _next(self) -> None:
        """Let those begin whose turn it is."""
        while (client := next(filter(self._has_room, self._waiting), None)) is not None:
            self._running[client] += 1
            self._waiting[client].popleft().set_result(None)
            self._waiting.move_to_end(client)
            self._forget(client)

    def _forget(self, client: str) -> None:
        if not self._waiting[client]:
            del self._waiting[client]
