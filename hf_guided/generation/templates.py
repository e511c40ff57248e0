"""Chat templates: their arguments, the variables that they read, and the texts that they make of chats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..constraints.chat_families import (
    answer_header,
    attempts,
    end_of_thinking,
    family_of_text,
    template_source,
    thinking_markers,
)
from ..constraints.suggestions import did_you_mean
from ..constraints.tool_notation import FAMILIES, ToolFormat
from ..errors import InvalidArgument, PromptError, shown
from ..vocabulary.processors import tokenizer_of
from .arguments import one_each, parameters
from .messages import Chat, for_template, has_calls, marked, with_calls_as_text

# What hg.generate decides itself; a caller's value would contradict it.
RESERVED = frozenset(
    "conversation add_generation_prompt continue_final_message tokenize padding truncation max_length return_tensors "
    "return_dict return_assistant_tokens_mask".split()
)
_RENDERS_BY_TEMPLATE = ("transformers.tokenization_utils_base", "transformers.processing_utils")


@dataclass(frozen=True)
class TemplateOptions:
    """The arguments of one prompt's chat template, other than the chat.

    Raises:
        InvalidArgument: an argument that hg.generate sets itself, or documents given twice.
    """

    # Variables of the template (``enable_thinking`` ...), or other arguments of ``apply_chat_template``.
    kwargs: Mapping[str, Any]
    documents: Sequence[Mapping[str, Any]] | None  # the documents, for templates that show them
    show_tools: bool  # whether the tools of ``ToolCalls`` are shown
    describe: bool  # whether the format of the answer is described, see ``hg.describe``
    thinks: bool  # whether the answer begins after thinking

    def __post_init__(self) -> None:
        if not isinstance(self.kwargs, Mapping):
            raise InvalidArgument(
                f"chat_template_kwargs: expected a dict, or one for each prompt, got {shown(self.kwargs)}"
            )
        if reserved := sorted(RESERVED & self.kwargs.keys()):
            raise InvalidArgument(f"chat_template_kwargs: {', '.join(reserved)} cannot be changed here; leave it out")
        if self.documents is not None and "documents" in self.kwargs:
            raise InvalidArgument(
                "documents, chat_template_kwargs['documents']: expected one of the two; leave one out"
            )


def template_options(
    chat_template_kwargs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    documents: Sequence[Any] | None,
    prompts: Sequence[Any],
    *,
    show_tools: bool,
    describe: bool,
    thinks: bool,
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


def is_processor(templates: Any) -> bool:
    """Whether this is a processor of transformers, with a tokenizer inside, and not a tokenizer."""
    return tokenizer_of(templates) is not templates


def answer_start(templates: Any, arguments: Mapping[str, Any], render: Callable[[], str], *, calls: bool) -> str:
    """The text between a rendered chat and an answer without thinking.

    ``render`` returns the rendered chat; it is called only where the model may think. With ``calls`` the answer may be
    tool calls, whose notation has the header.
    """
    header = "" if calls else answer_header(templates, arguments)
    markers = thinking_markers(templates)
    if markers is None:
        return header
    text, (start, end) = render(), markers
    if not text.rstrip().endswith(start.rstrip()):
        return header
    return end_of_thinking(text, end) + header


def unshown(templates: Any, chat: Chat, arguments: Mapping[str, Any]) -> str | None:
    """A warning about earlier calls, or texts beside them, that the template leaves out; None if it shows all."""
    if not has_calls(chat) or template_source(templates, arguments) is None:
        return None
    lost = _lost(templates, chat, arguments)
    if not lost:
        return None
    return (
        f"the chat template does not show {' and '.join(lost)}, so the model does not know of it; write it into the "
        "text of another message"
    )


def with_shown_calls(templates: Any, chat: Chat, arguments: Mapping[str, Any], notation: ToolFormat | None) -> Chat:
    """The chat, with its calls as text, and the tools' answers if need be, where the template does not show them.

    ``notation`` is None for that of the template's family; calls of unknown families stay as they are.
    """
    if not has_calls(chat):
        return chat
    if notation is None:
        source = template_source(templates, arguments)
        family = None if source is None else family_of_text(source)
        notation = None if family is None else FAMILIES.get(family.calls or "")
    if notation is None:
        return chat
    try:
        rendered(templates, chat, arguments)
        lost = _lost(templates, chat, arguments) or ()
        if not any(what.startswith(("the call", "the tool's answer")) for what in lost):
            return chat
    except PromptError:  # the template refuses calls, or the role of their answers
        pass
    texts = [with_calls_as_text(chat, notation, answers=answers) for answers in (False, True)]
    return next((changed for changed in texts if _lost(templates, changed, arguments) == []), chat)


def _lost(templates: Any, chat: Chat, arguments: Mapping[str, Any]) -> list[str] | None:
    """The parts of a chat that a template leaves out; None if it refuses the chat, or one with other texts."""
    changed, marks = marked(chat)
    try:
        text = rendered(templates, changed, arguments)
    except PromptError:
        return None
    return list(dict.fromkeys(what for mark, what in marks.items() if mark not in text))


def has_template(templates: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether a tokenizer or processor can write chats."""
    return not renders_by_template(templates) or bool(
        getattr(templates, "chat_template", None) or arguments.get("chat_template")
    )


