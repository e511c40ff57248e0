"""The arguments of a call for chat templates: checked, with one value for each prompt."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidArgument, PromptError, shown
from .chat_prompts import Prompt, TemplateOptions
from .prompts import one_each


def template_options(
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    documents: Sequence[Any] | None,
    prompts: Sequence[Any],
    *,
    show_tools: bool,
    describe: bool,
    thinks: bool = False,
) -> list[TemplateOptions]:
    """The options of each prompt's template; arguments and errors are those of ``hg.generate``, ``thinks`` apart."""
    _check_documents(documents)
    several = isinstance(chat_template_kwargs, (list, tuple))
    kwargs = one_each("chat_template_kwargs", chat_template_kwargs, len(prompts), several=several)
    # One document is a dict, so a list of dicts is for all prompts.
    each = documents is not None and not all(isinstance(document, Mapping) for document in documents)
    lists = one_each("list of documents", documents, len(prompts), several=each)
    plain = [isinstance(prompt, str) for prompt in prompts]
    # An option for all prompts applies to the chats among them; an option for one plain text would be ignored.
    unrendered = [
        text and bool((own and several) or (shown and each))
        for text, own, shown in zip(plain, kwargs, lists, strict=True)
    ]
    if any(unrendered) or (all(plain) and any([*kwargs, *lists])):
        raise PromptError(
            "chat_template_kwargs, documents: expected chats, got plain texts, which no chat template renders; pass "
            '[{"role": "user", "content": text}] as a prompt, or leave them out'
        )
    return [
        TemplateOptions(own or {}, shown, show_tools=show_tools, describe=describe, thinks=thinks)
        for own, shown in zip(kwargs, lists, strict=True)
    ]


def _check_documents(documents: Any) -> None:
    """Raise InvalidArgument unless these are documents for all prompts, or a list of documents for each."""
    if documents is None:
        return
    expected = (
        'documents: expected a list of dicts, such as [{"title": ..., "text": ...}], for all prompts, or one such list '
        "for each prompt"
    )
    if isinstance(documents, Mapping):
        raise InvalidArgument(f"{expected}, got one dict; pass [document]", name="documents")
    if not isinstance(documents, (list, tuple)):
        raise InvalidArgument(
            f"{expected}, got {shown(documents)} of type {type(documents).__name__}; put the documents into a list",
            name="documents",
        )
    shared = all(isinstance(document, Mapping) for document in documents)
    for index, own in enumerate(() if shared else documents):
        if own is None:
            continue
        if not isinstance(own, (list, tuple)) or not all(isinstance(document, Mapping) for document in own):
            raise InvalidArgument(
                f"{expected}, got {shown(own)} at index {index}; write a text as "
                '{"text": ...}, and None for a prompt without documents',
                name="documents",
            )


def warn_of_unseen(prompts: Sequence[Prompt]) -> None:
    """Warn once about parts of the prompts that the model does not see: tools, and variables that no template reads."""
    for text in dict.fromkeys(text for prompt in prompts for text in prompt.unseen):
        warnings.warn(text, stacklevel=2)
