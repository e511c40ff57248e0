"""Reads texts by a network without registers, and finds masks, by the compiled loops of frames.c.

It knows a text by the number of a set of frames (network.py says what a frame is). The sets grow with the texts that
are read; where they take too many bytes all are forgotten, and numbers of an earlier *generation* mean nothing.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import BackendError, CompileLimitExceeded
from .component_tables import ComponentTables
from .component_walk import Words
from .core import Core
from .network import MAX_FRAMES
from .rtn import Component, Components

_SET_BYTES, _TABLE_BYTES = 4 * 2**20, 6 * 2**20  # of all sets, and of the tables that are in use
_MANY_CALLS = 20_000  # between two times that all is forgotten
FEW = 2_000  # nodes of the vocabulary: where no more fit, the tokens are found one by one
_NO_MEMORY, _TOO_MANY, _NEEDS_COMPONENT, _NEEDS_TABLE = -1, -2, -3, -4  # as in frames.c


class _Trie(ctypes.Structure):
    """``Trie`` of frames.c."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("child", "byte", "token_start", "token_ids"))


class _Component(ctypes.Structure):
    """``Component`` of frames.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("table", "class_of", "accepting", "call_begin", "calls")),
        *((name, ctypes.c_int64) for name in ("classes", "start")),
    )


class _Table(ctypes.Structure):
    """``Table`` of frames.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("words", "nodes", "left", "left_begin", "left_in")),
        *((name, ctypes.c_int64) for name in ("node_count", "leaving")),
    )


class _Given(NamedTuple):
    """What the machine has been given: its arrays live as long."""

    described: ctypes.Structure
    arrays: tuple[Any, ...]


