"""The app with its routes, and the web server that runs it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from transformers.cli.serving.completion import CompletionHandler
from transformers.cli.serving.server import build_server
from transformers.cli.serving.systemone import SystemOneHandler
from transformers.cli.serving.transcription import TranscriptionHandler
from transformers.cli.serving.utils import GenerationState

from ..errors import HFGuidedError
from .guidance import Guidance
from .handlers import GuidedChatHandler, GuidedResponseHandler
from .metrics import Metrics
from .models import GuidedModelManager
from .options import ServeOptions
from .refusals import RequestRefused, answer_refused
from .request_size import RequestSizeLimit


def build_app(options: ServeOptions) -> FastAPI:
    """Load the model, and make the app that answers for it.

    Args:
        options: what to serve, and its limits.
    """
    manager = GuidedModelManager(device=options.device, dtype=options.dtype, force_model=options.model)
    state = GenerationState()
    metrics = Metrics()
    guidance = Guidance(options, metrics)
    shared: dict[str, Any] = {"model_manager": manager, "generation_state": state}
    app: FastAPI = build_server(
        manager,
        GuidedChatHandler(guidance, **shared),
        completion_handler=CompletionHandler(**shared),
        response_handler=GuidedResponseHandler(guidance, **shared),
        transcription_handler=TranscriptionHandler(**shared),
        systemone_handler=SystemOneHandler(**shared),
        generation_state=state,
        enable_cors=options.enable_cors,
    )
    app.add_middleware(RequestSizeLimit, max_bytes=options.max_request_bytes)
    for kind in (RequestRefused, HFGuidedError):
        app.add_exception_handler(kind, answer_refused)

    @app.get("/metrics", response_class=PlainTextResponse)
    def show_metrics() -> str:
        return metrics.text(guidance.compilers())

    return app


class Server(uvicorn.Server):
    """uvicorn, which says when and where it listens.

    Args:
        app: what it serves.
        options: where.
        on_ready: called with the URL when connections are taken.
    """

    def __init__(self, app: FastAPI, options: ServeOptions, on_ready: Callable[[str], None]):
        super().__init__(uvicorn.Config(app, host=options.host, port=options.port, log_level="warning"))
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._on_ready(f"http://{self.config.host}:{port}")
