"""How many tokens to draft: more where drafts are right, fewer where they are wrong."""

from __future__ import annotations

from ...errors import InvalidArgument


class DraftLength:
    """Follows each row on its own: doubles when a whole draft was right, else goes halfway to what was right of it.

    Args:
        start: tokens of a row's first draft.
        least: never fewer, so that a row can recover.
        most: never more.
    """

    def __init__(self, start: int = 5, least: int = 1, most: int = 16):
        if not 1 <= least <= start <= most:
            raise InvalidArgument(
                f"expected 1 <= least <= start <= most, got least={least}, start={start}, most={most}"
            )
        self._start, self._least, self._most = start, least, most
        self._lengths: dict[int, int] = {}

    def wanted(self, index: int) -> int:
        """Tokens to draft for this row now."""
        return self._lengths.get(index, self._start)

    def observe(self, index: int, drafted: int, accepted: int) -> None:
        """Tell how many of a row's drafted tokens stood.

        A draft shorter than wanted that was right says nothing about longer ones.
        """
        length = self.wanted(index)
        if accepted < drafted:
            self._lengths[index] = max(self._least, (min(drafted, length) + accepted) // 2)
        elif drafted >= length:
            self._lengths[index] = min(self._most, 2 * length)
