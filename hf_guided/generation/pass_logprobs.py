"""Log probabilities of complete answers: one more forward pass over each prompt and its answer.

For loops whose logits are not accessible, such as transformers' continuous batching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from ..hf.decode.processors import Scoring
from ..session.logprob_recorder import Position
from ..session.logprobs import TokenLogprob
from ..session.session import Session
from .prefix_logits import PrefixLogits
from .prompts import padded

_CHUNK = 64  # positions processed at a time: 128,000 logits in float32 are half a megabyte for each


def logprobs_of(
    model: Any,
    session: Session,
    prompt: Sequence[int],
    answers: Sequence[Sequence[int]],
    sampled: Sequence[Sequence[float]],
    *,
    top: int,
    pad_token_id: int,
    generate_kwargs: Mapping[str, Any],
) -> list[list[TokenLogprob]]:
    """The entries of each answer to one prompt, whose tokens were chosen in continuous batching.

    Args:
        model: a decoder.
        session: the constraint of the answers.
        prompt: token ids.
        answers: token ids of each.
        sampled: the log probabilities with which these tokens were sampled, as recorded by the manager.
        top: how many alternatives to list.
        pad_token_id: of the prompt's batch.
        generate_kwargs: for ``model.generate``; one row for each prompt.
    """
    inputs, text_ids = padded([prompt], pad_token_id, model), session.vocabulary.some_text(5)
    logits = PrefixLogits(model, inputs, pad_token_id, generate_kwargs, text_ids)
    supported = [
        processor
        for processor in logits.processors
        if getattr(processor, "supports_continuous_batching", None) is not False
    ]
    warp = Scoring(supported)
    recorder = session.logprob_recorder([prompt] * len(answers), top)
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
