"""From a request's body to what its answer has to keep to: read, bounded, compiled and checked before anything runs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from ..backends.base import CompiledConstraint
from ..backends.compiler import CompilerStats
from ..constraints.response_format import from_request, from_tools
from ..constraints.values import Constraint, json_style, laid_out
from ..errors import CompileLimitExceeded, HFGuidedError, InvalidConstraint
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from ..options import CompilerOptions
from ..session.reasoning import Reasoning
from ..session.requests import check_budget, row_after_prefix
from .error_responses import RequestRefused, refusal
from .guided_model import Asked
from .metrics import Metrics
from .options import ServeOptions
from .thinking import reasoning_of

# On a machine of one core too: a slow schema makes the others slower, and does not stop them. Each may take hundreds of
# megabytes while it compiles, so there are not more.
_LEAST_WORKERS = 2


class Guidance:
    """The guides of a server's models, and what its requests ask of them. Thread safe.

    Args:
        options: limits, and the format of tool calls.
        metrics: told of every request.

    Raises:
        InvalidConstraint: whitespace, indent or spelling of the options is unknown, or they do not go together.
    """

    def __init__(self, options: ServeOptions, metrics: Metrics):
        json_style(
            options.whitespace or "flexible", options.indent, options.spelling or "canonical"
        )  # now, not with the first request
        compiler = CompilerOptions.from_env()
        self._compiler = replace(
            compiler,
            timeout_s=options.compile_timeout_s,
            workers=max(compiler.workers, _LEAST_WORKERS),
            cache_bytes=options.compile_cache_bytes,
        )
        self._options = options
        self._guides: WeakKeyDictionary[Any, Guide] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self.metrics = metrics

    def guide_for(self, model: Any, processor: Any) -> Guide:
        """The guide of a model, made once; takes a second for a large vocabulary."""
        with self._lock:
            if model not in self._guides:
                tokenizer = getattr(processor, "tokenizer", processor)
                self._guides[model] = Guide(tokenizer, model, options=self._compiler)
            return self._guides[model]

    def reasoning_for(self, model: Any, processor: Any) -> Reasoning | None:
        """How a model thinks in front of what it is asked for; None if it does not, or is not to."""
        if self._options.reasoning == "off":
            return None
        return reasoning_of(processor, model, self._options.max_thinking_tokens)

    def close(self, timeout_s: float) -> bool:
        """Wait for what still compiles; False if something does even then."""
        with self._lock:
            guides = list(self._guides.values())
        deadline = time.monotonic() + timeout_s
        return all([guide.close(max(0.0, deadline - time.monotonic())) for guide in guides])

    def compilers(self) -> list[CompilerStats]:
        """What compiling has cost so far, for each guide that lives."""
        with self._lock:
            guides = list(self._guides.values())
        return [guide.stats() for guide in guides]

    async def read(self, body: Mapping[str, Any], model: Any, processor: Any, generation_config: Any) -> Asked | None:
        """What a request asks; waits for compilation, and keeps nobody else waiting.

        Args:
            body: of the request.
            model: that will answer.
            processor: its processor or tokenizer.
            generation_config: what it will be called with.

        Returns:
            None if nothing is asked of the answer.

        Raises:
            RequestRefused: it cannot be promised.
        """
        param = _param(body)
        try:
            asked = None if param is None else await self._read(body, param, model, processor, generation_config)
        except HFGuidedError as error:
            refused = refusal(error, param)
            self.metrics.refused(refused.code)
            raise refused from error
        except RequestRefused as refused:
            self.metrics.refused(refused.code)
            raise
        self.metrics.request("free" if asked is None else asked.constraint.kind)
        return asked

    async def _read(
        self, body: Mapping[str, Any], param: str, model: Any, processor: Any, generation_config: Any
    ) -> Asked | None:
        constraint = await asyncio.to_thread(self._constraint, body, param)
        if constraint is None:
            return None
        guide = await asyncio.to_thread(self.guide_for, model, processor)
        try:
            constraint = constraint.for_tokenizer(guide.tokenizer)
        except InvalidConstraint:
            if body.get("tool_choice") == "none":
                return None  # nobody knows what a call of this model would look like
            raise
        future = guide.submit(constraint, budget=True)
        self.metrics.looked_up(found=future.done())
        try:
            compiled = await asyncio.wait_for(asyncio.wrap_future(future), self._options.compile_timeout_s)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise CompileLimitExceeded(
                f"not compiled within {self._options.compile_timeout_s:g} s; make the constraint smaller, or raise "
                "--compile-timeout"
            ) from None
        await asyncio.to_thread(_check, compiled, GenerationSettings(model, {"generation_config": generation_config}))
        return Asked(guide, constraint, compiled, self.reasoning_for(model, processor))

    def _constraint(self, body: Mapping[str, Any], param: str) -> Constraint | None:
        fields = {"response_format", "text", "tools", "tool_choice", "parallel_tool_calls"}
        asked = {name: body[name] for name in fields & set(body)}
        try:
            size = len(json.dumps(asked))
        except RecursionError:
            raise RequestRefused("nested too deeply; flatten it", code="constraint_too_deep", param=param) from None
        if size > self._options.max_schema_bytes:
            raise RequestRefused(
                f"expected {self._options.max_schema_bytes} bytes at most, as JSON, got {size}; ask for less, or raise "
                "--max-schema-bytes",
                code="constraint_too_large",
                param=param,
            )
        constraint = from_request(asked, self._options.tool_format)
        if constraint is None and asked.get("tools") and asked.get("tool_choice") == "none":
            return from_tools(asked["tools"], "none", self._options.tool_format)
        return laid_out(constraint, self._options.whitespace, self._options.indent, self._options.spelling)


def _check(compiled: CompiledConstraint, settings: GenerationSettings) -> None:
    settings.check_against([compiled])
    most = settings.given_max_new_tokens
    if most is not None:
        check_budget(row_after_prefix(compiled, b"", settings.stop_token_ids()), most)


def _param(body: Mapping[str, Any]) -> str | None:
    """The field that a request puts its constraint into, for error texts; None if there is none."""
    if body.get("response_format") is not None:
        return "response_format"
    if isinstance(body.get("text"), Mapping) and body["text"].get("format") is not None:
        return "text.format"
    return "tools" if body.get("tools") or body.get("tool_choice") not in (None, "auto", "none") else None
