"""What all readers of text that comes in pieces have in common."""

from __future__ import annotations

import codecs
from typing import AnyStr


def utf8_decoder() -> codecs.IncrementalDecoder:
    """Gives text in whole characters; what is no UTF-8 becomes U+FFFD."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


def begun(text: AnyStr, mark: AnyStr) -> int:
    """How much of a mark's beginning, short of all of it, the text ends with: what follows may write the mark."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
