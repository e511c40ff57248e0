"""``hf_guided.hf.decode.streamers`` under the name that callers import; RowListener is TokenListener's old name."""

from .decode.streamers import TokenListener
from .decode.streamers import TokenListener as RowListener

__all__ = ["RowListener", "TokenListener"]
