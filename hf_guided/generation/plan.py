"""What one ``hg.generate`` call will do, and in which loop: checked as a whole before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..constraints.argument_advice import GENERATE
from ..constraints.coerce import coerce_batch
from ..constraints.tool_calls import ToolCalls
from ..errors import BudgetTooSmall, InvalidArgument, InvalidConstraint, UnsupportedModel, VocabularySizeError
from ..guide import Guide, calls_of
from ..hf.compat import check_generates, check_timestamps, decoder_prompt_length, in_step_with_others, logits_width
from ..hf.generation_settings import GenerationSettings
from ..hf.seeds import prompt_seeds
from ..options import DEFAULT_MAX_NEW_TOKENS, Overlap
from ..session.options import SessionOptions
from ..session.reasoning import Reasoning
from ..session.requests import Request, check_budget, prefix_bytes, row_after_prefix
from ..session.tensor_parallel import Ranks
from ..vocabulary.processors import tokenizer_of
from .arguments import GenerateArguments, GenerateOptions, check_arguments, one_each
from .continuous import check_continuous
from .guided_call import check_budgets, check_compiled, guide_for
from .prompt_inputs import PromptInputs, check_takes_media, row_arguments
from .prompts import Prompt, as_prompts, check_order, hint_at_description, prepared, warn_of_unseen
from .templates import template_options
from .threads import Cancellation


@dataclass(frozen=True)
class Plan:
    """One ``hg.generate`` call; made by ``plan``."""

    model: Any
    guide: Guide  # for the model
    inputs: PromptInputs
    requests: Sequence[Request]  # one for each prompt: its constraint, compiled; its prefix; its thinking
    options: GenerateOptions  # with ``draft`` decided
    settings: GenerationSettings  # what ``model.generate`` will use
    generate_kwargs: Mapping[str, Any]  # what ``model.generate`` is given
    stop_token_ids: tuple[int, ...]  # tokens that end a row
    pad_token_id: int  # follows a row that has ended
    seeds: Sequence[int] | None  # one for each prompt, for the samples of its rows; None draws with torch's generator
    fast: bool  # whether a loop of this package runs, not transformers' own
    step: int  # prompts per call; with ``continuous_batching`` all of them
    cancellation: Cancellation | None = None  # ends the call from another thread

    def batches(self, indices: Sequence[int] | None = None) -> Iterator[Sequence[int]]:
        """The indices of the prompts, or of some of them, that run in one call, in order."""
        return self.inputs.batches(range(len(self.requests)) if indices is None else indices, self.step)

    def for_own_loop(self, name: str) -> Plan:
        """The plan, checked for a function with a loop of its own: one process, nothing that only generate() does."""
        if calls_of(self.guide).ranks is not None or in_step_with_others(self.model):
            raise UnsupportedModel(f"{name}: expected a model in one process, got one that several processes hold")
        self.settings.check_custom_loop()
        return self

    def fingerprint(self) -> str:
        """A text that has to be the same in all processes that hold the model."""
        prompts = [*map(self.inputs.fingerprint, range(len(self.requests)))]
        keys = [request.constraint and request.constraint.key for request in self.requests]
        return repr((prompts, keys, self.inputs.prefixes, self.seeds, self.fast, self.step))

    def session_options(self, start: int, overlap: Overlap | None = None) -> SessionOptions:
        """The options of the masks of a call whose outputs begin at this column."""
        limit = self.settings.max_new_tokens(start) or DEFAULT_MAX_NEW_TOKENS
        return replace(self.options.session(self.stop_token_ids, limit), overlap=overlap)

    def start_of_output(self, inputs: Mapping[str, Any]) -> int:
        """The column at which the outputs of one call begin."""
        given = {**self.generate_kwargs, **inputs}
        return decoder_prompt_length(self.model, self.settings, given) or int(inputs["input_ids"].shape[1])

    def prompt_of_output(self, prompt: list[int], inputs: Mapping[str, Any], row: int) -> list[int]:
        """The tokens of a prompt that precede its output: in an encoder-decoder those of the decoder's row."""
        if not self.model.config.is_encoder_decoder:
            return prompt
        own = inputs.get("decoder_input_ids")
        return [] if own is None else own[row].tolist()


def plan(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    options: GenerateOptions,
    generate_kwargs: Mapping[str, Any],
) -> Plan:
    """Check a whole call; arguments and errors are those of ``hg.generate``.

    The processes that hold a model together check that they have the same plan.
    """
    guide = guide_for(model, tokenizer, options.guide)
    make = partial(_plan, model, tokenizer, prompts, constraint, guide, options, generate_kwargs)
    ranks = Ranks.of(model)
    if ranks is None:
        return make()
    if calls_of(guide).ranks is None:
        raise InvalidArgument(
            "guide: several processes hold this model, and would mask each by itself with a guide that was made "
            "without it; make it with this model, or leave it out"
        )
    # Each process compiles for itself, and reads the answers with what it has compiled.
    return ranks.agreed(make, Plan.fingerprint)


