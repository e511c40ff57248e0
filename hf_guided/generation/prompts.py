"""Prompts: their forms, what a chat template makes of them, and their tokens."""

from __future__ import annotations

import logging
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, get_origin

import torch
from torch import Tensor

from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..errors import InvalidArgument, PromptError, VocabularySizeError, shown, warn
from ..hf.compat import input_device
from ..vocabulary.processors import tokenizer_of
from ..vocabulary.tokens import Vocabulary
from .description import describe, describe_choice, names_format
from .messages import PART_TYPES, Chat, in_system_message, in_user_message, meant, parts_of, text_of, without
from .templates import (
    TemplateOptions,
    answer_start,
    applied,
    check_template,
    is_processor,
    rendered,
    renders_by_template,
    unread_variables,
    unshown,
    with_shown_calls,
)


def as_prompts(prompts: Any) -> list[Any]:
    """A text, a chat, or a list of those, as a list; the items of a list may already be prepared.

    A column of prompts (a Series, an array, a generator ...) is a list of them, and is read once.

    Raises:
        InvalidArgument: it is none of these.
    """
    items = _items(prompts)
    if isinstance(items, str) or (items and _is_message(items[0])):
        return [items]
    wrong = next((i for i, item in enumerate(items or ()) if not _is_prompt(item)), None)
    if items is not None and wrong is None:
        return items
    advice = ""
    if hasattr(prompts, "columns") or hasattr(prompts, "column_names"):
        advice = "; pass the column that holds the prompts"
    elif _is_tokenized(prompts):
        advice = (
            "; hg.generate tokenizes by itself: pass the texts, or call model.generate(**inputs, "
            "logits_processor=[guide.logits_processor(constraint)]) with your tokens"
        )
    elif isinstance(prompts, Mapping) and "messages" in prompts:
        advice = "; pass its 'messages'"
    elif isinstance(prompts, Mapping) and _is_message(prompts):
        advice = "; a chat is a list of messages: [message]"
    elif items is not None and wrong is not None:
        advice = f"; item {wrong} is {shown(items[wrong])} of type {type(items[wrong]).__name__}"
    raise InvalidArgument(
        "expected a text, a chat (list of messages with 'role' and 'content'), or a list of those, "
        f"got {type(prompts).__name__}: {shown(prompts)}{advice}"
    )


