"""The routes that turn texts into tokens, and tokens into texts, as vLLM has them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from .answering import Answering
from .bodies.chat import Messages, Tool, for_template, read_thinking, render_messages, shown_tools
from .bodies.fields import List, Part, TokenId, read
from .bodies.generation import Defaults, check_model, check_tokens, read_constraint
from .error_responses import refused
from .job import Chat, Prompt

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


def read_tokenize(body: object, defaults: Defaults) -> tuple[TokenizeBody, Prompt]:
    """Read what to tokenize, any JSON: its fields, and its text or chat.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    asked = read(TokenizeBody, body)
    check_model(asked.model, defaults)
    if (asked.prompt is None) == (not asked.messages):
        raise refused("prompt", "expected either prompt or messages, and not both")
    if asked.messages and asked.add_special_tokens:
        raise refused("add_special_tokens", "the chat template writes them; leave it out", "unsupported_field")
    if asked.prompt is not None:
        if of_chats := sorted(_OF_CHATS & asked.model_fields_set):
            raise refused(of_chats[0], "expected it only with messages; a prompt has no template", "unsupported_field")
        return asked, asked.prompt
    constraint, _ = read_constraint({"tools": [*map(for_template, asked.tools)]}, defaults)
    variables, _ = read_thinking(asked.chat_template_kwargs, ("reasoning_effort", None), defaults)
    return asked, Chat(render_messages(asked.messages, defaults), shown_tools(constraint), variables)


def read_detokenize(body: object, defaults: Defaults) -> list[int]:
    """The tokens to decode; errors as ``read_tokenize``."""
    asked = read(DetokenizeBody, body)
    check_model(asked.model, defaults)
    check_tokens("tokens", asked.tokens, defaults)
    return asked.tokens


def token_routes(answering: Answering) -> APIRouter:
    """/tokenize and /detokenize, and the same below /v1."""
    router, served, defaults = APIRouter(), answering.served, answering.defaults

    def tokenized(body: object) -> dict[str, Any]:
        asked, prompt = read_tokenize(body, defaults)
        if isinstance(prompt, str):
            special = asked.add_special_tokens is not False
            ids = served.tokenizer(prompt, add_special_tokens=special)["input_ids"]
        else:
            variables = answering.template_variables
            ids = list(served.render(prompt, variables, generates=asked.add_generation_prompt)[0])
        names = {"token_strs": served.tokenizer.convert_ids_to_tokens(ids)} if asked.return_token_strs else {}
        return {"count": len(ids), "max_model_len": answering.engine.max_tokens, "tokens": ids, **names}

    @router.post("/tokenize")
    @router.post("/v1/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        return await answering.run(request, tokenized)

    @router.post("/detokenize")
    @router.post("/v1/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        return await answering.run(
            request, lambda body: {"prompt": served.tokenizer.decode(read_detokenize(body, defaults))}
        )

    return router
