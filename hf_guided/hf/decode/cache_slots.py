"""The model's cache as slots: blocks of tokens in, logits out, for rows that may have different numbers of tokens.

One forward pass writes one block of slots for all rows. A row with fewer tokens than the block leaves *holes*: slots
with a zero in the attention mask, which no later token attends to; positions are explicit and count tokens, not slots.
With full attention over a growing cache that is exact. Sliding windows and biases count slots, and static caches have
none to spare, so such models get no holes; and models with a state instead of a cache of tokens (Mamba,
RecurrentGemma ...) may reset the state in a pass of several tokens. So the slots support one of these:

- ``holes``: any number of tokens for each row.
- ``wide``: the same number for all rows, more than one: a lone row without holes.
- otherwise one token for each row; also where the rule for this call (block_rule.py) allows no more.

Tokens are placed at the end of the block, so that its last column holds each row's last token.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import (
    BaseQuantizedLayer,
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
)
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils import ModelOutput

from ...errors import UnsupportedModel
from ...session.transfers import to_device
from ..compat import CACHE_NAME, cache_in, layers_without_full_attention
from .call import GenerateCall


class CacheSlots:
    """Runs the model for one generate() call.

    ``blocks`` is whether several tokens in one pass are known to equal the same tokens one by one.
    """

    def __init__(self, call: GenerateCall, *, blocks: bool):
        self._model = call.model
        self._ids = call.input_ids  # all so far, where a model may look at more than the new ones
        self._blocks = blocks
        self.device = call.input_ids.device
        self._kwargs = call.model_kwargs
        self._config = call.config
        self.pad_token_id = call.pad_token_id
        self._outputs: Any = None
        self._forward: Callable[..., Any] = call.model
        self.holes = self.wide = False
        # Only with holes:
        self._num_slots = self._num_prompt_slots = 0
        self._mask: Tensor | None = None  # (rows, slots) int64 on the device; None where all would be ones
        self._next: list[int] = []  # the position of each row's next token
        self._in_block: list[bool] = []  # whether the last block had tokens of each row
        self.padding: list[int] = []  # how many of each row's ``input_ids`` are padding

    @property
    def cache(self) -> Any:
        """The model's current cache."""
        return cache_in(self._outputs)

    @property
    def prompt_can_grow(self) -> bool:
        """Whether ``prefill`` may append tokens to the prompts: only tokens describe them, and none is cached."""
        cache = cache_in(self._kwargs)
        tensors = {name: value.ndim for name, value in self._kwargs.items() if isinstance(value, Tensor)}
        return (
            (self._blocks or self._model._is_stateful)  # a state is made for texts of any length
            and not self._model.config.is_encoder_decoder
            and not self._kwargs.get("mm_encoder_outputs")  # images that were encoded before
            and tensors.items() <= {("attention_mask", 2), ("position_ids", 2)}
            and (cache is None or is_empty(cache))
        )

    def prefill(self, start: Sequence[Sequence[int]] = (), keep: int = 1) -> Tensor:
        """Run the prompts.

        Args:
            start: for each row tokens after its prompt, equally many for all; only if ``prompt_can_grow``.
            keep: the number of last columns whose logits ``last`` then returns; those of a prompt that is run in chunks
                are only in its last chunk.

        Returns:
            (rows, vocab) float32 logits after the last token, on the device of ``input_ids``.
        """
        model = self._model
        if start and start[0]:
            tokens = torch.tensor(start, device=self.device)
            self._ids = torch.cat([self._ids, tokens], dim=1)
            self._continue_kwargs({}, tokens.shape[1])
        kwargs = self._kwargs
        if model._valid_auto_compile_criteria(kwargs, self._config):
            self._forward = model.get_compiled_call(self._config.compile_config)
        if "logits_to_keep" in kwargs:
            kwargs["logits_to_keep"] = keep
        self._outputs = model._prefill(self._ids, self._config, kwargs)
        cache = self.cache
        blocks = self._blocks and _continued(kwargs, self._ids)
        if blocks and takes_holes(model, cache, kwargs.get("position_ids")):
            self.holes = True
            self._in_block = [True] * len(self._ids)
            positions = kwargs["position_ids"].expand(len(self._ids), -1)
            self._next = (positions[:, -1] + 1).tolist()  # a caller's positions may begin anywhere
            mask = kwargs.get("attention_mask")
            mask = torch.ones_like(positions, device="cpu") if mask is None else mask.cpu().long()
            self.padding = (mask[:, mask.shape[1] - self._ids.shape[1] :].cumsum(-1) == 0).sum(-1).tolist()
            self._num_slots = mask.shape[1]
            self._num_prompt_slots = self._num_slots - (len(start[0]) if start else 0)
            self._mask = None if bool(mask.all()) else mask.to(self.device)
        self.wide = blocks and len(self._ids) == 1 and (not kwargs["use_cache"] or grows(cache))
        return self.last(1)[:, 0]

    def run(self, blocks: Sequence[Sequence[int]], keep: int = 1) -> Tensor:
        """Run the next tokens of every row.

        Args:
            blocks: for each row its tokens, none for a finished row; at most one without ``holes`` or ``wide``.
            keep: the number of last columns whose logits are returned.

        Returns:
            (rows, keep, vocab) float32 logits after the tokens, read only; meaningless in columns without a token.
        """
        width = max(map(len, blocks))
        assert width == 1 or self.holes or (self.wide and len(blocks) == 1)
        if self.holes:  # both are recomputed below
            self._kwargs.pop("attention_mask", None)
            self._kwargs.pop("position_ids", None)
        kwargs = self._continue_kwargs(self._outputs, width)
        gaps = [width - len(block) for block in blocks]
        if any(gaps):
            blocks = [[self.pad_token_id] * gap + list(block) for gap, block in zip(gaps, blocks, strict=True)]
        if not self.holes:
            return self._run(kwargs, to_device(blocks, self.device), keep)
        # One copy to the device: for each row its tokens, its gap, and the position of the first column.
        numbers = to_device(
            [[*block, gap, position - gap] for block, gap, position in zip(blocks, gaps, self._next, strict=True)],
            self.device,
        )
        tokens, gap_columns, positions = numbers[:, :width], numbers[:, width : width + 1], numbers[:, width + 1 :]
        self._in_block = [gap < width for gap in gaps]
        columns = torch.arange(width, device=self.device) if width > 1 or any(gaps) else None
        if any(gaps) or self._mask is not None:
            real = torch.ones_like(tokens) if columns is None else (columns >= gap_columns).long()
            self._mask = torch.cat([self._full_mask(), real], dim=1)
        self._num_slots += width
        if columns is not None:
            positions = (positions + columns).clamp(min=0)  # (rows, width)
        self._next = [position + width - gap for position, gap in zip(self._next, gaps, strict=True)]
        kwargs["position_ids"] = positions
        kwargs["attention_mask"] = None if self._mask is None else _whole_mask(self._model, self._mask, width)
        return self._run(kwargs, tokens, keep)

    def _continue_kwargs(self, outputs: Any, width: int) -> dict[str, Any]:
        self._kwargs = self._model._update_model_kwargs_for_generation(
            outputs,
            self._kwargs,
            is_encoder_decoder=self._model.config.is_encoder_decoder,
            num_new_tokens=width,
        )
        return self._kwargs

    def _run(self, kwargs: dict[str, Any], tokens: Tensor, keep: int) -> Tensor:
        """Run tokens, (rows, width) int64; see ``run``."""
        self._ids = tokens if self.holes else torch.cat([self._ids, tokens], dim=1)
        if "logits_to_keep" in kwargs:
            kwargs["logits_to_keep"] = keep
        inputs = self._model.prepare_inputs_for_generation(
            self._ids, next_sequence_length=tokens.shape[1] if kwargs["use_cache"] else None, **kwargs
        )
        self._outputs = self._forward(**inputs, return_dict=True)
        return self.last(keep)

    def forget(self, numbers: Sequence[int]) -> None:
        """Remove from the cache this many of each row's last tokens, all of the last block; only with ``holes``."""
        # A row without tokens in the block has only holes there, which may go as well.
        least = min(number for number, has_tokens in zip(numbers, self._in_block, strict=True) if has_tokens)
        if least:
            self.cache.crop(-least)
            self._num_slots -= least
            self._mask = None if self._mask is None else self._mask[:, : self._num_slots]
        for i, number in enumerate(numbers):
            self._next[i] -= number
            if number > least:
                self._mask = self._full_mask()
                self._mask[i, self._num_slots - (number - least) :] = 0

    def close_holes(self, num_new: int) -> None:
        """Move each row's tokens to the slots right after the prompts; only with ``holes``, and after the last pass.

        ``num_new`` slots remain after the prompts; those after a shorter row have no meaning, and have to be masked.
        """
        prompt = self._num_prompt_slots
        if self._mask is None:
            self.cache.crop(prompt + num_new - self._num_slots)
            return
        index = torch.zeros(len(self._mask), prompt + num_new, dtype=torch.int64, device="cpu")
        index[:, :prompt] = torch.arange(prompt, device="cpu")
        for row, mask in zip(index, self._mask.cpu(), strict=True):
            taken = prompt + mask[prompt:].nonzero().flatten()[:num_new]
            row[prompt : prompt + len(taken)] = taken
        for layer in self.cache.layers:
            where = index.to(layer.keys.device)[:, None, :, None]  # (rows, 1, slots, 1)
            layer.keys = layer.keys.take_along_dim(where, 2)
            layer.values = layer.values.take_along_dim(where, 2)

    def select(self, rows: Sequence[int]) -> CacheSlots:
        """New slots with copies of some of these rows, for different continuations; only with ``holes`` or ``wide``."""
        index = torch.tensor(rows, device="cpu")  # a cache on any device takes an index on the CPU
        twin, cache = copy.copy(self), copy.copy(self.cache)
        cache.layers = [copy.copy(layer) for layer in cache.layers]
        cache.batch_select_indices(index)
        twin._outputs = CausalLMOutputWithPast(**{CACHE_NAME: cache})
        twin._ids = self._ids[index]
        twin._mask = None if self._mask is None else self._mask[index]
        if self.holes:
            twin._next = [self._next[row] for row in rows]
            twin.padding = [self.padding[row] for row in rows]
        twin._kwargs = {
            name: value[index]
            if isinstance(value, Tensor) and value.ndim > 1 and len(value) == len(self._ids)
            else value
            for name, value in self._kwargs.items()
        }
        return twin

    def reorder(self, rows: Sequence[int]) -> None:
        """Replace the rows by copies of these rows, any number of them, as beam search does; not with ``holes``."""
        before = len(self._ids)
        if list(rows) == list(range(before)):
            return
        index = to_device(rows, self.device)
        self.cache.reorder_cache(index)
        self._ids = self._ids[index]
        self._kwargs = {name: _reordered(name, value, index, before) for name, value in self._kwargs.items()}

    def _full_mask(self) -> Tensor:
        if self._mask is not None:
            return self._mask
        return torch.ones(len(self._next), self._num_slots, dtype=torch.int64, device=self.device)

    def last(self, keep: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """(rows, keep, vocab) of this dtype: the logits of the last columns of the last pass, which has kept them."""
        return self._outputs.logits[:, -keep:].to(dtype=dtype, device=self.device)  # type: ignore[no-any-return]


# transformers extends these for any number of new tokens; other tensors as if one token were new.
_CONTINUED = {"attention_mask", "decoder_attention_mask", "mm_token_type_ids"}


def _continued(kwargs: dict[str, Any], input_ids: Tensor) -> bool:
    """Whether a pass of several tokens gets the same inputs as passes of one token each.

    Token types are repeated from the end of the prompt, and masks over images have a row for each token.
    """
    return not any(
        isinstance(value, Tensor) and value.ndim > 1 and value.shape[:2] == input_ids.shape
        for name, value in kwargs.items()
        if name not in _CONTINUED and not name.endswith("position_ids")
    )


def _reordered(name: str, value: Any, index: Tensor, rows: int) -> Any:
    """An argument of a pass, of which rows are copied if it has ``rows`` of them; caches reorder themselves."""
    if isinstance(value, ModelOutput):  # the output of an encoder
        return type(value)(**{key: _reordered(key, part, index, rows) for key, part in value.items()})
    if not isinstance(value, Tensor) or value.ndim < 2:
        return value
    dim = 1 if name == "position_ids" and value.ndim == 3 else 0  # positions of images have a column for each axis
    return value.index_select(dim, index.to(value.device)) if value.shape[dim] == rows else value


def check_reorders(call: GenerateCall) -> None:
    """Refuse a call, before its first pass, whose cache has no method that copies rows to other places.

    Raises:
        UnsupportedModel: the cache is static, quantized, offloaded or of the model's own kind.
    """
    cache = cache_in(call.model_kwargs)
    parts = [cache.self_attention_cache, cache.cross_attention_cache] if type(cache) is EncoderDecoderCache else [cache]
    for part in parts:
        kinds = {type(layer) for layer in part.layers} if isinstance(part, DynamicCache) else set()
        quantized = any(issubclass(kind, BaseQuantizedLayer) for kind in kinds)
        if not isinstance(part, DynamicCache) or part.offloading or quantized:
            kept = "keeps a state of its own" if part is None else f"has a {type(part).__name__}"
            kept += " that is offloaded" if getattr(part, "offloading", False) else ""
            raise UnsupportedModel(
                f"{type(call.model).__name__} {kept}: expected a cache whose rows can be reordered as for beams, a "
                "DynamicCache; leave cache_implementation out of the generation config, or sample with hg.generate"
            )


def takes_holes(model: Any, cache: Any, position_ids: Tensor | None) -> bool:
    """Whether every layer attends to all slots, given only the attention mask and explicit positions."""
    return (
        type(cache) is DynamicCache
        and all(type(layer) is DynamicLayer for layer in cache.layers)
        and not layers_without_full_attention(model)
        and position_ids is not None
        and position_ids.ndim == 2
        and "position_ids" in inspect.signature(model.forward).parameters
    )


def grows(cache: Any) -> bool:
    """Whether every layer keeps only keys and values of tokens, and grows with them."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    return type(cache) is DynamicCache and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers
    )


def is_empty(cache: Any) -> bool:
    """Whether a cache holds no tokens; False for a model's own kind of state, which does not tell."""
    if not isinstance(cache, Cache):
        return False
    try:
        return bool(cache.get_seq_length() == 0)
    except ValueError:  # no layer counts tokens, for instance in Mamba
        return not cache.has_previous_state()


def _whole_mask(model: Any, mask: Tensor, width: int) -> Tensor:
    """The mask that transformers would make if it found padding: a token attends to itself and to all earlier ones.

    Given a mask with two dimensions, (rows, slots) int64, transformers would wait for the device, to look for padding.
    The tokens of the last ``width`` slots run now.

    Returns:
        (rows, 1, width, slots), bool or floating point; ``mask`` itself if the model needs this one.
    """
    dtype = _mask_dtype(model)
    if dtype is None:
        return mask
    whole = mask.bool()[:, None, None, :]  # (rows, 1, 1, slots)
    if width > 1:
        slots = torch.arange(whole.shape[-1], device=whole.device)
        whole = whole & (slots <= slots[-width:, None])  # (rows, 1, width, slots)
    if dtype is torch.bool:
        return whole
    return torch.where(whole, torch.zeros((), dtype=dtype, device=whole.device), torch.finfo(dtype).min)


def _mask_dtype(model: Any) -> torch.dtype | None:
    """The type of a mask that the model takes as it is; None if it takes none.

    The function of transformers that makes masks passes on a finished one; but biases by distance are computed from
    masks with two dimensions.
    """
    module = sys.modules[type(model.base_model).__module__]
    if getattr(module, "create_causal_mask", None) is not create_causal_mask:
        return None
    if getattr(model.config.get_text_config(), "alibi", False):
        return None
    dtypes: dict[str, torch.dtype] = {"sdpa": torch.bool, "eager": model.dtype}
    return dtypes.get(model.config._attn_implementation)
