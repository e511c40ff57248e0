"""What one ``hg.generate`` call is to do, found to be possible before anything runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers.generation.configuration_utils import ContinuousBatchingConfig, GenerationMode

from .argument_advice import GENERATE
from .argument_checks import DEVICE_LANE, FLAG, Rule, check, check_each
from .backends.base import CompiledConstraint
from .backends.gated import gated
from .cancellation import Cancellation, take
from .chat_prompts import Prompt, TemplateOptions, prepared, tokenizer_of
from .coerce import coerce_batch
from .constraints import Constraint
from .errors import (
    BudgetTooSmall,
    InvalidArgument,
    InvalidConstraint,
    PromptError,
    UnsupportedModel,
    VocabularySizeError,
)
from .generate_arguments import GenerateArguments
from .guide import Guide
from .hf.compat import check_generates, check_pair, logits_width
from .hf.generation_settings import GenerationSettings
from .logprobs import num_top
from .options import DEFAULT_MAX_NEW_TOKENS, DeviceLane, LoopOptions
from .processed import check_takes_media
from .prompt_inputs import PromptInputs, row_arguments
from .prompts import as_prompts, check_order, one_each
from .reasoning import Opening, Reasoning
from .requests import check_budget, prefix_bytes, row_after_prefix
from .seeds import prompt_seeds
from .session import OnViolation
from .together import Together
from .unknown_arguments import check_arguments

_CONTINUOUS = Rule(
    "True, False or a ContinuousBatchingConfig",
    lambda value: FLAG.holds(value) or isinstance(value, ContinuousBatchingConfig),
)


@dataclass(frozen=True)
class Route:
    """Which loop runs, and how.

    Args:
        fast: whether it is a loop of ours, not transformers' own.
        jump_forward: as for ``Guide.decoder``.
        draft: likewise.
        device_lane: likewise.
        together: runs all prompts in one manager; None runs them batch by batch.
        step: prompts per call.
    """

    fast: bool
    jump_forward: bool
    draft: Any
    device_lane: DeviceLane
    together: Together | None
    step: int


@dataclass(frozen=True)
class Plan:
    """One ``hg.generate`` call; made by ``plan``, whose arguments these are.

    Args:
        model: a transformers model.
        guide: for it.
        inputs: the prompts.
        constraints: one for each; None is free.
        prefixes: one for each; what of its answer stands behind the prompt.
        backend: of all constraints.
        on_violation: what becomes of rows that are forced out of their constraint.
        reasoning: what comes in front of the answers.
        trace: whether what happens is written down.
        top_logprobs: how many alternatives to record beside the log probability of each token; None records nothing.
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
    constraints: Sequence[Constraint | None]
    prefixes: Sequence[str | None]
    backend: str
    on_violation: OnViolation
    reasoning: Reasoning | None
    trace: bool
    top_logprobs: int | None
    settings: GenerationSettings
    generate_kwargs: Mapping[str, Any]
    stop_token_ids: tuple[int, ...]
    pad_token_id: int
    seeds: Sequence[int] | None
    route: Route
    cancellation: Cancellation | None

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
        keys = [one and one.key for one in self.constraints]
        return repr((prompts, keys, self.prefixes, self.seeds, self.route.fast, self.route.step))

    def in_front(self, prompt: list[int]) -> list[int]:
        """What of a prompt stands in front of the output: an encoder-decoder answers elsewhere."""
        return [] if self.model.config.is_encoder_decoder else prompt


