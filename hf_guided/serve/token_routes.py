"""The routes that turn texts into tokens, and tokens into texts, as vLLM has them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from .answering import parsed
from .bodies import Defaults, read_detokenize, read_tokenize
from .live_request import Backstage
from .rendering import render


def token_routes(backstage: Backstage, defaults: Defaults) -> APIRouter:
    """/tokenize and /detokenize, and the same below /v1."""
    router = APIRouter()

    @router.post("/tokenize")
    @router.post("/v1/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        body = await request.body()
        return await backstage.pool.run(_tokenized, backstage, defaults, request, body)

    @router.post("/detokenize")
    @router.post("/v1/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        body = await request.body()
        return await backstage.pool.run(_detokenized, backstage, defaults, request, body)

    return router


def _tokenized(backstage: Backstage, defaults: Defaults, request: Request, body: bytes) -> dict[str, Any]:
    asked = read_tokenize(parsed(request, body), defaults, backstage.limits)
    tokenizer = backstage.served.tokenizer
    if isinstance(asked.prompt, str):
        ids = tokenizer(asked.prompt, add_special_tokens=asked.add_special_tokens)["input_ids"]
    else:
        rendered = render(
            backstage.served, asked.prompt, backstage.template_variables, generates=asked.add_generation_prompt
        )
        ids = list(rendered.token_ids)
    names = {"token_strs": tokenizer.convert_ids_to_tokens(ids)} if asked.return_token_strs else {}
    return {"count": len(ids), "max_model_len": backstage.engine.max_tokens, "tokens": ids, **names}


def _detokenized(backstage: Backstage, defaults: Defaults, request: Request, body: bytes) -> dict[str, Any]:
    asked = read_detokenize(parsed(request, body), defaults)
    return {"prompt": backstage.served.tokenizer.decode(list(asked.tokens))}
