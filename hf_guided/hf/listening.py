"""``hf_guided.hf.decode.streamers`` under the name that callers import."""

from .decode.streamers import TokenListener

__all__ = ["TokenListener"]
