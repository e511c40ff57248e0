"""Writes the arrays and objects of a schema as content automata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod

from ..constraints.json_style import KeyOrder
from ..regex import And, Node, all_but, alt, both, complement, matches
from .content_automata import ContentAutomaton, DifferentItems, DifferentNames, Edge, Entry
from .normalize import Normalizer
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
MAX_NAME_CLASSES = 32  # names that match the same patterns
MAX_FREE = 4  # names in any order: sixteen states
MAX_UNIQUE = 7  # different items whose orders are listed: 128 states
# A JSON parser counts a name that is written twice once.
_REPEATED = "members that are not declared may repeat a name"
MAX_KINDS = 3  # kinds of items that are counted at once


class ContentWriter:
    """Writes arrays and objects.

    Args:
        n: the schema; what cannot be said is lost there.
        closed: whether an object that declares properties and does not speak of others has no others.
        key_order: of the members of an object; None is the declared order, without registers.
        as_elements: whether items are written as elements, where no register can compare them.
    """

    def __init__(self, n: Normalizer, *, closed: bool, key_order: KeyOrder | None, as_elements: bool = False):
        self.n, self._closed, self._key_order = n, closed, key_order
        self._lists_orders = as_elements or key_order is None

    # -- objects -------------------------------------------------------------------------------------------------------

    def objects(self, clause: ObjectClause) -> Iterator[ContentAutomaton]:
        """The automata of an object, one for each alternative."""
        if clause.at_least_one:
            yield from self._with_a_member(clause)
        elif self._key_order == "any" or (self._key_order and self._has_no_places(clause)):
            yield self._in_any_order(clause)
        else:
            yield self._in_declared_order(clause)

    def _has_no_places(self, clause: ObjectClause) -> bool:
        """Whether no name has a place in the order, and the names have to be counted: a register does that best."""
        return not any(members.named for members in clause.members) and clause.low > len(clause.required) + 1

    def _in_any_order(self, clause: ObjectClause) -> ContentAutomaton:
        """One edge for all members: the register knows which are there already."""
        names = [name for name in clause.declared if name not in clause.forbidden]
        entries = (*(self._member(clause, name) for name in names), *self._others(clause))
        edges = [Edge(entries, 1, 1, None)] if entries else []
        origin = clause.origin, "minProperties"
        register = DifferentNames(origin, clause.required, clause.low, clause.high, any_order=True)
        return ContentAutomaton([edges, []], [(), ()], {0, 1}, register)

    def _in_declared_order(self, clause: ObjectClause) -> ContentAutomaton:
        """The declared members in their order, then others."""
        names = [name for name in clause.declared if name not in clause.forbidden]
        required = frozenset(clause.required)
        # Only required, declared nowhere: their order is open, so any order is allowed, if they are few.
        unordered = required.difference(*(members.named for members in clause.members))
        free = [name for name in names if name in unordered]
        free = free if len(free) <= MAX_FREE else []
        names = [name for name in names if name not in free]
        others = self._others(clause)
        may_repeat = bool(others) and clause.low > len(clause.required) + 1
        if may_repeat and self._key_order is None:
            self.n.lose(clause.origin, "minProperties", _REPEATED)
            clause, may_repeat = replace(clause, low=0), False
        low, high = self._counts(clause, len(names) + len(free), bool(others))
        # The number of members so far, up to the largest that matters.
        most = max(low, -1 if high is None else high, 0)
        automaton = ContentAutomaton()
        if may_repeat and low:
            automaton.register = DifferentNames((clause.origin, "minProperties"), low=low)
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
                    automaton.edges[here].append(Edge((self._member(clause, names[i]),), state(i + 1, more, used)))
                if names[i] not in required:
                    automaton.skips[here] += (state(i + 1, count, used),)
            elif used + 1 < 1 << len(free):
                for j, name in enumerate(free):
                    if room and not used >> j & 1:
                        target = state(i, more, used | 1 << j)
                        automaton.edges[here].append(Edge((self._member(clause, name),), target))
            else:
                _end(automaton, here, others, low - count, None if high is None else high - count)
        return automaton

    def _member(self, clause: ObjectClause, name: str) -> Entry:
        return Entry(name, clause.at(name) if self.n.has_name(clause.names, name) else NEVER)

    def _counts(self, clause: ObjectClause, declared: int, open_: bool) -> tuple[int, int | None]:
        """The effective bounds on the number of members; bounds that cannot be enforced are lost."""
        low, high = clause.low, clause.high
        if low <= len(clause.required):
            low = 0
        if not open_ and high is not None and high >= declared:
            high = None
        if (declared + 1) * max(low, high or 0) > MAX_STATES:
            for keyword, bound in (("minProperties", low), ("maxProperties", high)):
                if bound:
                    self.n.lose(clause.origin, keyword, "counts too many members")
            low, high = 0, None
        return low, high

    def _others(self, clause: ObjectClause) -> tuple[Entry, ...]:
        """Members that are not declared: the names for each set of patterns that a name may match, and their values."""
        patterns = tuple(dict.fromkeys([names for members in clause.members for names, _ in members.patterns]))
        if not patterns:
            additional = [members.additional for members in clause.members]
            says_nothing = all(position is None for position in additional)
            declares = any(members.named and members.evaluates for members in clause.members)
            if NEVER in additional or (self._closed and says_nothing and declares):
                return ()
        allowed = all_but(tuple(dict.fromkeys([*clause.declared, *sorted(clause.forbidden)])))
        if clause.names:
            allowed = both(allowed, self.n.written_names(clause.names))
        classes = self._classes(clause.origin, allowed, patterns)
        if classes is None:
            reason = f"splits names into more than {MAX_NAME_CLASSES} kinds"
            self.n.lose(clause.origin, "patternProperties", reason)
            return (Entry(allowed, ANY),)
        entries = [
            Entry(names, all_of(*(_value(members, matched) for members in clause.members)))
            for matched, names in classes.items()
        ]
        return tuple(entry for entry in entries if entry.value != NEVER)

    def _classes(self, pointer: str, allowed: Node, patterns: tuple[Names, ...]) -> dict[frozenset[Names], Node] | None:
        """For each set of patterns that a name may match, and no others, the names; None if there are too many."""
        n = self.n
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

    def _with_a_member(self, clause: ObjectClause) -> Iterator[ContentAutomaton]:
        """The clause once for each choice of the first member that it must have."""
        needed, *rest = clause.at_least_one
        without = replace(clause, at_least_one=tuple(rest))
        for name in clause.declared:
            if name not in clause.forbidden and matches(needed.names, name):
                required = tuple(dict.fromkeys([*clause.required, name]))
                members = (*clause.members, Members({name: needed.value}, evaluates=False))
                yield from self.objects(replace(without, required=required, members=members))
        wanted = tuple(
            Entry(names, all_of(entry.value, needed.value))
            for entry in self._others(clause)
            if isinstance(entry.name, Node)
            and not self.n.is_empty(names := both(entry.name, needed.names), clause.origin, "patternProperties")
        )
        if self._key_order == "any":
            if wanted:
                reason = "is not kept in any order, where the member need not be declared"
                self.n.lose(*needed.origin, reason)
                yield from self.objects(without)
            return
        if rest:
            self.n.lose(*rest[0].origin, "requires a second member that is not declared")
        # The member counts too.
        if clause.high == 0:
            return
        if clause.low > len(clause.required) + 1:
            self.n.lose(clause.origin, "minProperties", _REPEATED)
        high = None if clause.high is None else clause.high - 1
        for automaton in self.objects(replace(clause, at_least_one=(), low=0, high=high)):
            # Last, so that no member of the same name comes after it.
            last = automaton.state()
            for end in automaton.accepting:
                automaton.edges[end].append(Edge(wanted, last))
            automaton.accepting = {last}
            yield automaton

    # -- arrays --------------------------------------------------------------------------------------------------------

    def array(self, clause: ArrayClause) -> ContentAutomaton:
        """The automaton of an array."""
        n, unique = self.n, clause.unique
        limits = tuple(kind for kind in clause.contains if kind.low > 0 or kind.high is not None)
        clause = replace(clause, contains=limits)
        automaton = self._items(clause)
        if unique is None or clause.high in (0, 1):
            return automaton
        values = None if clause.prefix_length or clause.contains else self._listed(clause.at(0))
        if values is not None and len(values) < clause.low:
            return ContentAutomaton()  # a contradiction, with its position; an engine that counts items knows none
        if self._lists_orders and values is not None and len(values) <= MAX_UNIQUE:
            return self._different_items(clause, values)
        if self._key_order is None:
            n.lose(unique, "uniqueItems", "equal items can only be ruled out among a few listed values")
        elif clause.contains:
            n.lose(unique, "uniqueItems", "beside contains, it would need to know which items are both")
        else:
            items = tuple(clause.at(index) for index in range(clause.prefix_length + 1))
            automaton.register = DifferentItems((unique, "uniqueItems"), items, clause.low)
        return automaton

    def _items(self, clause: ArrayClause) -> ContentAutomaton:
        if clause.contains and (counted := self._counted(clause)):
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
        rest = (Entry(None, clause.at(length)),)
        _end(automaton, here, rest, clause.low - length, None if clause.high is None else clause.high - length)
        return automaton

    def _different_items(self, clause: ArrayClause, listed: Iterable[object]) -> ContentAutomaton:
        """The orders of a few listed values."""
        values = [self.n.value(value) for value in listed]
        automaton = ContentAutomaton()
        while len(automaton.edges) < 2 ** len(values):
            automaton.state()
        for used in range(2 ** len(values)):
            count = used.bit_count()
            if count >= clause.low and (clause.high is None or count <= clause.high):
                automaton.accepting.add(used)
            for i, value in enumerate(values):
                if not used >> i & 1:
                    automaton.edges[used].append(Edge((Entry(None, value),), used | 1 << i))
        return automaton

    def _listed(self, position: Position) -> list[object] | None:
        """The different values of a position; None if they are not a list of scalars."""
        listed: list[object] = []
        for clauses in self.n.shape(position).values():
            values: list[object] = []  # one type, for which several alternatives may list the same
            for clause in clauses:
                if isinstance(clause, NullClause):
                    values.append(None)
                elif isinstance(clause, BooleanClause):
                    values += sorted(clause.values)
                elif isinstance(clause, NumberClause) and clause.values is not None:
                    numbers = filter(clause.has, clause.values)
                    values += [number if number in clause.floats else int(number) for number in numbers]
                elif isinstance(clause, StringClause) and clause.values is not None:
                    values += [text for text in clause.values if clause.has(text)]
                else:
                    return None
            listed += dict.fromkeys(values)
        return listed

    def _counted(self, clause: ArrayClause) -> ContentAutomaton | None:
        """Arrays with bounds on the items of a kind; None if that takes too many states, which is a loss."""
        kinds = clause.contains
        starts = max(kind.start for kind in kinds)
        length = max(clause.prefix_length, starts, clause.low, clause.high or 0)
        tops = [kind.low if kind.high is None else kind.high + 1 for kind in kinds]
        states = (length + 1) * prod(top + 1 for top in tops)
        if states > MAX_STATES or len(kinds) > MAX_KINDS:
            for kind in kinds:
                self.n.lose(*kind.origin, "counts too many items")
            return None
        automaton = ContentAutomaton()
        numbers: dict[tuple[int, tuple[int, ...]], int] = {(0, (0,) * len(kinds)): 0}
        todo = list(numbers)
        while todo:
            index, counts = state = todo.pop()
            here = numbers[state]
            if index >= clause.low and all(kind.low <= c for kind, c in zip(kinds, counts, strict=True)):
                automaton.accepting.add(here)
            if clause.high is not None and index >= clause.high:
                continue
            for chosen in product((False, True), repeat=len(kinds)):
                value, after = self._item(clause, index, counts, chosen, tops)
                if value == NEVER:
                    continue
                following = (min(index + 1, length), after)
                if following not in numbers:
                    numbers[following] = automaton.state()
                    todo.append(following)
                automaton.edges[here].append(Edge((Entry(None, value),), numbers[following]))
        return automaton

    def _item(
        self, clause: ArrayClause, index: int, counts: tuple[int, ...], chosen: tuple[bool, ...], tops: list[int]
    ) -> tuple[Position, tuple[int, ...]]:
        """The position of an item of the chosen kinds, ``NEVER`` if it is not allowed, and the counts after it."""
        value = clause.at(index)
        after = []
        for kind, count, is_chosen, top in zip(clause.contains, counts, chosen, tops, strict=True):
            if is_chosen:
                value = all_of(value, kind.item)
                count = min(count + 1, top)
            elif kind.high is not None and index >= kind.start:
                value = all_of(value, self.n.opposite(kind.item))  # else it would have to be counted
            if (is_chosen and index < kind.start) or (kind.high is not None and count > kind.high):
                return NEVER, ()
            after.append(count)
        return value, tuple(after)


def _end(automaton: ContentAutomaton, here: int, rest: tuple[Entry, ...], need: int, room: int | None) -> None:
    """Let an array or an object end after ``need`` to ``room`` more entries."""
    if need <= 0:
        automaton.accepting.add(here)
    if rest and (room is None or room > 0):
        end = automaton.state()
        automaton.accepting.add(end)
        automaton.edges[here].append(Edge(rest, end, max(need, 1), room))


def _value(members: Members, matched: frozenset[Names]) -> Position:
    positions = [position for names, position in members.patterns if names in matched]
    if positions:
        return all_of(*positions)
    return ANY if members.additional is None else members.additional
