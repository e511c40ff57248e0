"""The ways out of the components of a network, for frame_exits.c: how texts are finished, and in how many bytes.

A call weighs the bytes that are enough for the callee. Where a text can be finished has to be known before most callees
are built, so who plans the network says what it knows of their texts; of the others the automata tell. What a call
weighs never changes: the ways out must be the same at each step of a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .core import CORE
from .network import Network
from .token_trie import TokenTrie

UNREACHABLE = 1 << 29  # as in frames.h


class Described(NamedTuple):
    """A component for the compiled loops.

    Args:
        address: of its struct.
        held: what holds the arrays, which live as long.
        low: how many characters its string has at least.
        nbytes: bytes held.
    """

    address: int
    held: tuple[Any, ...]
    low: int
    nbytes: int


class Ways(NamedTuple):
    """The ways out of a component.

    Args:
        exits: (4, states) int32, see frame_exits.c.
        most_size: bytes to the end from the state that is farthest from it.
        size: bytes that are enough for its whole text.
    """

    exits: NDArray[np.int32]
    most_size: int
    size: int


class Exits:
    """The ways out of all components; not thread safe.

    Args:
        network: the components.
        tokens: of the vocabulary.
        least: bytes that are enough for the text of a component, where that is known without building it; never
            fewer than its shortest text has.
    """

    def __init__(self, network: Network, tokens: TokenTrie, least: Callable[[int], int | None]):
        self._network, self._letters, self._least = network, tokens.preferred, least
        self._sizes: dict[int, int] = {}

    def of(self, number: int, describe: Callable[[int], Described]) -> Ways:
        """The ways out of a component.

        Args:
            number: of the component.
            describe: of any component.
        """
        component = self._network.components[number]
        weights = np.array(
            [0 if callee < 0 else self._size(callee, describe) for callee in component.callees], np.int32
        )
        described = describe(number)
        exits = np.empty((4, component.dfa.states), np.int32)
        found = CORE.find_exits(described.address, weights.ctypes.data, self._letters.ctypes.data, exits.ctypes.data)
        if found < 0:
            raise MemoryError
        start = component.dfa.start
        size = int(exits[0, start]) + (described.low if exits[3, start] else 0)
        return Ways(exits, found, min(size, UNREACHABLE))

    def _size(self, number: int, describe: Callable[[int], Described]) -> int:
        """Bytes that are enough for the text of a component."""
        if number not in self._sizes:
            self._find_sizes(number, describe)
        return self._sizes[number]

    def _find_sizes(self, number: int, describe: Callable[[int], Described]) -> None:
        """Build what is not known, and find sizes again until none falls: components may call each other."""
        unknown: dict[int, Described] = {}
        todo = [number]
        while todo:
            number = todo.pop()
            if number in self._sizes:
                continue
            least = self._least(number)
            self._sizes[number] = UNREACHABLE if least is None else least
            if least is None:
                unknown[number] = describe(number)
                todo += [callee for callee in self._network.components[number].callees if callee >= 0]
        changed = True
        while changed:
            changed = False
            for number in reversed(unknown):  # most callees come after their callers
                size = self.of(number, unknown.__getitem__).size
                changed |= size < self._sizes[number]
                self._sizes[number] = size
