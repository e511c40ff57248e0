"""What one ``hg.generate`` call is to do, found to be possible before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationMode

from ..constraints.argument_advice import GENERATE
from ..constraints.coerce import coerce_batch
from ..constraints.values import Constraint
from ..errors import (
    BudgetTooSmall,
    InvalidArgument,
    InvalidConstraint,
    PromptError,
    UnsupportedModel,
    VocabularySizeError,
)
from ..guide import Guide
from ..hf.compat import check_generates, check_pair, logits_width
from ..hf.generation_settings import GenerationSettings
from ..hf.seeds import prompt_seeds
from ..options import DEFAULT_MAX_NEW_TOKENS, LoopOptions
from ..session.reasoning import Reasoning
from ..session.requests import Request, check_budget, prefix_bytes, row_after_prefix
from ..vocabulary.processors import tokenizer_of
from .arguments import GenerateArguments
from .cancellation import Cancellation, take
from .chat_prompts import Prompt, TemplateOptions, prepared
from .continuous import ContinuousRun
from .guided_call import check_budgets, check_settings
from .options import GenerateOptions
from .processor_inputs import check_takes_media
from .prompt_inputs import PromptInputs, row_arguments
from .prompts import as_prompts, check_order, one_each
from .unknown_arguments import check_arguments


@dataclass(frozen=True)
class Route:
    """Which loop runs, and how.

    Args:
        fast: whether it is a loop of ours, not transformers' own.
        together: runs all prompts in one manager; None runs them batch by batch.
        step: prompts per call.
    """

    fast: bool
    together: ContinuousRun | None
    step: int


@dataclass(frozen=True)
class Plan:
    """One ``hg.generate`` call; made by ``plan``, whose arguments these are.

    Args:
        model: a transformers model.
        guide: for it.
        inputs: the prompts.
        requests: one for each: its constraint, compiled; its prefix; its thinking.
        prefixes: one for each; what of its answer stands after the prompt.
        options: the call's, with ``draft`` and ``device_lane`` decided.
        settings: what ``model.generate`` will use.
        generate_kwargs: what it is given.
        stop_token_ids: what ends a row.
        pad_token_id: what stands behind a row that has ended.
        seeds: one for each prompt, of what its rows draw; None draws with torch's generator.
        route: which loop runs.
        cancellation: ends the call from another thread; or None.
    """

    model: Any
    guide: Guide
    inputs: PromptInputs
    requests: Sequence[Request]
    prefixes: Sequence[str | None]
    options: GenerateOptions
    settings: GenerationSettings
    generate_kwargs: Mapping[str, Any]
    stop_token_ids: tuple[int, ...]
    pad_token_id: int
    seeds: Sequence[int] | None
    route: Route
    cancellation: Cancellation | None

    @property
    def constraints(self) -> list[Constraint | None]:
        """One for each prompt, bound to the guide's tokenizer; None is free."""
        return [request.constraint for request in self.requests]

    @property
    def prompts(self) -> Sequence[Prompt]:
        """Texts and chats."""
        return self.inputs.prompts

    def batches(self, places: Sequence[int] | None = None) -> Iterator[Sequence[int]]:
        """The places of the prompts, or of some of them, that run in one call, in order."""
        return self.inputs.batches(range(len(self.prompts)) if places is None else places, self.route.step)

    def encoded(self, place: int) -> list[int]:
        """The tokens of a prompt."""
        return self.inputs.tokens(place)

    def fingerprint(self) -> str:
        """What processes that hold the model together have to agree in, as text."""
        prompts = [*map(self.inputs.fingerprint, range(len(self.prompts)))]
        keys = [constraint and constraint.key for constraint in self.constraints]
        return repr((prompts, keys, self.prefixes, self.seeds, self.route.fast, self.route.step))

    def in_front(self, prompt: list[int]) -> list[int]:
        """What of a prompt stands in front of the output: an encoder-decoder answers elsewhere."""
        return [] if self.model.config.is_encoder_decoder else prompt