def renders_by_template(templates: Any) -> bool:
    """Whether chats are written by transformers' own method; others may write them in code."""
    return getattr(getattr(type(templates), "apply_chat_template", None), "__module__", "") in _RENDERS_BY_TEMPLATE


def check_template(templates: Any, arguments: Mapping[str, Any]) -> None:
    """Raise PromptError if transformers would find no chat template."""
    if not has_template(templates, arguments):
        raise PromptError(
            f"{type(templates).__name__} has no chat template, so it cannot write chats; set tokenizer.chat_template "
            "to that of the model, or pass a plain text as the prompt"
        )


def rendered(templates: Any, chat: Chat, arguments: Mapping[str, Any] | None) -> str:
    """The text that a chat template makes of a chat; raises PromptError."""
    # sanitize_control_tokens works on tokens, and transformers refuses it without tokenization.
    kept = {name: value for name, value in (arguments or {}).items() if name != "sanitize_control_tokens"}
    return str(applied(templates, chat, tokenize=False, **kept))


def applied(templates: Any, chat: Any, **arguments: Any) -> Any:
    """``apply_chat_template`` of a chat, or of several, with earlier tool calls as the template takes them.

    Any error of the template becomes a PromptError.
    """
    arguments.setdefault("add_generation_prompt", not arguments.get("continue_final_message"))
    refusal: Exception | None = None
    for refused in (False, True) if has_calls(chat) else (False,):  # ids in the chat may be those of another provider
        for given in attempts(arguments):
            try:
                shown, taken = for_template(templates, chat, given, refused=refused)
                return templates.apply_chat_template(shown, **taken)
            except Exception as error:  # a template may raise anything
                # Reported is the first refusal, of the chat as it is; but if its ids were replaced, the last one, which
                # cannot be about them.
                refusal = error if refusal is None or refused else refusal
    raise PromptError(f"the chat template refuses this chat: {type(refusal).__name__}: {refusal}") from refusal


# Variables that transformers passes to every template.
_ALWAYS = frozenset("messages add_generation_prompt raise_exception strftime_now dict namespace".split())
# A tag of transformers for training; its content is written unchanged.
_GENERATION = re.compile(r"\{%[-+]?\s*(?:end)?generation\s*[-+]?%\}")


def unread_variables(templates: Any, arguments: Mapping[str, Any]) -> str | None:
    """A warning about variables that the template never reads, so that passing them changes nothing.

    None if the template reads all of them, or cannot be parsed. A value of None counts as not passed.
    """
    given = {name for name, value in arguments.items() if value is not None} - _of_the_method(templates)
    source = template_source(templates, arguments) if given else None
    read = None if source is None else _variables(source)
    if read is None or not (unread := sorted(given - read)):
        return None
    own = sorted(_own(read, templates))
    hint = did_you_mean(unread[0], own) if len(unread) == 1 else ""
    return (
        f"the chat template never reads {', '.join(unread)}, so this changes nothing{hint}; it reads "
        f"{', '.join(own) or 'no variables but the messages'}"
    )


def own_variables(templates: Any) -> frozenset[str] | None:
    """The variables that a template reads beyond those that transformers passes to every template.

    None if there is no template, or it cannot be parsed.
    """
    source = template_source(templates, {})
    read = None if source is None else _variables(source)
    return None if read is None else _own(read, templates)


def _own(read: frozenset[str], templates: Any) -> frozenset[str]:
    return read - _ALWAYS - _special_tokens(templates)


@lru_cache(maxsize=16)
def _variables(source: str) -> frozenset[str] | None:
    """The variables of a template that it does not set itself; None if it cannot be parsed."""
    try:
        from jinja2 import Environment, TemplateError, meta
    except ImportError:  # transformers reports it when it renders
        return None
    environment = Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"], autoescape=False)
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_GENERATION.sub("", source))))
    except TemplateError:  # also for tags that only transformers knows
        return None


def _of_the_method(templates: Any) -> set[str]:
    """Arguments that ``apply_chat_template`` uses itself; for a processor also those of its parts."""
    own = parameters(getattr(type(templates), "apply_chat_template", None)) - {"documents", "tools"}
    # TypedDicts. A processor passes the arguments that its template does not read on to its parts.
    kinds = getattr(getattr(templates, "valid_processor_kwargs", None), "__annotations__", {})
    parts = (getattr(kind, "__annotations__", ()) for kind in kinds.values())
    return own.union({"sanitize_control_tokens"}, kinds, *parts)


def _special_tokens(templates: Any) -> frozenset[str]:
    holder = templates if hasattr(templates, "special_tokens_map") else getattr(templates, "tokenizer", None)
    return frozenset(getattr(holder, "special_tokens_map", ()))
