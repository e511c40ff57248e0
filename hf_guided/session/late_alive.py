"""What the host still has to read of masks that were applied on a GPU: which positions have an allowed score.

The device lets a row without one end by itself. The host only reports it, and so reads the numbers after it has queued
the choice of the tokens: read at once, they would make it wait for the forward pass with nothing queued after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from .cuda_copies import HostCopies, HostCopy


class LateAlive:
    """The numbers of the masks that were applied last; at most one tensor is unread at any time."""

    def __init__(self) -> None:
        self.unread: Tensor | None = None  # (positions,) int32 on the device, 0 where no allowed score is left
        self._report: Callable[[Sequence[int]], None] | None = None
        self._copy: HostCopy | None = None

    def expect(self, alive: Tensor, report: Callable[[Sequence[int]], None]) -> None:
        """Keep numbers to read.

        Args:
            alive: see ``unread``.
            report: called once, with the numbers.
        """
        self.unread, self._report, self._copy = alive, report, None

    def send(self, copies: HostCopies) -> None:
        """Start to copy them to the host: ``read`` then waits for the masks, not for what was queued after them."""
        assert self.unread is not None
        self._copy = copies.to_host(self.unread)

    def read(self, numbers: Sequence[int] | None = None) -> None:
        """Report them, if any are unread.

        Args:
            numbers: the same numbers, if the caller has read them together with others; None waits for the device.
        """
        if self.unread is None:
            return
        unread, copy, report = self.unread, self._copy, self._report
        self.drop()
        assert report is not None
        if numbers is None:
            if copy is not None:
                copy.synchronize()
            numbers = (unread if copy is None else copy.tensor).tolist()
        report(numbers)

    def drop(self) -> None:
        """Forget them."""
        self.unread = self._report = self._copy = None
