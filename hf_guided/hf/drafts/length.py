"""How many tokens to draft: more for rows with correct drafts, fewer for rows with wrong ones."""

from __future__ import annotations

from ...errors import InvalidArgument


class DraftLength:
    """Adapts to each row: doubles after a fully correct draft, otherwise moves halfway to the correct length.

    Args:
        start: tokens of a row's first draft.
        least: the minimum, so that a row can recover.
        most: the maximum.
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
        """Take the number of a row's draft tokens that were accepted.

        A correct draft that was shorter than wanted says nothing about longer ones.
        """
        length = self.wanted(index)
        if accepted < drafted:
            self._lengths[index] = max(self._least, (min(drafted, length) + accepted) // 2)
        elif drafted >= length:
            self._lengths[index] = min(self._most, 2 * length)
