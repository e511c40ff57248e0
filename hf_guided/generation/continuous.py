"""Runs the prompts of a call in transformers' continuous batching.

The manager's logits are not accessible, so log probabilities take one more forward pass over each prompt and answer.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from numbers import Number
from typing import TYPE_CHECKING, Any

from torch import Tensor
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from ..errors import GenerationError, InvalidArgument, UnsupportedModel
from ..guide import calls_of
from ..hf.compat import continuous_batching_reason
from ..hf.decode.processors import Scoring
from ..hf.generation_settings import GenerationSettings
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.logprobs import LogprobRecorder, Position, TokenLogprob
from ..session.mass_record import MassRecord, narrowed_along, with_limit
from ..session.requests import Request, row_after_prefix
from ..session.result import GuidedResult, with_dead_end
from ..session.stats import SessionStats
from .arguments import GenerateOptions
from .prefix_logits import PrefixLogits
from .prompt_inputs import row_arguments
from .prompts import Prompt, padded
from .threads import Cancellation

if TYPE_CHECKING:
    from .plan import Plan

_NO_PADDING = -1  # a manager ends each row by itself
_CHUNK = 64  # positions processed at a time: 128,000 logits in float32 are half a megabyte for each

# Settings for which a manager would need a row's earlier tokens, its prompt's length or a clock. It ignores them, or
# fails. Each with the values that change nothing.
_OF_ROWS: dict[str, tuple[Any, ...]] = {
    "min_new_tokens": (0,),
    "min_length": (0,),
    "max_time": (),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "exponential_decay_length_penalty": (),
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "guidance_scale": (1.0,),
    "watermarking_config": (),
}


def check_continuous(
    model: Any, prompts: Sequence[Prompt], generate_kwargs: Mapping[str, Any], options: GenerateOptions
) -> None:
    """Check that a manager can run a whole call.

    Raises:
        InvalidArgument: arguments that the manager would ignore or does not know, or a manager that the model keeps.
        UnsupportedModel: see ``continuous_batching_reason``.
    """
    from ..hf.continuous_batching.compat import effective_config, kept_manager

    tensors = sorted(row_arguments(generate_kwargs, len(prompts), several_calls=False))
    if tensors or any(prompt.media for prompt in prompts):
        given = ", ".join(tensors) or "images, video or audio"
        raise InvalidArgument(f"continuous_batching: its manager takes text alone, not {given}; leave one of them out")
    if options.trace:
        raise InvalidArgument("trace: nothing is written down in continuous_batching; leave one of them out")
    if options.reasoning is not None:
        raise InvalidArgument("reasoning: continuous_batching guides answers without thinking; leave one of them out")
    if options.on_violation != "close":
        raise InvalidArgument("on_violation: continuous_batching ends such rows, whose result says so; leave it out")
    if reason := continuous_batching_reason(model):
        raise UnsupportedModel(reason)
    settings = GenerationSettings(model, generate_kwargs)
    if not settings.takes_decoder or generate_kwargs.get("logits_processor"):
        raise InvalidArgument(
            "continuous_batching: expected greedy decoding or sampling without beams, stop_strings, a streamer, an "
            "assistant, or your own processors and criteria, which a manager does not support; leave them out"
        )
    _check_settings(settings)
    effective_config(model, dict(generate_kwargs))
    if kept_manager(model) is not None:
        raise InvalidArgument(
            "continuous_batching: the model keeps a manager with other settings, which would be used; call "
            "model.destroy_cached_continuous_batching_manager() first, or add_request() of that manager"
        )


def _check_settings(settings: GenerationSettings) -> None:
    given = {name: settings.get(name) for name in _OF_ROWS}
    ignored = {
        name: value
        for name, value in given.items()
        # An array that is compared with a list is no bool.
        if value is not None and not (isinstance(value, (Number, list)) and value in _OF_ROWS[name])
    }
    bias = settings.get("sequence_bias") or {}
    if any(len(token_ids) > 1 for token_ids in (bias if isinstance(bias, dict) else [pair[0] for pair in bias])):
        ignored["sequence_bias"] = bias
    if ignored:
        raise InvalidArgument(
            f"continuous_batching: its manager cannot apply {', '.join(f'{k}={v!r}' for k, v in ignored.items())}, "
            "for which it would need each row's tokens or time; leave this out, also of model.generation_config, or "
            "generate without continuous_batching"
        )


def run_continuous(plan: Plan, indices: Sequence[int]) -> tuple[list[list[GuidedResult[Any]]], SessionStats, float]:
    """Run prompts in one manager: the results of each prompt, the counters of all, and the seconds that it took."""
    from ..hf.continuous_batching.attach import attach
    from ..hf.continuous_batching.compat import effective_config, first_processor

    prompts = [plan.inputs.tokens(i) for i in indices]
    budgets = [plan.settings.max_new_tokens(len(prompt)) or DEFAULT_MAX_NEW_TOKENS for prompt in prompts]
    longest = max(len(prompt) + budget for prompt, budget in zip(prompts, budgets, strict=True))
    began = time.perf_counter()
    config = effective_config(plan.model, dict(plan.generate_kwargs))
    manager = plan.model.init_continuous_batching(
        generation_config=config, continuous_batching_config=_batching_config(plan, longest)
    )
    # Guide.attach would ask for the guide's first model, and this one has been checked.
    attach(manager, plan.guide.vocabulary, calls_of(plan.guide).tables, plan.guide.session)
    manager.start()
    done = False
    try:
        answer_ids = []
        for i, prompt, budget in zip(indices, prompts, budgets, strict=True):
            request_id = manager.add_request(
                prompt,
                max_new_tokens=budget,
                eos_token_id=list(plan.stop_token_ids),
                response_format=plan.requests[i].constraint,
                backend=plan.options.backend,
                prefix=plan.inputs.prefixes[i],
            )
            # The manager's names for the forks of a request.
            forks = [f"{request_id}__child#{fork}" for fork in range((config.num_return_sequences or 1) - 1)]
            answer_ids.append([request_id, *forks])
        outputs = _collect(manager, {answer_id for own in answer_ids for answer_id in own}, plan.cancellation)
        done = True
    finally:
        manager.stop(block=True, hard_stop=not done)
        manager.destroy()
    seconds, stats = time.perf_counter() - began, first_processor(manager).stats
    results = []
    for i, prompt, budget, own in zip(indices, prompts, budgets, answer_ids, strict=True):
        if plan.cancellation is not None:
            plan.cancellation.check()
        results.append(_read(plan, plan.requests[i], prompt, budget, [outputs[answer_id] for answer_id in own], stats))
    return results, stats, seconds


def _read(
    plan: Plan, request: Request, prompt: Sequence[int], budget: int, outputs: Sequence[Any], stats: SessionStats
) -> list[GuidedResult]:
    """The answers to one prompt, of the manager's outputs."""
    options, calls = plan.session_options(len(prompt), overlap=False), calls_of(plan.guide)
    results = []
    for output in outputs:
        reader = calls.reader_of(request, options, pad_token_id=_NO_PADDING, stats=stats)
        results.append(with_dead_end(reader.read(output.generated_tokens), output.error))
    logits = cache(partial(_prefix_logits, plan, prompt))
    results = _with_limit(plan, request, prompt, budget, results, logits)
    if (top := plan.options.top_logprobs) is None:
        return results
    recorder = calls.session_of([request], options).logprob_recorder([prompt] * len(outputs), top)
    tokens, sampled = zip(*((output.generated_tokens, output.logprobs) for output in outputs), strict=True)
    return [
        replace(result, logprobs=entries[: len(result.token_ids)])
        for result, entries in zip(results, logprobs_of(logits(), recorder, prompt, tokens, sampled), strict=True)
    ]


