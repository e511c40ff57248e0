"""transformers' loading of models, which knows the model that comes with this package too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.cli.serving.model_manager import ModelManager

from .. import demo

BUILT_IN = "demo"
# What the demo model was trained on is no chat: it reads the messages' texts as they are. Its calls are Qwen's.
_DEMO_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>\n{{ call['function'] | tojson }}\n</tool_call>"
    "{% endfor %}{% endfor %}"
)


class GuidedModelManager(ModelManager):  # type: ignore[misc]  # transformers is untyped here
    """Loads one model when it is made, and serves no other."""

    def get_gen_models(self, cache_dir: str | None = None) -> list[dict[str, Any]]:
        """For /v1/models: the one that is served, not what else lies on the disk."""
        return [{"id": self.force_model, "object": "model", "created": 0, "owned_by": ""}]

    def _load_processor(self, model_id_and_revision: str, gguf_file: str | None = None) -> Any:
        if not _is_built_in(model_id_and_revision):
            return super()._load_processor(model_id_and_revision, gguf_file)
        _, tokenizer = demo.load()
        tokenizer.chat_template = _DEMO_CHAT_TEMPLATE
        return tokenizer

    def _load_model(self, model_id_and_revision: str, *args: Any, **kwargs: Any) -> Any:
        if not _is_built_in(model_id_and_revision):
            return super()._load_model(model_id_and_revision, *args, **kwargs)
        model, _ = demo.load()
        return model if self.device == "auto" else model.to(self.device)


def _is_built_in(model_id_and_revision: str) -> bool:
    return model_id_and_revision.split("@")[0] == BUILT_IN and not Path(BUILT_IN).exists()
