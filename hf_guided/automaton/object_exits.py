"""The names of an object as the compiled loops read them, and the shortest members: see frame_names.c."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .frame_exits import OBJECT, UNREACHABLE, Described, Exits
from .network import Network
from .registers import NameRule
from .rtn import Component, Mark
from .token_trie import TokenTrie

if TYPE_CHECKING:
    from .values import ValueSearch

_UNBOUNDED = 2**31  # names: more than any object has


class Names(NamedTuple):
    """Names for which there is a way out: those that have to come, and then enough others."""

    texts: tuple[bytes, ...]
    required: int  # how many have to come
    most: int  # how many different names there are
    languages: tuple[int, ...]  # the components of those that are not listed
    any_order: bool

    @classmethod
    def of(cls, rule: NameRule, network: Network, values: ValueSearch) -> Names:
        """The names of a rule."""
        required, others = sorted(rule.required), list[bytes]()
        most = len(rule.listed) + sum([_number_of_texts(network.components[number].dfa) for number in rule.languages])
        if rule.low > len(required):
            others = sorted(rule.listed - rule.required, key=lambda name: (len(name), name))
            for language in rule.languages:
                others += [value.text for value in values.texts(language, rule.low)]
        return cls((*required, *others), len(required), min(most, _UNBOUNDED), rule.languages, rule.any_order)

    def described(self, described: Described) -> Described:
        """The component with these names."""
        text, ends = np.frombuffer(b"".join(self.texts) + b"\0", np.uint8), np.cumsum([0, *map(len, self.texts)])[1:]
        ends = np.array([*ends, 0], np.int64)  # an address needs one
        described.set(is_owner=OBJECT, names=text.ctypes.data, name_ends=ends.ctypes.data)
        described.set(name_count=len(self.texts), required=self.required, most_names=self.most)
        return described._replace(held=(*described.held, text, ends), nbytes=described.nbytes + 2 * text.nbytes)


class ObjectExits(NamedTuple):
    """The shortest ways in the component of an object, whatever its register holds.

    ``legs`` (2, names) are bytes of a member with each name: up to where another name begins, and to the object's end.
    """

    names: Names  # the cheapest of those that need not come first
    to_end: Exits
    rows: NDArray[np.int32]  # rows of ``to_end``, and whether the way has another name
    to_begin: Exits  # where a name begins, and the object has not ended
    legs: NDArray[np.int32]
    most_size: int  # from any state to the end, or to where a name begins, and for the longest end of a name

    @classmethod
    def of(
        cls, network: Network, number: int, names: Names, size_of: Callable[[int], int], tokens: TokenTrie
    ) -> ObjectExits:
        """The ways by the sizes of callees."""
        letters, component = tokens.preferred, network.components[number]

        def without(*marks: Mark) -> list[int]:
            calls = component.callees
            return [UNREACHABLE if callee in marks else 0 if callee < 0 else size_of(callee) for callee in calls]

        begins = np.zeros(component.dfa.states, np.bool_)
        for callee, after in component.calls:
            if callee in (Mark.BEGIN, Mark.BEGIN_REQUIRED):
                begins |= after != 0
        to_begin = Exits(component, without(Mark.CLOSE), letters, begins)
        to_end = Exits.to_end(component, size_of, letters)
        nameless = Exits(component, without(Mark.BEGIN, Mark.BEGIN_REQUIRED), letters, component.dfa.accepting.copy())
        rows = to_end.rows.copy()
        rows[3] = nameless.rows[0] != rows[0]
        legs = np.full((2, len(names.texts) + 1), UNREACHABLE, np.int32)  # an address needs one
        for i, name in enumerate(names.texts):
            state = _end_of(network, component, name)
            for row, exits in enumerate((to_begin, to_end)):
                legs[row, i] = min(UNREACHABLE, len(name) + exits.size[state])
        costs = [tokens.fewest(name) + int(legs[1, i]) - len(name) for i, name in enumerate(names.texts)]
        order = [*range(names.required), *sorted(range(names.required, len(costs)), key=costs.__getitem__)]
        names = names._replace(texts=tuple(names.texts[i] for i in order))
        legs = np.ascontiguousarray(legs[:, order]) if order else legs
        ends = [Exits.to_end(network.components[language], size_of, letters) for language in names.languages]
        most_size = max(to_end.most_size, to_begin.most_size) + max([end.most_size for end in ends], default=0)
        return cls(names, to_end, rows, to_begin, legs, most_size)

    def size(self, low: int) -> int:
        """Bytes of the shortest object: with the names that have to come, and at least ``low``."""
        names, start = self.names, self.to_end.component.dfa.start
        count = max(names.required, low)
        if not count:
            return self.to_end.size[start]
        if not names.any_order:
            return min(self.to_end.size[start] + count * max(map(len, names.texts), default=UNREACHABLE), UNREACHABLE)
        if count > len(names.texts):
            return UNREACHABLE
        return min(
            self.to_begin.size[start] + int(self.legs[0, : count - 1].sum()) + int(self.legs[1, count - 1]), UNREACHABLE
        )

    def described(self, described: Described) -> Described:
        """The component with these ways."""
        described = self.names.described(described)
        described.set(exits=self.rows.ctypes.data, most_size=self.most_size)
        if self.names.any_order:  # else the automaton knows what may come next
            described.set(legs=self.legs.ctypes.data, to_begin=self.to_begin.rows.ctypes.data)
        return described._replace(held=(*described.held, self), nbytes=described.nbytes + 2 * self.to_end.rows.nbytes)


def with_more(
    exits: Exits, component: Component, size_of: Callable[[int], int], letters: NDArray[np.int32]
) -> NDArray[np.int32]:
    """(4, states) the exits of an array; in the last row, whether the way has another item."""
    weights = [size_of(one) if one >= 0 else UNREACHABLE if one == Mark.BEGIN else 0 for one in component.callees]
    rows: NDArray[np.int32] = exits.rows.copy()
    rows[3] = Exits(component, weights, letters, component.dfa.accepting.copy()).rows[0] != rows[0]
    return rows


def _number_of_texts(dfa: ByteDfa) -> int:
    """Number of texts of an automaton; ``_UNBOUNDED`` for more."""
    bytes_of = np.bincount(dfa.byte_class, minlength=dfa.table.shape[1])
    from_state = accepting = dfa.accepting.astype(np.float64)
    for _ in range(dfa.states):  # a text with more bytes goes through a state twice, so there is no end of them
        longer = np.minimum(accepting + from_state[dfa.table] @ bytes_of, _UNBOUNDED)
        longer[0] = 0
        if (longer == from_state).all() or longer[dfa.start] >= _UNBOUNDED:
            return int(longer[dfa.start])
        from_state = longer
    return _UNBOUNDED


def _end_of(network: Network, component: Component, name: bytes) -> int:
    """The state after a name, where the component reads it itself or in a language; 0 if there is none."""
    calls, dfa = dict(component.calls), component.dfa
    if Mark.END not in calls:
        return 0
    ends = calls[Mark.END]
    for mark in (Mark.BEGIN, Mark.BEGIN_REQUIRED):
        for state in np.unique(calls[mark]).tolist() if mark in calls else ():
            if state and (end := int(ends[dfa.advance(state, name)])):
                return end
            for callee, after in component.calls if state else ():
                if callee >= 0 and after[state] and ends[after[state]] and network.components[callee].dfa.accepts(name):
                    return int(ends[after[state]])
    return 0
