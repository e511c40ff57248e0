"""``hf_guided.hf.decode.streamers`` under the name that callers import."""

from .decode.streamers import RowListener

__all__ = ["RowListener"]
