"""A cache of guides for the last few models, for callers without a guide of their own."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any

from ..constraints.argument_checks import Rule, check
from ..guide import Guide
from ..hf.compat import check_pair, generation_eos_token_ids, logits_width
from ..session.tensor_parallel import Ranks
from ..vocabulary.processors import tokenizer_of

_MAX_KEPT = 4
_kept: OrderedDict[tuple[Any, ...], Guide] = OrderedDict()
_kept_lock = Lock()


def guide_for(tokenizer: Any, model: Any, given: Guide | None = None) -> Guide:
    """The cached Guide for a tokenizer and a model's width, stop tokens and processes; made at the first call.

    Args:
        tokenizer: of the model; or a processor.
        model: the model.
        given: the caller's own guide, which is returned; or None.

    Raises:
        TokenizerError: no model, or no tokenizer.
        InvalidArgument: ``given`` is no Guide.
    """
    check_pair(model, tokenizer)
    if given is not None:
        check("guide", given, Rule("an hg.Guide or None", lambda value: isinstance(value, Guide)))
        return given
    # A guide keeps its tokenizer, so its id is not reused while the guide is cached.
    ranks = Ranks.of(model)
    spread = None if ranks is None else (id(ranks.group), ranks.device)  # the guide keeps the group, too
    inner = tokenizer_of(tokenizer)
    key = (
        id(tokenizer),
        len(inner),
        logits_width(model),
        inner.eos_token_id,
        generation_eos_token_ids(model),
        spread,
    )
    with _kept_lock:
        if key not in _kept:
            _kept[key] = Guide(tokenizer, model)
        _kept.move_to_end(key)
        while len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)
        return _kept[key]
