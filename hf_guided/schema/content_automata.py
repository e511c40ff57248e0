"""Arrays and objects as small automata over their entries, the same for every engine.

    state ──entry──► state ──skip──► state ...      entry: one item, or one member with its name

An edge may be taken several times in a row. The writers add what comes between entries (commas, white space).

A register stands beside an automaton that accepts more than there may be: it knows the items and names that are there
already, which no finite automaton does. Only the native engine keeps registers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..automaton.limits import count
from ..regex import ANYTHING, AllBut, Alt, Chars, Concat, Empty, Node, Not
from .shapes import ANY, Position


class Entry(NamedTuple):
    """One item, or one member.

    Args:
        name: of a member: exactly this, or any string of a formal language; None for an item.
        value: the position of the item, or of the member's value.
    """

    name: str | Node | None
    value: Position


class Edge(NamedTuple):
    """``low`` to ``high`` entries in a row, at least one, each any of ``entries``, then the target state."""

    entries: tuple[Entry, ...]
    target: int
    low: int = 1
    high: int | None = 1


@dataclass(frozen=True)
class DifferentNames:
    """No name comes twice.

    Args:
        origin: pointer and keyword of the schema that says so.
        required: names that have to come.
        low, high: how many members; ``high`` None is no bound.
        any_order: whether all names may come everywhere.
    """

    origin: tuple[str, str]
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    any_order: bool = False


@dataclass(frozen=True)
class DifferentItems:
    """No item comes twice.

    Args:
        origin: pointer and keyword of the schema that says so.
        items: the positions of the first items, and at last that of all others.
        low: how many there have to be.
    """

    origin: tuple[str, str]
    items: tuple[Position, ...]
    low: int


Register = DifferentNames | DifferentItems


@dataclass(slots=True)
class ContentAutomaton:
    """An automaton that starts in state 0.

    Args:
        edges: of each state.
        skips: states that are reached without an entry, of each state.
        accepting: where it may end.
        register: what it does not know.
    """

    edges: list[list[Edge]] = field(default_factory=lambda: [[]])
    skips: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    accepting: set[int] = field(default_factory=set)
    register: Register | None = None

    def state(self) -> int:
        """A new state."""
        count(8)
        self.edges.append([])
        self.skips.append(())
        return len(self.edges) - 1

    def entries(self) -> list[Entry]:
        """The entries of all edges."""
        return [entry for edges in self.edges for edge in edges for entry in edge.entries]

    def key(self) -> Hashable:
        """Equal for automata that differ in the positions of their entries alone."""
        edges = [
            tuple([(edge.target, edge.low, edge.high, *[entry.name for entry in edge.entries]) for edge in leaving])
            for leaving in self.edges
        ]
        return tuple(edges), tuple(self.skips), frozenset(self.accepting), self.register

    def renamed(self, at: Callable[[Position], Position]) -> ContentAutomaton:
        """The automaton with other positions; ``at`` has the one that each position becomes."""
        edges = [
            [
                edge._replace(entries=tuple([entry._replace(value=at(entry.value)) for entry in edge.entries]))
                for edge in leaving
            ]
            for leaving in self.edges
        ]
        register = self.register
        if isinstance(register, DifferentItems):
            register = replace(register, items=tuple(map(at, register.items)))
        return ContentAutomaton(edges, self.skips, self.accepting, register)

    def has_room(self, productive: AbstractSet[Position]) -> bool:
        """Whether names with values at these positions are enough for the register; a language counts as many."""
        register = self.register
        if not isinstance(register, DifferentNames) or not register.any_order:
            return True
        names = {entry.name for entry in self.entries() if entry.value in productive}
        most = sum(1 if isinstance(name, str) else register.low for name in names)
        if register.high is not None:
            most = min(most, register.high)
        return names.issuperset(register.required) and max(register.low, len(register.required)) <= most

    def useful(self, productive: AbstractSet[Position]) -> set[int]:
        """States from which values at these positions reach the end."""
        useful = set(self.accepting)
        waiting = [state for state in reversed(range(len(self.edges))) if state not in useful]
        while waiting:  # seldom more than once: most edges lead to later states
            left = []
            for state in waiting:
                if not useful.isdisjoint(self.skips[state]) or any(
                    [
                        edge.target in useful and any([entry.value in productive for entry in edge.entries])
                        for edge in self.edges[state]
                    ]
                ):
                    useful.add(state)
                else:
                    left.append(state)
            if len(left) == len(waiting):
                break
            waiting = left
        return useful

    def pruned(self, productive: AbstractSet[Position]) -> ContentAutomaton | None:
        """The automaton with values at these positions alone; None if it cannot be completed."""
        useful = self.useful(productive)
        if 0 not in useful or not self.has_room(productive):
            return None
        if len(useful) == len(self.edges) and all([entry.value in productive for entry in self.entries()]):
            return self
        edges: list[list[Edge]] = []
        for leaving in self.edges:
            kept = []
            for edge in leaving:
                entries = tuple(entry for entry in edge.entries if entry.value in productive)
                if entries and edge.target in useful:
                    kept.append(edge._replace(entries=entries))
            edges.append(kept)
        skips = [tuple(target for target in targets if target in useful) for targets in self.skips]
        return ContentAutomaton(edges, skips, self.accepting & useful, self.register)


ANY_ITEMS = ContentAutomaton([[Edge((Entry(None, ANY),), 1, 1, None)], []], [(), ()], {0, 1})
ANY_MEMBERS = ContentAutomaton([[Edge((Entry(ANYTHING, ANY),), 1, 1, None)], []], [(), ()], {0, 1})


def has_one_order(automata: Iterable[ContentAutomaton]) -> bool:
    """Whether no two names come in both orders in these automata of objects; where that takes long to tell, False."""
    before: set[tuple[str, str]] = set()
    for automaton in automata:
        pairs = _ordered_names(automaton)
        if pairs is None:
            return False
        before |= pairs
        if any((second, first) in before for first, second in pairs):
            return False
    return True


def _ordered_names(automaton: ContentAutomaton) -> set[tuple[str, str]] | None:
    """All names with those that may come after them; None if there are names that are not listed."""
    names = [{entry.name for edge in edges for entry in edge.entries} for edges in automaton.edges]
    if not all([isinstance(name, str) for here in names for name in here]):
        return None
    later, changed = names, True
    while changed:
        changed = False
        for state, edges in enumerate(automaton.edges):
            for target in (*automaton.skips[state], *(edge.target for edge in edges)):
                if not later[target] <= later[state]:
                    later[state] |= later[target]
                    changed = True
    return {
        (str(name), str(after))
        for edges in automaton.edges
        for edge in edges
        for name, _ in edge.entries
        for after in (later[edge.target] if edge.high == 1 else {*later[edge.target], name})
    }


def is_endless(name: Node) -> bool:
    """Whether a language is any string, but for some that are listed: then there are any number of them."""
    return left_out_length(name) is not None


def left_out_length(name: Node) -> int | None:
    """The length of some words together, where a language is all strings but those; None if it is another kind."""
    if isinstance(name, AllBut):
        return sum(map(len, name.words))
    if not isinstance(name, Not):
        return 0 if name == ANYTHING else None
    length = 0
    for branch in name.body.parts if isinstance(name.body, Alt) else (name.body,):
        for part in branch.parts if isinstance(branch, Concat) else (branch,):
            if isinstance(part, Chars):
                length += len(part.charset.ranges)
            elif not isinstance(part, Empty):
                return None
    return length
