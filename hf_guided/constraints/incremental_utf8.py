"""Incremental UTF-8 decoding, shared by all readers of text that comes in pieces."""

from __future__ import annotations

import codecs
from typing import AnyStr


def utf8_decoder() -> codecs.IncrementalDecoder:
    """Gives text in whole characters; invalid UTF-8 becomes U+FFFD."""
    return codecs.getincrementaldecoder("utf-8")(errors="replace")


def begun(text: AnyStr, mark: AnyStr) -> int:
    """The length of the longest proper prefix of a mark that the text ends with: the next text may complete it."""
    longest = min(len(text), len(mark) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(mark[:n])), 0)
