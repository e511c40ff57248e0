"""Content automata with registers: different items, members in any order, bounds on members of any name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..constraints.json_style import KeyOrder
from ..regex import Node
from .component_size import is_endless
from .content_automata import (
    ContentAutomaton,
    ContentWriter,
    Edge,
    array_automaton,
    different_items,
    member,
    object_automata,
    other_members,
    wanted_members,
    with_a_declared_member,
)
from .normalize import Normalizer
from .registers import DifferentItems, DifferentNames
from .shapes import ArrayClause, ObjectClause


def registered(key_order: KeyOrder) -> ContentWriter:
    """What writes content automata with registers.

    Args:
        key_order: of the members of an object.
    """
    return ContentWriter(_array, _in_any_order if key_order == "any" else _in_declared_order)


def _array(n: Normalizer, clause: ArrayClause) -> ContentAutomaton:
    if clause.unique is None or clause.high in (0, 1):
        return array_automaton(n, clause)
    listed = different_items(n, clause)
    if listed is not None:
        return listed
    automaton = array_automaton(n, replace(clause, unique=None))
    if any(kind.counts for kind in clause.contains):
        n.lose_at(clause.unique, "uniqueItems", "beside contains, it would need to know which items are both")
        return automaton
    items = tuple(clause.at(index) for index in range(clause.prefix_length + 1))
    automaton.register = DifferentItems((clause.unique, "uniqueItems"), items, clause.low)
    return automaton


def _in_declared_order(n: Normalizer, clause: ObjectClause, *, closed: bool) -> Iterator[ContentAutomaton]:
    """As ``object_automata``; but where no name has a place in the order, the register counts the members too."""
    has_places = bool(clause.at_least_one) or any(members.named for members in clause.members)
    if has_places or clause.low <= len(clause.required) + 1 or _are_endless(n, clause, closed):
        yield from object_automata(n, clause, closed=closed, registers=True)
    else:
        yield from _in_any_order(n, clause, closed=closed)


def _are_endless(n: Normalizer, clause: ObjectClause, closed: bool) -> bool:
    """Whether it is plain that there is always another name."""
    return all([isinstance(entry.name, Node) and is_endless(entry.name) for entry in other_members(n, clause, closed)])


def _in_any_order(n: Normalizer, clause: ObjectClause, *, closed: bool) -> Iterator[ContentAutomaton]:
    """One edge for all members: the register knows which are there already."""
    if clause.at_least_one:
        yield from with_a_declared_member(n, clause, closed, _in_any_order)
        if wanted_members(n, clause, closed):
            reason = "is not kept in any order, where the member need not be declared"
            n.lose_at(*clause.at_least_one[0].origin, reason)
            yield from _in_any_order(n, replace(clause, at_least_one=clause.at_least_one[1:]), closed=closed)
        return
    names = [name for name in clause.declared if name not in clause.forbidden]
    entries = (*(member(n, clause, name) for name in names), *other_members(n, clause, closed))
    automaton = ContentAutomaton([[], []], [(), ()], {0, 1})
    if entries:
        automaton.edges[0].append(Edge(entries, 1, 1, None))
    automaton.register = DifferentNames(
        (clause.origin, "minProperties"), clause.required, clause.low, clause.high, any_order=True
    )
    yield automaton
