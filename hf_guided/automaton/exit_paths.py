"""The shortest ways to the ends of a network's components, in bytes, and the shortest members of objects.

A component without a register has a shortest way out of each state; a call weighs the shortest text of its callee. Of
an object whose members come in any order only the members that have to come count: components of others are not built.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np

from .frame_exits import UNREACHABLE, Exits, Sizes
from .network import Network
from .registers import Different, ItemRule, LengthRule, NameRule
from .rtn import Mark
from .token_counts import TokenCounts
from .token_trie import TokenTrie

_MOST_NAMES = 20_000  # maximum number of names looked at from one state


class Leg(NamedTuple):
    """A way between two states of a component: its bytes and calls, and where it leads."""

    size: int
    parts: tuple[bytes | int, ...]
    end: int


class ExitPaths:
    """The shortest paths in the components of a network; thread safe.

    ``size`` is of a component, bytes of its shortest text, about; UNREACHABLE if there is none.
    """

    def __init__(self, network: Network, tokens: TokenTrie):
        self._network, self._components = network, network.components
        self.counts, self._letters = TokenCounts(tokens), tokens.preferred
        self._order: list[int] = tokens.preferred[:-1].tolist()
        self._ranks = [self._order.index(byte) for byte in range(256)]
        self.size = Sizes(self._deciding, self._measure)
        self._exits: dict[tuple[int, Mark | None], tuple[frozenset[int], Exits]] = {}  # by the callees measured then
        self._ways: dict[int, Exits] = {}
        self._most: dict[int, int | None] = {}
        self._first_words: dict[tuple[int, int], bytes] = {}
        self._legs: dict[tuple[int, int, Mark | None], Leg | None] = {}
        self._names: dict[tuple[int, int], dict[bytes, int]] = {}

    # -- sizes: bytes of the shortest texts

    def _deciding(self, component: int) -> Collection[int]:
        """The callees on which the shortest text of a component depends: not those of members that need not come."""
        rule = self._network.rule(component)
        if not isinstance(rule, NameRule) or not rule.any_order or rule.low > len(rule.required):
            return dict.fromkeys(self._components[component].called)
        ends = [self._end_after(component, name) for name in rule.required]
        return {callee for end in ends for callee in self._callees_after(component, end)}

    def _callees_after(self, component: int, state: int) -> set[int]:
        """The callees that may come before the next mark but ``MORE``."""
        reached, todo, callees = {state}, [state], set[int]()
        while todo:
            here = todo.pop()
            onwards = [target for _, target in self._network.graph.moves(component, here, 1)]
            for callee, after in self._network.calls(component, here):
                if callee >= 0:
                    callees.add(callee)
                if callee >= 0 or callee == Mark.MORE:
                    onwards.append(after)
            todo += [target for target in dict.fromkeys(onwards) if target not in reached]
            reached.update(onwards)
        return callees

    def _measure(self, component: int, size_of: Callable[[int], int]) -> int:
        rule = self._network.rule(component)
        if isinstance(rule, NameRule) and rule.any_order:
            return self._measure_members(component, rule, size_of)
        exits = Exits.to_end(self._components[component], size_of, self._letters, rule)
        return exits.size[exits.component.dfa.start] + (rule.low if isinstance(rule, LengthRule) else 0)

    def _measure_members(self, component: int, rule: NameRule, size_of: Callable[[int], int]) -> int:
        """Bytes of an object with the required members; other members count as one byte each."""
        here, names = self._components[component], sorted(rule.required)
        begin, close, end = (self._to_mark(component, goal, size_of).size for goal in (Mark.BEGIN, Mark.CLOSE, None))
        closed = {to for mark, after in here.calls if mark == Mark.CLOSE for to in after.tolist()}
        *before, last = [here.dfa.start, *[self._end_after(component, name) for name in names]]
        members = sum(map(len, names)) + sum([begin[state] for state in before]) + close[last]
        bracket = max([end[to] for to in closed if end[to] < UNREACHABLE], default=0)
        return members + bracket + max(0, rule.low - len(names))

    def most(self, component: int) -> int | None:
        """Bytes to the end of a component without a register, or of a string, at most; None for others.

        None too where names or items in it have to be different, which may take more.
        """
        if component not in self._most:
            rule = self._network.rule(component)
            is_known = not isinstance(rule, Different) and not self._is_longer(component)
            low = rule.low if isinstance(rule, LengthRule) else 0
            self._most[component] = self.exits(component).most_size + low if is_known else None
        return self._most[component]

    def _is_longer(self, component: int) -> bool:
        """Whether texts of a component may be longer than their sizes: names or items have to be different ones."""
        reached, todo = {component}, [component]
        while todo:
            number = todo.pop()
            rule = self._network.rule(number)
            if isinstance(rule, NameRule) and (not rule.any_order or rule.low > len(rule.required)):
                return True
            if isinstance(rule, ItemRule) and rule.low > 1:
                return True
            todo += [callee for callee in self._deciding(number) if callee not in reached]
            reached.update(todo)
        return False

    # -- ways

    def exits(self, component: int) -> Exits:
        """The shortest ways to the end of a component, whatever its register says."""
        exits = self._ways.get(component)
        if exits is None:
            self.size(component)
            rule = self._network.rule(component)
            exits = self._ways[component] = Exits.to_end(self._components[component], self.size, self._letters, rule)
        return exits

    def _to_mark(self, component: int, goal: Mark | None, size_of: Callable[[int], int]) -> Exits:
        """The shortest ways to states where a mark comes, or where the component may end, past no mark but ``MORE``."""
        component_ = self._components[component]
        ends = component_.dfa.accepting.copy() if goal is None else np.zeros(component_.dfa.states, np.bool_)
        for callee, after in component_.calls if goal is not None else ():
            if callee == goal or (goal == Mark.BEGIN and callee == Mark.BEGIN_REQUIRED):
                ends |= after != 0
        weights = [
            size_of(callee) if callee >= 0 else 0 if (goal, callee) == (Mark.BEGIN, Mark.MORE) else UNREACHABLE
            for callee in component_.callees
        ]
        return Exits(component_, weights, self._letters, ends)

    def _leg(self, component: int, state: int, goal: Mark | None) -> Leg | None:
        """The shortest way to a state where a mark comes, or where the component may end; None if there is none."""
        key = component, state, goal
        if key not in self._legs:
            needed = self._callees_after(component, state)
            measured, exits = self._exits.get((component, goal), (frozenset[int](), None))
            if exits is None or not needed <= measured:
                for callee in needed:
                    self.size(callee)
                measured = frozenset([callee for callee in self._components[component].called if callee in self.size])
                exits = self._to_mark(component, goal, lambda one: self.size(one) if one in measured else UNREACHABLE)
                self._exits[component, goal] = measured, exits
            self._legs[key] = _along(exits, state)
        return self._legs[key]

    # -- names

    def _names_from(self, component: int, state: int) -> dict[bytes, int]:
        """The endings of a name that has begun in the component itself, and the state after each, in order."""
        key = component, state
        known = self._names.get(key)
        if known is None:
            endings: dict[bytes, int] = {}
            todo = [(b"", state)]
            while todo and len(endings) < _MOST_NAMES:
                path, here = todo.pop()
                for callee, after in self._network.calls(component, here):
                    if callee == Mark.END:
                        endings[path] = after
                todo += [(path + bytes((byte,)), to) for byte, to in self._network.graph.moves(component, here, 256)]
            known = self._names[key] = dict(sorted(endings.items()))
        return known

    def _languages(self, component: int, state: int) -> Iterator[tuple[int, int]]:
        """The languages of names that may begin in a state, and the state after each name."""
        for callee, after in self._network.calls(component, state):
            if callee >= 0:
                for mark, end in self._network.calls(component, after):
                    if mark == Mark.END:
                        yield callee, end

    def _end_after(self, component: int, name: bytes) -> int:
        begins = [after for callee, after in self._components[component].calls
                  if callee in (Mark.BEGIN, Mark.BEGIN_REQUIRED)]  # fmt: skip
        for state in np.unique(np.concatenate(begins))[1:].tolist():
            end = self._names_from(component, state).get(name)
            if end is not None:
                return end
            for callee, after in self._languages(component, state):
                dfa = self._components[callee].dfa
                if dfa.accepting[dfa.advance(dfa.start, name)]:
                    return after
        raise AssertionError("no such name")

    def _word(self, component: int, state: int, written: bytes, taken: Collection[bytes]) -> bytes | None:
        """The shortest way to the end of a name of a language that is not taken."""
        first = self._first_words.get((component, state))
        if first is None:
            first = self._first_words[component, state] = next(self._words(component, state, 1))
        if written + first not in taken:
            return first
        words = self._words(component, state, 1 + len(taken))
        return next((word for word in words if written + word not in taken), None)

    def _words(self, component: int, state: int, width: int) -> Iterator[bytes]:
        """The texts of a component without calls, the shortest first, then by the order of letters."""
        size = self.exits(component).size
        queue: list[tuple[int, bytes, bytes, int]] = [(size[state], b"", b"", state)]
        while queue:
            _, ranks, path, here = heapq.heappop(queue)
            if self._network.accepts(component, here):
                yield path
            for byte, target in self._bytes_by_target(component, here, width):
                if size[target] < UNREACHABLE:
                    longer = path + bytes((byte,))
                    item = len(longer) + size[target], ranks + bytes((self._ranks[byte],)), longer, target
                    heapq.heappush(queue, item)

    def _bytes_by_target(self, component: int, state: int, width: int) -> Iterator[tuple[int, int]]:
        """The first bytes, ``width`` at most, to each state that bytes lead to."""
        by_target: dict[int, list[int]] = {}
        for byte, target in self._network.graph.moves(component, state, 256):
            by_target.setdefault(target, []).append(byte)
        for target, letters in by_target.items():
            for byte in sorted(letters, key=self._ranks.__getitem__)[:width]:
                yield byte, target

    def _free(self, component: int, state: int, taken: Collection[bytes]) -> bytes | None:
        """The cheapest name, with its value, that is not taken, after the mark ``BEGIN``; None if there is none."""
        words = [(word, end) for callee, end in self._languages(component, state)
                 if (word := self._word(callee, self._network.start_of(callee), b"", taken)) is not None]  # fmt: skip
        listed = [(name, end) for name, end in self._names_from(component, state).items() if name not in taken]
        costs = [(self.counts.cost(name) + self._value_size(component, end), len(name), name)
                 for name, end in (*words, *listed)]  # fmt: skip
        best = min(costs, default=(UNREACHABLE, 0, b""))
        return best[2] if best[0] < UNREACHABLE else None

    def _value_size(self, component: int, end: int) -> int:
        """Bytes from the end of a name to that of its member, or, in an order, to that of the object."""
        rule = self._network.rule(component)
        if isinstance(rule, NameRule) and not rule.any_order:
            return self.exits(component).size[end]
        leg = self._leg(component, end, Mark.CLOSE)
        return UNREACHABLE if leg is None else leg.size


def _along(exits: Exits, state: int) -> Leg | None:
    size, parts = exits.size[state], list[bytes | int]()
    if size >= UNREACHABLE:
        return None
    while exits.move[state] >= 0:
        byte, callee, state = exits.after(state)
        if byte is not None or callee >= 0:
            parts.append(callee if byte is None else bytes((byte,)))
    return Leg(size, tuple(parts), state)