def _items(value: Any) -> list[Any] | str | None:
    """A list of the items of a column, a plain text unchanged; None for what has no items, or is not in order."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, Mapping, set, frozenset, Tensor, type)) or hasattr(value, "columns"):
        return None
    for name in ("to_pylist", "tolist"):  # the methods of pyarrow; of numpy and pandas
        if callable(method := getattr(value, name, None)):
            listed = method()
            return [*map(_plain, listed)] if isinstance(listed, list) else _items(listed)
    if not isinstance(value, Iterable):
        return None
    items = []
    for item in map(_plain, value):
        items.append(item)
        if not _is_prompt(item) and not _is_message(item):  # the rest, which may have no end, is not looked at
            break
    return items


def _plain(item: Any) -> Any:
    """A chat that is an array, as a list: Parquet files are read so."""
    return item.tolist() if hasattr(item, "tolist") and not isinstance(item, Tensor) else item


def _is_prompt(item: Any) -> bool:
    return isinstance(item, (str, Prompt)) or _is_chat(item)


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


_TOOLS_OF_CHAT = (
    "the chat template does not show the tools of ToolCalls, so the model does not know them; pass describe=True to "
    "describe them in the chat, or show_tools=False if the chat names them already"
)
_TOOLS_OF_TEXT = (
    "a plain prompt does not show the tools of ToolCalls, so the model does not know them; pass a chat, "
    '[{"role": "user", "content": text}], whose template shows them, describe=True to describe them in the prompt, or '
    "show_tools=False if the prompt names them already"
)


@dataclass(frozen=True)
class Prompt:
    """A text or a chat, with the arguments of its template."""

    text: str | None  # a plain prompt; None for a chat
    chat: Chat = ()  # its messages; empty for a plain prompt
    arguments: Mapping[str, Any] | None = None  # arguments of ``apply_chat_template``
    media: frozenset[str] = frozenset()  # the kinds of content other than text: "image", "video", "audio"
    unseen: tuple[str, ...] = ()  # warnings about parts of the request that the model does not see
    group: Hashable = None  # equal for prompts that a processor can read in one call, so that they may share a batch
    rendered: str | None = None  # the text that a template has made of the chat, if that text is all that is tokenized
    tokens: Sequence[int] | None = None  # the token ids of the prompt, if they are already known
    # The text between the rendered chat and the answer: the header of an answer, or the end of thinking that the
    # template has begun.
    answer_start: str = ""


def prepared(
    templates: Any, prompt: Any, constraint: Constraint | None, options: TemplateOptions, *, continues: bool = False
) -> Prompt:
    """A prompt as it will be rendered; a ``Prompt`` is returned unchanged.

    ``continues`` says that the answer continues the last message of the chat.

    Raises:
        PromptError: the template refuses the chat; or the model would not see a part of it.
        InvalidConstraint: the format cannot be described.
    """
    if isinstance(prompt, Prompt):
        return prompt
    tools = constraint.tools if isinstance(constraint, ToolCalls) and constraint.choice != "none" else []
    notation = constraint.described if isinstance(constraint, ToolCalls) else None
    explains = bool(tools) and options.show_tools and notation is not None
    if isinstance(prompt, str):
        text = describe(constraint, templates) if options.describe or explains else ""
        return Prompt(
            f"{text}\n\n{prompt}" if text else prompt,
            unseen=(_TOOLS_OF_TEXT,) if tools and options.show_tools and not text else (),
            group="text" if is_processor(templates) else None,
        )
    chat: Chat = list(prompt)
    media_part = next((part for part in parts_of(chat) if part.media), None)
    if media_part is not None and not is_processor(templates):
        raise PromptError(
            f"message {media_part.message} holds {_a(media_part.kind)}, which a tokenizer leaves out: the model would "
            "not see it; pass the model's processor in place of the tokenizer"
        )
    check_template(templates, options.kwargs)
    arguments: dict[str, Any] = dict(options.kwargs)
    if continues:
        arguments["continue_final_message"] = True
    if options.documents is not None:
        arguments["documents"] = list(options.documents)
    chat = with_shown_calls(templates, chat, arguments, notation)
    unread = unread_variables(templates, arguments)
    shown = "tools" in arguments
    if tools and options.show_tools and not shown:
        shown = shows_tools(templates, chat, arguments, tools)
        arguments["tools"] = tools
    describes = options.describe or (explains and not shown)
    if describes and constraint is not None:
        known = shown and isinstance(constraint, ToolCalls)
        text = describe_choice(constraint) if known else describe(constraint, templates)  # type: ignore[arg-type]
        chat = with_description(templates, chat, arguments, text) if text else chat
    ignored = bool(tools) and options.show_tools and not shown and not describes
    lost = unshown(templates, chat, arguments)
    unseen = [*([_TOOLS_OF_CHAT] if ignored else []), *(text for text in (unread, lost) if text is not None)]
    media = _check_parts(templates, chat, arguments)
    of_tokenizer = {"sanitize_control_tokens", "tokenizer_kwargs"} & arguments.keys()
    # Whether the tokens of the chat are those of its rendered text.
    tokenizes_text = renders_by_template(templates) and not is_processor(templates) and not of_tokenizer
    whole = rendered(templates, chat, arguments) if tokenizes_text else None
    start = ""
    if constraint is not None and not continues and not options.thinks:
        render = (lambda: whole) if whole is not None else partial(rendered, templates, chat, arguments)
        start = answer_start(templates, arguments, render, calls=isinstance(constraint, ToolCalls))
    group = _group(templates, chat, arguments, media)
    return Prompt(None, chat, arguments, media, tuple(unseen), group, whole, answer_start=start)


def shows_tools(templates: Any, chat: Chat, arguments: Mapping[str, Any], tools: list[dict[str, Any]]) -> bool:
    """Whether the text of a template changes with tools."""
    with_tools = rendered(templates, chat, {**arguments, "tools": tools})
    try:
        return with_tools != rendered(templates, chat, arguments)
    except PromptError:  # it requires tools
        return True


def with_description(templates: Any, chat: Chat, arguments: Mapping[str, Any], text: str) -> Chat:
    """The chat with a description in its system message; in its first user message where the template has none.

    Raises:
        PromptError: the template writes neither.
    """
    refused: PromptError | None = None
    for changed in (in_system_message(chat, text), in_user_message(chat, text)):
        if changed is not None:
            try:
                if text in rendered(templates, changed, arguments):
                    return changed
            except PromptError as error:
                refused = error
    raise PromptError(
        "describe: the chat template writes the description neither as a system message nor in the first user message"
        f"{'' if refused is None else f' ({refused})'}; leave describe out, and put hg.describe(constraint) into the "
        "chat where the template writes it"
    )


def _check_parts(templates: Any, chat: Chat, arguments: Mapping[str, Any]) -> frozenset[str]:
    """The kinds of media in a chat.

    Raises:
        PromptError: the model would not see a part of a message: an image that cannot be loaded or that the template
            leaves out, or a part of another type, which is most often misspelt.
    """
    parts = list(parts_of(chat))
    whole = rendered(templates, chat, arguments) if parts else ""
    for part in parts:
        place = f"message {part.message}, part {part.part}"
        if part.media and not part.known:
            raise PromptError(
                f"{place}: expected {_a(part.kind)} that transformers can load, "
                f'{{"type": "{part.kind}", "{part.kind}" | "url" | "path": ...}}; the model would not see this one'
            )
        # A text is seen if it is in the output; any other part needs a second rendering.
        if not part.media and part.known and text_of(chat, part).strip() in whole:
            continue
        try:
            seen = rendered(templates, without(chat, part), arguments) != whole
        except PromptError:  # the template refuses a chat without it
            seen = True
        if not seen and part.media:
            raise PromptError(
                f"{place}: the chat template leaves {_a(part.kind)} out, so the model would not see it; use the "
                "processor that belongs to the model, or another chat_template"
            )
        if not seen:
            raise PromptError(
                f"{place}: the chat template leaves out the part of type {part.kind!r}, so the model would not see it; "
                f"expected one of {', '.join(PART_TYPES)}{meant(part.kind)}"
            )
    return frozenset(part.kind for part in parts if part.media)


def _a(kind: str) -> str:
    return f"an {kind}" if kind in ("image", "audio") else f"a {kind}"


def _group(templates: Any, chat: Chat, arguments: Mapping[str, Any], media: frozenset[str]) -> Hashable:
    if not is_processor(templates):
        return None
    # A processor decides by the first text of a batch whether it adds a BOS token to each.
    bos = getattr(tokenizer_of(templates), "bos_token", None)
    begins = bool(bos) and rendered(templates, chat, arguments).startswith(str(bos))
    return "chat", begins, tuple(sorted(media)), repr(sorted(arguments.items(), key=lambda item: item[0]))


@cache
def _hint() -> None:
    logging.getLogger("hf_guided").warning(
        "nothing in the chat tells the model which format its answer will have: pass describe=True, which adds "
        "hg.describe(constraint) to the chat (this hint is shown once)"
    )


def hint_at_description(prompts: Sequence[Prompt], constraints: Sequence[Constraint | None]) -> None:
    """Name ``describe``, once in a process, where neither a chat nor its template says anything of the format."""
    for prompt, constraint in zip(prompts, constraints, strict=True):
        if prompt.text is not None or constraint is None or isinstance(constraint, ToolCalls):
            continue  # tools have a warning of their own
        text = prompt.rendered
        if text is None:
            whole = [content for message in prompt.chat if isinstance(content := message.get("content"), str)]
            text = "\n".join([*whole, *(text_of(prompt.chat, part) for part in parts_of(prompt.chat))])
        if not names_format(constraint, text):
            _hint()
            return


def warn_of_unseen(prompts: Sequence[Prompt]) -> None:
    """Warn once about parts of the prompts that the model does not see: tools, and variables that no template reads."""
    for text in dict.fromkeys(text for prompt in prompts for text in prompt.unseen):
        warn(text)


def encoded(vocabulary: Vocabulary, prompt: Prompt, prefix: str) -> list[int]:
    """The tokens of a prompt, followed by the beginning of its answer.

    Raises:
        PromptError: the chat template refuses the chat, or the prompt has a character that is none.
        InvalidArgument: there are none, and the tokenizer has no BOS.
    """
    tokenizer: Any = vocabulary.tokenizer
    if prompt.tokens is not None:
        ids = list(prompt.tokens)
    elif prompt.text is not None:
        _check_text(prompt.text)
        ids = list(tokenizer(prompt.text + prefix)["input_ids"])
        if not ids and tokenizer.bos_token_id is None:
            raise InvalidArgument(
                "expected a prompt with text: this one is empty, and the tokenizer has no BOS to begin with"
            )
        return ids or [tokenizer.bos_token_id]
    elif prompt.rendered is not None:
        ids = list(tokenizer(prompt.rendered, add_special_tokens=False)["input_ids"])
    else:
        arguments = prompt.arguments or {}
        ids = list(applied(tokenizer, list(prompt.chat), tokenize=True, return_dict=False, **arguments))
    if prompt.tokens is None and prompt.answer_start:
        ids += tokenizer.encode(prompt.answer_start, add_special_tokens=False)
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
    """Raise VocabularySizeError for tokens added to the tokenizer alone, which would end in an index error."""
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
