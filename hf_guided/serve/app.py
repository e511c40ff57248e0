"""The app with its routes, and the web server that runs it.

Data flows one way: body -> ``Call`` (bodies/) -> rendered and compiled (rendering.py, guidance.py) -> ``Job`` -> an
engine (engines/) -> events -> answers (answers/). ``LiveRequest`` holds one request on this way.
"""

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
from ..generation.templates import own_variables
from . import models
from .admission import Admission
from .answering import Answering
from .auth import ApiKeys, is_local
from .bodies import SWITCHES, Defaults, read_chat, read_completion, read_response
from .engines.one_by_one import OneByOne
from .engines.shared_batches import SharedBatches
from .error_responses import Failures, RequestRefused, answer_error, log
from .guidance import Guidance
from .job import Engine
from .live_request import Backstage
from .metrics import Metrics
from .options import ServeOptions, source_of
from .request_size import RequestSizeLimit
from .requirements import check_transformers
from .thread_pool import ThreadPool
from .token_routes import token_routes
from .web_protocol import limited_protocol

_LAST_ANSWER_S = 5.0  # how long a server that shuts down waits for answers, until it ends them
_LAST_COMPILE_S = 60.0  # how long a server that shuts down waits for running compiles
_LAST_TEMPLATE_S = 5.0


def build_app(options: ServeOptions) -> FastAPI:
    """Load the model, and make the app that answers for it.

    Args:
        options: what to serve, and its limits.

    Returns:
        The app; ``app.state.end_requests()`` ends its requests with an error, and ``app.state.close()`` its threads;
        the latter returns whether all of them have ended.

    Raises:
        UsageError: the model cannot be loaded; transformers is too old.
        RequestRefused: shared batches cannot run the model.
    """
    check_transformers()
    served = models.load(source_of(options), options.public_name)
    metrics = Metrics()
    guidance = Guidance(served, options, metrics)
    engine: Engine = (SharedBatches if options.continuous_batching else OneByOne)(served.model, guidance.guide)
    backstage = Backstage(
        served=served,
        engine=engine,
        guidance=guidance,
        pool=ThreadPool(options.limits.render_timeout_s),
        limits=options.limits,
        metrics=metrics,
        template_variables={} if options.reasoning == "auto" else dict.fromkeys(SWITCHES, options.reasoning == "on"),
    )
    return app_of(options, backstage)


def app_of(options: ServeOptions, backstage: Backstage) -> FastAPI:
    """The app around a loaded model; see ``build_app``."""
    served, metrics = backstage.served, backstage.metrics
    defaults = Defaults.of(
        options,
        served.model.generation_config,
        backstage.guidance.guide.vocabulary.padded_size,
        takes_images=served.takes_media,
        template_variables=own_variables(served.templates),
    )
    admission = Admission(options.limits.max_queue)
    pages = ("/docs", "/redoc", "/openapi.json") if options.docs_pages else (None, None, None)
    app = FastAPI(title="hf-guided", docs_url=pages[0], redoc_url=pages[1], openapi_url=pages[2])
    app.state.metrics = metrics
    _add_routes(app, backstage, Answering(backstage, defaults, admission, has_keys=bool(options.api_keys)))
    app.include_router(token_routes(backstage, defaults, admission))
    _add_middleware(app, options, served.takes_media)
    _measure(backstage, admission)

    def end_requests() -> None:
        admission.close()
        backstage.engine.end_jobs()

    def close() -> bool:
        backstage.engine.close()
        ended = backstage.guidance.close(_LAST_COMPILE_S)
        if not ended:
            log.warning("a constraint still compiles after %g s, and is not waited for", _LAST_COMPILE_S)
        return backstage.pool.close(_LAST_TEMPLATE_S) and ended

    app.state.end_requests, app.state.close = end_requests, close
    return app


def _add_routes(app: FastAPI, backstage: Backstage, answering: Answering) -> None:
    name, engine = backstage.served.name, backstage.engine
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
        return Response(backstage.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_middleware(app: FastAPI, options: ServeOptions, takes_media: bool) -> None:
    """Who may ask, how much, and every error in the shape of OpenAI's; what is added last comes first."""
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


def _measure(backstage: Backstage, admission: Admission) -> None:
    metrics, engine, guidance = backstage.metrics, backstage.engine, backstage.guidance
    metrics.follow(engine.stats)
    if isinstance(engine, SharedBatches):
        metrics.follow(engine.alone_stats)
    metrics.compiler(guidance.stats)
    metrics.gauge("requests_held", "Requests that run or wait.", lambda: admission.held)
    metrics.gauge("compiles_waiting", "Constraints that wait to be compiled.", lambda: guidance.queue.num_waiting)
    metrics.counter("engine_restarts", "Engines that died and were replaced.", lambda: getattr(engine, "restarts", 0))


class Server(uvicorn.Server):
    """A uvicorn server that reports its URL once it listens, and closes the app when it shuts down.

    Args:
        app: from ``build_app``.
        options: host and port.
        on_ready: called with the URL when connections are accepted.
    """

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
