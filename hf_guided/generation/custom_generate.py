"""The function of ``model.generate(custom_generate="REPOSITORY", trust_remote_code=True, response_format=...)``.

The ``generate.py`` of such a repository imports this function; the folder custom_generate/ is one.
transformers calls it with the model and all arguments of generate(). A model that was loaded from such a repository has
this function as its ``generate``, so the function calls the ``generate`` of the model's class.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from ..errors import InvalidArgument, InvalidConstraint
from ..guide import Guide
from ..hf.compat import with_cache_argument
from ..hf.generation_settings import GenerationSettings
from .guided_call import guide_for

# Arguments for the decoder, unknown to generate(). What a decoder records would be lost with it.
_OTHERS = {"self", "constraint", "max_new_tokens", "trace", "logprobs", "log_mass"}
FOR_DECODER = frozenset(signature(Guide.decoder).parameters) - _OTHERS


def generate(
    inputs: Any = None,
    *,
    model: Any,
    response_format: Any = None,
    constraint: Any = None,
    tokenizer: Any = None,
    guide: Guide | None = None,
    assistant_model: Any = None,
    **arguments: Any,
) -> Any:
    """``model.generate(custom_generate=guide.decoder(constraint))`` in one call.

    Args:
        inputs: as for ``model.generate``, which takes most callers' ``input_ids`` instead.
        model: the model.
        response_format: a constraint or a plain form of one; or a list with one per prompt, in which None leaves a row
            free. None: the model's own generate().
        constraint: another name for ``response_format``.
        tokenizer: the model's tokenizer. A ``Guide`` for the two is made once, and kept.
        guide: a Guide to use instead.
        assistant_model: a smaller model with the same tokenizer, for ``draft``.
        **arguments: those of ``Guide.decoder`` (``draft``, ``reasoning``, ``streamer``, ``stop_strings`` ...), and
            those of ``model.generate``, whose limit is also the budget within which every row closes its text.

    Returns:
        What ``model.generate`` returns.

    Raises:
        InvalidConstraint: it is malformed, or given twice.
        InvalidArgument: there is no tokenizer, or two drafts.
        Other errors: as ``Guide.decoder``, and at the first mask as ``Session.mask``.
    """
    plain, arguments = type(model).generate, with_cache_argument(model, arguments)
    if response_format is None and constraint is None:
        return plain(model, inputs, tokenizer=tokenizer, assistant_model=assistant_model, **arguments)
    if response_format is not None and constraint is not None:
        raise InvalidConstraint("response_format, constraint: expected one of the two, they mean the same")
    if guide is None and tokenizer is None:
        raise InvalidArgument(
            "tokenizer: expected the model's tokenizer beside a response_format, got None; pass tokenizer="
        )
    if assistant_model is not None:
        if arguments.get("draft") is not None:
            raise InvalidArgument("assistant_model, draft: expected one of the two; for both, pass draft=[..., model]")
        arguments["draft"] = assistant_model
    options = {name: arguments.pop(name) for name in FOR_DECODER & arguments.keys()}
    settings = GenerationSettings(model, arguments)
    if options.get("stop_token_ids") is None:
        options["stop_token_ids"] = settings.stop_token_ids()
    decoder = (guide_for(model, tokenizer) if guide is None else guide).decoder(
        response_format if constraint is None else constraint, **options
    )
    return plain(model, inputs, custom_generate=decoder, **arguments)
