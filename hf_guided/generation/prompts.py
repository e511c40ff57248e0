"""The forms of prompts, and how they become rows of tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

import torch
from torch import Tensor

from ..constraints.json_text import shorten
from ..constraints.values import Constraint
from ..errors import BatchSizeError, InvalidArgument, PromptError, VocabularySizeError, shown
from ..hf.compat import input_device
from ..vocabulary.tokens import Vocabulary
from .chat_prompts import Prompt, applied


def as_prompts(prompts: Any) -> list[Any]:
    """A text, a chat, or a list of those, as a list; the items of a list may already be prepared.

    Raises:
        InvalidArgument: it is none of these.
    """
    if isinstance(prompts, str) or (isinstance(prompts, (list, tuple)) and prompts and _is_message(prompts[0])):
        return [prompts]
    if isinstance(prompts, (list, tuple)) and all(
        isinstance(prompt, (str, Prompt)) or _is_chat(prompt) for prompt in prompts
    ):
        return list(prompts)
    advice = ""
    if _is_tokenized(prompts):
        advice = (
            "; hg.generate tokenizes by itself: pass the texts, or call model.generate(**inputs, "
            "logits_processor=[guide.logits_processor(constraint)]) with your tokens"
        )
    elif isinstance(prompts, Mapping) and "messages" in prompts:
        advice = "; pass its 'messages'"
    elif isinstance(prompts, Mapping) and _is_message(prompts):
        advice = "; a chat is a list of messages: [message]"
    raise InvalidArgument(
        "expected a text, a chat (list of messages with 'role' and 'content'), or a list of those, "
        f"got {type(prompts).__name__}: {shorten(str(prompts))}{advice}"
    )


def check_order(prompts: Any, constraint: Any) -> None:
    """Raise InvalidArgument if prompts and constraint are swapped."""
    chat = isinstance(constraint, (list, tuple)) and any(_is_message(item) or _is_chat(item) for item in constraint)
    text = isinstance(constraint, str) and constraint.lstrip()[:1] != "{"
    texts = isinstance(constraint, (list, tuple)) and all(isinstance(item, str) for item in constraint)
    if _is_constraint(prompts) and (chat or text or texts or constraint is None):
        raise InvalidArgument(
            f"prompts, constraint: expected the prompts before the constraint, got {shown(prompts)} as the prompts and "
            f"{shown(constraint)} as the constraint; swap the two"
        )
    if chat:
        raise InvalidArgument(
            f"constraint: expected a constraint, got the chat {shown(constraint)}; a chat is a prompt, which comes "
            "before the constraint",
            name="constraint",
        )


def _is_constraint(value: Any) -> bool:
    """Whether it can only be a constraint: no text, no chat, no tokens."""
    if isinstance(value, Mapping):
        return not _is_message(value) and "messages" not in value and not _is_tokenized(value)
    return isinstance(value, (Constraint, re.Pattern, type)) or get_origin(value) is not None


def _is_tokenized(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "input_ids" in value
    return isinstance(value, Tensor) or (isinstance(value, (list, tuple)) and bool(value) and type(value[0]) is int)


def _is_chat(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(map(_is_message, value))


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value


def one_each(what: str, value: Any, prompts: int, *, several: bool) -> list[Any]:
    """One value for each prompt.

    Args:
        what: its name in an error.
        value: one for all prompts, or one for each.
        prompts: the number of prompts.
        several: whether ``value`` has one for each.

    Raises:
        BatchSizeError: there are more or fewer values than prompts.
    """
    if not several:
        return [value] * prompts
    if len(value) != prompts:
        raise BatchSizeError(
            f"expected one {what} for all prompts or one for each of {prompts}, got {len(value)}; None stands for none"
        )
    return list(value)


def encoded(vocabulary: Vocabulary, prompt: Prompt, prefix: str) -> list[int]:
    """The tokens of a prompt, followed by the beginning of its answer.

    Raises:
        PromptError: the chat template refuses the chat, or the prompt has a character that is none.
        InvalidArgument: there are none, and the tokenizer has no BOS.
    """
    tokenizer: Any = vocabulary.tokenizer
    if prompt.tokens is None and prompt.text is not None:
        _check_text(prompt.text)
        ids = list(tokenizer(prompt.text + prefix)["input_ids"])
        if not ids and tokenizer.bos_token_id is None:
            raise InvalidArgument(
                "expected a prompt with text: this one is empty, and the tokenizer has no BOS to begin with"
            )
        return ids or [tokenizer.bos_token_id]
    if prompt.tokens is None:
        if prompt.rendered is not None:
            ids = list(tokenizer(prompt.rendered, add_special_tokens=False)["input_ids"])
        else:
            arguments = prompt.arguments or {}
            ids = list(applied(tokenizer, list(prompt.chat), tokenize=True, return_dict=False, **arguments))
        if prompt.answer_start:
            ids += tokenizer.encode(prompt.answer_start, add_special_tokens=False)
    else:
        ids = list(prompt.tokens)
    if not prefix:
        return ids
    own = list(tokenizer.encode(prefix, add_special_tokens=False))
    # A tokenizer that adds a space before every text would not write the prefix unchanged.
    return ids + (own if vocabulary.decode_bytes(own) == prefix.encode() else vocabulary.encode_bytes(prefix.encode()))


def _check_text(text: str) -> None:
    """Raise PromptError for half of a surrogate pair, for which tokenizers raise TypeError."""
    try:
        str.encode(text)  # not that of a subclass
    except UnicodeEncodeError as error:
        raise PromptError(
            f"expected a prompt that UTF-8 can hold, got {text[error.start]!r} at position {error.start}, half of a "
            "surrogate pair; replace it: text.encode('utf-8', 'replace').decode()"
        ) from error


def check_embedded(token_ids: Sequence[int], tokenizer: Any, model: Any) -> None:
    """Refuse a prompt with tokens that were added to the tokenizer alone, before they end in an index error.

    Raises:
        VocabularySizeError: the model has no embedding for a token.
    """
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)
    outside = next((token_id for token_id in token_ids if rows is not None and token_id >= rows), None)
    if outside is not None:
        raise VocabularySizeError(
            f"a prompt contains token {outside} ({tokenizer.convert_ids_to_tokens(outside)}), but the model has "
            f"embeddings for {rows} tokens; remove it from the prompt, or call "
            f"model.resize_token_embeddings({outside + 1}) and train it"
        )


def padded(rows: Sequence[Sequence[int]], pad_token_id: int, model: Any) -> dict[str, Tensor]:
    """Rows of ids as a batch: padded left for a decoder, right for an encoder.

    Returns:
        input_ids and attention_mask, (rows, longest) int64 on the model's device.
    """
    longest = max(map(len, rows))
    input_ids = torch.full((len(rows), longest), pad_token_id, device="cpu")
    attention_mask = torch.zeros(len(rows), longest, dtype=torch.long, device="cpu")
    for i, ids in enumerate(rows):
        columns = slice(0, len(ids)) if model.config.is_encoder_decoder else slice(longest - len(ids), longest)
        input_ids[i, columns] = torch.tensor(ids, device="cpu")
        attention_mask[i, columns] = 1
    device = input_device(model)
    return {"input_ids": input_ids.to(device), "attention_mask": attention_mask.to(device)}
