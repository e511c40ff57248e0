"""The routes that turn texts into tokens, and tokens into texts, as vLLM has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from fastapi import APIRouter, Request

from .admission import Admission
from .bodies import Defaults, read_detokenize, read_tokenize
from .live_request import Backstage
from .rendering import render
from .request_body import body_of, parsed

_Work: TypeAlias = Callable[[Backstage, Defaults, object], dict[str, Any]]


def token_routes(backstage: Backstage, defaults: Defaults, admission: Admission) -> APIRouter:
    """/tokenize and /detokenize, and the same below /v1."""
    router = APIRouter()

    async def answer(request: Request, work: _Work) -> dict[str, Any]:
        with admission.request():
            body = await body_of(request, backstage.limits.request_timeout_s, admission.closed)
            return await backstage.pool.run(lambda: work(backstage, defaults, parsed(request, body)))

    @router.post("/tokenize")
    @router.post("/v1/tokenize")
    async def tokenize(request: Request) -> dict[str, Any]:
        return await answer(request, _tokenized)

    @router.post("/detokenize")
    @router.post("/v1/detokenize")
    async def detokenize(request: Request) -> dict[str, Any]:
        return await answer(request, _detokenized)

    return router


def _tokenized(backstage: Backstage, defaults: Defaults, body: object) -> dict[str, Any]:
    asked = read_tokenize(body, defaults, backstage.limits)
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


def _detokenized(backstage: Backstage, defaults: Defaults, body: object) -> dict[str, Any]:
    asked = read_detokenize(body, defaults)
    return {"prompt": backstage.served.tokenizer.decode(list(asked.tokens))}
