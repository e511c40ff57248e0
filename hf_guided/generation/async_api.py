"""``hg.agenerate``: ``hg.generate`` for programs with an event loop.

All of the work, from compiling to reading back, happens on a thread; the event loop only receives what is finished.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Literal, overload

from typing_extensions import Unpack

from ..errors import reading
from ..session.result import GuidedResult
from ..session.result_types import ModelT, Parses, Pattern, PythonType, Texts, Typed, ValueT
from .api import generate
from .arguments import GenerateArguments
from .cancellation import Cancellation, hand_over
from .partial import Partial
from .streaming import surroundings
from .turns import Running, call_soon, turns_of


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Texts,
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> Coroutine[Any, Any, list[GuidedResult[str]]]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Typed[ValueT],
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> Coroutine[Any, Any, list[GuidedResult[ValueT]]]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Pattern,
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> Coroutine[Any, Any, list[GuidedResult[re.Match[str]]]]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> Coroutine[Any, Any, list[GuidedResult[Any]]]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Texts,
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> AsyncGenerator[Partial[str, str], None]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: type[ModelT],
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> AsyncGenerator[Partial[ModelT, ModelT], None]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: PythonType[ValueT],
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> AsyncGenerator[Partial[ValueT], None]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Parses[ValueT],
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> AsyncGenerator[Partial[ValueT, ValueT], None]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Pattern,
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> AsyncGenerator[Partial[re.Match[str], re.Match[str]], None]: ...


@overload
def agenerate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> AsyncGenerator[Partial[Any], None]: ...


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, *, stream: bool, **arguments: Unpack[GenerateArguments]
) -> Coroutine[Any, Any, list[GuidedResult[Any]]] | AsyncGenerator[Partial[Any], None]: ...


def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, *, stream: bool = False, **arguments: Any
) -> Coroutine[Any, Any, list[GuidedResult[Any]]] | AsyncGenerator[Partial[Any], None]:
    """``hg.generate`` without blocking the event loop.

    ``await hg.agenerate(...)`` gives the list of results; ``async for partial in hg.agenerate(..., stream=True)`` gives
    Partials. Arguments, types of values, and errors are those of ``hg.generate``; errors are raised where the call is
    awaited or iterated. Nothing begins before that.

    A cancelled task ends its generation at the next token (with ``continuous_batching``, within a twentieth of a
    second) and waits for that end, so that afterwards the model is free. ``aclose()`` does the same, and so
    does leaving the ``async for``, at the next iteration of the event loop.

    Calls on one model run one after another, in the order in which they began; a cancelled call does not disturb the
    waiting ones. Only calls of ``agenerate`` wait for each other: ``hg.generate`` or ``model.generate`` should not run
    on another thread at the same time. A slow reader of a stream delays no other call, because answers are generated in
    advance. Functions of the caller (``stats``, logits processors) are called on the thread of their call, with the
    context variables of the task. Only asyncio is supported, no other event loop.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        prompts: as for ``hg.generate``.
        constraint: as for ``hg.generate``.
        stream: whether to yield answers while they are being written.
        **arguments: the other arguments of ``hg.generate``.

    Returns:
        A coroutine for the list of results; with ``stream``, an async generator of Partials.
    """
    call = _Call(model, (tokenizer, prompts, constraint), {**arguments, "stream": stream})
    return call.partials() if stream else call.results()


class _Call:
    """One call.

    Args:
        model: the model.
        positional: the other positional arguments of ``hg.generate``.
        arguments: its keyword arguments.
    """

    def __init__(self, model: Any, positional: tuple[Any, ...], arguments: dict[str, Any]):
        self._model = model
        self._positional = positional
        self._arguments = arguments
        self._cancellation = Cancellation()

    async def results(self) -> list[GuidedResult[Any]]:
        """All results."""
        running = self._start(lambda results: results)
        try:
            await asyncio.wait([running.ended])
            results: list[GuidedResult[Any]] = running.ended.result()
            return results
        finally:
            await self._end(running)

    async def partials(self) -> AsyncGenerator[Partial[Any], None]:
        """Partials as they come; None follows the last in the queue."""
        queue: asyncio.Queue[Partial[Any] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def read(partials: Any) -> None:
            for partial in partials:
                call_soon(loop, queue.put_nowait, partial)

        running = self._start(read)
        running.ended.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (partial := await queue.get()) is not None:
                yield partial
            running.ended.result()  # raises what the call raised
        finally:
            await self._end(running)

    def _start(self, read: Callable[[Any], Any]) -> Running:
        """Begin; ``read`` gets what ``hg.generate`` returns, on the thread."""
        with reading("agenerate"):
            entered = surroundings(getattr(getattr(self._model, "device", None), "type", "cpu"))

        def work() -> Any:
            hand_over(self._cancellation)
            with entered():
                return read(generate(self._model, *self._positional, **self._arguments))

        return Running(turns_of(self._model), work)

    async def _end(self, running: Running) -> None:
        self._cancellation.set()
        await running.end()
