"""From a request's body to its constraint: read, limited in size, compiled and checked before anything runs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from ..backends.compiler import CompilerStats
from ..constraints.response_format import from_request, from_tools
from ..constraints.values import Constraint, json_style, laid_out
from ..errors import CompileLimitExceeded, HFGuidedError, InvalidConstraint
from ..generation.guided_call import check_budgets, check_settings
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..options import CompilerOptions
from ..session.reasoning import Reasoning
from ..session.requests import Request
from .error_responses import RequestRefused, refusal
from .guided_model import GuidedRequest
from .metrics import Metrics
from .options import ServeOptions
from .thinking import reasoning_of

# Also on a machine with one core: a slow schema then delays the others, but does not block them. A compile may take
# hundreds of megabytes, so there are no more workers than that.
_LEAST_WORKERS = 2


class Guidance:
    """The guides of a server's models, and the constraints of its requests. Thread safe.

    Args:
        options: limits, and the format of tool calls.
        metrics: counts every request.

    Raises:
        InvalidConstraint: whitespace, indent or spelling of the options is unknown, or they do not go together.
    """

    def __init__(self, options: ServeOptions, metrics: Metrics):
        # Raises now, not with the first request.
        json_style(options.whitespace or "flexible", options.indent, options.spelling or "canonical")
        compiler = CompilerOptions.from_env()
        self._compiler = replace(
            compiler,
            cpu_s=compiler.cpu_s if options.compile_cpu_s is None else options.compile_cpu_s,
            memory_bytes=options.compile_memory_bytes or compiler.memory_bytes,
            workers=max(compiler.workers, _LEAST_WORKERS),
            cache_bytes=options.compile_cache_bytes,
        )
        self._options = options
        self._guides: WeakKeyDictionary[Any, Guide] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self.metrics = metrics

    def guide_for(self, model: Any, processor: Any) -> Guide:
        """The guide of a model, made once; making it takes a second for a large vocabulary."""
        with self._lock:
            if model not in self._guides:
                tokenizer = getattr(processor, "tokenizer", processor)
                self._guides[model] = Guide(tokenizer, model, options=self._compiler)
            return self._guides[model]

    def reasoning_for(self, model: Any, processor: Any) -> Reasoning | None:
        """How a model thinks before its answer; None if it does not, or if thinking is switched off."""
        if self._options.reasoning == "off":
            return None
        return reasoning_of(processor, model, self._options.max_thinking_tokens)

    def close(self, timeout_s: float) -> bool:
        """Wait for running compiles; False if one still runs after the timeout."""
        with self._lock:
            guides = list(self._guides.values())
        deadline = time.monotonic() + timeout_s
        return all([guide.close(max(0.0, deadline - time.monotonic())) for guide in guides])

    def compilers(self) -> list[CompilerStats]:
        """What compiling has cost so far, for each guide in use."""
        with self._lock:
            guides = list(self._guides.values())
        return [guide.stats() for guide in guides]

    async def read(
        self, body: Mapping[str, Any], model: Any, processor: Any, generation_config: Any
    ) -> GuidedRequest | None:
        """The constraint of a request; waits for compilation, and does not block other requests.

        Args:
            body: of the request.
            model: that will answer.
            processor: its processor or tokenizer.
            generation_config: what the model will be called with.

        Returns:
            None if the answer is free.

        Raises:
            RequestRefused: no answer that keeps to it can be promised.
        """
        param = _param(body)
        try:
            request = None if param is None else await self._read(body, param, model, processor, generation_config)
        except HFGuidedError as error:
            refused = refusal(error, param)
            self.metrics.refused(refused.code)
            raise refused from error
        except RequestRefused as refused:
            self.metrics.refused(refused.code)
            raise
        self.metrics.request("free" if request is None else request.constraint.kind)
        return request

    async def _read(
        self, body: Mapping[str, Any], param: str, model: Any, processor: Any, generation_config: Any
    ) -> GuidedRequest | None:
        constraint = await asyncio.to_thread(self._constraint, body, param)
        if constraint is None:
            return None
        guide = await asyncio.to_thread(self.guide_for, model, processor)
        try:
            constraint = constraint.for_tokenizer(guide.tokenizer)
        except InvalidConstraint:
            if body.get("tool_choice") == "none":
                return None  # it is not known what a call of this model looks like, so none can be forbidden
            raise
        gate = await asyncio.to_thread(guide.gate, self.reasoning_for(model, processor))
        [request] = guide.requests([constraint], [None], gate=gate)
        await self._compiled(request)
        settings = GenerationSettings(model, {"generation_config": generation_config})
        await asyncio.to_thread(check_settings, [request], settings)
        await asyncio.to_thread(check_budgets, [request], settings, [()])
        return GuidedRequest(guide, request, constraint)

    async def _compiled(self, request: Request) -> None:
        """Wait until the constraint is compiled.

        Raises:
            CompileLimitExceeded: it takes too long.
        """
        assert request.compiled is not None
        self.metrics.looked_up(found=request.compiled.done())
        try:
            await asyncio.wait_for(asyncio.wrap_future(request.compiled), self._compiler.wait_s)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise CompileLimitExceeded(
                f"not compiled within {self._compiler.wait_s:g} s: the machine is busy with other work, or other "
                "constraints come first; try again later"
            ) from None

    def _constraint(self, body: Mapping[str, Any], param: str) -> Constraint | None:
        fields = {"response_format", "text", "tools", "tool_choice", "parallel_tool_calls"}
        given = {name: body[name] for name in fields & set(body)}
        try:
            size = len(json.dumps(given))
        except RecursionError:
            raise RequestRefused("nested too deeply; flatten it", code="constraint_too_deep", param=param) from None
        most = self._options.limits.max_schema_bytes
        if size > most:
            raise RequestRefused(
                f"expected {most} bytes at most, as JSON, got {size}; ask for less, or raise --max-schema-bytes",
                code="constraint_too_large",
                param=param,
            )
        constraint = from_request(given, self._options.tool_format)
        if constraint is None and given.get("tools") and given.get("tool_choice") == "none":
            return from_tools(given["tools"], "none", self._options.tool_format)
        return laid_out(constraint, self._options.whitespace, self._options.indent, self._options.spelling)


def _param(body: Mapping[str, Any]) -> str | None:
    """The field of a request that holds its constraint, for error texts; None if there is none."""
    if body.get("response_format") is not None:
        return "response_format"
    if isinstance(body.get("text"), Mapping) and body["text"].get("format") is not None:
        return "text.format"
    return "tools" if body.get("tools") or body.get("tool_choice") not in (None, "auto", "none") else None
