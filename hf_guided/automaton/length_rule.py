"""The rule of a string whose characters are counted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from .counted_string import CountedString
from .registers import Entered, Rule, Values
from .written_values import CHARACTER_BYTES


@dataclass(frozen=True, eq=False)
class LengthRule(Rule):
    """Bounds on the length of a string of any kind.

    Args:
        low, high: how many; ``high`` None is no bound.
        string: its states in the component.
    """

    low: int
    high: int | None
    string: CountedString
    has_many_values = True  # where there is room for ``_choices``; ``leaves_choice`` says whether there is
    _choices: ClassVar[int] = 2  # characters: with room for these there are more strings than any text has

    def _count(self, written: bytes) -> int:
        """How many characters there are, with those that are owed."""
        return self.string.characters(written) + self.string.owed_after(written)

    def end(self, entered: Entered, written: bytes | None) -> Entered | None:
        """See ``Rule.end``."""
        return Entered() if written is None or self.is_within(self.string.characters(written)) else None

    def is_within(self, count: int) -> bool:
        """Whether a string may have this number of characters."""
        return count >= self.low and (self.high is None or count <= self.high)

    def is_far(self, room: int, reach: int) -> bool:
        """Whether as many characters may follow as a token has, and there is still a choice then.

        Args:
            room: how many may follow.
            reach: bytes of the longest token.
        """
        return room >= reach + self.string.most_owed + self._choices

    def is_watched(self, entered: Entered) -> bool:
        """See ``Rule.is_watched``."""
        return True

    def fits(self, entered: Entered, written: bytes, values: Values) -> bool:
        """See ``Rule.fits``."""
        if self.high is None or len(written) + self.string.most_owed <= self.high:
            return True
        return self._count(written) <= self.high

    def state(self, entered: Entered, written: bytes, reach: int) -> Hashable:
        """See ``Rule.state``: far from both bounds all counts are the same."""
        count = self.string.characters(written)
        reach += self.string.most_owed + self._choices
        room = reach if self.high is None else min(reach, self.high - count)
        last = written[-CHARACTER_BYTES:]
        return max(0, self.low - count), room, last if b"\\" in last else b""

    def leaves_choice(self, entered: Entered, written: bytes) -> bool:
        """See ``Rule.leaves_choice``."""
        return self.high is None or self._count(written) + self._choices <= self.high

    def debt(self, entered: Entered, written: bytes | None) -> int:
        """See ``Rule.debt``."""
        return 0 if written is None else max(0, self.low - self._count(written))