def plan(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    generate_kwargs: Mapping[str, Any],
    *,
    guide: Guide,
    backend: str,
    prefix: str | Sequence[str | None] | None,
    on_violation: OnViolation,
    batch_size: int,
    jump_forward: bool,
    draft: Any,
    device_lane: DeviceLane | None,
    continuous_batching: bool | ContinuousBatchingConfig,
    reasoning: Reasoning | None,
    trace: bool,
    logprobs: bool | int,
    seed: int | Sequence[int] | None,
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    documents: Sequence[Any] | None,
    show_tools: bool,
    describe: bool,
) -> Plan:
    """Look at everything that is asked; arguments and errors are those of ``hg.generate``."""
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
    prefixes = one_each("prefix", prefix, len(batch), several=isinstance(prefix, (list, tuple)))
    _check_prefixes(prefixes, model, reasoning)
    settings = GenerationSettings(model, generate_kwargs)
    settings.check_values()
    check_each({"device_lane": device_lane}, {"device_lane": DEVICE_LANE})
    check("continuous_batching", continuous_batching, _CONTINUOUS)
    stops = settings.stop_token_ids()
    # A bad constraint raises here, before any prompt is run.
    compiled = [None if one is None else guide.compile(one, backend, budget=True) for one in constraints]
    settings.check_against(compiled)
    options = template_options(chat_template_kwargs, documents, batch, show_tools=show_tools, describe=describe)
    ready = [prepared(tokenizer, *each) for each in zip(batch, constraints, options, strict=True)]
    warn_of_unseen(ready)
    check_takes_media(tokenizer, ready, model)
    pad_token_id = settings.get("pad_token_id")
    pad_token_id = stops[0] if pad_token_id is None else pad_token_id
    default = {} if settings.max_new_tokens(0) is not None else {"max_new_tokens": DEFAULT_MAX_NEW_TOKENS}
    given = settings.kwargs_with(pad_token_id=pad_token_id, **default)
    if settings.needs_tokenizer:
        given["tokenizer"] = tokenizer_of(tokenizer)
    together = None
    top_logprobs = num_top(logprobs)
    if continuous_batching and trace:
        raise InvalidArgument("trace: nothing is written down in continuous_batching; leave one of them out")
    if continuous_batching and any(prompt.media for prompt in ready):
        raise InvalidArgument(
            "continuous_batching: its manager takes text alone, not images, video or audio; leave it out"
        )
    if continuous_batching:
        together = _together(
            model, guide, given, continuous_batching, batch_size, on_violation, reasoning, top_logprobs is not None
        )
    if top_logprobs is not None:
        _check_logprobs(settings, guide, generate_kwargs)
    route = _route(
        settings, model, len(batch), batch_size, jump_forward, draft, device_lane, together, top_logprobs is not None
    )
    if top_logprobs is not None and not route.fast and together is None:
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
        constraints,
        prefixes,
        backend,
        on_violation,
        reasoning,
        trace,
        top_logprobs,
        settings,
        given,
        stops,
        pad_token_id,
        prompt_seeds(seed, len(batch)),
        route,
        take(),
    )
    if found.seeds is not None and settings.get("do_sample") and not found.route.fast:
        raise InvalidArgument(
            "seed: rows draw by seeds of their own in the fast loop only, which jump_forward=False, "
            "continuous_batching, beams and the like go without; leave it out, and call torch.manual_seed"
        )
    _check_budgets(found, compiled)
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


def _check_budgets(plan: Plan, compiled: Sequence[CompiledConstraint | None]) -> None:
    """Raise BudgetTooSmall where a text cannot be finished within ``max_new_tokens``."""
    most, gate = plan.settings.given_max_new_tokens, plan.guide.gate(plan.reasoning)
    if most is None:
        _check_max_length(plan)
        return
    places = range(len(plan.prompts))
    openings = [Opening.ALL if gate is None else gate.opening(plan.in_front(plan.encoded(i))) for i in places]
    # Many prompts are alike in what matters here.
    for one, begun, opening in dict.fromkeys(zip(compiled, map(prefix_bytes, plan.prefixes), openings, strict=True)):
        thinking = one if one is None or gate is None else gated(one, gate, opening)
        check_budget(row_after_prefix(thinking, begun, plan.stop_token_ids), most)


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
                one = plan.constraints[place]
                if one is not None:
                    compiled = plan.guide.compile(one, plan.backend, budget=True)
                    row = row_after_prefix(compiled, prefix_bytes(plan.prefixes[place]), plan.stop_token_ids)
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
    config: bool | ContinuousBatchingConfig,
    batch_size: int,
    on_violation: OnViolation,
    reasoning: Reasoning | None,
    logprobs: bool,
) -> Together:
    if reasoning is not None:
        raise InvalidArgument("reasoning: continuous_batching guides answers without thinking; leave one of them out")
    if on_violation != "close":
        raise InvalidArgument("on_violation: continuous_batching ends such rows, whose result says so; leave it out")
    given = config if isinstance(config, ContinuousBatchingConfig) else None
    return Together(model, guide, generate_kwargs, given, batch_size, logprobs)


def _route(
    settings: GenerationSettings,
    model: Any,
    prompts: int,
    batch_size: int,
    jump_forward: bool,
    draft: Any,
    device_lane: DeviceLane | None,
    together: Together | None,
    logprobs: bool,
) -> Route:
    device_lane = LoopOptions.from_env().device_lane if device_lane is None else device_lane
    on_device = model.device.type == "cuda" if device_lane == "auto" else bool(device_lane)
    # Transformers' own loops would keep the logits of all tokens until their end.
    fast = (jump_forward or on_device or logprobs) and settings.takes_decoder and together is None
    if draft == "auto":
        draft = "prompt_lookup" if jump_forward and fast and not settings.get("do_sample") else None
    if draft is not None and not (jump_forward and fast):
        raise InvalidArgument(
            "draft: drafts are for greedy decoding and sampling with jump_forward=True, without continuous_batching or "
            "generate()'s own streamer, stop_strings or assistant_model; leave it out, or use guide.decoder(draft=...)"
        )
    step = 1 if settings.one_at_a_time else batch_size if together is None else max(prompts, 1)
    return Route(fast, jump_forward, draft, device_lane, together, step)
