"""A model's logits after prompts and after tokens that follow them, for many continuations of the same prompts.

If every layer supports holes (cache_slots.py), the prompts run once: their cache is copied for the rows of each pass.
Otherwise the prompt runs again with the tokens, in passes whose rows have equal lengths, so that no row is padded.

The logits along a whole answer come in chunks of positions (``chunks``): a table of (tokens, vocab) may take more
memory than the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedModel
from ..hf.compat import input_device
from ..hf.decode.block_rule import block_rule
from ..hf.decode.cache_slots import CacheSlots
from ..hf.decode.call import GenerateCall, prepare_call
from .prompt_inputs import tokens_of
from .prompts import padded


@dataclass(eq=False, repr=False)
class PrefixLogits:
    """Runs a model after a few prompts.

    Raises:
        UnsupportedModel: the prompts have inputs other than tokens, and cannot run once for all rows.
    """

    model: Any  # a transformers model that can generate
    # The prompts for ``model.generate``: input_ids and attention_mask, (prompts, length) int64, and the model's other
    # inputs, such as images.
    inputs: Mapping[str, Tensor]
    pad_token_id: int  # for prompts of different lengths
    generate_kwargs: Mapping[str, Any]  # further arguments of ``model.generate``, which prepares the passes
    text_ids: Sequence[int]  # five tokens of plain text; see ``block_rule``
    before: list[list[int]] = field(init=False)  # the tokens of each row before the output, padding included
    processors: list[Any] = field(init=False)  # the processors that generate() would call, in order

    def __post_init__(self) -> None:
        self._prompts = tokens_of(self.inputs)
        self._slots: CacheSlots | None = None
        self._wide: CacheSlots | None = None  # slots of a lone prompt without holes; used for one answer
        prepare_call(self.model, self.inputs, self.generate_kwargs, self._prefill)
        if self._slots is None and (more := sorted(self.inputs.keys() - {"input_ids", "attention_mask"})):
            raise UnsupportedModel(
                f"{type(self.model).__name__}: prompts with {', '.join(more)} are scored where one cache serves many "
                "rows, which takes full attention in every layer; leave these inputs out, or sample with hg.generate"
            )

    def _prefill(self, call: GenerateCall) -> None:
        self.before = call.input_ids.tolist()
        self.processors = list(call.processors)
        slots = CacheSlots(call, blocks=block_rule(call, self.text_ids).blocks)
        self._first = slots.prefill()  # (prompts, vocab)
        if slots.holes:
            self._slots = slots
        elif slots.wide:
            self._wide = slots

    @torch.no_grad()
    def chunks(self, tokens: Sequence[int], size: int) -> Iterator[Tensor]:
        """Run an answer after the only prompt: the logits from which each of its tokens is chosen.

        Each token runs once if the cache takes several tokens in a pass. Otherwise each chunk takes one more pass over
        the prompt and the answer so far.

        Args:
            tokens: of the answer.
            size: the maximum number of positions in a chunk.

        Yields:
            (positions, vocab) float32, in order; all chunks together have one position for each token. A model that
            always computes the logits of every position holds more than one chunk.
        """
        if self._slots is None and self._wide is None:
            prepare_call(self.model, self.inputs, self.generate_kwargs, self._prefill)
        slots = self._wide if self._slots is None else self._slots.select([0])
        self._wide = None
        first = self._first[:1]  # (1, vocab)
        for start in range(0, len(tokens), size):
            end = min(start + size, len(tokens))
            if slots is None:
                yield self._run_again([0], [tokens[: end - 1]], end - start)[0]
                continue
            # The logits before a token are those after the token before it: the prompt's last, for the first.
            block = tokens[max(start - 1, 0) : end - 1]
            parts = [] if start else [first]
            if block:
                parts.append(slots.run([block], len(block))[0])
            yield torch.cat(parts)

    @torch.no_grad()
    def __call__(self, rows: Sequence[int], blocks: Sequence[Sequence[int]], keep: int = 1) -> Tensor:
        """Run tokens after prompts.

        Args:
            rows: for each block the number of its prompt.
            blocks: tokens, possibly none.
            keep: the number of last positions whose logits are returned.

        Returns:
            (blocks, keep, vocab) float32: the last position is after the block's last token, or after the prompt's last
            token for an empty block. Positions before the prompt's last token are meaningless.
        """
        if self._slots is None:
            return self._run_again(rows, blocks, keep)
        first = self._first[list(rows)]
        running = [i for i, block in enumerate(blocks) if block]
        if not running:
            return first[:, None].expand(-1, keep, -1)
        width = max(len(block) for block in blocks)
        result = first.new_zeros(len(blocks), keep, first.shape[-1])
        slots = self._slots.select([rows[i] for i in running])
        logits = slots.run([blocks[i] for i in running], min(keep, width))
        result[running, -logits.shape[1] :] = logits
        for i, block in enumerate(blocks):  # the prompt's last position comes before the block's first
            if len(block) < keep:
                result[i, keep - 1 - len(block)] = first[i]
        return result

    def _run_again(self, rows: Sequence[int], blocks: Sequence[Sequence[int]], keep: int) -> Tensor:
        groups: dict[int, list[int]] = {}
        for i, (row, block) in enumerate(zip(rows, blocks, strict=True)):
            length = 0 if self.model.config.is_encoder_decoder else len(self._prompts[row])
            groups.setdefault(length + len(block), []).append(i)
        result: Tensor | None = None
        for group in groups.values():
            logits = self._run_group([rows[i] for i in group], [blocks[i] for i in group], keep)
            if result is None:
                result = logits.new_zeros(len(blocks), keep, logits.shape[-1])
            result[group, -logits.shape[1] :] = logits
        assert result is not None
        return result

    def _run_group(self, rows: Sequence[int], blocks: Sequence[Sequence[int]], keep: int) -> Tensor:
        """(blocks, up to keep, vocab) for prompts and blocks of equal total length."""
        given: dict[str, Tensor]
        if self.model.config.is_encoder_decoder:
            given = padded([self._prompts[row] for row in rows], self.pad_token_id, self.model)
            starts = [[*self.before[row], *block] for row, block in zip(rows, blocks, strict=True)]
            given["decoder_input_ids"] = torch.tensor(starts, device=input_device(self.model))
        else:
            whole = [[*self._prompts[row], *block] for row, block in zip(rows, blocks, strict=True)]
            given = padded(whole, self.pad_token_id, self.model)
        kept: list[Tensor] = []

        def last_logits(call: GenerateCall) -> None:
            call.config.prefill_chunk_size = None  # the logits of earlier chunks would be lost
            if "logits_to_keep" in call.model_kwargs:
                call.model_kwargs["logits_to_keep"] = keep
            logits = call.model._prefill(call.input_ids, call.config, call.model_kwargs).logits[:, -keep:]
            kept.append(logits.to(dtype=torch.float32, device=call.input_ids.device))

        prepare_call(self.model, given, self.generate_kwargs, last_logits)
        return kept[0]
