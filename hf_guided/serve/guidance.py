"""From a request's constraint to one that is compiled and checked, before anything runs."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from ..backends.compile import CompilerStats
from ..constraints.chat_families import thinking_markers
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint, json_style
from ..errors import CompileLimitExceeded, HFGuidedError, InvalidArgument, InvalidConstraint
from ..generation.guided_call import check_budgets, check_settings
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..options import WAIT_S, CompilerOptions
from ..session.reasoning import Reasoning
from ..session.requests import Request
from .answers.reader import Format
from .call import Call, Chat
from .compile_queue import CompileQueue
from .error_responses import RequestRefused, refusal
from .metrics import Metrics
from .models import ServedModel
from .options import ServeOptions

# Also on a machine with one core: a slow schema then delays the others, but does not block them. A compile may take
# hundreds of megabytes, so there are no more workers than that.
_LEAST_WORKERS = 2


@dataclass(frozen=True)
class Guided:
    """How the answers to one request are constrained, and read.

    Args:
        request: for the engine.
        format: for the reader of answers.
    """

    request: Request
    format: Format


class Guidance:
    """The guide of a server's model, and the constraints of its requests; on the event loop.

    Args:
        served: the model.
        options: limits, and how the model thinks.
        metrics: counts every request.

    Raises:
        InvalidConstraint: whitespace, indent or spelling of the options is unknown, or they do not go together.
        InvalidArgument: ``reasoning="on"`` for a model whose markers of thinking are not known.
    """

    def __init__(self, served: ServedModel, options: ServeOptions, metrics: Metrics):
        # Raises now, not with the first request.
        json_style(options.whitespace or "flexible", options.indent, options.spelling or "canonical")
        compiler = CompilerOptions.from_env()
        self._compiler = replace(
            compiler,
            workers=max(compiler.workers, _LEAST_WORKERS),
            cache_bytes=options.compile_cache_bytes,
        )
        self.guide = Guide(served.templates, served.model, options=self._compiler)
        self._model = served.model
        self._strict_budget = options.strict_budget
        self._may_think = options.reasoning != "off"
        markers = thinking_markers(served.templates)
        if markers is None and options.reasoning == "on":
            raise InvalidArgument(
                "reasoning: expected a model that thinks for 'on', got one whose chat template has no known markers of "
                "thinking; use 'auto'"
            )
        thinking = None if markers is None else Reasoning(*markers, options.max_thinking_tokens)
        self._gate = self.guide.gate(thinking)
        self._metrics = metrics
        self.queue = CompileQueue(self._compiler.workers)

    def close(self, timeout_s: float) -> bool:
        """Wait for running compiles; False if one still runs after the timeout."""
        return self.guide.close(timeout_s)

    def stats(self) -> CompilerStats:
        """What compiling has cost so far."""
        return self.guide.stats()

    async def read(self, call: Call, client: str, max_new_tokens: Sequence[int]) -> Guided:
        """The constraint of a request; waits for compilation, and does not block other requests.

        Args:
            call: the request.
            client: who asks.
            max_new_tokens: of the answers to each prompt.

        Raises:
            RequestRefused: no answer that keeps to it can be promised.
        """
        try:
            guided = await self._read(call, client, max_new_tokens)
        except HFGuidedError as error:
            raise refusal(error, call.param) from error
        constraint = guided.format.constraint
        self._metrics.request("free" if constraint is None else constraint.kind)
        return guided

    async def _read(self, call: Call, client: str, max_new_tokens: Sequence[int]) -> Guided:
        gate = self._gate if self.thinks(call) else None
        settings = self._settings(call, min(max_new_tokens))
        format = Format(
            self.guide.vocabulary,
            gate=self.guide.answer_gate(gate, call.constraint),
            header=self.guide.answer_header.encode(),
            stop=call.stop,
            stop_token_ids=frozenset(settings.stop_token_ids()),
        )
        constraint = self._bound(call)
        if constraint is None:
            return Guided(Request(), format)
        [request] = await self._compiled(constraint, gate, client)
        assert request.compiled is not None
        await asyncio.to_thread(check_settings, [request], settings)
        if self._strict_budget:
            await asyncio.to_thread(check_budgets, [request], settings, [()])
        return Guided(request, replace(format, constraint=constraint, vocabulary=request.compiled.result().vocabulary))

    def thinks(self, call: Call) -> bool:
        """Whether the answers to a request begin after thinking.

        Raises:
            RequestRefused: it asks for thinking, which the server has switched off.
        """
        if call.kind == "completion" or call.think is False or self._gate is None:
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

    async def _compiled(self, constraint: Constraint, gate: Any, client: str) -> list[Request]:
        """The constraint as a request, compiled.

        Raises:
            CompileLimitExceeded: it takes too long.
            RequestRefused: others come first for too long.
        """
        requests: list[Request] = []

        def submit() -> Future[Any]:
            requests[:] = self.guide.requests([constraint], [None], gate=gate)
            [request] = requests
            assert request.compiled is not None
            return request.compiled

        known = self.guide.knows(constraint)
        self._metrics.looked_up(found=known)
        future = submit() if known else await self.queue.begin(client, submit)
        done = asyncio.wrap_future(future)
        done.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is known, even if nobody waits
        try:  # a client that leaves does not end the compile, which holds its place in the queue until it is over
            await asyncio.wait_for(asyncio.shield(done), WAIT_S)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise CompileLimitExceeded(
                f"not compiled within {WAIT_S:g} s: the machine is busy with other work; try again later"
            ) from None
        return requests

    def _settings(self, call: Call, max_new_tokens: int) -> GenerationSettings:
        config = copy.deepcopy(self._model.generation_config)
        stops = GenerationSettings(self._model, {"generation_config": config}).stop_token_ids()
        config.update(max_new_tokens=max_new_tokens, eos_token_id=sorted({*stops, *call.stop_token_ids}))
        return GenerationSettings(self._model, {"generation_config": config})
