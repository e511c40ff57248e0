"""``hf_guided.hf.decode.streamers.TokenListener`` under the names that callers import; RowListener is the old one."""

from .decode.streamers import TokenListener
from .decode.streamers import TokenListener as RowListener

__all__ = ["RowListener", "TokenListener"]
