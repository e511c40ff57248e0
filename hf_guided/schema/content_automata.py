"""Arrays and objects as small automata over their entries, the same for every engine.

    state ──entry──► state ──skip──► state ...      entry: one item, or one member with its name

An edge may be taken several times in a row. The writers add what comes between entries (commas, white space).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import NamedTuple, Protocol

from ..regex import And, Node, all_but, alt, both, complement, matches
from .normalize import Normalizer
from .registers import DifferentNames, Register
from .shapes import (
    ANY,
    NEVER,
    ArrayClause,
    BooleanClause,
    Members,
    Names,
    NullClause,
    NumberClause,
    ObjectClause,
    Position,
    StringClause,
    all_of,
)

MAX_STATES = 2000
MOST_APART = 4  # alternatives that are not joined
MAX_NAME_CLASSES = 32  # names that match the same patterns
MAX_FREE = 4  # names in any order: sixteen states
MAX_UNIQUE = 7  # different items whose orders are listed: 128 states
# A JSON parser counts a name that is written twice once.
_REPEATED = "members that are not declared may repeat a name"
MAX_KINDS = 3  # of items that are counted at once


class Entry(NamedTuple):
    """One item, or one member.

    Args:
        name: of a member: exactly this, or any string of a formal language; None for an item.
        value: the position of the item, or of the member's value.
    """

    name: str | Node | None
    value: Position


class Edge(NamedTuple):
    """``low`` to ``high`` entries in a row, each any of ``entries``, then the target state."""

    entries: tuple[Entry, ...]
    target: int
    low: int = 1
    high: int | None = 1


@dataclass(slots=True)
class ContentAutomaton:
    """An automaton that starts in state 0.

    Args:
        edges: of each state.
        skips: states that are reached without an entry, of each state.
        accepting: where it may end.
        register: what it does not know; only of the automata in registered_content.py.
    """

    edges: list[list[Edge]] = field(default_factory=lambda: [[]])
    skips: list[tuple[int, ...]] = field(default_factory=lambda: [()])
    accepting: set[int] = field(default_factory=set)
    register: Register | None = None

    def state(self) -> int:
        """A new state."""
        self.edges.append([])
        self.skips.append(())
        return len(self.edges) - 1

    def entries(self) -> list[Entry]:
        """The entries of all edges."""
        return [entry for edges in self.edges for edge in edges for entry in edge.entries]


class ObjectWriter(Protocol):
    """Writes the automata of an object, one for each alternative."""

    def __call__(self, n: Normalizer, clause: ObjectClause, *, closed: bool) -> Iterator[ContentAutomaton]:
        """See ``object_automata``."""
        ...


class ContentWriter(NamedTuple):
    """Writes the automata of arrays and objects."""

    array: Callable[[Normalizer, ArrayClause], ContentAutomaton]
    objects: ObjectWriter


# -- objects ---------------------------------------------------------------------------------------------------------


def object_automata(
    n: Normalizer, clause: ObjectClause, *, closed: bool, registers: bool = False
) -> Iterator[ContentAutomaton]:
    """The members of an object: declared ones in their order, then others.

    Args:
        n: who knows the positions.
        clause: the object.
        closed: whether an object that declares properties and does not speak of others has no others.
        registers: whether a register may keep the names of the others.
    """
    if clause.at_least_one:
        yield from _with_a_member(n, clause, closed, partial(object_automata, registers=registers))
        return
    names = [name for name in clause.declared if name not in clause.forbidden]
    required = frozenset(clause.required)
    # Only required, declared nowhere: their order is open, so any order is allowed, if they are few.
    unordered = required.difference(*(members.named for members in clause.members))
    free = [name for name in names if name in unordered]
    free = free if len(free) <= MAX_FREE else []
    names = [name for name in names if name not in free]
    others = other_members(n, clause, closed)
    may_repeat = bool(others) and clause.low > len(clause.required) + 1
    if may_repeat and not registers:
        n.lose_at(clause.origin, "minProperties", _REPEATED)
        clause, may_repeat = replace(clause, low=0), False
    low, high = _counts(n, clause, len(names) + len(free), bool(others))
    # The number of members so far, up to the largest that matters.
    most = max(low, -1 if high is None else high, 0)
    automaton = ContentAutomaton()
    if may_repeat and low:
        automaton.register = DifferentNames((clause.origin, "minProperties"))
    states = {(0, 0, 0): 0}
    todo = [(0, 0, 0)]

    def state(i: int, count: int, used: int) -> int:
        key = i, count, used
        if key not in states:
            states[key] = automaton.state()
            todo.append(key)
        return states[key]

    while todo:
        i, count, used = todo.pop()
        here = states[i, count, used]
        more = min(count + 1, most)
        room = high is None or count < high
        if i < len(names):
            if room:
                automaton.edges[here].append(Edge((member(n, clause, names[i]),), state(i + 1, more, used)))
            if names[i] not in required:
                automaton.skips[here] += (state(i + 1, count, used),)
        elif used + 1 < 1 << len(free):
            for j, name in enumerate(free):
                if room and not used >> j & 1:
                    automaton.edges[here].append(Edge((member(n, clause, name),), state(i, more, used | 1 << j)))
        else:
            _end(automaton, here, others, max(0, low - count), None if high is None else high - count)
    yield automaton


def member(n: Normalizer, clause: ObjectClause, name: str) -> Entry:
    """The member of this name."""
    return Entry(name, clause.at(name) if n.has_name(clause.names, name) else NEVER)


def _end(automaton: ContentAutomaton, here: int, others: tuple[Entry, ...], need: int, room: int | None) -> None:
    if need == 0:
        automaton.accepting.add(here)
    if others and room != 0:
        end = automaton.state()
        automaton.accepting.add(end)
        automaton.edges[here].append(Edge(others, end, max(need, 1), room))


def _counts(n: Normalizer, clause: ObjectClause, declared: int, open_: bool) -> tuple[int, int | None]:
    """The effective bounds on the number of members; bounds that cannot be enforced are lost."""
    low, high = clause.low, clause.high
    if low <= len(clause.required):
        low = 0
    if not open_ and high is not None and high >= declared:
        high = None
    if (declared + 1) * max(low, high or 0) > MAX_STATES:
        for keyword, bound in (("minProperties", low), ("maxProperties", high)):
            if bound:
                n.lose_at(clause.origin, keyword, "counts too many members")
        low, high = 0, None
    return low, high


def other_members(n: Normalizer, clause: ObjectClause, closed: bool) -> tuple[Entry, ...]:
    """Members that are not declared: for each set of patterns that a name may match, those names and their values."""
    patterns = tuple(dict.fromkeys([names for members in clause.members for names, _ in members.patterns]))
    if not patterns:
        additional = [members.additional for members in clause.members]
        says_nothing = all(position is None for position in additional)
        if closed and says_nothing and any(members.named and members.evaluates for members in clause.members):
            return ()
        if NEVER in additional:
            return ()
    allowed = all_but(tuple(dict.fromkeys([*clause.declared, *sorted(clause.forbidden)])))
    if clause.names:
        allowed = both(allowed, n.written_names(clause.names))
    classes = _classes(n, clause.origin, allowed, patterns)
    if classes is None:
        n.lose_at(clause.origin, "patternProperties", f"splits names into more than {MAX_NAME_CLASSES} kinds")
        return (Entry(allowed, ANY),)
    entries = []
    for matched, names in classes.items():
        value = all_of(*(_value(members, matched) for members in clause.members))
        if value != NEVER:
            entries.append(Entry(names, value))
    return tuple(entries)


def _classes(
    n: Normalizer, pointer: str, allowed: Node, patterns: tuple[Names, ...]
) -> dict[frozenset[Names], Node] | None:
    """For each set of patterns that a name may match, and no others, the names that do; None if there are too many."""
    if n.is_empty(allowed, pointer, "propertyNames"):
        return {}
    is_empty = partial(n.is_empty, pointer=pointer, keyword="patternProperties")
    classes: dict[frozenset[Names], Node] = {frozenset(): allowed}
    for i, pattern in enumerate(patterns):
        split: dict[frozenset[Names], Node] = {}
        apart = {other for other in patterns[:i] if n.emptiness(both(alt(*other), alt(*pattern)))}
        needless = {complement(other.either) for other in apart}
        for matched, names in classes.items():
            if not apart.isdisjoint(matched):
                split[matched] = names
                continue
            parts = names.parts if isinstance(names, And) else (names,)
            inside = both(*[part for part in parts if part not in needless], pattern.language)
            if not is_empty(inside):
                split[matched | {pattern}] = inside
            elif pattern.either == pattern.language or is_empty(both(names, pattern.either)):
                split[matched] = names
                continue
            outside = both(names, complement(pattern.either))
            if not is_empty(outside):
                split[matched] = outside
        classes = split
        if len(classes) > MAX_NAME_CLASSES:
            return None
    return classes


def _value(members: Members, matched: frozenset[Names]) -> Position:
    positions = [position for names, position in members.patterns if names in matched]
    if positions:
        return all_of(*positions)
    return ANY if members.additional is None else members.additional


def with_a_declared_member(
    n: Normalizer, clause: ObjectClause, closed: bool, write: ObjectWriter
) -> Iterator[ContentAutomaton]:
    """The clause once for each declared member that may be the first one it must have.

    Args:
        n: who knows the positions.
        clause: the object.
        closed: see ``object_automata``.
        write: makes the automata of each choice.
    """
    needed, *rest = clause.at_least_one
    without = replace(clause, at_least_one=tuple(rest))
    for name in clause.declared:
        if name not in clause.forbidden and matches(needed.names, name):
            required = tuple(dict.fromkeys([*clause.required, name]))
            members = (*clause.members, Members({name: needed.value}, evaluates=False))
            yield from write(n, replace(without, required=required, members=members), closed=closed)


def wanted_members(n: Normalizer, clause: ObjectClause, closed: bool) -> tuple[Entry, ...]:
    """Members that are not declared, any of which would be the first one that the clause must have."""
    needed = clause.at_least_one[0]
    return tuple(
        Entry(names, all_of(entry.value, needed.value))
        for entry in other_members(n, clause, closed)
        if isinstance(entry.name, Node)
        and not n.is_empty(names := both(entry.name, needed.names), clause.origin, "patternProperties")
    )


def _with_a_member(
    n: Normalizer, clause: ObjectClause, closed: bool, write: ObjectWriter
) -> Iterator[ContentAutomaton]:
    """The clause once for each choice of the member that it must have."""
    yield from with_a_declared_member(n, clause, closed, write)
    without = replace(clause, at_least_one=())
    if rest := clause.at_least_one[1:]:
        n.lose_at(*rest[0].origin, "requires a second member that is not declared")
    # The member counts too.
    if clause.high is not None:
        if clause.high == 0:
            return
        without = replace(without, high=clause.high - 1)
    if clause.low > len(clause.required) + 1:
        n.lose_at(clause.origin, "minProperties", _REPEATED)
    wanted = wanted_members(n, clause, closed)
    for automaton in write(n, replace(without, low=0), closed=closed):
        # Last, so that no member of the same name comes after it.
        last = automaton.state()
        for end in automaton.accepting:
            automaton.edges[end].append(Edge(wanted, last))
        automaton.accepting = {last}
        yield automaton


# -- arrays ----------------------------------------------------------------------------------------------------------


def array_automaton(n: Normalizer, clause: ArrayClause) -> ContentAutomaton:
    """The items of an array."""
    if clause.contains:
        clause = replace(clause, contains=tuple(kind for kind in clause.contains if kind.counts))
    if clause.unique is not None and (clause.high is None or clause.high > 1):
        automaton = different_items(n, clause)
        if automaton is not None:
            return automaton
        n.lose_at(clause.unique, "uniqueItems", "equal items can only be ruled out among a few listed values")
    if clause.contains:
        counted = _counted(n, clause)
        if counted is not None:
            return counted
    automaton = ContentAutomaton()
    here = 0
    length = clause.prefix_length
    for index in range(length):
        if index >= clause.low:
            automaton.accepting.add(here)
        if clause.high is not None and index >= clause.high:
            return automaton
        there = automaton.state()
        automaton.edges[here].append(Edge((Entry(None, clause.at(index)),), there))
        here = there
    need = max(0, clause.low - length)
    room = None if clause.high is None else clause.high - length
    if need == 0:
        automaton.accepting.add(here)
    if room is None or room > 0:
        end = automaton.state()
        automaton.accepting.add(end)
        automaton.edges[here].append(Edge((Entry(None, clause.at(length)),), end, max(need, 1), room))
    return automaton


def different_items(n: Normalizer, clause: ArrayClause) -> ContentAutomaton | None:
    """All orders of a few listed values; None if they are not few, or not listed."""
    if clause.prefix_length or clause.contains:
        return None
    values = _listed(n, clause.at(0))
    if values is None or len(values) > MAX_UNIQUE:
        return None
    automaton = ContentAutomaton()
    while len(automaton.edges) < 2 ** len(values):
        automaton.state()
    for used in range(2 ** len(values)):
        taken = bin(used).count("1")
        if taken >= clause.low and (clause.high is None or taken <= clause.high):
            automaton.accepting.add(used)
        for i, value in enumerate(values):
            if not used >> i & 1:
                automaton.edges[used].append(Edge((Entry(None, value),), used | 1 << i))
    return automaton


def _listed(n: Normalizer, position: Position) -> list[Position] | None:
    """The values of a position, each as a position; None if they are not a list of scalars."""
    listed: list[object] = []
    for clauses in n.shape(position).values():
        values: list[object] = []  # of one type, where several alternatives may list the same
        for clause in clauses:
            if isinstance(clause, NullClause):
                values.append(None)
            elif isinstance(clause, BooleanClause):
                values += sorted(clause.values)
            elif isinstance(clause, (NumberClause, StringClause)) and clause.values is not None:
                values += [value for value in clause.values if clause.has(value)]  # type: ignore[arg-type]
            else:
                return None
        listed += dict.fromkeys(values)
    return [n.value(value) for value in listed]


def _counted(n: Normalizer, clause: ArrayClause) -> ContentAutomaton | None:
    """Arrays with bounds on the items of a kind; None if that takes too many states, which is a loss."""
    kinds = clause.contains
    starts = max(kind.start for kind in kinds)
    length = max(clause.prefix_length, starts, clause.low, clause.high or 0)
    tops = [kind.low if kind.high is None else kind.high + 1 for kind in kinds]
    states = (length + 1) * prod(top + 1 for top in tops)
    if states > MAX_STATES or len(kinds) > MAX_KINDS:
        for kind in kinds:
            n.lose_at(*kind.origin, "counts too many items")
        return None
    automaton = ContentAutomaton()
    numbers: dict[tuple[int, tuple[int, ...]], int] = {(0, (0,) * len(kinds)): 0}
    todo = list(numbers)
    while todo:
        index, counts = state = todo.pop()
        here = numbers[state]
        full = clause.high is not None and index >= clause.high
        if index >= clause.low and all(kind.low <= c for kind, c in zip(kinds, counts, strict=True)):
            automaton.accepting.add(here)
        if full:
            continue
        for chosen in product((False, True), repeat=len(kinds)):
            value, after = _item(n, clause, index, counts, chosen, tops)
            if after is None:
                continue
            following = (min(index + 1, length), after)
            if following not in numbers:
                numbers[following] = automaton.state()
                todo.append(following)
            automaton.edges[here].append(Edge((Entry(None, value),), numbers[following]))
    return automaton


def _item(
    n: Normalizer,
    clause: ArrayClause,
    index: int,
    counts: tuple[int, ...],
    chosen: tuple[bool, ...],
    tops: list[int],
) -> tuple[Position, tuple[int, ...] | None]:
    """The position of an item of the chosen kinds, and the counts after it; None if it is not allowed."""
    value = clause.at(index)
    after = []
    for kind, count, is_chosen, top in zip(clause.contains, counts, chosen, tops, strict=True):
        if is_chosen and index < kind.start:
            return NEVER, None
        if is_chosen:
            value = all_of(value, kind.item)
            count = min(count + 1, top)
        elif kind.high is not None and index >= kind.start:
            value = all_of(value, n.opposite(kind.item))  # else it would have to be counted
        if kind.high is not None and count > kind.high:
            return NEVER, None
        after.append(count)
    return value, None if value == NEVER else tuple(after)


# -- alternatives ----------------------------------------------------------------------------------------------------


def joined(automata: list[ContentAutomaton]) -> list[ContentAutomaton]:
    """Many alternatives as one automaton that shares what they begin with, unless that is larger.

    Those with registers stay apart.
    """
    plain = [automaton for automaton in automata if automaton.register is None]
    if len(plain) <= MOST_APART:
        return automata
    most = sum(len(edges) + len(skips) for automaton in plain for edges, skips in _states(automaton))
    whole, start = ContentAutomaton(), tuple((number, 0) for number in range(len(plain)))
    states, todo, count = {start: 0}, [start], 0

    def state(places: Iterable[tuple[int, int]]) -> int:
        places = tuple(sorted(places))
        if places not in states:
            states[places] = whole.state()
            todo.append(places)
        return states[places]

    while todo:
        places = todo.pop()
        here = states[places]
        if len(places) > 1:
            places = _with_skipped(plain, places)
        else:
            ((number, at),) = places
            whole.skips[here] = tuple(state([(number, target)]) for target in plain[number].skips[at])
        targets: dict[tuple[tuple[Entry, ...], int, int | None], set[tuple[int, int]]] = defaultdict(set)
        for number, at in places:
            if at in plain[number].accepting:
                whole.accepting.add(here)
            for entries, target, low, high in plain[number].edges[at]:
                targets[entries, low, high].add((number, target))
        whole.edges[here] = [Edge(entries, state(at), low, high) for (entries, low, high), at in targets.items()]
        count += len(whole.edges[here]) + len(whole.skips[here])
        if count > most:
            return automata
    return [whole, *(automaton for automaton in automata if automaton.register is not None)]


def _states(automaton: ContentAutomaton) -> Iterator[tuple[list[Edge], tuple[int, ...]]]:
    return zip(automaton.edges, automaton.skips, strict=True)


def _with_skipped(automata: list[ContentAutomaton], places: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Some states of automata, and those that they lead to without an entry."""
    todo = list(places)
    found = dict.fromkeys(todo)
    while todo:
        number, at = todo.pop()
        more = [(number, target) for target in automata[number].skips[at] if (number, target) not in found]
        found.update(dict.fromkeys(more))
        todo += more
    return tuple(found)


PLAIN = ContentWriter(array_automaton, object_automata)
