"""The bodies of /tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..call import Chat, Prompt
from ..limits import ServeLimits
from .chat import shown_tools
from .constraint_fields import read_constraint
from .defaults import Defaults
from .generation import check_model
from .messages import Messages, render_messages
from .parts import List, Part, TokenId, read
from .refusals import expected, refused
from .thinking import read_thinking
from .tools import Tool, for_template

_OF_CHATS = frozenset({"tools", "chat_template_kwargs", "add_generation_prompt"})


class TokenizeBody(Part):
    """A text, or a chat."""

    other_fields = {
        "chat_template": (),
        "continue_final_message": (False,),
        "media_io_kwargs": (),
        "mm_processor_kwargs": (),
        "return_token_offsets": (False,),
    }
    model: str | None = None
    prompt: str | None = None
    messages: Messages = []
    tools: List[Tool] = []
    chat_template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    add_special_tokens: bool | None = None
    return_token_strs: bool = False


class DetokenizeBody(Part):
    """Token ids."""

    model: str | None = None
    tokens: List[TokenId]


@dataclass(frozen=True)
class Tokenize:
    """A prompt to tokenize.

    Args:
        prompt: a text, or a chat.
        add_special_tokens: whether the tokenizer adds its own; a chat template has written them already.
        add_generation_prompt: of a chat.
        return_token_strs: whether the answer has the tokens' texts.
    """

    prompt: Prompt
    add_special_tokens: bool
    add_generation_prompt: bool
    return_token_strs: bool


@dataclass(frozen=True)
class Detokenize:
    """Token ids to decode; all are in the vocabulary."""

    tokens: tuple[int, ...]


def read_tokenize(body: object, defaults: Defaults, limits: ServeLimits) -> Tokenize:
    """What to tokenize.

    Args:
        body: any JSON.
        defaults: what the model is.
        limits: of a request.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    asked = read(TokenizeBody, body)
    check_model(asked.model, defaults)
    if (asked.prompt is None) == (not asked.messages):
        raise refused("prompt", "expected either prompt or messages, and not both")
    if asked.messages and asked.add_special_tokens:
        raise refused("add_special_tokens", "the chat template writes them; leave it out", "unsupported_field")
    if asked.prompt is not None and (of_chats := sorted(_OF_CHATS & asked.model_fields_set)):
        raise refused(of_chats[0], "expected it only with messages; a prompt has no template", "unsupported_field")
    special = asked.prompt is not None if asked.add_special_tokens is None else asked.add_special_tokens
    prompt: Prompt
    if asked.prompt is not None:
        prompt = asked.prompt
    else:
        constraint, _ = read_constraint({"tools": [*map(for_template, asked.tools)]}, defaults, limits)
        variables, _ = read_thinking(asked.chat_template_kwargs, None, defaults)
        messages = render_messages(asked.messages, defaults.takes_images)
        prompt = Chat(messages, shown_tools(constraint, None), variables)
    return Tokenize(prompt, special, asked.add_generation_prompt, asked.return_token_strs)


def read_detokenize(body: object, defaults: Defaults) -> Detokenize:
    """What to decode; errors as ``read_tokenize``."""
    asked = read(DetokenizeBody, body)
    check_model(asked.model, defaults)
    for i, token in enumerate(asked.tokens):
        if token >= defaults.vocab_size:
            raise expected(f"tokens.{i}", f"a token id below {defaults.vocab_size}", token)
    return Detokenize(tuple(asked.tokens))
