"""``hg.generate``, ``hg.agenerate`` and ``hg.Model``: prompts or chats and constraints in, parsed values out.

For ``hg.agenerate`` all of the work, from compiling to reading back, happens on a thread; the event loop only receives
what is finished.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, overload

from typing_extensions import Unpack

from ..constraints.argument_advice import GENERATE, GUIDE, MODEL, explains_its_arguments, with_fields
from ..errors import InvalidArgument, Line, NoValue, reading, users_line
from ..session.result import GuidedResult
from ..session.result_types import PythonType, Typed, TypedParts, ValueT
from .arguments import GenerateArguments, GenerateOptions
from .partial import Partial
from .plan import plan
from .prompts import as_prompts, check_order
from .run import run_plan
from .streaming import stream_plan
from .threads import Cancellation, running

Answers = list[GuidedResult[Any]] | Generator[Partial[Any], None, None]


class _ForResults(GenerateArguments, total=False):
    stream: Literal[False]


class _ForPartials(GenerateArguments):
    stream: Literal[True]


class _ForEither(GenerateArguments):
    stream: bool


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Typed[ValueT], **arguments: Unpack[_ForResults]
) -> list[GuidedResult[ValueT]]: ...


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Unpack[_ForResults]
) -> list[GuidedResult[Any]]: ...


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: TypedParts[ValueT], **arguments: Unpack[_ForPartials]
) -> Generator[Partial[ValueT, ValueT], None, None]: ...


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: PythonType[ValueT], **arguments: Unpack[_ForPartials]
) -> Generator[Partial[ValueT], None, None]: ...


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Unpack[_ForPartials]
) -> Generator[Partial[Any], None, None]: ...


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Unpack[_ForEither]
) -> list[GuidedResult[Any]] | Generator[Partial[Any], None, None]: ...


@explains_its_arguments(GENERATE)
@with_fields(GenerateOptions, others=True)
def generate(model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Any) -> Answers:
    """Generate answers and parse them, in the generation mode that the arguments select.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer; or its processor, where chats hold images, video or audio.
        prompts: a text, a chat (list of messages with "role" and "content"), or a list of texts and chats. Chats go
            through the chat template of the tokenizer or processor.
        constraint: one for all prompts, or a list with one per prompt (None = free). A list of strings is one Choice.
        stream: return answers while they are being generated: an iterator of ``Partial``. Each shows what is certain
            so far; the last one of an answer has its result. Batches run one after another; the answers of one batch
            come interleaved. The model runs on another thread, which starts with the first ``next``. Leaving the loop,
            or ``close()``, ends generation at the next token, and waits until it has ended if called on the thread
            that iterates. Not with beams, ``retries`` or ``continuous_batching``.
        guide: a Guide for this model and tokenizer, if there is one already; otherwise one is made and kept.
        backend: "auto", or the name of a backend.
        prefix: beginning of the answer: it is appended to the prompt, and the result's text begins with it. One for
            all prompts, or one per prompt.
        on_violation: "close" or "raise", see ``Guide.logits_processor``.
        batch_size: prompts per ``model.generate`` call; 1 for assisted generation and transformers' prompt lookup.
        retries: how often, up to 1,000, to generate an answer again if it finished but could not be turned into a
            value: a keyword that no engine enforces (``on_unsupported="validate"``), or a validator of the caller,
            refused it. Needs sampling.
        jump_forward: append text that the grammar leaves no choice about without running the model, in the tokenizer's
            own tokenization (``Guide.decoder``). Greedy decoding and sampling only: other modes, and features that only
            generate() itself has (a streamer, stop strings ...), run in transformers' own loop. With False everything
            runs there.
        draft: what proposes tokens for the model to confirm, see ``Guide.decoder``; None drafts nothing. "auto" is
            prompt lookup for greedy decoding, and nothing otherwise.
        continuous_batching: True, or a config for it, runs all prompts in transformers' continuous batching manager,
            where a row that ends makes room for another at once. Greedy decoding and sampling only, without
            jump-forward and drafts. The manager ignores generation settings that it does not know, and warns of them.
            On a CPU its cache has room for ``batch_size`` rows, unless a config says otherwise; on a GPU it takes most
            of the memory.
        stats: True shows tokens per second and forward passes per token after the progress bar, except in transformers'
            own loop; a function is called with the ``SessionStats`` of each ``model.generate`` call when it ends.
        progress: whether to show a progress bar; None shows one on a terminal when there are several batches.
        reasoning: what comes before every answer: free text up to a marker, see ``Guide.logits_processor``. It is the
            result's ``thinking``, and not part of its ``text``.
        trace: whether to record how every token was chosen: each result then has a ``trace``. Takes time and memory,
            and tokens are chosen on the host. With ``stream``, the last Partial of each answer comes when its batch
            has ended. Not with ``continuous_batching``, or a model in several processes.
        logprobs: give every result ``logprobs``, one ``TokenLogprob`` per token: log probability to the raw model,
            under the mask, and to the sampler. True, or how many of the most likely tokens to list at each position. A
            Partial has those that are known so far. ``continuous_batching`` takes one more forward pass for each
            answer. Where generate() itself has to run (assistant_model, stop_strings, a streamer ...), it keeps the
            logits of all tokens until the end of the batch. Not with beams, or a model in several processes.
        log_mass: give every result ``log_mass``: how much of the model's probability the format left. Forced text at
            the beginning or the end of the answers then takes one more forward pass, and ``continuous_batching`` one
            for each answer. None for beams.
        seed: for sampling: one int, or one for each prompt. A prompt's samples are then the same in any batch and with
            any drafts, as far as the model computes the same scores there. None draws from torch's generator.
        chat_template_kwargs: variables of the chat template (``enable_thinking`` ...) and other arguments of
            ``apply_chat_template``; a dict for all prompts, or a list with one for each. ``tools`` here
            replace those of ``ToolCalls``.
        documents: for chat templates that show documents: a list of dicts for all prompts, or a list of such lists,
            one for each prompt (None = none).
        show_tools: whether chat templates are given the tools of ``ToolCalls``. A template that does not show them
            causes a warning.
        describe: whether the format of each answer is described in its prompt, with the text of ``hg.describe``: in
            the system message of a chat, or in its first user message where the template has no system message;
            before the text of a plain prompt. Where the template shows the tools, only the need to call one is added.
        **arguments: for ``model.generate``: generation settings, and inputs of the model such as
            ``pixel_values``, which have a row for each prompt. ``max_new_tokens`` is 512 unless a length is given here
            or in a generation config. Rows whose engine knows the way to the end (``Matcher.min_tokens_to_finish``)
            close their text within it. Where that changes answers, the call warns once, and each of them says so
            (``GuidedResult.shortened``).

    Returns:
        One GuidedResult per prompt, in order; with ``num_return_sequences``, that many neighbours per prompt. With
        ``stream``, an iterator of Partials, whose ``index`` is a result's index in that list.

        For a type checker a class ``T`` (or a form such as ``list[T]``, or a ``TypeAdapter``) gives
        ``GuidedResult[T]``, whose ``value`` is ``T | None``; a regex gives ``re.Match[str]``; a list of strings, a
        grammar and None give ``str``; ``hg.ToolCalls`` gives ``hg.ToolAnswer``. Schemas give ``Any``; so do one
        constraint per prompt, and forms that checkers do not take for classes: ``Literal``, ``Annotated``, unions.

    Raises:
        UnknownArgument: an unknown keyword argument, such as a misspelled one; before anything is compiled.
        InvalidConstraint, UnsupportedConstraint, UnwritableConstraint: before anything is generated.
        BudgetTooSmall: no text of a constraint closes within ``max_new_tokens``; also before anything is generated.
        PromptError: a chat template refuses a chat, or the model would not see an image, video or audio of it.
        InvalidArgument: a value that an argument cannot have (a ``batch_size`` of 0, a negative ``temperature``), or
            arguments that exclude each other, such as ``stream`` and ``retries``; before anything is run.
        GenerationError: the processes that hold the model were called with different arguments.
        BatchSizeError: the number of constraints or prefixes is not the number of prompts.
        StopTokenError: generate() would stop at no token at all.
        VocabularySizeError: a token of a prompt has no embedding, or the logits have another width than the guide's.
        UnsupportedModel: a model that the requested way of decoding cannot serve exactly.
        EmptyIntersection: the generation settings forbid what the constraint needs; with ``on_violation="raise"`` also
            if other processors leave a row no allowed token.
    """
    return _answers(model, tokenizer, prompts, constraint, arguments)


def _answers(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    arguments: Mapping[str, Any],
    cancellation: Cancellation | None = None,
) -> Answers:
    """``generate``, which another thread may cancel."""
    with reading("generate"):
        options, generate_kwargs = GenerateOptions.among(arguments)
        planned = plan(model, tokenizer, prompts, constraint, options, generate_kwargs)
    planned = replace(planned, cancellation=cancellation)
    return stream_plan(planned) if options.stream else run_plan(planned)


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Typed[ValueT], **arguments: Unpack[_ForResults]
) -> Coroutine[Any, Any, list[GuidedResult[ValueT]]]: ...


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Unpack[_ForResults]
) -> Coroutine[Any, Any, list[GuidedResult[Any]]]: ...


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: TypedParts[ValueT], **arguments: Unpack[_ForPartials]
) -> AsyncGenerator[Partial[ValueT, ValueT], None]: ...


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: PythonType[ValueT], **arguments: Unpack[_ForPartials]
) -> AsyncGenerator[Partial[ValueT], None]: ...


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Unpack[_ForPartials]
) -> AsyncGenerator[Partial[Any], None]: ...


@overload
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Unpack[_ForEither]
) -> Coroutine[Any, Any, list[GuidedResult[Any]]] | AsyncGenerator[Partial[Any], None]: ...


@explains_its_arguments(GENERATE._replace(name="hg.agenerate"))
@with_fields(GenerateOptions, others=True)
def agenerate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, **arguments: Any
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

    Returns:
        A coroutine for the list of results; with ``stream``, an async generator of Partials.
    """
    call = partial(_answers, model, tokenizer, prompts, constraint, arguments)
    later = _later_partials if arguments.get("stream") else _later_results
    return later(model, call, users_line())


