"""The native engine of the networks that compiled loops read: see automaton/frame_machine.py."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..automaton.frame_machine import FrameMachine
from ..automaton.network import Network
from .base import MaskedEngine

_MASK_BYTES = 3 * 2**20  # of the masks kept
_UNKNOWN = sys.maxsize  # tokens: more than any limit
_MOST_KNOWN = 10_000  # sets of which it is known when a limit is far away


class FrameMasks:
    """A machine that reads the texts, and the masks of its sets; thread safe, where the machine's lock is held."""

    def __init__(self, machine: FrameMachine):
        self.machine = machine
        self._masks: dict[int, NDArray[np.int32]] = {}  # all are dropped where there are too many
        self._enough: dict[int, int] = {}  # tokens left with which a limit forbids none of these
        self._generation = machine.generation
        self._most = 1 + _MASK_BYTES // machine.mask_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most, the components aside."""
        return self.machine.nbytes + _MASK_BYTES

    def of(self, number: int) -> NDArray[np.int32]:
        """(words,) int32, read-only: the tokens that may come."""
        self._forget()
        words = self._masks.get(number)
        if words is None and self.machine.has_counts:
            number = self.machine.same_mask(number)
            words = self._masks.get(number)
        if words is None:
            words = self._masks[number] = self.machine.mask(number)
        return words

    def within(self, number: int, tokens_left: int) -> NDArray[np.int32]:
        """(words,) int32: the tokens after which the text can be finished in ``tokens_left - 1`` more.

        The mask of ``of`` where that is all of them, or where the text needs more than are left already.
        """
        self._forget()
        if tokens_left >= self._enough.get(number, _UNKNOWN) and (known := self._masks.get(number)) is not None:
            return known
        if self.machine.has_counts:
            number = self.machine.same_mask(number)
        if tokens_left < self._enough.get(number, _UNKNOWN):
            words, enough = self.machine.mask_within(number, tokens_left)
            self._enough[number] = enough
            if tokens_left >= enough:
                words.flags.writeable = False
                return self._masks.setdefault(number, words)
            if self.machine.needed(number) <= tokens_left:
                return words
        return self.of(number)

    def _forget(self) -> None:
        """Drop all masks where there are too many, or the machine has forgotten what their numbers mean."""
        is_new = self._generation != self.machine.generation
        if is_new or len(self._masks) >= self._most or len(self._enough) >= _MOST_KNOWN:
            self._masks.clear()
            self._enough.clear()
            self.machine.masks_are_dropped()
            self._generation = self.machine.generation


class FrameEngine(MaskedEngine):
    """One position: numbers of sets, one per prefix; the tokens so far; the generation of the machine they hold for.

    Without ``position`` it stands at the start. The masks are shared by all engines of the constraint.
    """

    def __init__(
        self,
        masks: FrameMasks,
        network: Network,
        token_bytes: Sequence[bytes | None],
        position: tuple[list[int], list[int], int] | None = None,
    ):
        self._masks, self._machine, self.network, self._token_bytes = masks, masks.machine, network, token_bytes
        if position is None:
            with masks.machine.lock:
                position = [masks.machine.start], [], masks.machine.generation
        self._numbers, self._taken, self._generation = position

    def _here(self) -> int:
        machine = self._machine
        if machine.generation != self._generation:
            numbers = machine.read_again(self._token_bytes[token_id] or b"" for token_id in self._taken)
            self._numbers, self._generation = numbers, machine.generation
        return self._numbers[-1]

    def accept(self, token_id: int) -> bool:
        """See ``Engine.accept``."""
        machine = self._machine
        with machine.lock:
            machine.refresh(1)
            number = machine.read(self._here(), self._token_bytes[token_id] or b"")
        if not number:
            return False
        self._numbers.append(number)
        self._taken.append(token_id)
        return True

    def validate(self, token_ids: Sequence[int]) -> int:
        """See ``Engine.validate``."""
        with self._machine.lock:
            self._machine.refresh(len(token_ids))
            number = self._here()
            for count, token_id in enumerate(token_ids):
                number = self._machine.read(number, self._token_bytes[token_id] or b"")
                if not number:
                    return count
        return len(token_ids)

    def rollback(self, num_tokens: int) -> None:
        """See ``Engine.rollback``."""
        if num_tokens:
            del self._numbers[-num_tokens:], self._taken[-num_tokens:]

    def fork(self) -> FrameEngine:
        """See ``Engine.fork``."""
        position = self._numbers.copy(), self._taken.copy(), self._generation
        return FrameEngine(self._masks, self.network, self._token_bytes, position)

    def mask(self, tokens_left: int | None = None) -> NDArray[np.int32]:
        """See ``MaskedEngine.mask``."""
        with self._machine.lock:
            here = self._here()
            return self._masks.of(here) if tokens_left is None else self._masks.within(here, tokens_left)

    def min_tokens_to_finish(self) -> int:
        """See ``BudgetedEngine.min_tokens_to_finish``."""
        with self._machine.lock:
            return self._machine.needed(self._here())

    def can_finish_in(self, tokens_left: int) -> bool:
        """See ``BudgetedEngine.can_finish_in``."""
        with self._machine.lock:
            return self._machine.can_finish_in(self._here(), tokens_left)

    def is_completed(self) -> bool:
        """See ``Engine.is_completed``."""
        with self._machine.lock:
            return self._machine.is_completed(self._here())

    def jump_forward_bytes(self) -> bytes:
        """See ``Engine.jump_forward_bytes``."""
        data = bytearray()
        with self._machine.lock:
            number = self._here()
            while not self._machine.is_completed(number) and (byte := self._machine.forced_byte(number)) is not None:
                data.append(byte)
                number = self._machine.read(number, bytes((byte,)))
        return bytes(data)
