"""Reads texts by a network, and finds masks, by the compiled loops of frames.c.

Of registers it has only those that count the characters of a string, in its one spelling.

It knows a text by the number of a set of frames (network.py says what a frame is). The sets grow with the texts that
are read; where they take too many bytes all are forgotten, and numbers of an earlier *generation* mean nothing.
Engines then read their texts again. So that they spend most of their time on new tokens, more bytes are allowed where
they have read much again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from ..errors import BackendError, CompileLimitExceeded
from .after_fork import renew_in_child
from .component_tables import ComponentTables
from .component_walk import NO_NODES, Words, scratch_of_thread
from .core import CORE, address, record
from .frame_exits import Described, Exits, Sizes, describe
from .lru_bytes import Growth
from .network import MAX_FRAMES, Network
from .registers import LengthRule, Rule

_BYTES = 10 * 2**20  # maximum bytes of sets and tables together
_FEW_TOKENS = 64  # between two times that all is forgotten
_AGAIN = 16  # tokens read again for each new one: to read one takes about a tenth of what its mask takes
_ROWS = 16  # masks allocated together, at most: fewer at first, for many texts have few
_EXITS = 16  # the index of ``exits`` in ``Component`` of frames.h
FEW = 2_000  # nodes of the vocabulary: where no more fit, the tokens are found one by one
# As in frames.h.
_TOO_MANY, _NEEDS_COMPONENT, _NEEDS_TABLE, _NEEDS_EXITS, _NEEDS_STAY = -2, -3, -4, -6, -7


def reads(rule: Rule | None) -> bool:
    """Whether the machine reads a component with this rule."""
    return rule is None or (isinstance(rule, LengthRule) and rule.string.has_one_spelling)


class _Generation:
    """The sets, and the tables that their masks have needed; all are forgotten together.

    ``trie`` is the address of ``Trie`` of frames.c, whose arrays have to live as long.
    """

    start: int  # the set of a text without a byte

    def __init__(self, trie: int, number: int):
        self.number, self.handle = number, CORE.machine_new(trie)
        if not self.handle:
            raise _no_memory()
        # When the interpreter ends, daemon threads may still be reading.
        weakref.finalize(self, CORE.machine_end, self.handle).atexit = False
        self.in_use: list[tuple[Any, ...]] = []  # the owners of the arrays of tables
        self.table_bytes = 0
        self.completed: dict[int, bool] = {}


class FrameMachine:
    """A network and a vocabulary; thread safe, where ``lock`` is held around each call.

    Numbers of sets are valid as long as ``lock`` is held, and as long as the generation is the same. The caller counts
    the bytes of the components ``built`` before. ``least`` gives bytes that are enough for the text of a component,
    where that is known without building it; never fewer than its shortest text has. It never changes: the ways out must
    be the same at each step of a text. ``has_counts`` says whether sets that have the same mask may have different
    numbers; see ``same_mask``. ``growth`` is of the bytes held when a token was read last.
    """

    def __init__(
        self,
        network: Network,
        tables: ComponentTables,
        built: Collection[int],
        least: Callable[[int], int | None],
    ):
        self._network, self._tables, self._built = network, tables, built
        trie = tables.tokens
        self._word_count, self._nodes = trie.size // 32, len(trie.trie.byte)
        self._rows, self._address, self._used = np.empty((0, 0), np.int32), 0, 0  # for masks
        self._trie = trie.described[1]
        self.lock = threading.RLock()
        self._new = self._again = 0  # tokens read since all was forgotten; and those that were read again
        self._most = 1  # times the usual bytes
        self._progress = np.zeros(2, np.int64)
        self._given: dict[int, Described] = {}  # components
        self._component_bytes = self._row_bytes = 0
        self._sizes = Sizes(self._callees, self._size, least)
        self.growth = Growth()
        self.has_counts = False  # whether some of those are strings that are counted
        self._has_limits = False  # whether a mask with a token limit was requested
        self._begin(0)
        renew_in_child(self)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that are usual, the components aside; more where texts are deep, and for single masks."""
        return _BYTES + _ROWS * self.mask_bytes

    @property
    def mask_bytes(self) -> int:
        """Bytes of one mask."""
        return 4 * self._word_count

    @property
    def generation(self) -> int:
        """How often all sets were forgotten."""
        return self._now.number

    @property
    def start(self) -> int:
        """The set of a text without a byte."""
        return self._now.start

    def _begin(self, number: int) -> None:
        now = _Generation(self._trie, number)
        for component, given in self._given.items():
            self._give(now, component, given)
        now.start = self._found(CORE.machine_start, now=now)
        self._now = now  # at once: an exception leaves the machine as it was

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self.lock = threading.RLock()
        _half_done.append(self._now)
        self._used = len(self._rows)  # another thread may have been about to take one
        self._begin(self._now.number + 1)

    def refresh(self, new: int) -> None:
        """Forget all sets if they take too many bytes; called before ``new`` tokens are read."""
        now = self._now
        held = CORE.machine_bytes(now.handle) + now.table_bytes
        self.growth.update(held + self._component_bytes + self._row_bytes)
        if held > self._most * _BYTES:
            is_often = self._new < _FEW_TOKENS or self._again > _AGAIN * self._new
            self._most = 2 * self._most if is_often else max(1, self._most // 2)
            self._new = self._again = 0
            self._begin(now.number + 1)
        self._new += new

    def read_again(self, tokens: Iterable[bytes]) -> list[int]:
        """The sets after each token of a text that an earlier generation has read, the start first."""
        numbers = [self.start]
        for data in tokens:
            numbers.append(self.read(numbers[-1], data))
        self._again += len(numbers)
        return numbers

    def read(self, number: int, data: bytes) -> int:
        """The set after some more bytes; 0 if they do not fit."""
        progress, now = self._progress, self._now
        while True:
            found = int(CORE.machine_read(now.handle, number, data, len(data), progress.ctypes.data))
            if found >= 0:
                return found
            self._supply(now, found)
            done, number = progress.tolist()
            data = data[done:]

    def is_completed(self, number: int) -> bool:
        """Whether the text may end."""
        known = self._now.completed.get(number)
        if known is None:
            known = self._now.completed[number] = bool(self._found(CORE.machine_completed, number))
        return known

    def forced_byte(self, number: int) -> int | None:
        """The one byte that may come, if there is one."""
        byte = self._found(CORE.machine_forced, number)
        return byte if byte < 256 else None

    def same_mask(self, number: int) -> int:
        """The set that stands for all with the same mask as this one, as far as that is plain."""
        return self._found(CORE.machine_same_mask, number)

    def mask(self, number: int) -> Words:
        """(words,) int32, read-only: the tokens that may come."""
        row, words = self._row()
        self._mask(number, row, None)
        return words

    def mask_within(self, number: int, tokens_left: int) -> tuple[Words, int]:
        """The tokens that may come, as far as the text can be finished after them; with the one that ends it.

        The mask is (words,) int32, writeable. With it come the tokens left with which it would be the same as ``mask``:
        the true number may be smaller.
        """
        self._has_limits = True
        limit, place = record(tokens_left - 1, 0)
        words = np.empty(self._word_count, np.int32)
        self._mask(number, address(words), place)
        return words, limit[1] + 1

    def needed(self, number: int) -> int:
        """How many tokens are enough to the end of the text, the one that ends it counted."""
        return 1 + self._found(CORE.machine_needed, number)

    def can_finish_in(self, number: int, tokens_left: int) -> bool:
        """Whether ``tokens_left`` are enough; tokens are not counted where there are more than bytes."""
        size = self._found(CORE.machine_size, number)
        return size < tokens_left or self.needed(number) <= tokens_left

    def _row(self) -> tuple[int, Words]:
        """The address of a mask to be written, and the mask, read-only."""
        count = self._word_count
        if self._used == len(self._rows):  # many at once: to allocate one, and to find its address, takes microseconds
            rows = np.empty((min(_ROWS, 2 * len(self._rows) + 2), count), np.int32)
            self._address, self._used, self._rows = address(rows), 0, rows
            rows.flags.writeable = False
            self._row_bytes += rows.nbytes
        number, self._used = self._used, self._used + 1
        words: Words = self._rows[number]
        return self._address + 4 * count * number, words

    def _mask(self, number: int, row: int, limit: int | None) -> None:
        """Write a mask; see frame_masks.c."""
        now, count = self._now, self._word_count
        scratch, scratch_address = scratch_of_thread(3 * self._nodes)  # held until the last call
        while (found := CORE.machine_mask(now.handle, number, row, count, scratch_address, FEW, limit)) < 0:
            self._supply(now, found)

    def masks_are_dropped(self) -> None:
        """The masks that were made so far are kept no longer."""
        self._row_bytes = self._rows.nbytes

    def _found(self, look: Callable[..., int], *number: int, now: _Generation | None = None) -> int:
        """The result of a function once nothing is missing."""
        now = now or self._now
        while (found := look(now.handle, *number)) < 0:
            self._supply(now, found)
        return found

    def _supply(self, now: _Generation, status: int) -> None:
        missing = int(CORE.machine_missing(now.handle))
        if status in (_NEEDS_COMPONENT, _NEEDS_EXITS):
            known = self._given.get(missing)
            given = known or self._described(missing)
            if status == _NEEDS_EXITS or self._has_limits:  # exits now: every missing thing restarts the mask
                given = self._with_exits(missing, given)
            self._given[missing] = given
            self._component_bytes += given.nbytes - (known.nbytes if known else 0)
            self._give(now, missing, given)
        elif status == _NEEDS_TABLE:
            table = self._table(missing >> 44, missing >> 24 & 0xFFFFF, missing & 0xFFFFFF)  # as in frames.h
            now.in_use.append(table.held)
            now.table_bytes += table.nbytes
            if CORE.machine_table(now.handle, table.address):
                raise _no_memory()
        elif status == _NEEDS_STAY:
            component, state = missing >> 32, missing & 0xFFFFFFFF
            reached = self._tables.by_state(self._network.components[component], state)
            nodes = np.concatenate([some.nodes for some in reached] or [NO_NODES])
            states = np.array([some.state for some in reached], np.int32)
            ends = np.cumsum([len(some.nodes) for some in reached], dtype=np.int64)
            masks = [None if some.words is None else some.words.ctypes.data for some in reached]
            of_masks, masks_address = record(*masks)
            arrays = (array.ctypes.data for array in (nodes, states, ends))
            struct, place = record(*arrays, masks_address, len(masks))  # ``Stay`` of frames.h
            held = nodes, states, ends, reached, of_masks, struct
            now.in_use.append(held)
            now.table_bytes += nodes.nbytes + sum(some.words.nbytes for some in reached if some.words is not None)
            CORE.machine_stay(now.handle, component, state, place)
        elif status == _TOO_MANY:
            raise CompileLimitExceeded(f"the native engine reads the text in more than {MAX_FRAMES} ways at once")
        else:
            raise _no_memory()

    def _described(self, number: int) -> Described:
        component, rule = self._network.components[number], self._network.rule(number)
        described = describe(component, rule, self._tables.tokens)
        self.has_counts |= isinstance(rule, LengthRule)
        if number not in self._built:
            described = described._replace(nbytes=described.nbytes + component.nbytes)
        return described

    def _with_exits(self, number: int, described: Described) -> Described:
        exits = self._exits(number, self._sizes)
        struct = described.held[0]
        struct[_EXITS], struct[_EXITS + 1] = exits.rows.ctypes.data, exits.most_size
        return described._replace(held=(*described.held, exits), nbytes=described.nbytes + exits.rows.nbytes)

    def _exits(self, number: int, size_of: Callable[[int], int]) -> Exits:
        component, rule = self._network.components[number], self._network.rule(number)
        return Exits.to_end(component, size_of, self._tables.tokens.preferred, rule)

    def _callees(self, number: int) -> list[int]:
        return self._network.components[number].called

    def _size(self, number: int, size_of: Callable[[int], int]) -> int:
        exits, rule = self._exits(number, size_of), self._network.rule(number)
        size, _, _, is_counted = exits.rows[:, exits.component.dfa.start].tolist()
        return int(size) + (rule.low if isinstance(rule, LengthRule) and is_counted else 0)

    def _table(self, number: int, state: int, node: int) -> Described:
        component, rule = self._network.components[number], self._network.rule(number)
        begun = self._tables.nodes.of(np.array([node])) if node else None
        string = rule.string if isinstance(rule, LengthRule) else None
        table = self._tables.table(component, state, begun, string)
        leaving, words, at_most = table.leaving, table.words, None
        if isinstance(rule, LengthRule):
            string = rule.string
            # Where characters are owed, a mark has begun in all states but the first, which is rare.
            if rule.high is not None and string.begins[state] and (state == string.start or not string.most_owed):
                characters = string.characters_on(self._tables.tokens)
                at_most = self._tables.at_most(component, state, characters, string.owed, begun)
                words = table.mask(self._tables.tokens)
        counts = [len(left.nodes) for _, left in leaving]
        nodes = table.nodes.astype(np.int32, copy=False)
        fields = (  # the fields of ``Table`` of frames.h
            None if words is None else words.ctypes.data,
            nodes.ctypes.data,
            *(0, 0, 0),
            None if at_most is None else at_most.ctypes.data,
            *(len(nodes), len(leaving), 0 if at_most is None else len(at_most)),
            *(0, 0, 0, 0, -1, 0),  # ``Stay``, which is given where it is needed, and ``held``
        )
        struct, place = record(*fields, *[left.address for _, left in leaving], *counts, *[to for to, _ in leaving])
        for i in range(3):  # ``left``, ``left_count`` and ``left_in`` follow the fields
            struct[2 + i] = place + (len(fields) + i * len(leaving)) * struct.itemsize
        nbytes = nodes.nbytes + 4 * sum(counts)
        nbytes += 0 if words is None else words.nbytes
        return Described(place, (struct, table, nodes, leaving, words, at_most), nbytes)

    def _give(self, now: _Generation, number: int, given: Described) -> None:
        if CORE.machine_component(now.handle, number, given.address):
            raise _no_memory()


_half_done: list[_Generation] = []  # in a forked child: whether their arrays can be freed is not known


def _no_memory() -> BackendError:
    return BackendError("the native engine needs more memory than there is")