def _with_limit(
    plan: Plan,
    request: Request,
    prompt: Sequence[int],
    budget: int,
    results: Sequence[GuidedResult],
    logits: Callable[[], PrefixLogits],
) -> list[GuidedResult]:
    """The answers to one prompt with what the token limit, and the format if that is asked, left of the probability.

    The manager may run in a graph that calls no Python, so it takes one more forward pass over each answer that the
    limit has narrowed, or over all of them.
    """
    record = MassRecord(weighs_all=plan.options.log_mass)
    compiled = None if request.compiled is None else request.compiled.result()
    first_row = row_after_prefix(compiled, request.prefix, plan.stop_token_ids)
    for number, result in enumerate(results):
        tokens = list(result.token_ids)
        if result.finish_reason == "dead_end":  # the limit may have left no token there
            tokens += plan.stop_token_ids[:1]
        narrowed = narrowed_along(first_row.fork(), tokens, budget, always=record.weighs_all)
        end = 0
        for raw in logits().chunks(tokens, _CHUNK) if narrowed else ():  # (up to _CHUNK, vocab)
            before = [[*prompt, *tokens[: end + i]] for i in range(len(raw))]
            scores = Scoring(logits().processors).unmasked(before, raw)
            here = {i - end: both for i, both in narrowed.items() if end <= i < end + len(scores)}
            record.see(scores, here)
            for position in here:
                record.note(number, end + position, position)
            end += len(scores)
    read = []
    for number, result in enumerate(results):
        log_masses = record.log_masses(number, len(result.token_ids), is_free=compiled is None)
        read.append(with_limit(result, record.steps(number), log_masses, sampled=plan.settings.sampled))
    return read


