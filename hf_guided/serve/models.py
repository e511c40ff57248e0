"""transformers' loading of models, for one model from any source that a command line accepts."""

from __future__ import annotations

from typing import Any

from transformers.cli.serving.model_manager import ModelManager

from ..checkpoints.load import ModelSource
from ..checkpoints.quantization import quantization_config
from ..errors import UsageError
from .error_responses import RequestRefused

# What the demo model was trained on is no chat: it reads the messages' texts as they are. Its calls are Qwen's.
_DEMO_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>\n{{ call['function'] | tojson }}\n</tool_call>"
    "{% endfor %}{% endfor %}"
)


class GuidedModelManager(ModelManager):  # type: ignore[misc]  # transformers is untyped here
    """Loads one model when it is made, and serves no other.

    Args:
        source: the model.
        continuous_batching: see transformers' own argument.

    Raises:
        UsageError: it cannot be loaded.
    """

    def __init__(self, source: ModelSource, *, continuous_batching: bool):
        self._source, self._location = source, source.locate()
        if "@" in self._location.path:
            raise UsageError(f"{self._location.path}: a path with '@' cannot be served: transformers ends it there")
        super().__init__(
            device=str(source.placement()),
            dtype=str(source.torch_dtype()).removeprefix("torch."),
            trust_remote_code=source.trust_remote_code,
            continuous_batching=continuous_batching,
            force_model=source.model,
        )

    def get_gen_models(self, cache_dir: str | None = None) -> list[dict[str, Any]]:
        """For /v1/models: the served model only, not others on the disk."""
        return [{"id": self.force_model, "object": "model", "created": 0, "owned_by": ""}]

    def process_model_name(self, model_id: str) -> str:
        """The source that transformers loads from, as "path@revision".

        Raises:
            RequestRefused: another model is named.
        """
        if model_id != self.force_model:
            raise RequestRefused(
                f"expected the model that is served, {self.force_model!r}, got {model_id!r}",
                status=404,
                code="model_not_found",
                param="model",
            )
        return f"{self._location.path}@{self._location.revision or 'main'}"

    def get_quantization_config(self) -> Any:
        """As ``from_pretrained`` takes it; transformers' own knows two methods."""
        return None if self._source.quantization is None else quantization_config(self._source.quantization)

    def _load_processor(self, model_id_and_revision: str, gguf_file: str | None = None) -> Any:
        if self._source.is_built_in:
            tokenizer = self._source.load_tokenizer()
            tokenizer.chat_template = _DEMO_CHAT_TEMPLATE
            return tokenizer
        with self._location.loading("processor"):
            return super()._load_processor(model_id_and_revision, gguf_file)

    def _load_model(self, model_id_and_revision: str, *args: Any, **kwargs: Any) -> Any:
        with self._location.loading("model"):
            return super()._load_model(model_id_and_revision, *args, **kwargs)
