"""The prompts of a call as inputs of ``model.generate``: their batches, and their tensors.

A processor makes the tensors of chats, with their images, videos and audio.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, GenerationConfig
from transformers.utils import ModelOutput

from ..errors import InvalidArgument, PromptError, UnsupportedModel
from ..hf.compat import input_device, layers, main_input_name
from ..hf.generation_settings import GenerationSettings
from ..vocabulary.tokens import Vocabulary
from .arguments import parameters
from .messages import has_calls
from .prompts import Prompt, check_embedded, encoded, padded
from .templates import applied, is_processor, rendered


@dataclass(frozen=True)
class PromptInputs:
    """The prompts of one call."""

    model: Any  # a transformers model
    vocabulary: Vocabulary  # its tokenizer's
    templates: Any  # the tokenizer, or a processor
    prompts: Sequence[Prompt]  # texts and chats
    prefixes: Sequence[str | None]  # for each prompt, the part of its answer that it already ends with
    pad_token_id: int  # pads short rows
    rows: Mapping[str, Any]  # by name, tensors for the model with one row for each prompt

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
        """The tokens of one prompt, with its prefix; raises as ``check_embedded``."""
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

    def of_call(
        self, indices: Sequence[int], settings: GenerationSettings
    ) -> tuple[list[list[int]], dict[str, Any], int]:
        """The inputs of one call, for the prompts of one of the groups of ``batches``.

        Returns:
            The tokens of each prompt; the inputs of ``model.generate``; how many rows each prompt has in them, next to
            each other.

        Raises:
            PromptError: see ``processed``.
            InvalidArgument: the caller passes a tensor that the processor makes too.
            UnsupportedModel: transformers would give beams the images of other rows.
        """
        # transformers' own copies of a row may get the images of other rows; the processor's do not.
        copied = settings.samples and any(self.prompts[i].media for i in indices)
        copies = int(settings.get("num_return_sequences") or 1) if copied else 1
        own = {name: _take(value, indices, len(self.prompts), name) for name, value in self.rows.items()}
        if self._by_processor(self.prompts[indices[0]]):
            repeated = [i for i in indices for _ in range(copies)]
            made = processed(
                self.templates, [self.prompts[i] for i in repeated], [self.prefixes[i] for i in repeated], self.model
            )
            if twice := sorted(made.keys() & own.keys()):
                raise InvalidArgument(f"{', '.join(twice)}: the processor makes this from the chats; leave it out")
            own = {name: _repeated(value, copies) for name, value in own.items()}
            prompts = tokens_of(made)[::copies]
        else:
            prompts = [self.tokens(i) for i in indices]
            made = padded(prompts, self.pad_token_id, self.model)
            if "decoder_input_ids" in own and main_input_name(self.model) != "input_ids":
                made = {}  # the prompt would be that of the decoder
        inputs = {**made, **own}
        if (settings.get("num_beams") or 1) > 1 and "mm_encoder_outputs" not in parameters(self.model.forward):
            rows = len(prompts) * copies
            others = {name: value for name, value in inputs.items() if name not in OF_TOKENS}
            if flat := [name for name, value in others.items() if isinstance(value, Tensor) and len(value) != rows]:
                raise UnsupportedModel(
                    f"num_beams: transformers repeats {', '.join(flat)} for each row as if every "
                    "prompt had one image, and these have more; leave them out, or give each prompt one image"
                )
        return prompts, inputs, copies

    def _by_processor(self, prompt: Prompt) -> bool:
        return prompt.text is None and is_processor(self.templates)


def row_arguments(generate_kwargs: Mapping[str, Any], prompts: int, *, several_calls: bool) -> dict[str, Any]:
    """The arguments of ``model.generate`` that belong to prompts: tensors, and lists of tensors.

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


# Tensors that describe tokens; all others that a processor makes are images, video or audio.
OF_TOKENS = frozenset("input_ids attention_mask token_type_ids mm_token_type_ids position_ids".split())
# Writes a chat that is already rendered; transformers loads the images of its messages.
_AS_IT_IS = "{{ messages[0]['rendered'] }}"


