"""Prompts before tokenization: the arguments of their chat template, and the description of the answer's format."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..constraints.chat_families import answer_header, attempts, template_source, thinking_markers
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..errors import InvalidArgument, PromptError, shown
from ..vocabulary.processors import tokenizer_of
from .chat_content import (
    PART_TYPES,
    Chat,
    in_system_message,
    in_user_message,
    meant,
    media_of,
    other_parts,
    text_of,
    without,
)
from .chat_history import for_template, has_calls, marked
from .description import describe, describe_choice
from .template_variables import unread_variables

# What hg.generate decides itself; a caller's value would contradict it.
RESERVED = frozenset(
    "conversation add_generation_prompt continue_final_message tokenize padding truncation max_length return_tensors "
    "return_dict return_assistant_tokens_mask".split()
)
_TOOLS_OF_CHAT = (
    "the chat template does not show the tools of ToolCalls, so the model does not know them; pass describe=True to "
    "describe them in the chat, or show_tools=False if the chat names them already"
)
_TOOLS_OF_TEXT = (
    "a plain prompt does not show the tools of ToolCalls, so the model does not know them; pass a chat, "
    '[{"role": "user", "content": text}], whose template shows them, describe=True to describe them in the prompt, or '
    "show_tools=False if the prompt names them already"
)
_RENDERS_BY_TEMPLATE = ("transformers.tokenization_utils_base", "transformers.processing_utils")


@dataclass(frozen=True)
class TemplateOptions:
    """The arguments of one prompt's chat template, other than the chat.

    Args:
        kwargs: variables of the template (``enable_thinking`` ...), or other arguments of ``apply_chat_template``.
        documents: for templates that show documents.
        show_tools: whether the tools of ``ToolCalls`` are shown.
        describe: whether the format of the answer is described, see ``hg.describe``.
        thinks: whether the answer begins after thinking.

    Raises:
        InvalidArgument: an argument that hg.generate sets itself, or documents given twice.
    """

    kwargs: Mapping[str, Any]
    documents: Sequence[Mapping[str, Any]] | None
    show_tools: bool
    describe: bool
    thinks: bool = False

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


@dataclass(frozen=True)
class Prompt:
    """A text or a chat, with the arguments of its template.

    Args:
        text: of a plain prompt; None for a chat.
        chat: its messages; empty for a plain prompt.
        arguments: for ``apply_chat_template``.
        media: the kinds of content other than text: "image", "video", "audio".
        unseen: warnings about parts of the request that the model does not see.
        group: equal for prompts that a processor can read in one call, so that they may share a batch.
        rendered: the text that a template has made of the chat, if that text is all that is tokenized.
        tokens: the token ids of the prompt, if they are already known.
        answer_start: what comes after the rendered chat, before the answer: the header of an answer, or the end of
            thinking that the template has begun.
    """

    text: str | None
    chat: Chat = ()
    arguments: Mapping[str, Any] | None = None
    media: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()
    group: Hashable = None
    rendered: str | None = None
    tokens: Sequence[int] | None = None
    answer_start: str = ""


def is_processor(templates: Any) -> bool:
    """Whether this is a processor of transformers, with a tokenizer inside, and not a tokenizer."""
    return tokenizer_of(templates) is not templates


def prepared(
    templates: Any, prompt: Any, constraint: Constraint | None, options: TemplateOptions, *, continues: bool = False
) -> Prompt:
    """A prompt as it will be rendered.

    Args:
        templates: the tokenizer, or a processor.
        prompt: a text, a chat, or a ``Prompt``, which is returned unchanged.
        constraint: of its answer.
        options: of its template.
        continues: whether the answer continues the last message of the chat.

    Raises:
        PromptError: the template refuses the chat; or the model would not see a part of it.
        InvalidConstraint: the format cannot be described.
    """
    if isinstance(prompt, Prompt):
        return prompt
    tools = constraint.tools if isinstance(constraint, ToolCalls) and constraint.choice != "none" else []
    if isinstance(prompt, str):
        text = describe(constraint, templates) if options.describe else ""
        return Prompt(
            f"{text}\n\n{prompt}" if text else prompt,
            unseen=(_TOOLS_OF_TEXT,) if tools and options.show_tools and not text else (),
            group="text" if is_processor(templates) else None,
        )
    chat: Chat = list(prompt)
    _check_processor(templates, chat)
    _check_template(templates, options.kwargs)
    arguments: dict[str, Any] = dict(options.kwargs)
    if continues:
        arguments["continue_final_message"] = True
    if options.documents is not None:
        arguments["documents"] = list(options.documents)
    unread = unread_variables(templates, arguments)
    shown = "tools" in arguments
    if tools and options.show_tools and not shown:
        shown = _shows(templates, chat, arguments, tools)
        arguments["tools"] = tools
    if options.describe and constraint is not None:
        known = shown and isinstance(constraint, ToolCalls)
        text = describe_choice(constraint) if known else describe(constraint, templates)  # type: ignore[arg-type]
        chat = _described(templates, chat, arguments, text) if text else chat
    ignored = bool(tools) and options.show_tools and not shown and not options.describe
    lost = unshown(templates, chat, arguments)
    unseen = [*([_TOOLS_OF_CHAT] if ignored else []), *(text for text in (unread, lost) if text is not None)]
    media = _media(templates, chat, arguments)
    _check_parts(templates, chat, arguments)
    whole = rendered(templates, chat, arguments) if _tokenizes_text(templates, arguments) else None
    start = ""
    if constraint is not None and not continues and not options.thinks:
        render = (lambda: whole) if whole is not None else partial(rendered, templates, chat, arguments)
        start = answer_start(templates, arguments, render, calls=isinstance(constraint, ToolCalls))
    group = _group(templates, chat, arguments, media)
    return Prompt(None, chat, arguments, media, tuple(unseen), group, whole, answer_start=start)


def _tokenizes_text(templates: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether the tokens of a chat are those of its rendered text."""
    of_tokenizer = {"sanitize_control_tokens", "tokenizer_kwargs"} & arguments.keys()
    return _renders_by_template(templates) and not is_processor(templates) and not of_tokenizer