def _plan(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    guide: Guide,
    options: GenerateOptions,
    generate_kwargs: Mapping[str, Any],
) -> Plan:
    # The arguments are checked against one another before any of them is read.
    check_generates(model)
    check_order(prompts, constraint)
    check_arguments(model, generate_kwargs, [*GenerateArguments.__annotations__, "constraint", "stream"], GENERATE)
    if guide.vocabulary.padded_size != logits_width(model):
        raise VocabularySizeError(
            f"expected a guide for logits with {logits_width(model)} columns, as this model has, got one for "
            f"{guide.vocabulary.padded_size}; make it with this model, or leave it out"
        )
    batch = as_prompts(prompts)
    given, prefix = coerce_batch(constraint), options.prefix
    constraints = one_each("constraint", given, len(batch), several=isinstance(given, list))
    prefixes = one_each("prefix", prefix, len(batch), several=isinstance(prefix, (list, tuple)))
    _check_prefixes(prefixes, model, options.reasoning)
    check_timestamps(model, generate_kwargs)
    settings = GenerationSettings(model, generate_kwargs)
    settings.check_values()
    settings.warn_of_ignored()
    if options.stream:
        _check_stream(settings, options, generate_kwargs)
    stops = guide.vocabulary.stops_with_logits(settings.stop_token_ids())
    requests = calls_of(guide).requests(constraints, prefixes, options.backend, options.reasoning)
    settings.check_against(check_compiled(requests))  # a bad constraint raises here, before any prompt is rendered
    rendered = _rendered(model, tokenizer, batch, requests, options)
    for i, (request, prompt) in enumerate(zip(requests, rendered, strict=True)):
        if isinstance(request.constraint, ToolCalls):  # its calls are numbered after those of the chat
            requests[i] = replace(request, constraint=request.constraint.after(prompt.chat))
    pad_token_id = settings.get("pad_token_id")
    # A greater id was added to the tokenizer alone.
    if pad_token_id is None or pad_token_id >= guide.vocabulary.padded_size:
        pad_token_id = stops[0]
    default = {} if settings.max_new_tokens(0) is not None else {"max_new_tokens": DEFAULT_MAX_NEW_TOKENS}
    kwargs = settings.over(generate_kwargs, pad_token_id=pad_token_id, **default)
    if settings.needs_tokenizer:
        kwargs["tokenizer"] = tokenizer_of(tokenizer)
    continuous = bool(options.continuous_batching)
    if continuous:
        check_continuous(model, rendered, kwargs, options)
    if options.top_logprobs is not None:
        _check_logprobs(settings, guide, generate_kwargs)
    if (settings.get("num_beams") or 1) > 1:
        options = replace(options, log_mass=False)  # a beam's tokens are not chosen one by one
    fast, options = choose_loop(settings, options)
    if options.top_logprobs is not None and not fast and not continuous:
        outputs = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
        kwargs = settings.over(kwargs, **outputs)
    step = max(len(batch), 1) if continuous else 1 if settings.one_at_a_time else options.batch_size
    several_calls = step < len(batch) or len({prompt.group for prompt in rendered}) > 1
    of_rows = row_arguments(kwargs, len(batch), several_calls=several_calls)
    planned = Plan(
        model=model,
        guide=guide,
        inputs=PromptInputs(model, guide.vocabulary, tokenizer, rendered, prefixes, pad_token_id, of_rows),
        requests=requests,
        options=options,
        settings=settings,
        generate_kwargs={name: value for name, value in kwargs.items() if name not in of_rows},
        stop_token_ids=stops,
        pad_token_id=pad_token_id,
        seeds=prompt_seeds(options.seed, len(batch)),
        fast=fast,
        step=step,
    )
    if planned.seeds is not None and settings.get("do_sample") and not fast:
        raise InvalidArgument(
            "seed: rows draw by seeds of their own in the fast loop only, which jump_forward=False, "
            "continuous_batching, beams and the like go without; leave it out, and call torch.manual_seed"
        )
    _check_lengths(planned)
    return planned


def choose_loop(settings: GenerationSettings, options: GenerateOptions) -> tuple[bool, GenerateOptions]:
    """Whether a loop of this package runs, not transformers' own; and the options with the final ``draft``.

    Raises:
        InvalidArgument: a ``draft`` for a loop that takes none.
    """
    # For log probabilities transformers' own loops would keep the logits of all tokens until the end.
    wants_fast = options.jump_forward or options.top_logprobs is not None
    fast = wants_fast and settings.takes_decoder and not options.continuous_batching
    drafts = options.jump_forward and fast
    draft = options.draft
    if draft == "auto":
        draft = "prompt_lookup" if drafts and not settings.get("do_sample") else None
    if draft is not None and not drafts:
        raise InvalidArgument(
            "draft: drafts are for greedy decoding and sampling with jump_forward=True, without continuous_batching or "
            "generate()'s own streamer, stop_strings or assistant_model; leave it out, or use guide.decoder(draft=...)"
        )
    return fast, replace(options, draft=draft)