class FrameMachine:
    """A network without registers and a vocabulary; thread safe, where ``lock`` is held around each call.

    Args:
        core: the compiled loops; other threads run meanwhile.
        components: the root first.
        tables: of the vocabulary.

    Attributes:
        lock: numbers of sets are valid as long as it is held, and as long as the generation is the same.
        generation: how often all sets were forgotten.
    """

    def __init__(self, core: Core, components: Components, tables: ComponentTables):
        self._core, self._components, self._tables = core, components, tables
        self._word_count = tables.tokens.size // 32
        self.lock = threading.RLock()
        self.generation = 0
        self._calls, self._most = 0, 1  # since all was forgotten; times the usual bytes
        self._progress = np.zeros(2, np.int64)
        self._given: dict[int, _Given] = {}  # components
        self._begin()

    @property
    def nbytes(self) -> int:
        """Bytes of memory held at most, the components aside."""
        return _SET_BYTES + _TABLE_BYTES

    @property
    def mask_bytes(self) -> int:
        """Bytes of one mask."""
        return 4 * self._word_count

    def _begin(self) -> None:
        trie = self._tables.tokens
        addresses = trie.trie.child, trie.trie.byte, trie.token_start, trie.token_ids
        self._handle = self._core.machine_new(ctypes.byref(_Trie(*(array.ctypes.data for array in addresses))))
        if not self._handle:
            raise _no_memory()
        self._end = weakref.finalize(self, self._core.machine_end, self._handle)
        self._in_use: list[_Given] = []  # tables
        self._table_bytes = 0
        self._completed: dict[int, bool] = {}
        for number, given in self._given.items():
            self._give(number, given)
        self.start = self._found(lambda: self._core.machine_start(self._handle))

    def refresh(self) -> None:
        """Forget all sets if they take too many bytes; called for each token.

        Engines then read their texts again. Where those alone take as many bytes, more are allowed.
        """
        self._calls += 1
        set_bytes = self._core.machine_bytes(self._handle)
        if set_bytes > self._most * _SET_BYTES or self._table_bytes > self._most * _TABLE_BYTES:
            self._most = 1 if self._calls > _MANY_CALLS else 2 * self._most
            self._calls = 0
            self._end()
            self.generation += 1
            self._begin()

    def read(self, number: int, data: bytes) -> int:
        """The set after some more bytes; 0 if they do not fit."""
        progress = self._progress
        while True:
            found = int(self._core.machine_read(self._handle, number, data, len(data), progress.ctypes.data))
            if found >= 0:
                return found
            self._supply(found)
            done, number = progress.tolist()
            data = data[done:]

    def is_completed(self, number: int) -> bool:
        """Whether the text may end."""
        known = self._completed.get(number)
        if known is None:
            found = self._found(lambda: self._core.machine_completed(self._handle, number))
            known = self._completed[number] = bool(found)
        return known

    def forced_byte(self, number: int) -> int | None:
        """The one byte that may come, if there is one."""
        byte = self._found(lambda: self._core.machine_forced(self._handle, number))
        return byte if byte < 256 else None

    def mask(self, number: int) -> Words:
        """(words,) int32: the tokens that may come."""
        words = np.empty(self._word_count, np.int32)
        stack = _stack(2 * len(self._tables.tokens.trie.byte))
        self._found(
            lambda: self._core.machine_mask(
                self._handle, number, words.ctypes.data, self._word_count, stack.ctypes.data, FEW
            )
        )
        return words

    def _found(self, look: Callable[[], int]) -> int:
        """What a function finds once nothing is missing."""
        while (found := look()) < 0:
            self._supply(found)
        return found

    def _supply(self, status: int) -> None:
        """Give the machine what was missing."""
        missing = int(self._core.machine_missing(self._handle))
        if status == _NEEDS_COMPONENT:
            self._given[missing] = given = _described(self._components[missing])
            self._give(missing, given)
        elif status == _NEEDS_TABLE:
            component, state = missing >> 32, missing & 0xFFFFFFFF
            table = self._tables.table(self._components[component], state)
            left = [nodes.nodes.astype(np.int32, copy=False) for _, nodes in table.leaving]
            begin = np.cumsum([0, *map(len, left)])
            arrays = (
                table.words,
                table.nodes.astype(np.int32, copy=False),
                np.concatenate(left) if left else np.empty(0, np.int32),
                begin,
                np.array([to for to, _ in table.leaving], np.int32),
            )
            addresses = (None if array is None else array.ctypes.data for array in arrays)
            described = _Table(*addresses, len(table.nodes), len(left))
            self._in_use.append(_Given(described, arrays))
            self._table_bytes += table.nbytes
            if self._core.machine_table(self._handle, component, state, ctypes.byref(described)):
                raise _no_memory()
        elif status == _TOO_MANY:
            raise CompileLimitExceeded(f"the network reads the text in more than {MAX_FRAMES} ways at once")
        else:
            raise _no_memory()

    def _give(self, number: int, given: _Given) -> None:
        if self._core.machine_component(self._handle, number, ctypes.byref(given.described)):
            raise _no_memory()


def _described(component: Component) -> _Given:
    dfa = component.dfa
    calls: list[list[tuple[int, int]]] = [[] for _ in range(dfa.states)]
    for callee, after_call in component.calls:
        for state in np.flatnonzero(after_call).tolist():
            calls[state].append((callee, int(after_call[state])))
    flat = [call for of_state in calls for call in of_state]
    arrays = (
        np.ascontiguousarray(dfa.table, np.int32),
        dfa.byte_class.astype(np.uint8),
        dfa.accepting.astype(np.uint8),
        np.cumsum([0, *map(len, calls)]),
        np.array(flat, np.int32).reshape(-1, 2),
    )
    described = _Component(*(array.ctypes.data for array in arrays), dfa.table.shape[1], dfa.start)
    return _Given(described, arrays)


_of_thread = threading.local()


def _stack(numbers: int) -> NDArray[np.int32]:
    """Scratch of this thread."""
    stack: NDArray[np.int32] | None = getattr(_of_thread, "stack", None)
    if stack is None or len(stack) < numbers:
        stack = _of_thread.stack = np.empty(numbers, np.int32)
    return stack


def _no_memory() -> BackendError:
    return BackendError("the network engine needs more memory than there is")
