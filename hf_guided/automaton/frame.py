"""The state of a row that reads a network: frames on top of each other, and the text that they have read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .registers import Entered, Rule


class Frame:
    """A state of a row; only ``Network.frame`` creates it.

    Args:
        component: its number.
        state: in the component.
        entered: in the component's register; None if it has none.
        below: the frames after the component; none for the root. Several only where nothing has begun in any.
        rule: of the component.
    """

    __slots__ = ("__weakref__", "below", "component", "entered", "has_begun", "is_watched", "state")

    def __init__(
        self, component: int, state: int, entered: Entered | None, below: tuple[Frame, ...], rule: Rule | None
    ):
        self.component, self.state, self.entered, self.below = component, state, entered, below
        self.has_begun = False  # whether something has begun, here or below; and whether it may not end as it likes
        self.is_watched = False
        if below:
            self.has_begun, self.is_watched = below[0].has_begun, below[0].is_watched
        if entered is not None and rule is not None and entered.has_begun:
            self.has_begun, self.is_watched = True, self.is_watched or rule.is_watched(entered)

    def stack(self) -> Iterator[Frame]:
        """This frame and those below, as far as there is one each: so all in which something has begun."""
        frame = self
        yield frame
        while len(frame.below) == 1:
            (frame,) = frame.below
            yield frame


Frames = tuple[Frame, ...]


class Text(NamedTuple):
    """A text that is being read, in two parts.

    Args:
        before: the first part; None if it is not at hand.
        begin: where the second part begins.
        path: the second part.
    """

    before: bytes | bytearray | None
    begin: int
    path: bytes = b""

    @property
    def end(self) -> int:
        """The length of both."""
        return self.begin + len(self.path)

    def since(self, begin: int) -> bytes | None:
        """The text from a place on; None if it is not at hand."""
        if begin >= self.begin:
            return self.path[begin - self.begin :]
        return None if self.before is None else bytes(self.before[begin : self.begin]) + self.path

    def plus(self, data: bytes) -> Text:
        """The text with more bytes."""
        return Text(self.before, self.begin, self.path + data)
