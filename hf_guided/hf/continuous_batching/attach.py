"""Constraints in transformers' continuous batching: each request has its own, or none.

``attach`` adds a processor to a manager that has not started (request_masks.py), and wraps ``manager.add_request``,
which ``manager.add_requests`` calls too. It changes only this manager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ...constraints.coerce import coerce
from ...errors import GenerationError, InvalidArgument, UnsupportedConstraint, UnsupportedModel, VocabularySizeError
from ...session.mask_table import MaskTables
from ...session.session import Session
from ...vocabulary.tokens import Vocabulary
from ..compat import logits_width, token_id_tuple
from ..decode.block_rule import rope_reason
from ..decoder import GuidedDecoder
from ..generation_settings import GenerationSettings
from ..logits_processor import GuidedLogitsProcessor
from .compat import first_processor, has_begun, put_first
from .request_masks import RequestConstraint, RequestMasks


def attach(manager: Any, vocabulary: Vocabulary, tables: MaskTables, new_session: Callable[..., Session]) -> None:
    """See ``Guide.attach``: changes the manager, unless it has been attached already.

    ``new_session`` is ``Guide.session``, which compiles a constraint; it is called on any thread.
    """
    existing = first_processor(manager)
    if isinstance(existing, RequestMasks) and existing.vocabulary is vocabulary:
        return  # a manager that was kept from another session
    if isinstance(existing, RequestMasks):
        raise InvalidArgument("expected a manager without constraints, this one has been attached by another Guide")
    if has_begun(manager):
        raise GenerationError(
            "this manager has started or warmed up, and would never call another processor; attach it right after "
            "model.init_continuous_batching(...), not inside continuous_batching_context_manager"
        )
    if logits_width(manager.model) != vocabulary.padded_size:
        raise VocabularySizeError(
            f"expected a manager of a model whose logits have {vocabulary.padded_size} columns, got "
            f"{logits_width(manager.model)}; build the Guide with this model"
        )
    put_first(manager, RequestMasks(vocabulary, tables, new_session, manager))
    manager.add_request = partial(_add_request, manager, manager.add_request, new_session)
    if "generate_batch" not in vars(manager.model):
        manager.model.generate_batch = partial(_generate_batch, manager.model.generate_batch)


def _add_request(
    manager: Any,
    add_request: Callable[..., str | None],
    new_session: Callable[..., Session],
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

    Raises:
        UnsupportedModel: a request as long as that changes the model's rotary embedding; see decode/block_rule.py.

    Thread: any. Only the caller waits while a constraint compiles: its request is queued after the compilation.
    """
    constraint, config = coerce(response_format), manager.generation_config
    given = config.max_new_tokens if max_new_tokens is None else max_new_tokens
    longest = None if given is None else len(input_ids) + given - 1
    # A pass holds tokens of many requests, so that one long request would change the frequencies of all.
    if reason := rope_reason(manager.model, 0, 0, longest):
        raise UnsupportedModel(
            f"continuous batching: {type(manager.model).__name__}: {reason}; lower max_new_tokens, or use hg.generate "
            "without continuous_batching"
        )
    if constraint is not None:
        stops = token_id_tuple(config.eos_token_id if eos_token_id is None else eos_token_id)
        # In a manager, negative ids mean no token.
        request = RequestConstraint(constraint, backend, prefix, tuple(stop for stop in stops if stop >= 0), given)
        row = request.first_row(new_session)
        if row.matcher is not None:
            GenerationSettings(manager, {}).check_against([row.matcher.compiled])
        logit_processor_kwargs["response_format"] = replace(request, row=row)
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
    """``model.generate_batch``: it ignores unknown arguments, and starts its manager before it could be attached."""
    seams = (GuidedLogitsProcessor, GuidedDecoder)
    processors = kwargs.get("logits_processor") or ()
    if (
        kwargs.get("response_format") is not None
        or isinstance(kwargs.get("custom_generate"), seams)
        or any(isinstance(processor, seams) for processor in processors)
    ):
        raise UnsupportedConstraint(
            "generate_batch would drop the constraint; use hg.generate(model, tokenizer, prompts, constraint, "
            "continuous_batching=True), or manager.add_requests(inputs, response_format=constraint) after guide.attach"
        )
    return generate_batch(*args, **kwargs)
