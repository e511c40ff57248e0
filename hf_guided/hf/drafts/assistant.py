"""Drafts from a smaller model under the same grammar, so that it never drafts a token that the row would refuse.

Each row has its own keys and values, with their tokens. For a draft, those of the requested rows are copied into one
cache, padded on the left to the longest; then come the tokens that the assistant has not run yet, padded on the left
too, and one column for each draft token. The padding is holes in the attention mask, and every token has its explicit
position, which is exact for full attention. After the draft each row takes its own columns back. So rows may come and
go, and rejected tokens are cut off: a row keeps only the tokens that its text still begins with.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from ...errors import UnsupportedModel
from ...session.apply import apply_bitmask
from ...session.row import Row, RowState
from ...session.tensor_parallel import Ranks
from ...vocabulary.bitmask import allocate_bitmask
from ..compat import cache_name, layers_without_full_attention
from .base import Draft, DraftRequest, Warp


class AssistantDraft:
    """Drafts the next tokens of every row with an assistant model.

    Args:
        assistant_model: a decoder of transformers with the same tokenizer, and full attention in every layer.
        vocab_size: columns of the verifying model's logits; None means the assistant's.
        generator: of random numbers, on the assistant's device; None means torch's own.

    If the text is sampled (see ``reset``), it samples too, and returns the probabilities; otherwise it drafts the most
    likely token as a certain one.

    Raises:
        UnsupportedModel: an encoder-decoder, a model that cannot run rows of different lengths exactly, or one that
            several processes hold.
    """

    def __init__(
        self, assistant_model: Any, *, vocab_size: int | None = None, generator: torch.Generator | None = None
    ):
        _check(assistant_model)
        self._model = assistant_model
        self._vocab_size = vocab_size
        self._generator = generator
        self._warp: Warp | None = None
        self._past: dict[int, _Past] = {}
        self._cache_name = cache_name(assistant_model)
        arguments = inspect.signature(assistant_model.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in arguments else {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``. Waits for the assistant once for each draft token."""
        most_tokens = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        walks = [_RowDraft(request, most_tokens) for request in requests]
        walking = [walk for walk in walks if walk.goes_on]
        if walking:
            with torch.no_grad():
                self._draft(walking)
        return [walk.draft() for walk in walks]

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        self._past.clear()
        self._warp = warp

    def _draft(self, walks: Sequence[_RowDraft]) -> None:
        pasts = [self._past.pop(walk.index, _NOTHING).up_to(walk.token_ids) for walk in walks]
        batch = _Batch(DynamicCache(config=self._model.config), pasts)
        new = [walk.token_ids[len(past.token_ids) :] for walk, past in zip(walks, pasts, strict=True)]
        logits = self._run(batch, new)
        while True:
            self._step(walks, logits)
            if not any(walk.goes_on for walk in walks):
                break
            logits = self._run(batch, [walk.token_ids[-1:] if walk.goes_on else [] for walk in walks])
        for walk, (length, layers) in zip(walks, batch.split(), strict=True):
            self._past[walk.index] = _Past(walk.token_ids[:length], layers)

    def _run(self, batch: _Batch, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Run new tokens of each row, or none.

        Returns:
            (rows, vocab) logits after each row's last token, meaningless for rows without new tokens.
        """
        ids, mask, positions = (tensor.to(self._model.device) for tensor in batch.with_columns(token_ids))
        out = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            return_dict=True,
            **{self._cache_name: batch.cache},
            **self._last_only,
        )
        return out.logits[:, -1]  # type: ignore[no-any-return]

    def _step(self, walks: Sequence[_RowDraft], logits: Tensor) -> None:
        """Add a token to every unfinished draft, given logits (walks, the assistant's vocab)."""
        scores = logits.to(torch.float32)
        if self._vocab_size is not None:  # the padding of logits may differ between models of a family
            more = max(self._vocab_size - scores.shape[-1], 0)
            scores = torch.nn.functional.pad(scores, (0, more), value=float("-inf"))[:, : self._vocab_size]
        width = max(scores.shape[-1], *(walk.mask_width for walk in walks))
        bitmask = allocate_bitmask(len(walks), width)
        governed = [i for i, walk in enumerate(walks) if walk.goes_on and walk.fill(bitmask, i)]
        scores, alive = apply_bitmask(scores, bitmask, governed)
        for i, has_token in zip(governed, alive, strict=True):
            walks[i].goes_on &= has_token
        unfinished = [i for i, walk in enumerate(walks) if walk.goes_on]
        if not unfinished:
            return
        scores = scores[unfinished]
        if self._warp is None:
            for i, token_id in zip(unfinished, scores.argmax(-1).tolist(), strict=True):
                walks[i].take(token_id, None)
            return
        scores = self._warp([walks[i].token_ids for i in unfinished], scores)
        q = scores.softmax(-1)  # (unfinished, vocab)
        sampled = torch.multinomial(q, 1, generator=self._generator).flatten().tolist()
        for i, token_id, probabilities in zip(unfinished, sampled, q, strict=True):
            walks[i].take(token_id, probabilities)


class _RowDraft:
    """The draft of one row while it grows."""

    def __init__(self, request: DraftRequest, most_tokens: int | None):
        self.index = request.index
        self.token_ids = list(request.token_ids)
        self._start = len(self.token_ids)
        self._stop_token_ids = request.stop_token_ids
        # The last draft token is not run, and needs no position.
        room = request.limit if most_tokens is None else most_tokens - self._start + 1
        self._limit = min(request.limit, room)
        self._probabilities: list[Tensor] = []
        self.goes_on = self._limit > 0 and self._start > 0 and request.row.state in (RowState.FREE, RowState.OPEN)
        self._row: Row = request.row.fork() if self.goes_on else request.row

    @property
    def mask_width(self) -> int:
        """Tokens that the row's mask covers."""
        return 0 if self._row.matcher is None else self._row.matcher.compiled.vocabulary.padded_size

    def fill(self, bitmask: Tensor, index: int) -> bool:
        """Fill the row's mask; returns False if it needs none. A row without an allowed token ends."""
        if self._row.matcher is None:
            return False
        self.goes_on = self._row.fill(bitmask, index)
        return self.goes_on

    def take(self, token_id: int, q: Tensor | None) -> None:
        """Draft a token, sampled from ``q`` (vocab,)."""
        self._row.advance(token_id)
        self.token_ids.append(token_id)
        if q is not None:
            self._probabilities.append(q)
        drafted = len(self.token_ids) - self._start
        self.goes_on = drafted < self._limit and token_id not in self._stop_token_ids

    def draft(self) -> Draft:
        return Draft(self.token_ids[self._start :], torch.stack(self._probabilities) if self._probabilities else None)


@dataclass(frozen=True)
class _Past:
    """Keys and values of a row's first tokens."""

    token_ids: list[int] = field(default_factory=list)
    layers: Sequence[tuple[Tensor, Tensor]] = ()  # keys and values of each, (heads, tokens, head size)

    def up_to(self, token_ids: Sequence[int]) -> _Past:
        """The part that these tokens begin with, without their last: its logits are needed."""
        most = min(len(self.token_ids), len(token_ids) - 1)
        differs = (i for i in range(most) if self.token_ids[i] != token_ids[i])
        same = most if self.token_ids[:most] == token_ids[:most] else next(differs)
        return _Past(self.token_ids[:same], [(keys[:, :same], values[:, :same]) for keys, values in self.layers])


_NOTHING = _Past()


def _check(model: Any) -> None:
    """Raise UnsupportedModel if a model cannot draft for rows of different lengths."""
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise UnsupportedModel(f"assistant {name} is an encoder-decoder; pass a decoder, such as a smaller Llama")
    if Ranks.of(model) is not None:
        raise UnsupportedModel(
            f"assistant {name} is held by several processes, of which only rank zero drafts; load it whole"
        )
    if other := layers_without_full_attention(model):
        raise UnsupportedModel(
            f"assistant {name} has layers without full attention ({', '.join(other)}): they cannot take rows "
            "of different lengths; pass a model with full attention in every layer, such as Llama or Qwen2"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise UnsupportedModel(
            f"assistant {name} takes no position_ids, so rows of different lengths would get wrong positions; "
            "pass a model that does, such as Llama or Qwen2"
        )


class _Batch:
    """Rows in one cache, for one draft: at first their known tokens."""

    def __init__(self, cache: DynamicCache, pasts: Sequence[_Past]):
        self.cache = cache
        self._lengths = [len(past.token_ids) for past in pasts]  # tokens of each row in the cache
        longest = max(self._lengths)
        self._mask = _filled_left([[1] * length for length in self._lengths], longest)
        known = next((past.layers for past in pasts if past.layers), ()) if longest else ()
        for layer, pair in enumerate(known):
            # (rows, heads, tokens, head size), with zeros for the padding
            both = [sample.new_zeros(len(pasts), len(sample), longest, sample.shape[-1]) for sample in pair]
            for row, past in enumerate(pasts):
                if past.layers:
                    for padded, own in zip(both, past.layers[layer], strict=True):
                        padded[row, :, longest - self._lengths[row] :] = own
            cache.update(*both, layer)

    def with_columns(self, token_ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
        """Add columns for new tokens of each row, or none: ids, the mask of all columns (0 is a hole), positions."""
        width = max(map(len, token_ids))
        positions = [range(length, length + len(new)) for length, new in zip(self._lengths, token_ids, strict=True)]
        self._mask = torch.cat([self._mask, _filled_left([[1] * len(new) for new in token_ids], width)], 1)
        self._lengths = [length + len(new) for length, new in zip(self._lengths, token_ids, strict=True)]
        return _filled_left(token_ids, width), self._mask, _filled_left(positions, width)

    def split(self) -> list[tuple[int, list[tuple[Tensor, Tensor]]]]:
        """For each row the number of its tokens, and their keys and values without the holes."""
        rows = []
        for row, length in enumerate(self._lengths):
            columns = self._mask[row].nonzero().flatten()
            layers = [
                (layer.keys[row][:, columns.to(layer.keys.device)], layer.values[row][:, columns.to(layer.keys.device)])
                for layer in self.cache.layers
            ]
            rows.append((length, layers))
        return rows


def _filled_left(lists: Sequence[Sequence[int]], width: int) -> Tensor:
    """(lists, width) int64 on CPU: the lists as rows, with zeros before the shorter ones."""
    return torch.tensor([[0] * (width - len(row)) + list(row) for row in lists], dtype=torch.int64, device="cpu")