def plan(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    guide: Guide,
    options: GenerateOptions,
    generate_kwargs: Mapping[str, Any],
) -> Plan:
    """Check a whole call; arguments and errors are those of ``hg.generate``."""
    check_pair(model, tokenizer)
    check_generates(model)
    check_order(prompts, constraint)
    check_arguments(model, generate_kwargs, [*GenerateArguments.__annotations__, "constraint", "stream"], GENERATE)
    if guide.vocabulary.padded_size != logits_width(model):
        raise VocabularySizeError(
            f"expected a guide for logits with {logits_width(model)} columns, as this model has, got one for "
            f"{guide.vocabulary.padded_size}; make it with this model, or leave it out"
        )
    batch = as_prompts(prompts)
    asked = coerce_batch(constraint)
    constraints = one_each("constraint", asked, len(batch), several=isinstance(asked, list))
    prefixes = one_each("prefix", options.prefix, len(batch), several=isinstance(options.prefix, (list, tuple)))
    _check_prefixes(prefixes, model, options.reasoning)
    settings = GenerationSettings(model, generate_kwargs)
    settings.check_values()
    stops = settings.stop_token_ids()
    # A bad constraint raises here, before any prompt is run.
    gate = guide.gate(options.reasoning)
    requests = guide.requests(constraints, prefixes, options.backend, gate)
    constraints = [request.constraint for request in requests]
    check_settings(requests, settings)
    templates = template_options(
        options.chat_template_kwargs,
        options.documents,
        batch,
        show_tools=options.show_tools,
        describe=options.describe,
    )
    ready = [prepared(tokenizer, *each) for each in zip(batch, constraints, templates, strict=True)]
    warn_of_unseen(ready)
    check_takes_media(tokenizer, ready, model)
    pad_token_id = settings.get("pad_token_id")
    pad_token_id = stops[0] if pad_token_id is None else pad_token_id
    default = {} if settings.max_new_tokens(0) is not None else {"max_new_tokens": DEFAULT_MAX_NEW_TOKENS}
    given = settings.kwargs_with(pad_token_id=pad_token_id, **default)
    if settings.needs_tokenizer:
        given["tokenizer"] = tokenizer_of(tokenizer)
    together = None
    if options.continuous_batching:
        if any(prompt.media for prompt in ready):
            raise InvalidArgument(
                "continuous_batching: its manager takes text alone, not images, video or audio; leave it out"
            )
        together = _together(model, guide, given, options)
    if options.top_logprobs is not None:
        _check_logprobs(settings, guide, generate_kwargs)
    route, options = _route(settings, model, len(batch), options, together)
    if options.top_logprobs is not None and not route.fast and together is None:
        outputs = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
        given = GenerationSettings(model, given).kwargs_with(**outputs)
    rows = row_arguments(
        given, len(batch), several_calls=route.step < len(batch) or len({prompt.group for prompt in ready}) > 1
    )
    given = {name: value for name, value in given.items() if name not in rows}
    found = Plan(
        model,
        guide,
        PromptInputs(model, guide.vocabulary, tokenizer, ready, prefixes, pad_token_id, rows),
        requests,
        prefixes,
        options,
        settings,
        given,
        stops,
        pad_token_id,
        prompt_seeds(options.seed, len(batch)),
        route,
        take(),
    )
    if found.seeds is not None and settings.get("do_sample") and not found.route.fast:
        raise InvalidArgument(
            "seed: rows draw by seeds of their own in the fast loop only, which jump_forward=False, "
            "continuous_batching, beams and the like go without; leave it out, and call torch.manual_seed"
        )
    if settings.given_max_new_tokens is None:
        _check_max_length(found)
    else:
        prompts = [found.in_front(found.encoded(i)) if gate is not None else () for i in range(len(batch))]
        check_budgets(requests, settings, prompts)
    return found


def template_options(
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    documents: Sequence[Any] | None,
    prompts: Sequence[Any],
    *,
    show_tools: bool,
    describe: bool,
) -> list[TemplateOptions]:
    """What the template of each prompt is given; arguments and errors are those of ``hg.generate``."""
    _check_documents(documents)
    several = isinstance(chat_template_kwargs, (list, tuple))
    kwargs = one_each("chat_template_kwargs", chat_template_kwargs, len(prompts), several=several)
    # One document is a dict, so a list of dicts is for all prompts.
    each = documents is not None and not all(isinstance(one, Mapping) for one in documents)
    lists = one_each("list of documents", documents, len(prompts), several=each)
    plain = [isinstance(prompt, str) for prompt in prompts]
    # What is given for all prompts is for the chats among them.
    lost = [
        text and bool((own and several) or (found and each))
        for text, own, found in zip(plain, kwargs, lists, strict=True)
    ]
    if any(lost) or (all(plain) and any([*kwargs, *lists])):
        raise PromptError(
            "chat_template_kwargs, documents: expected chats, got plain texts, which no chat template renders; pass "
            '[{"role": "user", "content": text}] as a prompt, or leave them out'
        )
    return [
        TemplateOptions(own or {}, found, show_tools=show_tools, describe=describe)
        for own, found in zip(kwargs, lists, strict=True)
    ]


def _check_documents(documents: Any) -> None:
    """Raise InvalidArgument unless these are documents for all prompts, or a list of documents for each."""
    if documents is None:
        return
    expected = (
        'documents: expected a list of dicts, such as [{"title": ..., "text": ...}], for all prompts, or one such list '
        "for each prompt"
    )
    if isinstance(documents, Mapping):
        raise InvalidArgument(f"{expected}, got one dict; pass [document]", name="documents")
    if not isinstance(documents, (list, tuple)):
        raise InvalidArgument(
            f"{expected}, got {documents!r:.80} of type {type(documents).__name__}; put the documents into a list",
            name="documents",
        )
    shared = all(isinstance(one, Mapping) for one in documents)
    for index, one in enumerate(() if shared else documents):
        if one is not None and not (isinstance(one, (list, tuple)) and all(isinstance(two, Mapping) for two in one)):
            raise InvalidArgument(
                f"{expected}, got {one!r:.80} at index {index}; write a text as "
                '{"text": ...}, and None for a prompt without documents',
                name="documents",
            )


