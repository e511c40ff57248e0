"""What stands behind ``model.generate(custom_generate="REPOSITORY", trust_remote_code=True, response_format=...)``.

Such a repository's ``generate.py`` takes this function in; ``scripts/make_custom_generate.py`` writes one. transformers
calls it with all that its own generate() was given, and the model. A model that was loaded from such a repository has
it in the place of its ``generate``, so what follows asks the model's class.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from ..errors import InvalidArgument, InvalidConstraint
from ..guide import Guide
from ..hf.generation_settings import GenerationSettings
from .guide_cache import guide_for

# What the decoder is told, beside what generate() knows; they never reach generate(). What is traced or recorded would
# be lost with the decoder.
FOR_DECODER = frozenset(signature(Guide.decoder).parameters) - {
    "self",
    "constraint",
    "max_new_tokens",
    "trace",
    "logprobs",
}


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
            free. None: generate() as if it had never been replaced.
        constraint: the same under its other name.
        tokenizer: the model's tokenizer. A ``Guide`` is made for the two once, and kept.
        guide: in its place, a Guide that is there already.
        assistant_model: a smaller model with the same tokenizer, for ``draft``.
        **arguments: those of ``Guide.decoder`` (``draft``, ``reasoning``, ``streamer``, ``stop_strings`` ...), and
            those of ``model.generate``. With ``max_new_tokens`` a row closes its text before they are used up.

    Returns:
        What ``model.generate`` returns.

    Raises:
        InvalidConstraint: it is malformed, or given twice.
        InvalidArgument: there is no tokenizer, or two drafts.
        Others: as ``Guide.decoder``, and at the first mask as ``Session.mask``.
    """
    plain = type(model).generate
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
    told = {name: arguments.pop(name) for name in FOR_DECODER & arguments.keys()}
    settings = GenerationSettings(model, arguments)
    if told.get("stop_token_ids") is None:
        told["stop_token_ids"] = settings.stop_token_ids()
    decoder = (guide_for(tokenizer, model) if guide is None else guide).decoder(
        response_format if constraint is None else constraint, max_new_tokens=settings.given_max_new_tokens, **told
    )
    return plain(model, inputs, custom_generate=decoder, **arguments)
