"""What goes wrong with a pattern, beside ``re.error`` for one that does not compile."""

from __future__ import annotations


class UnsupportedRegex(ValueError):
    """The pattern is well formed, but not regular, or we do not know how to write it.

    Args:
        reason: the construct, and what to do instead.
        position: its index in the pattern; None if it is no single position.
    """

    def __init__(self, reason: str, position: int | None = None):
        super().__init__(reason if position is None else f"{reason} (at position {position})")
        self.position = position