def warn_of_unseen(prompts: Sequence[Prompt]) -> None:
    """Say once what of the prompts the model does not see: tools, and variables that no template reads."""
    for text in dict.fromkeys(text for prompt in prompts for text in prompt.unseen):
        warnings.warn(text, stacklevel=2)


def _check_prefixes(prefixes: Sequence[Any], model: Any, reasoning: Reasoning | None) -> None:
    for one in prefixes:
        prefix_bytes(one)  # a prefix that is no text raises here
    if any(prefixes) and model.config.is_encoder_decoder:
        raise InvalidConstraint(
            "prefix: an encoder-decoder answers in its decoder, not behind the prompt; use "
            "logits_processor(prefix=...) and give model.generate decoder_input_ids that end with the prefix"
        )
    if any(prefixes) and reasoning is not None:
        raise InvalidConstraint("prefix, reasoning: expected one of the two, for a prefix begins the answer")


def _check_max_length(plan: Plan) -> None:
    """Raise InvalidArgument where ``max_length`` leaves no token for the answers of a batch."""
    longest = plan.settings.get("max_length")
    if longest is None:
        return
    for places in plan.batches():
        start = 1 if plan.model.config.is_encoder_decoder else max(len(plan.encoded(place)) for place in places)
        if longest <= start:
            raise InvalidArgument(
                f"max_length: expected more than the {start} tokens of the longest prompt, which it counts too, got "
                f"{longest}; pass max_new_tokens, the tokens of the answer alone (max_length={start} + N is "
                "max_new_tokens=N)",
                name="max_length",
            )
        try:
            for place in places:
                request = plan.requests[place]
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


def _check_logprobs(settings: GenerationSettings, guide: Guide, generate_kwargs: Mapping[str, Any]) -> None:
    """Raise where log probabilities are not known."""
    if guide.ranks is not None:
        raise UnsupportedModel("logprobs: nothing is recorded of a model in several processes; leave it out")
    if settings.get("token_healing"):
        raise InvalidArgument(
            "logprobs, token_healing: it rewrites the prompt, so answers begin elsewhere; leave one out"
        )
    if generate_kwargs.get("custom_generate") is not None:
        raise InvalidArgument("logprobs: a loop of your own keeps its logits for itself; leave custom_generate out")
    mode = settings.generation_mode
    if mode not in (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE, GenerationMode.ASSISTED_GENERATION):
        raise InvalidArgument(
            f"logprobs: expected greedy decoding, sampling or assisted generation, got {mode.value}, where tokens are "
            "not chosen by their own probability; leave logprobs out, or num_beams and the like"
        )


def _together(
    model: Any,
    guide: Guide,
    generate_kwargs: Mapping[str, Any],
    options: GenerateOptions,
) -> ContinuousRun:
    if options.trace:
        raise InvalidArgument("trace: nothing is written down in continuous_batching; leave one of them out")
    if options.reasoning is not None:
        raise InvalidArgument("reasoning: continuous_batching guides answers without thinking; leave one of them out")
    if options.on_violation != "close":
        raise InvalidArgument("on_violation: continuous_batching ends such rows, whose result says so; leave it out")
    config = options.continuous_batching
    given = config if isinstance(config, ContinuousBatchingConfig) else None
    return ContinuousRun(model, guide, generate_kwargs, given, options.batch_size, options.top_logprobs is not None)


def _route(
    settings: GenerationSettings, model: Any, num_prompts: int, options: GenerateOptions, together: ContinuousRun | None
) -> tuple[Route, GenerateOptions]:
    """Which loop runs, and the options with ``draft`` and ``device_lane`` decided."""
    device_lane = LoopOptions.from_env().device_lane if options.device_lane is None else options.device_lane
    on_device = model.device.type == "cuda" if device_lane == "auto" else bool(device_lane)
    # Transformers' own loops would keep the logits of all tokens until their end.
    wants_fast = options.jump_forward or on_device or options.top_logprobs is not None
    fast = wants_fast and settings.takes_decoder and together is None
    drafts = options.jump_forward and fast
    draft = options.draft
    if draft == "auto":
        draft = "prompt_lookup" if drafts and not settings.get("do_sample") else None
    if draft is not None and not drafts:
        raise InvalidArgument(
            "draft: drafts are for greedy decoding and sampling with jump_forward=True, without continuous_batching or "
            "generate()'s own streamer, stop_strings or assistant_model; leave it out, or use guide.decoder(draft=...)"
        )
    step = 1 if settings.one_at_a_time else options.batch_size if together is None else max(num_prompts, 1)
    return Route(fast, together, step), replace(options, draft=draft, device_lane=device_lane)