def answer_start(templates: Any, arguments: Mapping[str, Any], render: Callable[[], str], *, calls: bool) -> str:
    """The text between a rendered chat and an answer without thinking.

    Args:
        templates: the tokenizer, or a processor.
        arguments: for ``apply_chat_template``.
        render: returns the rendered chat; called only where the model may think.
        calls: whether the answer may be tool calls, whose notation has the header.
    """
    header = "" if calls else answer_header(templates, arguments)
    markers = thinking_markers(templates)
    if markers is None:
        return header
    text, (start, end) = render(), markers
    if not text.rstrip().endswith(start.rstrip()):
        return header
    # Templates whose marker ends its line write the end in a line of its own, and an empty line after it.
    return (f"\n{end}\n\n" if text.endswith("\n") else end) + header


def unshown(templates: Any, chat: Chat, arguments: Mapping[str, Any]) -> str | None:
    """A warning about earlier calls, or texts beside them, that the template leaves out; None if it shows all."""
    if not has_calls(chat) or template_source(templates, arguments) is None:
        return None
    changed, marks = marked(chat)
    try:
        text = rendered(templates, changed, arguments)
    except PromptError:  # it refuses the chat with other names, or with its own too
        return None
    lost = [what for mark, what in marks.items() if mark not in text]
    if not lost:
        return None
    return (
        f"the chat template does not show {' and '.join(lost)}, so the model does not know of it; write it into the "
        "text of another message"
    )


def _check_processor(templates: Any, chat: Chat) -> None:
    """Raise PromptError if a chat has images, video or audio, and there is only a tokenizer."""
    first = next(media_of(chat), None)
    if first is not None and not is_processor(templates):
        raise PromptError(
            f"message {first.message} holds {_a(first.kind)}, which a tokenizer leaves out: the model would not see "
            "it; pass the model's processor in place of the tokenizer"
        )


