"""``hf_guided.integrations.smolagents`` under the name that callers import."""

from ..integrations.smolagents import GuidedTransformersModel

__all__ = ["GuidedTransformersModel"]