def _rendered(
    model: Any, tokenizer: Any, batch: Sequence[Any], requests: Sequence[Request], options: GenerateOptions
) -> list[Prompt]:
    """The prompts as the model gets them: chats with their templates' arguments."""
    templates = template_options(
        options.chat_template_kwargs,
        options.documents,
        batch,
        show_tools=options.show_tools,
        describe=options.describe,
        thinks=options.reasoning is not None,
    )
    rendered = [
        prepared(tokenizer, prompt, request.constraint, template)
        for prompt, request, template in zip(batch, requests, templates, strict=True)
    ]
    warn_of_unseen(rendered)
    hint_at_description(rendered, [request.constraint for request in requests])
    check_takes_media(tokenizer, rendered, model)
    return rendered


def _check_prefixes(prefixes: Sequence[Any], model: Any, reasoning: Reasoning | None) -> None:
    for prefix in prefixes:
        prefix_bytes(prefix)  # a prefix that is no text raises here
    if any(prefixes) and model.config.is_encoder_decoder:
        raise InvalidConstraint(
            "prefix: an encoder-decoder answers in its decoder, not after the prompt; use "
            "logits_processor(prefix=...) and give model.generate decoder_input_ids that end with the prefix"
        )
    if any(prefixes) and reasoning is not None:
        raise InvalidConstraint("prefix, reasoning: expected one of the two, for a prefix begins the answer")


def _check_lengths(plan: Plan) -> None:
    """Raise where an answer cannot be finished within the length of the call."""
    if plan.settings.given_max_new_tokens is None:
        _check_max_length(plan)
        return
    thinks, rows = plan.options.reasoning is not None, plan.inputs.rows
    prompts = [
        plan.prompt_of_output(plan.inputs.tokens(i), rows, i) if thinks else () for i in range(len(plan.requests))
    ]
    check_budgets(plan.requests, plan.settings, prompts)


def _check_max_length(plan: Plan) -> None:
    """Raise InvalidArgument where ``max_length`` leaves no token for the answers of a batch."""
    longest = plan.settings.get("max_length")
    if longest is None:
        return
    for indices in plan.batches():
        prompt = max(len(plan.inputs.tokens(i)) for i in indices)
        start = decoder_prompt_length(plan.model, plan.settings, plan.inputs.rows) or prompt
        if longest <= start:
            raise InvalidArgument(
                f"max_length: expected more than the {start} tokens of the longest prompt, which it counts too, got "
                f"{longest}; pass max_new_tokens, the tokens of the answer alone (max_length={start} + N is "
                "max_new_tokens=N)",
                name="max_length",
            )
        try:
            for i in indices:
                request = plan.requests[i]
                if request.compiled is not None:
                    row = row_after_prefix(request.compiled.result(), request.prefix, plan.stop_token_ids)
                    check_budget(row, longest - start)
        except BudgetTooSmall as error:
            left = "1 token" if longest == start + 1 else f"{longest - start} tokens"
            raise BudgetTooSmall(
                f"max_length={longest} leaves {left} for the answer after a prompt of {start} tokens: {error}; or pass "
                "max_new_tokens, the tokens of the answer alone",
                minimum=error.minimum,
            ) from None


def _check_stream(settings: GenerationSettings, options: GenerateOptions, generate_kwargs: Mapping[str, Any]) -> None:
    """Raise where text could change after it was returned, or nothing is returned before the end."""
    if options.retries:
        raise InvalidArgument("stream, retries: a retry would replace text that was returned; leave retries out")
    if options.continuous_batching:
        raise InvalidArgument(
            "stream, continuous_batching: leave continuous_batching out; or use guide.attach(manager), and "
            "manager.add_request(..., streaming=True) with manager.request_id_iter(...)"
        )
    if generate_kwargs.get("streamer") is not None:
        raise InvalidArgument("stream, streamer: expected one of the two, because each takes the tokens; leave one out")
    _check_tokens_are_final("stream", settings, generate_kwargs)


def _check_logprobs(settings: GenerationSettings, guide: Guide, generate_kwargs: Mapping[str, Any]) -> None:
    """Raise where log probabilities are not known."""
    if calls_of(guide).ranks is not None:
        raise UnsupportedModel("logprobs: nothing is recorded of a model in several processes; leave it out")
    _check_tokens_are_final("logprobs", settings, generate_kwargs)


def _check_tokens_are_final(what: str, settings: GenerationSettings, generate_kwargs: Mapping[str, Any]) -> None:
    """Raise where tokens are not chosen one by one, each by its own probability, or where only others know them."""
    if settings.get("token_healing"):
        raise InvalidArgument(
            f"{what}, token_healing: it rewrites the prompt, so answers begin elsewhere; leave one out"
        )
    if generate_kwargs.get("custom_generate") is not None:
        raise InvalidArgument(
            f"{what}, custom_generate: a loop of your own keeps its tokens and logits for itself; leave one out"
        )
    beams = settings.get("num_beams") or 1
    if beams > 1 or settings.sampled is None:
        raise InvalidArgument(
            f"{what}{f', num_beams={beams}' if beams > 1 else ''}: expected greedy decoding, sampling or assisted "
            f"generation, got {settings.generation_mode.value}, where tokens are not chosen by their own probability "
            f"and may change until the end; leave {what} out, or num_beams and the like"
        )
