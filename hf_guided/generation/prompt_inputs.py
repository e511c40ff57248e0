"""The prompts of a call as inputs of ``model.generate``: their batches, and their tensors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, GenerationConfig
from transformers.utils import ModelOutput

from ..errors import InvalidArgument, UnsupportedModel
from ..hf.compat import main_input_name
from ..vocabulary.tokens import Vocabulary
from .chat_prompts import Prompt, is_processor
from .processor_inputs import OF_TOKENS, processed, tokens_of
from .prompts import check_embedded, encoded, padded


@dataclass(frozen=True)
class PromptInputs:
    """The prompts of one call.

    Args:
        model: a transformers model.
        vocabulary: of its tokenizer.
        templates: the tokenizer, or a processor.
        prompts: texts and chats.
        prefixes: for each prompt, the part of its answer that it already ends with.
        pad_token_id: pads short rows.
        rows: by name, tensors for the model with one row for each prompt.
    """

    model: Any
    vocabulary: Vocabulary
    templates: Any
    prompts: Sequence[Prompt]
    prefixes: Sequence[str | None]
    pad_token_id: int
    rows: Mapping[str, Any]

    def batches(self, indices: Sequence[int], step: int) -> Iterator[Sequence[int]]:
        """The indices in order, in groups that may run in one call, at most ``step`` in each."""
        first = 0
        while first < len(indices):
            group = self.prompts[indices[first]].group
            last = first + 1
            while last < min(first + step, len(indices)) and self.prompts[indices[last]].group == group:
                last += 1
            yield indices[first:last]
            first = last

    def tokens(self, index: int) -> list[int]:
        """The tokens of one prompt, with its prefix.

        Raises:
            VocabularySizeError: the model has no embedding for one of them.
        """
        prompt, prefix = self.prompts[index], self.prefixes[index]
        if self._by_processor(prompt):
            return tokens_of(processed(self.templates, [prompt], [prefix], self.model))[0]
        token_ids = encoded(self.vocabulary, prompt, prefix or "")
        check_embedded(token_ids, self.vocabulary.tokenizer, self.model)
        return token_ids

    def fingerprint(self, index: int) -> Any:
        """A value that distinguishes a prompt from others."""
        prompt = self.prompts[index]
        if not prompt.media:
            return self.tokens(index)
        inputs = processed(self.templates, [prompt], [self.prefixes[index]], self.model)
        return {name: _digest(value) for name, value in sorted(inputs.items())}

    def batch(self, indices: Sequence[int], copies: int) -> tuple[list[list[int]], dict[str, Any]]:
        """The inputs of one call.

        Args:
            indices: one of the groups of ``batches``.
            copies: rows for each prompt, next to each other; transformers may mix up the images of rows when it makes
                the copies itself.

        Returns:
            The tokens of each prompt; the inputs of ``model.generate``.

        Raises:
            PromptError: see ``processed``.
            InvalidArgument: the caller passes a tensor that the processor makes too.
        """
        own = {name: _take(value, indices, len(self.prompts), name) for name, value in self.rows.items()}
        if not self._by_processor(self.prompts[indices[0]]):
            prompts = [self.tokens(i) for i in indices]
            made = padded(prompts, self.pad_token_id, self.model)
            if "decoder_input_ids" in own and main_input_name(self.model) != "input_ids":
                made = {}  # the prompt would be that of the decoder
            return prompts, {**made, **own}
        repeated = [i for i in indices for _ in range(copies)]
        inputs = processed(
            self.templates, [self.prompts[i] for i in repeated], [self.prefixes[i] for i in repeated], self.model
        )
        if twice := sorted(inputs.keys() & own.keys()):
            raise InvalidArgument(f"{', '.join(twice)}: the processor makes this from the chats; leave it out")
        own = {name: _repeated(value, copies) for name, value in own.items()}
        return tokens_of(inputs)[::copies], {**inputs, **own}

    def check_repeated(self, inputs: Mapping[str, Any]) -> None:
        """Check that transformers can repeat these inputs for each beam, or for each sequence that it returns.

        Raises:
            UnsupportedModel: it would give rows the images of other rows.
        """
        rows = len(inputs["input_ids"])
        if "mm_encoder_outputs" in inspect.signature(self.model.forward).parameters:
            return
        flat = [
            name
            for name, value in inputs.items()
            if name not in OF_TOKENS and isinstance(value, Tensor) and len(value) != rows
        ]
        if flat:
            raise UnsupportedModel(
                f"num_beams, num_return_sequences: transformers repeats {', '.join(flat)} for each row as if every "
                "prompt had one image, and these have more; leave them out, or give each prompt one image"
            )

    def _by_processor(self, prompt: Prompt) -> bool:
        return prompt.text is None and is_processor(self.templates)


def row_arguments(generate_kwargs: Mapping[str, Any], prompts: int, *, several_calls: bool) -> dict[str, Any]:
    """The arguments for the model that belong to prompts: tensors, and lists of tensors.

    Args:
        generate_kwargs: the caller's.
        prompts: the number of prompts.
        several_calls: whether they run in more than one call.

    Raises:
        InvalidArgument: there are several calls, and an argument does not have one row for each prompt.
    """
    settings = vars(GenerationConfig())
    per_prompt = {
        name: value for name, value in generate_kwargs.items() if name not in settings and _belongs_to_prompts(value)
    }
    if several_calls:
        for name, value in per_prompt.items():
            _take(value, range(1), prompts, name)
    return per_prompt


def _belongs_to_prompts(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.ndim > 0
    if isinstance(value, (Cache, ModelOutput)):
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, Tensor) for item in value)


def _digest(value: Any) -> str:
    """A digest: the same in every process for the same tensor."""
    if not isinstance(value, Tensor):
        return repr(value)
    data = value.detach().cpu().contiguous()
    return (
        f"{data.dtype} {tuple(data.shape)} {sha256(data.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()}"
    )


def _repeated(value: Any, copies: int) -> Any:
    """Each row ``copies`` times, next to each other."""
    if isinstance(value, Tensor):
        return value.repeat_interleave(copies, dim=0)
    return type(value)(row for row in value for _ in range(copies)) if isinstance(value, (list, tuple)) else value


def _take(value: Any, indices: Sequence[int], prompts: int, name: str) -> Any:
    """The rows of these prompts."""
    if len(indices) == prompts:
        return value
    if not isinstance(value, (Tensor, list, tuple)) or len(value) != prompts:
        shape = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InvalidArgument(
            f"{name}: expected one row for each of {prompts} prompts, which run in several calls, got {shape}; pass "
            f"batch_size={prompts} to run them in one call, or chats with the model's processor"
        )
    return value[torch.tensor(indices)] if isinstance(value, Tensor) else type(value)(value[i] for i in indices)
