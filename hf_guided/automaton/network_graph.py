"""Where in a network infinitely many values remain."""

from __future__ import annotations

import weakref
from collections import ChainMap
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .after_fork import Shared
from .byte_dfa import ByteDfa, productive
from .registers import LengthRule, NameRule, Rule
from .rtn import Component, Mark, callers
from .written_values import OUTSIDE, lexed

if TYPE_CHECKING:
    from .network import Network

_OF_NUMBERS = b"0123456789+-.eE"  # repeated in a number they may mean the same again
_STRUCTURE = frozenset(b"{}[]:,")
_NO_BYTE = 256


class NetworkGraph(Shared):
    """Facts about the states of a network, computed when they are first needed; thread safe.

    What is known of a component depends on those that it calls, and on those that these call: no others are built.
    """

    def __init__(self, network: Network):
        super().__init__()
        self._network: Network = weakref.proxy(network)  # weak, or only a full collection could free either
        self._components = network.components
        self._unbounded: dict[int, NDArray[np.bool_]] = {}

    def is_unbounded(self, component: int, state: int) -> bool:
        """Whether there are ways to the end of the component that mean any number of different values."""
        return bool(self.unbounded(component)[state])

    def unbounded(self, component: int) -> NDArray[np.bool_]:
        """(states,) ``is_unbounded`` of each."""
        if component not in self._unbounded:
            with self._lock:
                self._find_unbounded(component)
        return self._unbounded[component]

    def _find_unbounded(self, component: int) -> None:
        numbers = {} if component in self._unbounded else {component: None}  # components of which nothing is known
        todo = list(numbers)
        while todo:
            for callee in self._components[todo.pop()].called:
                if callee not in self._unbounded and callee not in numbers:
                    numbers[callee] = None
                    todo.append(callee)
        recursive = self._recursive(numbers)
        targets = {number: _certain_targets(self._components[number]) for number in numbers}
        unbounded = {
            number: productive(after, _on_cycles(self._components[number], after)) for number, after in targets.items()
        }
        known = ChainMap(unbounded, self._unbounded)
        called_by = callers({number: self._components[number] for number in numbers})
        again = dict.fromkeys(numbers)  # the last first: most callees come after their callers
        while again:
            number, _ = again.popitem()
            found = self._unbounded_in(number, recursive, targets[number], known)
            if not np.array_equal(found, unbounded[number]):
                unbounded[number] = found
                again.update(dict.fromkeys((*called_by.get(number, ()), number)))
        self._unbounded.update(unbounded)

    def _unbounded_in(
        self,
        number: int,
        recursive: Collection[int],
        targets: NDArray[np.int64],
        known: Mapping[int, NDArray[np.bool_]],
    ) -> NDArray[np.bool_]:
        component, rule = self._components[number], self._network.rule(number)
        if isinstance(rule, LengthRule):  # more values than any text has, where there is a choice
            return _before_the_end(component)
        seeds = known[number].copy()
        for callee, after in component.calls:
            if callee in recursive or (callee >= 0 and known[callee][self._components[callee].dfa.start]):
                seeds |= after != 0
            elif callee == Mark.BEGIN and not _has_room_for_required_alone(rule):
                start = component.dfa.start
                seeds[start] |= seeds[after[start]]
        return productive(targets, seeds)

    def _recursive(self, numbers: Collection[int]) -> set[int]:
        """The components among some that lead back to themselves."""
        callees = {number: set(self._components[number].called) for number in numbers}
        recursive = set()
        for number, direct in callees.items():
            reached, todo = set(direct), list(direct)
            while todo and number not in reached:
                # All callees of other components are known already, so no path through them leads here.
                for callee in callees.get(todo.pop(), set()) - reached:
                    reached.add(callee)
                    todo.append(callee)
            if number in reached:
                recursive.add(number)
        return recursive


def _has_room_for_required_alone(rule: Rule | None) -> bool:
    return isinstance(rule, NameRule) and rule.high is not None and len(rule.required) >= rule.high


def _before_the_end(component: Component) -> NDArray[np.bool_]:
    """(states,) those from which the mark ``END`` still comes, in a component in which it always does."""
    before = np.ones(component.dfa.states, np.bool_)
    before[0] = False
    todo = [state for callee, after in component.calls if callee == Mark.END for state in np.unique(after).tolist()]
    while todo:
        state = todo.pop()
        if before[state]:
            before[state] = False
            todo += np.unique(component.dfa.table[state]).tolist()
    return before


def _certain_targets(component: Component, marks: Collection[Mark] = (Mark.END, Mark.CLOSE)) -> NDArray[np.int64]:
    """(states, n) where a state leads, whatever a register says of these marks."""
    calls = [after for callee, after in component.calls if callee >= 0 or callee in marks]
    return np.concatenate([component.dfa.table, *(after[:, None] for after in calls)], 1)


def _on_cycles(component: Component, targets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(states,) from which a cycle is reached that has more than numbers in it."""
    dfa = component.dfa
    of_numbers = np.zeros(256, np.bool_)
    of_numbers[list(_OF_NUMBERS)] = True
    left_out = np.setdiff1d(dfa.byte_class[of_numbers], dfa.byte_class[~of_numbers])
    targets = targets.copy()
    targets[_before_members(dfa, targets), dfa.byte_class[ord(",")]] = 0  # a name may be repeated, for the same value
    sources = _sources(np.delete(targets, left_out, 1))
    onwards = np.bincount([source for some in sources for source in some], minlength=dfa.states).tolist()
    todo = [state for state, count in enumerate(onwards) if not count]
    for state in todo:  # grows meanwhile
        for source in sources[state]:
            onwards[source] -= 1
            if not onwards[source]:
                todo.append(source)
    left: NDArray[np.bool_] = np.array(onwards) > 0
    return left


def _before_members(dfa: ByteDfa, targets: NDArray[np.int64]) -> list[int]:
    """The states of a JSON text in which a comma comes before the name of a member."""
    moves = targets.tolist()
    first_bytes = {class_: byte for byte, class_ in reversed([*enumerate(dfa.byte_class.tolist())])}
    bytes_of = [first_bytes.get(column, _NO_BYTE) for column in range(targets.shape[1])]  # calls are the last columns
    places, todo = {0: OUTSIDE, dfa.start: OUTSIDE}, [dfa.start]
    for state in todo:  # grows meanwhile
        for byte, target in zip(bytes_of, moves[state], strict=True):
            if target not in places:
                places[target] = lexed(places[state], byte)
                todo.append(target)

    @cache
    def is_before_colon(start: int) -> bool:
        """Whether a colon is the first of the bytes outside strings that say what a text is part of."""
        known, left = {0, start}, [start]
        while left:
            state = left.pop()
            for byte, target in zip(bytes_of, moves[state], strict=True):
                if places[state] == OUTSIDE and byte in _STRUCTURE:
                    if target and byte == ord(":"):
                        return True
                elif target not in known:
                    known.add(target)
                    left.append(target)
        return False

    comma = int(dfa.byte_class[ord(",")])
    return [state for state in todo if places[state] == OUTSIDE and is_before_colon(moves[state][comma])]


def _sources(targets: NDArray[np.int64]) -> list[list[int]]:
    """The states that lead to each state, of the targets (states, n) of each; none leads to the dead state."""
    states = len(targets)
    pairs = np.unique(targets.astype(np.int64) * states + np.arange(states)[:, None])
    pairs = pairs[pairs >= states]
    begin = np.searchsorted(pairs, np.arange(1, states) * states)
    return [some.tolist() for some in np.split(pairs % states, begin)]
