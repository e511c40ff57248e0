"""The model that a server answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..checkpoints.load import ModelSource
from ..vocabulary.processors import tokenizer_of

# What the demo model was trained on is no chat: it reads the messages' texts as they are. Its calls are Qwen's.
_DEMO_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>\n{{ call['function'] | tojson }}\n</tool_call>"
    "{% endfor %}{% endfor %}"
)


@dataclass(frozen=True)
class ServedModel:
    """A model, and what writes its prompts.

    Args:
        model: of transformers, in eval mode and on its device.
        templates: its tokenizer; or its processor, if it takes more than text.
        name: for clients.
    """

    model: Any
    templates: Any
    name: str

    @property
    def tokenizer(self) -> Any:
        """The tokenizer alone."""
        return tokenizer_of(self.templates)

    @property
    def takes_media(self) -> bool:
        """Whether it takes images, videos or audio."""
        return self.templates is not self.tokenizer


def load(source: ModelSource, name: str) -> ServedModel:
    """Load a model once; there is no other.

    Raises:
        UsageError: it cannot be loaded.
    """
    if source.is_built_in:
        model, tokenizer = source.load()
        tokenizer.chat_template = _DEMO_CHAT_TEMPLATE
        return ServedModel(model, tokenizer, name)
    loader = _loader_for_media(source)
    return ServedModel(*(source.load() if loader is None else _load_with_processor(source, loader)), name)


def _loader_for_media(source: ModelSource) -> Any:
    """The class of transformers that loads a model which takes more than text; None if it takes text alone."""
    import transformers
    from transformers.models.auto import modeling_auto

    location = source.locate()
    with location.loading("config"):
        config = transformers.AutoConfig.from_pretrained(
            location.path, revision=location.revision, trust_remote_code=source.trust_remote_code
        )
    if (
        config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and (config.architectures or [""])[0] in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    ):
        return None
    for names, loader in (
        (modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, "AutoModelForMultimodalLM"),
        (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "AutoModelForImageTextToText"),
    ):
        if config.model_type in names:
            return getattr(transformers, loader)
    return None


def _load_with_processor(source: ModelSource, loader: Any) -> tuple[Any, Any]:
    from transformers import AutoProcessor

    model, location = source.load_model(loader), source.locate()
    with location.loading("processor"):
        return model, AutoProcessor.from_pretrained(
            location.path, revision=location.revision, trust_remote_code=source.trust_remote_code
        )
