"""``hg.generate``: prompts or chats and constraints in, parsed values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, overload

from transformers.generation.configuration_utils import ContinuousBatchingConfig
from typing_extensions import Unpack

from ..constraints.argument_checks import FLAG, check
from ..errors import InvalidArgument, reading
from ..guide import Guide
from ..session.options import OnViolation
from ..session.reasoning import Reasoning
from ..session.result import GuidedResult
from ..session.result_types import ModelT, Parses, Pattern, PythonType, Texts, Typed, ValueT
from ..session.stats import SessionStats
from ..session.tensor_parallel import Ranks
from .arguments import GenerateArguments
from .guide_cache import guide_for
from .options import GenerateOptions
from .partial import Partial
from .plan import Plan, plan
from .run import run_plan
from .streaming import check_can_stream, stream_plan


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Texts,
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> list[GuidedResult[str]]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Typed[ValueT],
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> list[GuidedResult[ValueT]]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Pattern,
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> list[GuidedResult[re.Match[str]]]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    stream: Literal[False] = False,
    **arguments: Unpack[GenerateArguments],
) -> list[GuidedResult[Any]]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Texts,
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> Generator[Partial[str, str], None, None]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: type[ModelT],
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> Generator[Partial[ModelT, ModelT], None, None]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: PythonType[ValueT],
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> Generator[Partial[ValueT], None, None]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Parses[ValueT],
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> Generator[Partial[ValueT, ValueT], None, None]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Pattern,
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> Generator[Partial[re.Match[str], re.Match[str]], None, None]: ...


@overload
def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    stream: Literal[True],
    **arguments: Unpack[GenerateArguments],
) -> Generator[Partial[Any], None, None]: ...


@overload
def generate(
    model: Any, tokenizer: Any, prompts: Any, constraint: Any, *, stream: bool, **arguments: Unpack[GenerateArguments]
) -> list[GuidedResult[Any]] | Generator[Partial[Any], None, None]: ...


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    stream: bool = False,
    guide: Guide | None = None,
    backend: str = "auto",
    prefix: str | Sequence[str | None] | None = None,
    on_violation: OnViolation = "close",
    batch_size: int = 8,
    retries: int = 0,
    jump_forward: bool = True,
    draft: Any = "auto",
    continuous_batching: bool | ContinuousBatchingConfig = False,
    stats: bool | Callable[[SessionStats], None] = False,
    progress: bool | None = None,
    reasoning: Reasoning | None = None,
    trace: bool = False,
    logprobs: bool | int = False,
    seed: int | Sequence[int] | None = None,
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Any] | None = None,
    show_tools: bool = True,
    describe: bool = False,
    **generate_kwargs: Any,
) -> list[GuidedResult[Any]] | Generator[Partial[Any], None, None]:
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
        guide: a Guide for this tokenizer and model, if there is one already; otherwise one is made and kept.
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
        **generate_kwargs: for ``model.generate``: generation settings, and inputs of the model such as
            ``pixel_values``, which have a row for each prompt. ``max_new_tokens`` is 512 unless a length is given here
            or in a generation config. Rows whose engine knows the way to the end (``Matcher.min_tokens_to_finish``)
            close their text within it.

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
    with reading("generate"):
        check("stream", stream, FLAG)
        options = GenerateOptions(
            backend=backend,
            prefix=prefix,
            on_violation=on_violation,
            batch_size=batch_size,
            retries=retries,
            jump_forward=jump_forward,
            draft=draft,
            continuous_batching=continuous_batching,
            stats=stats,
            progress=progress,
            reasoning=reasoning,
            trace=trace,
            logprobs=logprobs,
            seed=seed,
            chat_template_kwargs=chat_template_kwargs,
            documents=documents,
            show_tools=show_tools,
            describe=describe,
        )
        guide = guide_for(tokenizer, model, guide)
        planned = _in_all_processes(
            partial(plan, model, tokenizer, prompts, constraint, guide, options, generate_kwargs), model, guide
        )
    if stream:
        check_can_stream(planned)
        return stream_plan(planned)
    return run_plan(planned)


def _in_all_processes(make: Callable[[], Plan], model: Any, guide: Guide) -> Plan:
    """The plan of a call; the processes that hold a model together check that they have the same plan.

    Raises:
        InvalidArgument: the guide does not know of the other processes.
    """
    ranks = Ranks.of(model)
    if ranks is None:
        return make()
    if guide.ranks is None:
        raise InvalidArgument(
            "guide: several processes hold this model, and would mask each by itself with a guide that was made "
            "without it; make it with this model, or leave it out"
        )
    # Each process compiles for itself, and reads the answers with what it has compiled.
    return ranks.agreed(make, Plan.fingerprint)