def processed(processor: Any, prompts: Sequence[Prompt], prefixes: Sequence[str | None], model: Any) -> dict[str, Any]:
    """The inputs of ``model.generate`` for chats of one group (``Prompt.group``), with their prefixes.

    Returns:
        input_ids and attention_mask, (rows, longest) int64, padded left for a decoder; and the other tensors of the
        processor, on the model's device, floating point in its dtype.

    Raises:
        PromptError: the processor refuses the chats; or the model would not see a part of them.
    """
    arguments = dict(prompts[0].arguments or {})
    settings = dict(arguments.pop("processor_kwargs", None) or {})
    refused = "sanitize_control_tokens" in arguments or "chat_template" not in parameters(processor.apply_chat_template)
    chats = [[dict(message) for message in prompt.chat] for prompt in prompts]  # transformers writes into them
    starts = [prompt.answer_start + (prefix or "") for prompt, prefix in zip(prompts, prefixes, strict=True)]
    if any(prefixes) or (not refused and (any(starts) or any(has_calls(prompt.chat) for prompt in prompts))):
        if refused:
            raise PromptError(
                f"prefix: {type(processor).__name__} renders these chats itself and appends nothing to them; leave out "
                "the prefix, or sanitize_control_tokens if it was passed"
            )
        for chat, prompt, start in zip(chats, prompts, starts, strict=True):
            chat[0]["rendered"] = rendered(processor, prompt.chat, prompt.arguments) + start
        kept = arguments.keys() & parameters(processor.apply_chat_template) - {"tools", "documents"}
        arguments = {name: arguments[name] for name in kept} | {"chat_template": _AS_IT_IS}
    if len(prompts) > 1:
        if processor.tokenizer.pad_token_id is None:
            raise PromptError(
                "expected a processor whose tokenizer has a padding token, to run several chats at once; set "
                "processor.tokenizer.pad_token = processor.tokenizer.eos_token, or pass batch_size=1"
            )
        settings |= {"padding": True, "padding_side": "right" if model.config.is_encoder_decoder else "left"}
    made = applied(
        processor,
        chats,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=settings,
        **arguments,
    )
    inputs = {name: as_input(value, model) for name, value in made.items()}
    if "attention_mask" not in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    _check_seen(processor, prompts, inputs, model)
    return inputs


def tokens_of(inputs: Mapping[str, Any]) -> list[list[int]]:
    """The tokens of each row without padding."""
    rows, mask = inputs["input_ids"].tolist(), inputs["attention_mask"].tolist()
    return [
        [token for token, kept in zip(ids, kept_of, strict=True) if kept]
        for ids, kept_of in zip(rows, mask, strict=True)
    ]


def check_takes_media(processor: Any, prompts: Iterable[Prompt], model: Any) -> None:
    """Raise PromptError if a chat has more than text, and the model takes tokens alone."""
    kinds = sorted({kind for prompt in prompts for kind in prompt.media})
    if not kinds:
        return
    names = set(getattr(processor, "model_input_names", ())) - set(processor.tokenizer.model_input_names)
    if names and not names & _of_forward(model):
        raise _unseen(model, kinds)


def _check_seen(processor: Any, prompts: Sequence[Prompt], inputs: dict[str, Any], model: Any) -> None:
    """Check that each kind of content is in a tensor that the model takes, and has a placeholder among the tokens."""
    kinds = sorted(prompts[0].media)
    if not kinds:
        return
    if not (inputs.keys() - OF_TOKENS) & _of_forward(model):
        raise _unseen(model, kinds)
    for kind in kinds:
        # Some processors write a video as images.
        tokens = [_placeholder(processor, model, name) for name in {kind, *(["image"] if kind == "video" else [])}]
        known = [token for token in tokens if token is not None]
        if not known:
            continue
        for ids in inputs["input_ids"].tolist():
            if not set(known) & set(ids):
                raise PromptError(
                    f"a chat holds {kind} content, and the processor wrote no {kind} token for it: the model would not "
                    "see it; use the processor that belongs to the model"
                )


def _unseen(model: Any, kinds: Sequence[str]) -> PromptError:
    return PromptError(
        f"the chats hold {' and '.join(kinds)} content, and {type(model).__name__} takes tokens alone: it would not "
        "see it; use a model for it, or leave it out"
    )


def _of_forward(model: Any) -> set[str]:
    """The arguments of a model's forward pass; for an adapter (PEFT), those of the model inside."""
    *_, innermost = layers(model)
    return parameters(innermost.forward)


def _placeholder(processor: Any, model: Any, kind: str) -> int | None:
    """The token that stands for such content; None if neither processor nor config names it."""
    for holder, name in (
        (processor, f"{kind}_token_id"),
        (model.config, f"{kind}_token_id"),
        (model.config, f"{kind}_token_index"),
    ):
        token_id = getattr(holder, name, None)
        if isinstance(token_id, int):
            return token_id
    return None


def as_input(value: Any, model: Any) -> Any:
    """A value as an input of the model: a tensor on its device; floating point in its dtype."""
    if not isinstance(value, Tensor):
        return value
    device = input_device(model)
    return value.to(device, model.dtype) if value.is_floating_point() else value.to(device)
