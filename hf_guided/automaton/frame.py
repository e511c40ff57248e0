"""The state of a row that reads a network: frames on top of each other, and the text that they have read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .registers import Entered, Rule


class Frame:
    """A state of a row in a component; only ``Network.frame`` creates it.

    ``entered`` is in the component's register; None if it has none. ``below`` are the frames after the component, none
    for the root, several only where nothing has begun in any. ``has_begun`` says whether an item, a name or a string is
    open, here or below, and ``is_watched`` whether one of those must still be checked.
    """

    __slots__ = ("__weakref__", "below", "component", "entered", "has_begun", "is_watched", "state")

    def __init__(
        self, component: int, state: int, entered: Entered | None, below: tuple[Frame, ...], rule: Rule | None
    ):
        self.component, self.state, self.entered, self.below = component, state, entered, below
        self.has_begun = self.is_watched = False
        if below:
            self.has_begun, self.is_watched = below[0].has_begun, below[0].is_watched
        if entered is not None and rule is not None and entered.has_begun:
            self.has_begun, self.is_watched = True, self.is_watched or rule.is_watched(entered)

    def stack(self) -> Iterator[Frame]:
        """The frame and those below, as far as there is one each: so all in which an item is open."""
        frame = self
        yield frame
        while len(frame.below) == 1:
            (frame,) = frame.below
            yield frame

    def is_inside(self, owner: Frame) -> bool:
        """Whether this frame, reached from inside of what is open in an array or object, has not left it."""
        return not is_level(self, owner) or (self.entered is not None and self.entered.has_begun)

    def opened(self) -> Iterator[tuple[Frame, Entered]]:
        """The frames of ``stack`` in whose own component something is open, and their registers."""
        for frame in self.stack() if self.has_begun else ():
            if frame.entered is not None and frame.entered.has_begun:
                yield frame, frame.entered


Frames = tuple[Frame, ...]


def is_level(place: Frame, owner: Frame) -> bool:
    """Whether both are in the same array or object of a text."""
    return place.below == owner.below and place.component == owner.component


class Text(NamedTuple):
    """A text that is being read: ``before``, if that is at hand, up to where ``path`` begins."""

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


NO_TEXT = Text(b"", 0)
