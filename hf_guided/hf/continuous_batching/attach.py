"""Constraints in transformers' continuous batching: requests come and go, each with its own, or with none.

``attach`` puts a processor into a manager that has not started (request_masks.py) and a function of its own in front of
``manager.add_request``, which ``manager.add_requests`` calls too. All of that is set on this manager alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...constraints.coerce import coerce
from ...errors import UnsupportedConstraint, VocabularySizeError
from ...session.row import Row
from ...vocabulary.tokens import Vocabulary
from ..compat import logits_width, token_id_tuple
from ..decoder import GuidedDecoder
from ..generation_settings import GenerationSettings
from ..logits_processor import GuidedLogitsProcessor
from .compat import first_processor, has_begun, put_first
from .request_masks import Asked, RequestMasks


def attach(manager: Any, vocabulary: Vocabulary, begin: Callable[[Asked], Row]) -> RequestMasks:
    """See ``Guide.attach``.

    Args:
        manager: changed, unless it is guided already.
        vocabulary: of the guide.
        begin: compiles a constraint, or waits for it, and makes its first row; called on any thread.

    Returns:
        What masks the manager's logits.
    """
    there = first_processor(manager)
    if isinstance(there, RequestMasks) and there.vocabulary is vocabulary:
        return there  # a manager that was kept from another session
    if isinstance(there, RequestMasks):
        raise ValueError("expected a manager without constraints, this one has been attached by another Guide")
    if has_begun(manager):
        raise RuntimeError(
            "this manager has started or warmed up, and would never call another processor; attach it right behind "
            "model.init_continuous_batching(...), not inside continuous_batching_context_manager"
        )
    if logits_width(manager.model) != vocabulary.padded_size:
        raise VocabularySizeError(
            f"expected a manager of a model whose logits have {vocabulary.padded_size} columns, got "
            f"{logits_width(manager.model)}; build the Guide with this model"
        )
    masks = RequestMasks(vocabulary, begin, manager.continuous_batching_config)
    put_first(manager, masks)
    manager.add_request = partial(_add_request, manager, manager.add_request, begin)
    if "generate_batch" not in vars(manager.model):
        manager.model.generate_batch = partial(_generate_batch, manager.model.generate_batch)
    return masks


def _add_request(
    manager: Any,
    add_request: Callable[..., str | None],
    begin: Callable[[Asked], Row],
    input_ids: list[int],
    request_id: str | None = None,
    max_new_tokens: int | None = None,
    streaming: bool = False,
    record_timestamps: bool = False,
    eos_token_id: int | list[int] | None = None,
    *,
    response_format: Any = None,
    backend: str = "auto",
    prefix: str | None = None,
    **logit_processor_kwargs: Any,
) -> str | None:
    """``manager.add_request`` of an attached manager; see ``Guide.attach``.

    Thread: any. Only the caller waits while a constraint compiles: the request is queued behind that.
    """
    constraint = coerce(response_format)
    if constraint is not None:
        config = manager.generation_config
        stops = token_id_tuple(config.eos_token_id if eos_token_id is None else eos_token_id)
        given = config.max_new_tokens if max_new_tokens is None else max_new_tokens
        # Negative ids stand for none in a manager.
        asked = Asked(constraint, backend, prefix, tuple(stop for stop in stops if stop >= 0), given)
        row = begin(asked)
        if row.matcher is not None:
            GenerationSettings(manager, {}).check_against([row.matcher.compiled])
        parked = Asked(constraint, backend, prefix, asked.stop_token_ids, given, row)
        logit_processor_kwargs["response_format"] = parked
    return add_request(
        input_ids,
        request_id=request_id,
        max_new_tokens=max_new_tokens,
        streaming=streaming,
        record_timestamps=record_timestamps,
        eos_token_id=eos_token_id,
        **logit_processor_kwargs,
    )


def _generate_batch(generate_batch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``model.generate_batch``, which drops what it does not know, and starts its manager before it can be attached."""
    seams = (GuidedLogitsProcessor, GuidedDecoder)
    processors = kwargs.get("logits_processor") or ()
    if (
        kwargs.get("response_format") is not None
        or isinstance(kwargs.get("custom_generate"), seams)
        or any(isinstance(processor, seams) for processor in processors)
    ):
        raise UnsupportedConstraint(
            "generate_batch would drop the constraint; use hg.generate(model, tokenizer, prompts, constraint, "
            "continuous_batching=True), or manager.add_requests(inputs, response_format=constraint) behind guide.attach"
        )
    return generate_batch(*args, **kwargs)
