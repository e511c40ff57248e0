"""transformers' handlers of /v1/chat/completions and /v1/responses, with constraints on their answers."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, ClassVar

from fastapi.responses import StreamingResponse
from transformers.cli.serving.chat_completion import UNUSED_CHAT_COMPLETION_FIELDS, ChatCompletionHandler
from transformers.cli.serving.response import UNUSED_RESPONSE_FIELDS, ResponseHandler

from .error_responses import RequestRefused, errors_as_objects
from .guidance import Guidance
from .guided_model import AnsweringProcessor, GuidedModel, GuidedRequest

# The request that this task serves: transformers passes nothing but the body from one step of a handler to the next.
_REQUEST: ContextVar[GuidedRequest | None] = ContextVar("_REQUEST", default=None)

_HONOURED = {"response_format", "text", "tool_choice", "parallel_tool_calls"}


class _Guided:
    """Mixed into a handler of transformers, and called before it.

    Args:
        guidance: reads the constraints.
        **kwargs: of the handler.
    """

    _needs: ClassVar[str]  # the field that every request must have

    def __init__(self, guidance: Guidance, **kwargs: Any):
        super().__init__(**kwargs)
        self._guidance = guidance

    async def handle_request(self, body: dict[str, Any], request_id: str) -> Any:
        """Serve one request; see the handler of transformers.

        Args:
            body: of the request.
            request_id: from its header, or a generated one.

        Raises:
            RequestRefused: no answer that keeps to its constraint can be promised.
        """
        if not body.get(self._needs):
            raise RequestRefused(f"{self._needs}: expected a value, got none", code="missing_field", param=self._needs)
        original = body
        body = {**body, "stream": bool(body.get("stream"))}  # transformers' /v1/responses streams by default
        if body.get("tool_choice") == "none":
            body.pop("tools", None)  # tools that must not be called are not shown to the model
        self._validate_request(body)  # type: ignore[attr-defined]  # of the handler
        _, model, processor = self._resolve_model(dict(body))
        config = self._config(body, model)
        token = _REQUEST.set(await self._guidance.read(original, model, processor, config))
        try:
            return await super().handle_request(body, request_id)  # type: ignore[misc]
        finally:
            _REQUEST.reset(token)

    def _config(self, body: dict[str, Any], model: Any) -> Any:
        try:  # without the seed: transformers sets it as soon as it reads it
            return self._build_generation_config(  # type: ignore[attr-defined]  # of the handler
                {**body, "seed": None}, model.generation_config
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise RequestRefused(
                f"expected settings that a generation config can hold: {error}", code="invalid_settings"
            ) from error

    def _resolve_model(self, body: dict[str, Any]) -> tuple[str, Any, Any]:
        model_id, model, processor = super()._resolve_model(body)  # type: ignore[misc]
        request = _REQUEST.get()
        if request is None:
            return model_id, model, processor
        return model_id, GuidedModel(model, request, self._guidance.metrics), AnsweringProcessor(processor)


class GuidedChatHandler(_Guided, ChatCompletionHandler):  # type: ignore[misc]  # transformers is untyped here
    """POST /v1/chat/completions with ``response_format``, ``tools`` and ``tool_choice``."""

    _unused_fields = UNUSED_CHAT_COMPLETION_FIELDS - _HONOURED
    _needs = "messages"

    def _streaming(self, *args: Any, **kwargs: Any) -> StreamingResponse:
        response: StreamingResponse = super()._streaming(*args, **kwargs)
        response.body_iterator = errors_as_objects(response.body_iterator)
        return response


class GuidedResponseHandler(_Guided, ResponseHandler):  # type: ignore[misc]  # transformers is untyped here
    """POST /v1/responses with ``text.format``, ``tools`` and ``tool_choice``."""

    _unused_fields = UNUSED_RESPONSE_FIELDS - _HONOURED
    _needs = "input"