def _prefix_logits(plan: Plan, prompt: Sequence[int]) -> PrefixLogits:
    """The model's logits after one prompt."""
    kwargs = GenerationSettings.over(plan.generate_kwargs, num_return_sequences=1)
    inputs, text_ids = padded([prompt], plan.pad_token_id, plan.model), plan.guide.vocabulary.some_text(5)
    return PrefixLogits(plan.model, inputs, plan.pad_token_id, kwargs, text_ids)


def _batching_config(plan: Plan, longest: int) -> ContinuousBatchingConfig:
    """The caller's config, or the default.

    On a CPU transformers would take most of the memory; the cache is made for rows of ``longest`` tokens.
    """
    given, rows = plan.options.continuous_batching, plan.options.batch_size
    if isinstance(given, ContinuousBatchingConfig):
        config = copy.copy(given)
    elif plan.model.device.type != "cpu":
        config = ContinuousBatchingConfig()
    else:
        config = ContinuousBatchingConfig(page_size=64, max_batch_tokens=512, max_requests_per_batch=rows)
        config.num_blocks = rows * (longest // config.page_size + 2)
    if plan.options.top_logprobs is not None:
        config.return_logprobs = True
    return config


def _collect(manager: Any, wanted: set[str], cancellation: Cancellation | None) -> dict[str, Any]:
    """Wait for these requests, and return the manager's outputs by id."""
    outputs: dict[str, Any] = {}
    while wanted - outputs.keys():
        if cancellation is not None:
            cancellation.check()
        # A time limit, so that a dead manager is noticed.
        output = manager.get_result(timeout=1 if cancellation is None else 0.05)
        if output is None:
            if not manager.is_running():
                raise GenerationError(f"the manager ended early: {manager.background_thread_status.fatal_error}")
        elif output.status.name == "FAILED":
            raise GenerationError(f"{output.request_id} failed: {output.error}")
        elif output.is_finished():
            outputs[output.request_id] = output
    return outputs


def logprobs_of(
    logits: PrefixLogits,
    recorder: LogprobRecorder,
    prompt: Sequence[int],
    answers: Sequence[Sequence[int]],
    sampled: Sequence[Sequence[float]],
) -> list[list[TokenLogprob]]:
    """The entries of each answer to one prompt, whose tokens were chosen in continuous batching.

    ``sampled`` has the log probabilities with which the tokens were sampled, as recorded by the manager.
    """
    warp = Scoring(logits.processors)
    for row, tokens in enumerate(answers):
        if not tokens:
            continue

        def scores(ends: Sequence[int], masked: Tensor, tokens: Sequence[int] = tokens) -> Tensor:
            return warp([[*prompt, *tokens[:end]] for end in ends], masked, lambda unchanged: unchanged)

        positions = [Position(row, token_id, end) for end, token_id in enumerate(tokens)]
        for number, raw in enumerate(logits.chunks(tokens, _CHUNK)):  # (up to _CHUNK, vocab)
            recorder.record(raw, positions[number * _CHUNK : (number + 1) * _CHUNK], scores)
    # The manager's values are exact; a second pass rounds differently, and top-k may cut at another token.
    return [
        [replace(entry, sampled_logprob=value) for entry, value in zip(entries, values, strict=True)]
        for entries, values in zip(recorder.entries, sampled, strict=True)
    ]
