"""The app with its routes, and the web server that runs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from ..errors import HFGuidedError
from ..options import is_local
from . import models
from .answering import Answering
from .bodies.chat import read_chat
from .bodies.completion import read_completion
from .bodies.response import read_response
from .engines.jobs import Engine
from .engines.one_by_one import OneByOne
from .engines.shared_batches import SharedBatches
from .error_responses import Failures, RequestRefused, answer_error, log
from .guidance import Guidance
from .limits import ApiKeys, RequestSizeLimit, limited_protocol
from .metrics import Metrics
from .options import ServeOptions
from .token_routes import token_routes

_LAST_ANSWER_S = 5.0  # how long a server that shuts down waits for answers, until it ends them
_LAST_COMPILE_S = 60.0  # how long a server that shuts down waits for running compiles
_LAST_TEMPLATE_S = 5.0


def build_app(options: ServeOptions) -> FastAPI:
    """Load the model, and make the app that answers for it.

    Returns:
        The app; ``app.state.end_requests()`` ends its requests with an error, and ``app.state.close()`` its threads;
        the latter returns whether all of them have ended.

    Raises:
        UsageError: the model cannot be loaded; transformers is too old.
        RequestRefused: shared batches cannot run the model.
    """
    served, metrics = models.load(options), Metrics()
    guidance = Guidance(served, options, metrics)
    engine: Engine = (SharedBatches if options.continuous_batching else OneByOne)(served.model, guidance.guide)
    return app_of(options, Answering(options, served, engine, guidance, metrics))


def app_of(options: ServeOptions, answering: Answering) -> FastAPI:
    """The app around a loaded model; see ``build_app``."""
    pages = ("/docs", "/redoc", "/openapi.json") if options.docs_pages else (None, None, None)
    app = FastAPI(title="hf-guided", docs_url=pages[0], redoc_url=pages[1], openapi_url=pages[2])
    app.state.metrics = answering.metrics
    _add_routes(app, answering)
    app.include_router(token_routes(answering))
    _add_middleware(app, options, answering.served.takes_media)
    _measure(answering)

    def end_requests() -> None:
        answering.admission.closed.set()
        answering.engine.end_jobs()

    def close() -> bool:
        answering.engine.close()
        ended = answering.guidance.guide.close(_LAST_COMPILE_S)
        if not ended:
            log.warning("a constraint still compiles after %g s, and is not waited for", _LAST_COMPILE_S)
        return answering.pool.close(_LAST_TEMPLATE_S) and ended

    app.state.end_requests, app.state.close = end_requests, close
    return app


def _add_routes(app: FastAPI, answering: Answering) -> None:
    name, engine = answering.served.name, answering.engine
    model = {"id": name, "object": "model", "created": 0, "owned_by": "hf-guided", "max_model_len": engine.max_tokens}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await answering.answer(request, read_chat)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await answering.answer(request, read_completion)

    @app.post("/v1/responses")
    async def responses(request: Request) -> Response:
        return await answering.answer(request, read_response)

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{model_id:path}")  # an id of the Hub has a slash
    async def show_model(model_id: str) -> dict[str, Any]:
        if model_id != name:
            raise RequestRefused(
                f"expected the model that is served, {name!r}, got {model_id[:100]!r}",
                status=404,
                code="model_not_found",
                param="model",
            )
        return model

    @app.get("/health")
    async def health() -> Response:
        alive = engine.alive()
        return JSONResponse({"status": "ok" if alive else "unavailable"}, 200 if alive else 503)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(answering.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_middleware(app: FastAPI, options: ServeOptions, takes_media: bool) -> None:
    """Add the limits, and the shape of OpenAI's errors; what is added last comes first."""
    app.add_middleware(RequestSizeLimit, max_bytes=options.limits.request_bytes(takes_media))
    if options.api_keys:
        app.add_middleware(ApiKeys, keys=options.api_keys)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_credentials=False,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
        )
    app.add_middleware(Failures)
    for kind in (RequestRefused, HFGuidedError, HTTPException):
        app.add_exception_handler(kind, answer_error)


def _measure(answering: Answering) -> None:
    metrics, engine, guidance = answering.metrics, answering.engine, answering.guidance
    metrics.follow(engine.stats)
    if isinstance(engine, SharedBatches):
        metrics.follow(engine.alone.stats)
    metrics.compiler(guidance.guide.stats)
    metrics.read("requests_held", "Requests that run or wait.", lambda: answering.admission.held)
    metrics.read("compiles_waiting", "Constraints that wait to be compiled.", lambda: guidance.queue.num_waiting)
    metrics.read("engine_restarts", "Engines that died and were replaced.", lambda: engine.restarts, falls=False)


class Server(uvicorn.Server):
    """A uvicorn server that calls ``on_ready`` with its URL once it listens, and closes the app when it shuts down."""

    def __init__(self, app: FastAPI, options: ServeOptions, on_ready: Callable[[str], None]):
        super().__init__(
            uvicorn.Config(
                app,
                host=options.host,
                port=options.port,
                log_level="warning",
                http=limited_protocol(options.limits.header_timeout_s),
                ws="none",
                lifespan="off",
                server_header=False,
            )
        )
        self._app = app
        self._on_ready = on_ready
        self.left_running = False  # a thread has not ended, so the interpreter cannot exit in the usual way
        if not is_local(options.host) and not options.api_keys:
            log.warning(
                "the server listens at %s, and everyone who reaches it may use it; give --api-key, or --host localhost",
                options.host,
            )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._on_ready(f"http://{self.config.host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer the requests that wait for a few seconds, end the others with an error, and close the app."""
        end = asyncio.get_running_loop().call_later(_LAST_ANSWER_S, self._app.state.end_requests)
        await super().shutdown(sockets)
        end.cancel()
        self.left_running = not await asyncio.to_thread(self._app.state.close)
