"""``hg.generate``: prompts or chats and constraints in, parsed values out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from tqdm.auto import tqdm
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from .backends.gated import gated
from .coerce import coerce_batch
from .errors import BatchSizeError, InvalidConstraint, VocabularySizeError
from .guide import Guide, guide_for
from .hf.compat import logits_width
from .hf.generation_settings import GenerationSettings
from .hf.guided_call import guided_call
from .options import DeviceLane, LoopOptions
from .reasoning import Opening, Reasoning
from .requests import check_budget, prefix_bytes, row_after_prefix
from .result import GuidedResult
from .session import OnViolation
from .stats import SessionStats
from .together import Ask, Together
from .vocabulary import Vocabulary

# transformers stops after 20 tokens unless told otherwise, which cuts nearly every structured output.
DEFAULT_MAX_NEW_TOKENS = 512


def generate(
    model: Any,
    tokenizer: Any,
    prompts: Any,
    constraint: Any,
    *,
    guide: Guide | None = None,
    backend: str = "auto",
    prefix: str | Sequence[str | None] | None = None,
    on_violation: OnViolation = "close",
    batch_size: int = 8,
    retries: int = 0,
    jump_forward: bool = True,
    draft: Any = "auto",
    device_lane: DeviceLane | None = None,
    continuous_batching: bool | ContinuousBatchingConfig = False,
    stats: bool | Callable[[SessionStats], None] = False,
    progress: bool | None = None,
    reasoning: Reasoning | None = None,
    **generate_kwargs: Any,
) -> list[GuidedResult]:
    """Generate and read back, in whatever generation mode the arguments ask for.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        prompts: a text, a chat (list of messages with "role" and "content"), or a list of texts and chats. Chats go
            through the tokenizer's chat template.
        constraint: one for all prompts, or a list with one per prompt (None = free). A list of strings is one Choice.
        guide: a Guide for this tokenizer and model, if there is one already; otherwise one is made and kept.
        backend: "auto", or the name of a backend.
        prefix: beginning of the answer, put behind the prompt and in front of the result's text; one, or one per
            prompt.
        on_violation: "close" or "raise", see ``Guide.logits_processor``.
        batch_size: prompts per ``model.generate`` call; 1 where assisted generation or prompt lookup is asked for.
        retries: how often to generate a finished text anew that could not be turned into a value: what no engine
            enforces (``on_unsupported="validate"``), or a validator of one's own, refused it. Needs sampling to help.
        jump_forward: append text that the grammar leaves no choice about without running the model, as the tokenizer
            itself would write it (``Guide.decoder``). Greedy decoding and sampling only; other modes, and what only
            generate() itself can do (a streamer, stop strings ...), run through transformers' own loop, as everything
            does with False where the device lane is not wanted.
        draft: what proposes tokens for the model to confirm, see ``Guide.decoder``; None drafts nothing. "auto" is
            prompt lookup for greedy decoding, nothing elsewhere.
        device_lane: with ``jump_forward=False`` and no draft, whether the model's device chooses tokens by itself, see
            ``Guide.decoder``; None asks the environment.
        continuous_batching: True, or a config for it, runs all prompts in transformers' continuous batching manager,
            where a row that ends makes room for another at once. Greedy decoding and sampling only; nothing is jumped
            over or drafted. What such a manager does not know of a generation config it leaves out, and warns of. On a
            CPU its cache has room for ``batch_size`` rows, unless a config says otherwise; elsewhere it takes most of
            the memory there is.
        stats: True shows tokens per second and forward passes per token behind the progress bar, where the loop is not
            transformers' own; a function is called with the ``SessionStats`` of each ``model.generate`` call when it
            ends.
        progress: whether to show a progress bar; None shows one on a terminal when there are several batches.
        reasoning: what comes in front of every answer: free text up to a marker, see ``Guide.logits_processor``. It
            is the result's ``thinking``, and no part of its ``text``.
        **generate_kwargs: for ``model.generate``. ``max_new_tokens`` is 512 unless a length is given here or in a
            generation config. Rows whose engine knows the way to the end (``Matcher.min_tokens_to_finish``) close
            their text within it.

    Returns:
        One GuidedResult per prompt, in order; with ``num_return_sequences``, that many neighbours per prompt.

    Raises:
        InvalidConstraint, UnsupportedConstraint, UnwritableConstraint: before anything is generated.
        BudgetTooSmall: no text of a constraint closes within ``max_new_tokens``; also before anything is generated.
        ValueError: ``max_new_tokens`` is no number of tokens.
        BatchSizeError: the number of constraints or prefixes is not the number of prompts.
        StopTokenError: generate() would stop at no token at all.
        EmptyIntersection: the generation settings forbid what the constraint needs.
    """
    if batch_size < 1 or retries < 0:
        raise ValueError(f"expected batch_size of 1 or more and retries of 0 or more, got {batch_size} and {retries}")
    guide = guide_for(tokenizer, model) if guide is None else guide
    if guide.vocabulary.padded_size != logits_width(model):
        raise VocabularySizeError(
            f"expected a guide for logits with {logits_width(model)} columns, as this model has, got one for "
            f"{guide.vocabulary.padded_size}; make it with this model, or leave it out"
        )
    batch = _as_prompts(prompts)
    asked = coerce_batch(constraint)
    constraints = _one_each("constraint", asked, len(batch), several=isinstance(asked, list))
    prefixes = _one_each("prefix", prefix, len(batch), several=isinstance(prefix, (list, tuple)))
    for one in prefixes:
        prefix_bytes(one)  # a prefix that is no text raises here
    if any(prefixes) and model.config.is_encoder_decoder:
        raise InvalidConstraint(
            "prefix: an encoder-decoder answers in its decoder, not behind the prompt; use "
            "logits_processor(prefix=...) and give model.generate decoder_input_ids that end with the prefix"
        )
    settings = GenerationSettings(model, generate_kwargs)
    stops, most = settings.stop_token_ids(), settings.given_max_new_tokens
    gate = guide.gate(reasoning)
    if gate is not None and any(prefixes):
        raise InvalidConstraint("prefix, reasoning: expected one of the two, for a prefix begins the answer")
    # A bad constraint raises here, before any prompt is run.
    compiled = [None if one is None else guide.compile(one, backend, budget=True) for one in constraints]
    settings.check_against(compiled)

    def encoded(i: int) -> list[int]:
        return _encode(guide.vocabulary, batch[i], prefixes[i] or "")

    def in_front(prompt: list[int]) -> list[int]:
        """What of a prompt stands in front of the output: an encoder-decoder answers elsewhere."""
        return [] if model.config.is_encoder_decoder else prompt

    if most is not None:
        openings = [Opening.ALL if gate is None else gate.opening(in_front(encoded(i))) for i in range(len(batch))]
        for one, begun, opening in dict.fromkeys(zip(compiled, map(prefix_bytes, prefixes), openings, strict=True)):
            thinking = one if one is None or gate is None else gated(one, gate, opening)
            check_budget(row_after_prefix(thinking, begun, stops), most)
    pad_token_id = settings.get("pad_token_id")
    pad_token_id = stops[0] if pad_token_id is None else pad_token_id
    generate_kwargs = settings.kwargs_with(pad_token_id=pad_token_id, **_default_length(settings))
    if settings.needs_tokenizer:
        generate_kwargs["tokenizer"] = tokenizer
    device_lane = LoopOptions.from_env().device_lane if device_lane is None else device_lane
    together = None
    if continuous_batching:
        if reasoning is not None:
            raise ValueError("reasoning: continuous_batching guides answers without thinking; leave one of them out")
        if on_violation != "close":
            raise ValueError("on_violation: continuous_batching ends such rows, whose result says so; leave it out")
        config = continuous_batching if isinstance(continuous_batching, ContinuousBatchingConfig) else None
        together = Together(model, guide, generate_kwargs, config, batch_size)
    on_device = model.device.type == "cuda" if device_lane == "auto" else bool(device_lane)
    fast = (jump_forward or on_device) and settings.takes_decoder and together is None
    if draft == "auto":
        draft = "prompt_lookup" if jump_forward and fast and not settings.get("do_sample") else None
    if draft is not None and not (jump_forward and fast):
        raise ValueError(
            "draft: drafts are for greedy decoding and sampling with jump_forward=True, without continuous_batching or "
            "generate()'s own streamer, stop_strings or assistant_model; leave it out, or use guide.decoder(draft=...)"
        )
    step = 1 if settings.one_at_a_time else batch_size if together is None else max(len(batch), 1)

    def read(i: int, token_ids: list[int], budget: int, spent: SessionStats, prompt: list[int]) -> GuidedResult:
        return guide.read(
            constraints[i],
            token_ids,
            backend=backend,
            prefix=prefixes[i],
            stop_token_ids=stops,
            pad_token_id=pad_token_id,
            max_new_tokens=budget,
            stats=spent,
            reasoning=reasoning,
            prompt=in_front(prompt),
        )

    def run_together(rows: Sequence[int], together: Together) -> list[list[GuidedResult]]:
        """All of these prompts in one manager."""
        asks = []
        for i in rows:
            ids = encoded(i)
            budget = settings.max_new_tokens(len(ids)) or DEFAULT_MAX_NEW_TOKENS
            asks.append(Ask(ids, constraints[i], prefixes[i], budget))
        began = time.perf_counter()
        answers, spent = together.run(asks, backend, stops)
        report(spent, time.perf_counter() - began)
        return [
            [read(i, token_ids, ask.max_new_tokens, spent, ask.input_ids) for token_ids in some]
            for i, ask, some in zip(rows, asks, answers, strict=True)
        ]

    def run(rows: Sequence[int]) -> list[list[GuidedResult]]:
        """One generate() call: for each of these prompts its results."""
        if together is not None:
            return run_together(rows, together)
        prompted = [encoded(i) for i in rows]
        inputs = _pad(prompted, pad_token_id, model)
        start = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]
        budget = settings.max_new_tokens(start) or DEFAULT_MAX_NEW_TOKENS
        session: dict[str, Any] = {
            "backend": backend,
            "prefix": [prefixes[i] for i in rows],
            "stop_token_ids": stops,
            "on_violation": on_violation,
            "max_new_tokens": budget,
            "reasoning": reasoning,
        }
        governing = [constraints[i] for i in rows]
        seam = (
            guide.decoder(governing, jump_forward=jump_forward, draft=draft, device_lane=device_lane, **session)
            if fast
            else guide.logits_processor(governing, **session)
        )
        began = time.perf_counter()
        output = guided_call(model, seam, **inputs, **generate_kwargs)
        report(seam.stats, time.perf_counter() - began)
        sequences = output if isinstance(output, Tensor) else output.sequences
        copies = len(sequences) // len(rows)
        found: list[list[GuidedResult]] = [[] for _ in rows]
        for place, token_ids in enumerate(sequences[:, start:].tolist()):
            i = rows[place // copies]
            found[place // copies].append(read(i, token_ids, budget, seam.stats, prompted[place // copies]))
        return found

    def report(spent: SessionStats, seconds: float) -> None:
        if stats is True and spent.forwards:
            bar.set_postfix_str(
                f"{spent.tokens / seconds:.0f} tokens/s, {spent.row_forwards / spent.tokens:.2f} forwards/token"
            )
        elif callable(stats):
            stats(spent)

    results: list[list[GuidedResult]] = []
    silent = (len(batch) <= step and stats is not True) if progress is None else not progress
    with tqdm(total=len(batch), unit="prompt", disable=silent or (None if progress is None else False)) as bar:
        for first in range(0, len(batch), step):
            rows = range(first, min(first + step, len(batch)))
            results += run(rows)
            bar.update(len(rows))
    for _ in range(retries):
        failed = [i for i, some in enumerate(results) if any(map(_was_refused, some))]
        for first in range(0, len(failed), step):
            rows_again = failed[first : first + step]
            for i, anew in zip(rows_again, run(rows_again), strict=True):
                results[i] = [new if _was_refused(old) else old for old, new in zip(results[i], anew, strict=True)]
    return [result for some in results for result in some]


def _was_refused(result: GuidedResult) -> bool:
    return result.finish_reason == "stop" and result.error is not None


def _default_length(settings: GenerationSettings) -> dict[str, int]:
    return {} if settings.max_new_tokens(0) is not None else {"max_new_tokens": DEFAULT_MAX_NEW_TOKENS}


def _as_prompts(prompts: Any) -> list[Any]:
    if isinstance(prompts, str) or (isinstance(prompts, (list, tuple)) and prompts and _is_message(prompts[0])):
        return [prompts]
    if isinstance(prompts, (list, tuple)) and all(
        isinstance(prompt, str) or (isinstance(prompt, (list, tuple)) and prompt and all(map(_is_message, prompt)))
        for prompt in prompts
    ):
        return list(prompts)
    raise TypeError(
        "expected a text, a chat (list of messages with 'role' and 'content'), or a list of those, "
        f"got {type(prompts).__name__}: {str(prompts)[:80]}"
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value


def _one_each(what: str, value: Any, prompts: int, *, several: bool) -> list[Any]:
    if not several:
        return [value] * prompts
    if len(value) != prompts:
        raise BatchSizeError(
            f"expected one {what} for all prompts or one for each of {prompts}, got {len(value)}; None stands for none"
        )
    return list(value)


def _encode(vocabulary: Vocabulary, prompt: Any, prefix: str) -> list[int]:
    tokenizer = vocabulary.tokenizer
    if isinstance(prompt, str):
        ids = list(tokenizer(prompt + prefix)["input_ids"])
        if not ids and tokenizer.bos_token_id is None:
            raise ValueError(
                "expected a prompt with text: this one is empty, and the tokenizer has no BOS to begin with"
            )
        return ids or [tokenizer.bos_token_id]
    ids = list(
        tokenizer.apply_chat_template(list(prompt), tokenize=True, add_generation_prompt=True, return_dict=False)
    )
    if not prefix:
        return ids
    own = list(tokenizer.encode(prefix, add_special_tokens=False))
    # A tokenizer that puts a space in front of every text would not write the prefix as it is.
    return ids + (own if vocabulary.decode_bytes(own) == prefix.encode() else vocabulary.encode_bytes(prefix.encode()))


def _pad(rows: Sequence[Sequence[int]], pad_token_id: int, model: Any) -> dict[str, Tensor]:
    """Rows of ids as a batch: padded left for a decoder, right for an encoder.

    Returns:
        input_ids and attention_mask, (rows, longest) int64 on the model's device.
    """
    longest = max(map(len, rows))
    input_ids = torch.full((len(rows), longest), pad_token_id)
    attention_mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, ids in enumerate(rows):
        place = slice(0, len(ids)) if model.config.is_encoder_decoder else slice(longest - len(ids), longest)
        input_ids[i, place] = torch.tensor(ids)
        attention_mask[i, place] = 1
    return {"input_ids": input_ids.to(model.device), "attention_mask": attention_mask.to(model.device)}