def has_template(templates: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether a tokenizer or processor can write chats.

    Args:
        templates: the tokenizer, or a processor.
        arguments: of its chat template.
    """
    return not _renders_by_template(templates) or bool(
        getattr(templates, "chat_template", None) or arguments.get("chat_template")
    )


def _renders_by_template(templates: Any) -> bool:
    """Whether chats are written by transformers' own method; others may write them in code."""
    return getattr(getattr(type(templates), "apply_chat_template", None), "__module__", "") in _RENDERS_BY_TEMPLATE


def _check_template(templates: Any, arguments: Mapping[str, Any]) -> None:
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
    """``apply_chat_template`` of a chat, with earlier tool calls in the form that the template takes; or of several.

    Raises:
        PromptError: for any error of the template.
    """
    arguments.setdefault("add_generation_prompt", not arguments.get("continue_final_message"))
    refusal: Exception | None = None
    for refused in (False, True) if has_calls(chat) else (False,):  # its ids may be those of another provider
        for given in attempts(arguments):
            try:
                shown, taken = for_template(templates, chat, given, refused=refused)
                return templates.apply_chat_template(shown, **taken)
            except Exception as error:  # a template may raise anything
                # Reported is the first refusal, of the chat as it is; but if its ids were replaced, the last one, which
                # cannot be about them.
                refusal = error if refusal is None or refused else refusal
    raise PromptError(f"the chat template refuses this chat: {type(refusal).__name__}: {refusal}") from refusal


def _shows(templates: Any, chat: Chat, arguments: Mapping[str, Any], tools: list[dict[str, Any]]) -> bool:
    """Whether the text of a template changes with tools."""
    with_tools = rendered(templates, chat, {**arguments, "tools": tools})
    try:
        return with_tools != rendered(templates, chat, arguments)
    except PromptError:  # it requires tools
        return True


def _described(templates: Any, chat: Chat, arguments: Mapping[str, Any], text: str) -> Chat:
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


def _media(templates: Any, chat: Chat, arguments: Mapping[str, Any]) -> frozenset[str]:
    """The kinds of media in a chat.

    Raises:
        PromptError: the model would not see one of them.
    """
    media = list(media_of(chat))
    if not media:
        return frozenset()
    whole = rendered(templates, chat, arguments)
    for part in media:
        if not part.loaded:
            raise PromptError(
                f"message {part.message}, part {part.part}: expected {_a(part.kind)} that transformers can load, "
                f'{{"type": "{part.kind}", "{part.kind}" | "url" | "path": ...}}; the model would not see this one'
            )
        try:
            seen = rendered(templates, without(chat, part), arguments) != whole
        except PromptError:  # the template refuses a chat without it
            seen = True
        if not seen:
            raise PromptError(
                f"message {part.message}, part {part.part}: the chat template leaves {_a(part.kind)} out, so the model "
                "would not see it; use the processor that belongs to the model, or another chat_template"
            )
    return frozenset(part.kind for part in media)


def _check_parts(templates: Any, chat: Chat, arguments: Mapping[str, Any]) -> None:
    """Raise PromptError if the template leaves out a part of a message: most often its type is misspelt."""
    parts = list(other_parts(chat))
    whole = rendered(templates, chat, arguments) if parts else ""
    for part in parts:
        text = text_of(chat, part).strip()
        # A text is seen if it is in the output; any other part needs a second rendering.
        if part.loaded and (not text or text in whole):
            continue
        try:
            seen = rendered(templates, without(chat, part), arguments) != whole
        except PromptError:  # the template refuses a chat without it
            seen = True
        if not seen:
            raise PromptError(
                f"message {part.message}, part {part.part}: the chat template leaves out the part of type "
                f"{part.kind!r}, so the model would not see it; expected one of {', '.join(PART_TYPES)}"
                f"{meant(part.kind)}"
            )


def _a(kind: str) -> str:
    return f"an {kind}" if kind in ("image", "audio") else f"a {kind}"


def _group(templates: Any, chat: Chat, arguments: Mapping[str, Any], media: frozenset[str]) -> Hashable:
    if not is_processor(templates):
        return None
    # A processor decides by the first text of a batch whether it adds a BOS token to each.
    bos = getattr(tokenizer_of(templates), "bos_token", None)
    begins = bool(bos) and rendered(templates, chat, arguments).startswith(str(bos))
    return "chat", begins, tuple(sorted(media)), repr(sorted(arguments.items(), key=lambda item: item[0]))
