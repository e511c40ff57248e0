"""Finds the texts that end an answer, in the bytes of its tokens.

Bytes, because a token may end inside a character: a stop string is found wherever its bytes are, over any tokens, and
in UTF-8 these cannot be a part of another character.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...constraints.incremental_utf8 import begun


class StopStrings:
    """Passes an answer's bytes on, up to the first stop string.

    Args:
        stops: the texts.
    """

    def __init__(self, stops: Sequence[str]):
        self._stops = [stop.encode() for stop in stops]
        self._held = b""  # may be the beginning of a stop string
        self.found = False

    def feed(self, data: bytes) -> bytes:
        """The bytes that are part of the answer, whatever follows; none after a stop string."""
        if self.found:
            return b""
        data, self._held = self._held + data, b""
        ends = [(at + len(stop), at) for stop in self._stops if (at := data.find(stop)) >= 0]
        if ends:  # the one that was complete first
            self.found = True
            return data[: min(ends)[1]]
        held = max((begun(data, stop) for stop in self._stops), default=0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def finish(self) -> bytes:
        """The bytes that were held back; called after the last token."""
        held, self._held = self._held, b""
        return held
