"""Where the components of a network end soonest, in bytes: shortest paths, and the shortest members of objects.

A component without a register has a shortest path out of each state; a call weighs the shortest text of its callee. Of
an object whose members come in any order only the members that have to come count: components of others are not built.
"""

from __future__ import annotations

import heapq
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np

from .after_fork import renew_in_child
from .length_rule import LengthRule
from .limits import WorkMeter
from .network import Network
from .registers import ItemRule, NameRule
from .rtn import Mark
from .shortest_paths import UNREACHABLE, ComponentPaths

LETTERS = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
READABLE = LETTERS + b'"0123456789 _-.,:;!?'
"""The first bytes to take where any will do: vocabularies have tokens of several letters."""
_MOST_NAMES = 20_000  # of the names looked at from one state


class Leg(NamedTuple):
    """A way between two states of a component: its bytes and calls."""

    size: int
    parts: tuple[bytes | int, ...]
    end: int


class ExitPaths(ABC):
    """The shortest paths in the components of a network; thread safe.

    Args:
        network: what reads the texts.
    """

    def __init__(self, network: Network):
        self._network, self._components = network, network.components
        self._sizes: dict[int, int] = {}
        self._paths: dict[int, ComponentPaths] = {}
        self._longer: set[int] = set()
        self._most: dict[int, int] = {}
        self._first_words: dict[tuple[int, int], bytes] = {}
        self._legs: dict[tuple[int, int, Mark | None], Leg | None] = {}
        self._names: dict[tuple[int, int], dict[bytes, int]] = {}
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """See ``Renewed``."""
        self._lock = threading.RLock()

    # -- sizes: bytes of the shortest texts

    def size(self, component: int) -> int:
        """Bytes of the shortest text of a component, about; UNREACHABLE if there is none."""
        if component not in self._sizes:
            with self._lock:
                self._settle(component)
        return self._sizes[component]

    def _settle(self, component: int) -> None:
        new: dict[int, int] = {}
        called_by: dict[int, list[int]] = {}
        todo = [component]
        while todo:
            number = todo.pop()
            if number in new or number in self._sizes:
                continue
            new[number] = UNREACHABLE
            for callee in self._deciding(number):
                called_by.setdefault(callee, []).append(number)
                todo.append(callee)

        def size_of(callee: int) -> int:
            known = self._sizes.get(callee)
            return new.get(callee, UNREACHABLE) if known is None else known

        work = dict.fromkeys(new)
        while work:
            number, _ = work.popitem()
            size = self._sized(number, size_of)
            if size < new[number]:
                new[number] = size
                work.update(dict.fromkeys(called_by.get(number, ())))
        todo = [number for number in new if self._is_longer(number)]
        todo += [number for callee in called_by if callee in self._longer for number in called_by[callee]]
        while todo:
            number = todo.pop()
            if number not in self._longer:
                self._longer.add(number)
                todo += called_by.get(number, ())
        self._sizes.update(new)

    def _is_longer(self, component: int) -> bool:
        """Whether texts of a component may be longer than their sizes: names or items have to be different ones."""
        rule = self._network.rule(component)
        if isinstance(rule, NameRule):
            return not rule.any_order or rule.low > len(rule.required)
        return isinstance(rule, ItemRule) and rule.low > 1

    def most(self, component: int) -> int | None:
        """Bytes to the end of a component without a register, or of a string, at most; None for others.

        None too where that is not known at once.
        """
        self.size(component)
        rule = self._network.rule(component)
        if component in self._longer or not (rule is None or isinstance(rule, LengthRule)):
            return None
        known = self._most.get(component)
        if known is None:
            known = max([size for size in self._paths[component].size if size < UNREACHABLE])
            if rule is not None:
                known += rule.low
            self._most[component] = known
        return known

    def _deciding(self, component: int) -> Collection[int]:
        """The callees on which the shortest text of a component depends: not those of members that need not come."""
        rule = self._network.rule(component)
        callees = {callee for callee in self._components[component].callees if callee >= 0}
        if not isinstance(rule, NameRule) or not rule.any_order or rule.low > len(rule.required):
            return callees
        needed: set[int] = set()
        for name in rule.required:
            needed |= self._callees_after(component, name)
        return needed

    def _callees_after(self, component: int, name: bytes) -> set[int]:
        end = self._end_of(component, name)
        reached, todo, callees = {end}, [end], set[int]()
        while todo:
            state = todo.pop()
            onwards = [target for _, target in self._network.graph.moves(component, state, 1)]
            for callee, after in self._network.calls(component, state):
                if callee >= 0:
                    callees.add(callee)
                    onwards.append(after)
            todo += [target for target in dict.fromkeys(onwards) if target not in reached]
            reached.update(onwards)
        return callees

    def _sized(self, component: int, size_of: Callable[[int], int]) -> int:
        rule = self._network.rule(component)
        if isinstance(rule, NameRule) and rule.any_order:
            total = 1  # the bracket
            for name in rule.required:
                leg = self._shortest_leg(component, self._end_of(component, name), Mark.CLOSE, size_of)
                total += len(name) + 1 + (UNREACHABLE if leg is None else leg.size)
            return min(UNREACHABLE, total + max(0, rule.low - len(rule.required)))
        component_ = self._components[component]
        paths = self._paths.get(component)
        if paths is None:
            paths = self._paths[component] = ComponentPaths(component_, np.ones(256, np.bool_), READABLE)
        before, moves = paths.size, paths.move.copy()
        paths.shorten([0 if callee < 0 else size_of(callee) for callee in component_.callees], WorkMeter())
        for state, size in enumerate(before):
            if size == paths.size[state]:
                paths.move[state] = moves[state]  # or calls that weigh nothing could lead round in a circle
        size = paths.size[component_.dfa.start]
        return min(UNREACHABLE, size + rule.low) if isinstance(rule, LengthRule) else size

    # -- legs: the ways between marks of an object whose members come in any order

    def _leg(self, component: int, state: int, goal: Mark | None) -> Leg | None:
        """The shortest way to a state where a mark comes, or where the component may end; None if there is none."""
        key = component, state, goal
        if key not in self._legs:
            self._legs[key] = self._shortest_leg(component, state, goal, self.size)
        return self._legs[key]

    def _shortest_leg(self, component: int, state: int, goal: Mark | None, size_of: Callable[[int], int]) -> Leg | None:
        queue: list[tuple[int, int, int, tuple[bytes | int, ...]]] = [(0, 0, state, ())]
        seen: set[int] = set()
        made = 0
        while queue:
            size, _, here, parts = heapq.heappop(queue)
            if here in seen:
                continue
            seen.add(here)
            calls = self._network.calls(component, here)
            marks = [callee for callee, _ in calls]
            if self._network.accepts(component, here) if goal is None else goal in marks:
                return Leg(size, parts, here)
            if goal == Mark.BEGIN and Mark.BEGIN_REQUIRED in marks:
                return Leg(size, parts, here)
            onwards: list[tuple[int, int, bytes | int]]
            onwards = [(size + 1, target, bytes((byte,))) for byte, target in self._moves(component, here)]
            for callee, after in calls:
                if callee >= 0:
                    weight = size_of(callee)
                    if weight < UNREACHABLE:
                        onwards.append((size + weight, after, callee))
                elif callee == Mark.MORE and goal == Mark.BEGIN:
                    onwards.append((size, after, b""))
            for weight, target, part in onwards:
                if target not in seen:
                    made += 1
                    heapq.heappush(queue, (weight, made, target, (*parts, part)))
        return None

    def _moves(self, component: int, state: int) -> list[tuple[int, int]]:
        """A byte to each state that bytes lead to, letters first."""
        targets: dict[int, int] = {}
        for byte, target in self._network.graph.moves(component, state, 256):
            known = targets.get(target)
            if known is None or RANKS[byte] < RANKS[known]:
                targets[target] = byte
        return [(byte, target) for target, byte in targets.items()]

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

    def _begun_states(self, component: int) -> list[int]:
        """The states after a name begins."""
        after = {
            int(target)
            for callee, targets in self._components[component].calls
            if callee in (Mark.BEGIN, Mark.BEGIN_REQUIRED)
            for target in np.unique(targets).tolist()
            if target
        }
        return sorted(after)

    def _end_of(self, component: int, name: bytes) -> int:
        """The state after a listed name."""
        for state in self._begun_states(component):
            end = self._names_from(component, state).get(name)
            if end is not None:
                return end
        raise AssertionError("a required name has no member")

    def _languages(self, component: int, state: int) -> Iterator[tuple[int, int]]:
        """The languages of names that may begin in a state, and the state after each name."""
        for callee, after in self._network.calls(component, state):
            if callee >= 0:
                for mark, end in self._network.calls(component, after):
                    if mark == Mark.END:
                        yield callee, end

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
        self.size(component)
        size = self._paths[component].size
        queue: list[tuple[int, bytes, bytes, int]] = [(size[state], b"", b"", state)]
        while queue:
            _, ranks, path, here = heapq.heappop(queue)
            if self._network.accepts(component, here):
                yield path
            by_target: dict[int, list[int]] = {}
            for byte, target in self._network.graph.moves(component, here, 256):
                by_target.setdefault(target, []).append(byte)
            for target, letters in by_target.items():
                if size[target] < UNREACHABLE:
                    for byte in sorted(letters, key=RANKS.__getitem__)[:width]:
                        longer = path + bytes((byte,))
                        item = len(longer) + size[target], ranks + bytes((RANKS[byte],)), longer, target
                        heapq.heappush(queue, item)

    def _free(self, component: int, state: int, taken: Collection[bytes]) -> tuple[bytes, int] | None:
        """The cheapest name that is not taken, with its value, and the state after it; None if there is none.

        Args:
            component: of an object.
            state: after the mark ``BEGIN``.
            taken: names.
        """
        best: tuple[int, int, bytes, int] | None = None
        words = [(word, end) for callee, end in self._languages(component, state)
                 if (word := self._word(callee, self._network.start_of(callee), b"", taken)) is not None]  # fmt: skip
        listed = [(name, end) for name, end in self._names_from(component, state).items() if name not in taken]
        for name, end in [*words, *listed]:
            found = self._cost(name) + self._value_size(component, end), len(name), name, end
            if found[0] < UNREACHABLE and (best is None or found < best):
                best = found
        return None if best is None else best[2:]

    @abstractmethod
    def _cost(self, name: bytes) -> int:
        """How much it takes to write a name."""

    def _value_size(self, component: int, end: int) -> int:
        """Bytes from the end of a name to that of its member, or, in an order, to that of the object."""
        rule = self._network.rule(component)
        if isinstance(rule, NameRule) and not rule.any_order:
            self.size(component)
            return self._paths[component].size[end]
        leg = self._leg(component, end, Mark.CLOSE)
        return UNREACHABLE if leg is None else leg.size

    def _end_after(self, component: int, name: bytes) -> int:
        """The state after a name, listed or not."""
        for state in self._begun_states(component):
            end = self._names_from(component, state).get(name)
            if end is not None:
                return end
            for callee, after in self._languages(component, state):
                dfa = self._components[callee].dfa
                if dfa.accepting[dfa.advance(dfa.start, name)]:
                    return after
        raise AssertionError("no such name")


RANKS = [0] * 256
"""The order in which bytes are taken."""
for _order, _byte in enumerate([*READABLE, *(byte for byte in range(256) if byte not in READABLE)]):
    RANKS[_byte] = _order