async def _later_results(model: Any, call: Callable[[Cancellation], Any], line: Line) -> list[GuidedResult[Any]]:
    async with running(model, call, line) as ended:
        await asyncio.wait([ended])
        results: list[GuidedResult[Any]] = ended.result()
        return results


async def _later_partials(
    model: Any, call: Callable[[Cancellation], Any], line: Line
) -> AsyncGenerator[Partial[Any], None]:
    queue: asyncio.Queue[Partial[Any] | None] = asyncio.Queue()  # None follows the last
    loop = asyncio.get_running_loop()

    def read(cancellation: Cancellation) -> None:
        for partial in call(cancellation):
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(queue.put_nowait, partial)

    async with running(model, read, line) as ended:
        ended.add_done_callback(lambda _: queue.put_nowait(None))
        while (partial := await queue.get()) is not None:
            yield partial
        ended.result()  # raises what the call raised


class Model:
    """A shorter form of ``hg.generate``: ``hg.Model(model, tokenizer)(prompt, Person)`` is a ``Person``.

    A value that the token limit shortened is returned with a warning only: it looks finished, and lacks content. Use
    ``hg.generate``, whose ``result.shortened`` says it of each answer.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        **arguments: arguments of ``hg.generate``, used by every call that does not set its own.
    """

    @explains_its_arguments(GUIDE._replace(name="hg.Model"))
    def __init__(self, model: Any, tokenizer: Any, **arguments: Unpack[GenerateArguments]):
        self._model = model
        self._tokenizer = tokenizer
        self._arguments = arguments

    @overload
    def __call__(
        self, prompt: Any, constraint: Typed[ValueT] = None, **arguments: Unpack[GenerateArguments]
    ) -> ValueT: ...

    @overload
    def __call__(self, prompt: Any, constraint: Any, **arguments: Unpack[GenerateArguments]) -> Any: ...

    @explains_its_arguments(MODEL)
    def __call__(self, prompt: Any, constraint: Any = None, **arguments: Any) -> Any:
        """Generate one answer and return its value.

        Args:
            prompt: one text or one chat.
            constraint: see ``hg.generate``; None gives free text.
            **arguments: the other arguments of ``hg.generate``, without ``stream``.

        Returns:
            The value, which is an instance of the type, a dict for a schema, a match for a regex, the option of a
            choice. Free text may be cut by ``max_new_tokens``; other values may be shortened by it, of which a warning
            tells.

        Raises:
            NoValue: the answer did not finish, or a validator refused it; the error has the ``GuidedResult``.
            InvalidArgument: more than one prompt, or arguments that request more than one answer.
            HFGuidedError: see ``hg.generate``.
        """
        prompts, given = self._single(prompt, constraint, arguments)
        [value] = _values(generate(self._model, self._tokenizer, prompts, constraint, stream=False, **given), 1)
        return value

    @overload
    def batch(
        self, prompts: Any, constraint: Typed[ValueT] = None, **arguments: Unpack[GenerateArguments]
    ) -> list[ValueT]: ...

    @overload
    def batch(self, prompts: Any, constraint: Any, **arguments: Unpack[GenerateArguments]) -> list[Any]: ...

    @explains_its_arguments(MODEL._replace(name=f"{MODEL.name}.batch", prompts="prompts"))
    def batch(self, prompts: Any, constraint: Any = None, **arguments: Any) -> list[Any]:
        """Generate an answer to each of several prompts and return their values.

        Args:
            prompts: texts, or chats.
            constraint: of all answers, or a list with one for each prompt; see ``hg.generate``.
            **arguments: the other arguments of ``hg.generate``, without ``stream``.

        Returns:
            A value for each prompt.

        Raises:
            NoValue: the first answer without a value; ``hg.generate`` returns the results of all of them.
            HFGuidedError: as for a call.
        """
        given = self._given(arguments)
        with reading("Model"):
            check_order(prompts, constraint)
            items = as_prompts(prompts)
        results = generate(self._model, self._tokenizer, items, constraint, stream=False, **given)
        return _values(results, len(items))

    @overload
    async def acall(
        self, prompt: Any, constraint: Typed[ValueT] = None, **arguments: Unpack[GenerateArguments]
    ) -> ValueT: ...

    @overload
    async def acall(self, prompt: Any, constraint: Any, **arguments: Unpack[GenerateArguments]) -> Any: ...

    @explains_its_arguments(MODEL._replace(name=f"{MODEL.name}.acall"))
    async def acall(self, prompt: Any, constraint: Any = None, **arguments: Any) -> Any:
        """A call without blocking the event loop; arguments, value and errors are those of a call."""
        prompts, given = self._single(prompt, constraint, arguments)
        [value] = _values(await agenerate(self._model, self._tokenizer, prompts, constraint, stream=False, **given), 1)
        return value

    def _single(self, prompt: Any, constraint: Any, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        with reading("Model"):
            check_order(prompt, constraint)
            prompts = as_prompts(prompt)
            if (count := len(prompts)) != 1:
                raise InvalidArgument(f"expected one prompt, got a list of {count}; use Model.batch, or hg.generate")
        return prompts, self._given(arguments)

    def _given(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given = {**self._arguments, **arguments}
        if given.pop("stream", False):
            raise InvalidArgument("stream: a call returns finished values; use hg.generate(..., stream=True)")
        return given

    def __repr__(self) -> str:
        return f"hg.Model({type(self._model).__name__}, {type(self._tokenizer).__name__})"


def _values(results: list[GuidedResult[Any]], prompts: int) -> list[Any]:
    """The values of results, of which there is one for each prompt."""
    if len(results) != prompts:
        raise InvalidArgument(
            f"expected {'one answer' if prompts == 1 else f'{prompts} answers'}, got {len(results)}; leave "
            "num_return_sequences out, or use hg.generate"
        )
    return [value_of(result) for result in results]


def value_of(result: GuidedResult[Any]) -> Any:
    """The value of a result.

    Raises:
        NoValue: the answer did not finish, or it could not be read.
    """
    if result.value is None and (result.finish_reason != "stop" or result.error is not None):
        reasons = {
            "stop": f"it could not be read: {result.error}",
            "length": f"it was cut after {len(result.token_ids)} tokens; raise max_new_tokens",
            "dead_end": result.error or "no token of this vocabulary could follow",
        }
        raise NoValue(f"the answer has no value: {reasons[result.finish_reason]}", result=result)
    return result.value
