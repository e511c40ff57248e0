"""Components as the compiled loops read them, and the shortest ways out of these: see component_exits.c."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple
from weakref import WeakMethod

import numpy as np
from numpy.typing import NDArray

from .after_fork import Shared
from .core import CORE, address, places, record
from .lru_bytes import ByteCache
from .registers import ItemRule, LengthRule, NameRule, Rule
from .rtn import Component
from .token_trie import TokenTrie

UNREACHABLE = 1 << 29  # as in frames.h
OBJECT, ARRAY = 1, 2  # likewise
_MOST_CHARACTERS = 2**31 - 1  # bound on the characters of any text
_COMPONENT = places("Component")
_ARRAY_BYTES = 4 * 2**20  # bytes of the arrays of components that were needed last, and of their exits


class _Arrays(NamedTuple):
    """The arrays of a component without the callees, which equal components share, and their addresses."""

    addresses: tuple[int, ...]
    arrays: tuple[NDArray[Any], ...]
    nbytes: int

    @classmethod
    def of(cls, component: Component) -> _Arrays:
        dfa, after_calls = component.dfa, np.ascontiguousarray(component.after_calls)
        callees, states = after_calls.shape
        room = int(np.count_nonzero(after_calls))
        call_begin, calls = np.zeros(states + 1, np.int64), np.empty(2 * room + 1, np.int32)  # ``address`` needs one
        if room:
            CORE.machine_calls(address(after_calls), callees, states, address(call_begin), address(calls))
        tables = dfa.table.astype(np.int32), dfa.byte_class.astype(np.uint8), dfa.accepting.copy()
        arrays = *tables, call_begin, calls, component.leaves.copy()
        return cls(tuple(map(address, arrays)), arrays, 2048 + sum([array.nbytes for array in arrays]))


_known_arrays: ByteCache[_Arrays] = ByteCache(_ARRAY_BYTES)


class Described(NamedTuple):
    """A component, or a table, for the compiled loops."""

    address: int  # the address of its struct
    held: tuple[Any, ...]  # the owners of the arrays, which live as long
    nbytes: int

    def set(self, **fields: int) -> None:
        """Write fields of ``Component`` of frames.h."""
        for name, value in fields.items():
            self.held[0][_COMPONENT[name]] = value


def describe(
    component: Component,
    rule: Rule | None = None,
    tokens: TokenTrie | None = None,
    ends: NDArray[np.bool_] | None = None,
) -> Described:
    """``Component`` of frames.h, without exits.

    Characters are counted on ``tokens``; None where only exits are needed. These end at ``ends`` (states,); None is
    where the component may end.
    """
    known = _known_arrays.of(component.dfa, lambda: _Arrays.of(component))
    addresses, counted = [*known.addresses], [0] * 6
    arrays: tuple[NDArray[Any], ...] = ()
    if ends is not None:
        addresses[2] = address(ends)
    if isinstance(rule, LengthRule):
        string = rule.string
        characters = np.empty(0, np.int64) if tokens is None else string.characters_on(tokens)
        arrays = string.begins, string.owed, characters
        high = -1 if rule.high is None else min(rule.high, _MOST_CHARACTERS)
        low = min(rule.low, _MOST_CHARACTERS)
        counted = [*(array.ctypes.data for array in arrays), string.most_owed, low, high]
    if isinstance(rule, NameRule):
        counted[4:] = rule.low, -1 if rule.high is None else rule.high
    if isinstance(rule, ItemRule):
        counted[4:] = rule.low, -1
    dfa = component.dfa
    fields = [*addresses, 0, dfa.table.shape[1], dfa.states, dfa.start, *counted]
    fields += [0] * (len(_COMPONENT) - len(fields))
    struct, place = record(*fields, *component.callees)
    described = Described(place, (struct, known, arrays, ends), known.nbytes)
    described.set(callees=place + len(fields) * struct.itemsize)
    return described


class Alone(NamedTuple):
    """A component without calls and register, with its exits: equal ones of all networks are one."""

    described: Described
    size: int  # bytes of its shortest text
    letters: NDArray[np.int32]  # kept alive because the cache key has its id

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.described.nbytes

    @classmethod
    def of(cls, component: Component, letters: NDArray[np.int32]) -> Alone:
        """The component; ``letters`` as for ``Exits``."""
        return _known_alone.of((component.dfa, id(letters)), lambda: cls._new(component, letters))

    @classmethod
    def _new(cls, component: Component, letters: NDArray[np.int32]) -> Alone:
        exits = Exits(component, (), letters)
        return cls(exits.described(describe(component)), int(exits.rows[0, component.dfa.start]), letters)


_known_alone: ByteCache[Alone] = ByteCache(_ARRAY_BYTES)


class _Ways(NamedTuple):
    """The exits of an automaton, for callees of the same sizes."""

    rows: NDArray[np.int32]  # (4, states) see component_exits.c
    most_size: int  # from the state that is farthest away
    letters: NDArray[np.int32]  # kept alive because the cache key has its id

    @classmethod
    def of(cls, described: Described, weights: Sequence[int], letters: NDArray[np.int32]) -> _Ways:
        leaves = described.held[1].arrays[-1]
        rows, of_callees = np.empty((4, len(leaves)), np.int32), np.array(weights, np.int32)
        arrays = of_callees, letters, rows
        most_size = int(CORE.find_exits(described.address, *(array.ctypes.data for array in arrays)))
        if most_size < 0:
            raise MemoryError
        return cls(rows, most_size, letters)

    @property
    def nbytes(self) -> int:
        return 1024 + self.rows.nbytes


_known_ways: ByteCache[_Ways] = ByteCache(_ARRAY_BYTES)


class Exits:
    """The shortest ways from the states of a component to its end, or to other states.

    In a string that ``rule`` counts they are those of the fewest characters: for these there always is room. Each
    callee takes ``weights`` bytes; ``letters`` (257,) are all bytes in the order to take them, and then -1. The ways
    end at ``ends`` (states,); None is where the component may end.
    """

    def __init__(
        self,
        component: Component,
        weights: Sequence[int],
        letters: NDArray[np.int32],
        ends: NDArray[np.bool_] | None = None,
        rule: Rule | None = None,
    ):
        self.component = component

        def find() -> _Ways:
            return _Ways.of(describe(component, rule, ends=ends), weights, letters)

        is_kept = ends is None and not isinstance(rule, LengthRule)
        marks = [min(callee, 0) for callee in component.callees]
        ways = _known_ways.of((component.dfa, id(letters), *weights, *marks), find) if is_kept else find()
        self.rows, self.most_size = ways.rows, ways.most_size

    @classmethod
    def to_end(
        cls,
        component: Component,
        size_of: Callable[[int], int],
        letters: NDArray[np.int32],
        rule: Rule | None = None,
    ) -> Exits:
        """The ways to the end of a component, by the sizes of its callees; what its register holds is ignored."""
        weights = [0 if callee < 0 else size_of(callee) for callee in component.callees]
        return cls(component, weights, letters, rule=rule)

    def described(self, described: Described, rows: NDArray[np.int32] | None = None) -> Described:
        """The component with these ways, or with others (4, states) that are as long at most."""
        rows = self.rows if rows is None else rows
        described.set(exits=rows.ctypes.data, most_size=self.most_size)
        return described._replace(held=(*described.held, rows), nbytes=described.nbytes + rows.nbytes)

    @cached_property
    def size(self) -> list[int]:
        """Bytes from each state; UNREACHABLE where there is no way."""
        sizes: list[int] = self.rows[0].tolist()
        return sizes


class Sizes(Shared):
    """Bytes that are enough for the texts of components; thread safe.

    ``known_size`` is the size of a component that is known without its automaton, or None. ``callees`` are those on
    which the size of another component depends, and ``measure`` its size by theirs, UNREACHABLE if there is no text;
    both are methods of the object that holds the sizes. Components may call each other, so sizes are found again until
    none falls.
    """

    def __init__(
        self,
        callees: Callable[[int], Iterable[int]],
        measure: Callable[[int, Callable[[int], int]], int],
        known_size: Callable[[int], int | None] = lambda number: None,
    ):
        self._callees, self._measure = WeakMethod(callees), WeakMethod(measure)  # weak: no cycle
        self._known_size = known_size
        self._known: dict[int, int] = {}
        super().__init__()

    def __contains__(self, number: int) -> bool:
        return number in self._known

    def __call__(self, number: int) -> int:
        """The size of a component."""
        if not self._is_known(number):
            with self._lock:
                self._known.update(self._found(number))
        return self._known[number]

    def _is_known(self, number: int) -> bool:
        if number in self._known:
            return True
        size = self._known_size(number)
        if size is not None:
            self._known[number] = size
        return size is not None

    def _found(self, number: int) -> dict[int, int]:
        callees_of, measure = self._callees(), self._measure()
        assert callees_of is not None
        assert measure is not None
        new: dict[int, int] = {}
        callers: dict[int, list[int]] = {}
        todo = [number]
        while todo:
            number = todo.pop()
            if number in new or self._is_known(number):
                continue
            new[number] = UNREACHABLE
            for callee in callees_of(number):
                callers.setdefault(callee, []).append(number)
                todo.append(callee)

        def size_of(callee: int) -> int:
            return self._known.get(callee, new.get(callee, UNREACHABLE))

        again = dict.fromkeys(new)  # the last first: most callees come after their callers
        while again:
            number, _ = again.popitem()
            size = min(measure(number, size_of), UNREACHABLE)
            if size < new[number]:
                new[number] = size
                again.update(dict.fromkeys(callers.get(number, ())))
        return new
