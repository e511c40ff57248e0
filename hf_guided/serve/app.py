"""The app with its routes, and the web server that runs it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException
from transformers.cli.serving.completion import CompletionHandler
from transformers.cli.serving.server import build_server
from transformers.cli.serving.systemone import SystemOneHandler
from transformers.cli.serving.transcription import TranscriptionHandler
from transformers.cli.serving.utils import CBWorkerDeadError

from ..errors import HFGuidedError, UnsupportedModel
from ..guide import Guide
from .error_responses import Failures, RequestRefused, answer_http, answer_malformed, answer_refused, log
from .guidance import Guidance
from .handlers import GuidedChatHandler, GuidedResponseHandler
from .managers import GuidedState
from .metrics import Metrics
from .models import GuidedModelManager
from .options import ServeOptions, source_of
from .request_size import RequestSizeLimit
from .requirements import check_transformers

_LAST_ANSWER_S = 5.0  # how long a server that shuts down waits for answers, until it ends them
_LAST_COMPILE_S = 60.0  # how long a server that shuts down waits for running compiles


def build_app(options: ServeOptions) -> FastAPI:
    """Load the model, and make the app that answers for it.

    Args:
        options: what to serve, and its limits.

    Returns:
        The app; ``app.state.end_requests()`` ends its requests with an error, and ``app.state.close()`` its threads;
        the latter returns whether all of them have ended.

    Raises:
        UnsupportedModel: it thinks, and thinking is not served in shared batches.
        UsageError: the model cannot be loaded; transformers is too old.
    """
    check_transformers()
    manager = GuidedModelManager(source_of(options), continuous_batching=options.continuous_batching)
    metrics = Metrics()
    guidance = Guidance(options, metrics)

    def loaded() -> tuple[Any, Any]:
        found: tuple[Any, Any] = manager.load_model_and_processor(manager.process_model_name(options.model))
        return found

    def guide_of(_: Any) -> Guide:
        return guidance.guide_for(*loaded())

    if options.continuous_batching and guidance.reasoning_for(*loaded()) is not None:
        raise UnsupportedModel(
            "this model thinks before it answers, which shared batches do not know; leave --continuous-batching out, "
            "or say --reasoning off"
        )
    state = GuidedState(guide_of, metrics, continuous_batching=options.continuous_batching)
    app = _with_handlers(options, manager, state, guidance)
    _limit_and_report_errors(app, options)
    _add_routes(app, manager, guidance)

    def close() -> bool:
        state.shutdown()
        ended = guidance.close(_LAST_COMPILE_S)
        if not ended:
            log.warning("a constraint still compiles after %g s, and is not waited for", _LAST_COMPILE_S)
        return ended

    app.state.end_requests, app.state.close = state.end_requests, close
    return app


def _with_handlers(
    options: ServeOptions, manager: GuidedModelManager, state: GuidedState, guidance: Guidance
) -> FastAPI:
    """The app of transformers, with guided handlers of chats and responses."""
    shared: dict[str, Any] = {"model_manager": manager, "generation_state": state}
    chat: dict[str, Any] = {**shared, "chat_template_kwargs": {}}
    if options.reasoning != "auto":
        chat["chat_template_kwargs"] = {"enable_thinking": options.reasoning == "on"}
    app: FastAPI = build_server(
        manager,
        GuidedChatHandler(guidance, **chat),
        completion_handler=CompletionHandler(**shared),
        response_handler=GuidedResponseHandler(guidance, **chat),
        transcription_handler=TranscriptionHandler(**shared),
        systemone_handler=SystemOneHandler(**chat),
        generation_state=state,
        enable_cors=bool(options.allowed_origins),
    )
    return app


def _limit_and_report_errors(app: FastAPI, options: ServeOptions) -> None:
    """Limit the size of requests, and answer every error in the shape of OpenAI's."""
    app.add_middleware(Failures)
    app.add_middleware(RequestSizeLimit, max_bytes=options.limits.request_bytes(takes_images=True))
    app.add_exception_handler(RequestRefused, answer_refused)
    app.add_exception_handler(HFGuidedError, answer_refused)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(RequestValidationError, answer_malformed)
    app.exception_handlers.pop(CBWorkerDeadError, None)  # transformers' own answers in another shape


def _add_routes(app: FastAPI, manager: GuidedModelManager, guidance: Guidance) -> None:
    """The routes that transformers' app does not have."""

    @app.get("/v1/models/{model:path}")  # an id of the Hub has a slash
    def show_model(model: str) -> dict[str, Any]:
        manager.process_model_name(model)  # refuses any other model
        [shown] = manager.get_gen_models()
        return shown

    @app.get("/metrics", response_class=PlainTextResponse)
    def show_metrics() -> str:
        return guidance.metrics.text(guidance.compilers())


class Server(uvicorn.Server):
    """A uvicorn server that reports its URL once it listens, and closes the app when it shuts down.

    Args:
        app: from ``build_app``.
        options: host and port.
        on_ready: called with the URL when connections are accepted.
    """

    def __init__(self, app: FastAPI, options: ServeOptions, on_ready: Callable[[str], None]):
        super().__init__(uvicorn.Config(app, host=options.host, port=options.port, log_level="warning"))
        self._app = app
        self._on_ready = on_ready
        self.left_running = False  # a thread has not ended, so the interpreter cannot exit in the usual way

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
