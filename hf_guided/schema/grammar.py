"""The contents of all positions of a schema, without alternatives that can never be completed.

A position whose every value would have to be infinite, or needs a child that cannot exist, has no value. Such ones are
found by working upwards from what surely has values; alternatives that need one of the others are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from ..constraints.json_style import Spelling
from ..errors import CompileLimitExceeded, InvalidConstraint
from ..regex import ANYTHING
from .content_automata import PLAIN, ContentAutomaton, ContentWriter, Edge, joined
from .normalize import Normalizer, too_deep_is_a_limit
from .registers import DifferentNames
from .scalars import has_text
from .shapes import (
    ANY,
    UNIVERSE,
    ArrayClause,
    Clause,
    ObjectClause,
    Position,
    StringClause,
    pointer_of,
    string_language,
)

MAX_POSITIONS = 10_000
_MOST_LOOKED_AT = 50  # positions without values in one place


@dataclass(slots=True)
class Content:
    """The alternatives for a value at one position.

    Args:
        scalars: clauses of values without children.
        arrays, objects: automata over items and members.
        any_array, any_object: whether any will do.
    """

    scalars: tuple[Clause, ...] = ()
    arrays: tuple[ContentAutomaton, ...] = ()
    objects: tuple[ContentAutomaton, ...] = ()
    any_array: bool = False
    any_object: bool = False

    @property
    def automata(self) -> tuple[ContentAutomaton, ...]:
        """Those over items, then those over members."""
        return self.arrays + self.objects

    def children(self) -> list[Position]:
        """The positions of items and of members' values."""
        return [entry.value for automaton in self.arrays + self.objects for entry in automaton.entries()]


@too_deep_is_a_limit()
def contents(
    n: Normalizer, *, closed: bool, spelling: Spelling, writer: ContentWriter = PLAIN
) -> dict[Position, Content]:
    """The content of every position that a value of the schema can have, the root first.

    Args:
        n: the schema.
        closed: whether objects that declare properties and do not speak of others have no others.
        spelling: which texts of a value there are; a value without any is none here.
        writer: of arrays and objects.

    Raises:
        InvalidConstraint: no value satisfies the schema.
        CompileLimitExceeded: it has too many positions.
    """
    contents_of: dict[Position, Content] = {}
    todo = [n.root]
    while todo:
        position = todo.pop()
        if position in contents_of or position == ANY:
            continue
        if len(contents_of) >= MAX_POSITIONS:
            raise CompileLimitExceeded(
                f"the JSON Schema has more than {MAX_POSITIONS} positions for values; make it smaller"
            )
        contents_of[position] = content = _content(n, position, closed, spelling, writer)
        for automaton in content.automata if content.arrays or content.objects else ():
            todo += [entry.value for entry in reversed(automaton.entries())]
    return completable_contents(contents_of, n.root)


def completable_contents(contents_of: dict[Position, Content], root: Position) -> dict[Position, Content]:
    """The positions that have values, with the alternatives that can be completed.

    Args:
        contents_of: of every position.
        root: of the whole text.

    Raises:
        InvalidConstraint: it has no value.
    """
    alive, whole = _alive(contents_of)
    if root not in alive and root != ANY:
        pointer = pointer_of(_contradiction(contents_of, alive, root)) if root else ""
        what = f"what {pointer} requires" if pointer else "it"
        raise InvalidConstraint(
            f"the JSON Schema contradicts itself: no value satisfies {what}; look for types, bounds, constants or "
            "required names that rule each other out",
            pointers=[pointer] if pointer else (),
        )
    are_all_alive = len(alive) > len(contents_of)  # any value is alive too
    for position, content in contents_of.items():
        is_container = content.arrays or content.objects
        if is_container and position in alive and not (are_all_alive and position in whole):
            content.arrays = all_pruned(content.arrays, alive)
            content.objects = all_pruned(content.objects, alive)
    return contents_of if are_all_alive else {at: content for at, content in contents_of.items() if at in alive}


def _content(n: Normalizer, position: Position, closed: bool, spelling: Spelling, writer: ContentWriter) -> Content:
    scalars: list[Clause] = []
    arrays: list[ContentAutomaton] = []
    objects: list[ContentAutomaton] = []
    any_array = any_object = False
    for kind, clauses in n.shape(position).items():
        for clause in clauses:
            if isinstance(clause, ArrayClause):
                if clause == UNIVERSE[kind][0]:
                    any_array = True
                else:
                    arrays.append(writer.array(n, clause))
            elif isinstance(clause, ObjectClause):
                if clause == UNIVERSE[kind][0]:
                    any_object = True
                else:
                    objects += writer.objects(n, clause, closed=closed)
            elif clause is UNIVERSE[kind][0] or _has_text(n, position, clause, spelling):
                scalars.append(clause)
    arrays, objects = [] if any_array else joined(arrays), [] if any_object else joined(objects)
    return Content(tuple(scalars), tuple(arrays), tuple(objects), any_array, any_object)


def _has_text(n: Normalizer, position: Position, clause: Clause, spelling: Spelling) -> bool:
    """Whether a scalar is written, as far as that can be told; if it cannot, that is a loss."""
    if isinstance(clause, StringClause) and clause.values is None:
        if clause.language is ANYTHING:
            return clause.high is None or clause.low <= clause.high
        return not n.is_empty(string_language(clause), pointer_of(position), "pattern")
    written = has_text(clause, spelling)
    if written is None:
        n.lose_at(pointer_of(position), "multipleOf", "takes too long to tell whether any number satisfies it")
    return written is not False


def _alive(contents_of: dict[Position, Content]) -> tuple[set[Position], set[Position]]:
    """Positions that have a finite value; and those of them where, if all are alive, nothing has to be left out."""
    alive, whole = {ANY}, set[Position]()
    waiting = list(reversed(contents_of))  # children mostly before their parents
    while True:
        left = []
        for position in waiting:
            content = contents_of[position]
            if content.scalars or content.any_array or content.any_object:
                alive.add(position)
                continue
            automata = [automaton for automaton in content.automata if _has_room(automaton, alive)]
            useful = [_useful(automaton, alive) for automaton in automata]
            if any([0 in states for states in useful]):
                alive.add(position)
                if list(map(len, useful)) == [len(automaton.edges) for automaton in content.automata]:
                    whole.add(position)
            else:
                left.append(position)
        if len(left) == len(waiting):
            return alive, whole
        waiting = left


def _contradiction(contents_of: dict[Position, Content], alive: AbstractSet[Position], position: Position) -> Position:
    """The innermost position because of which this one has no value: it, or one that each of its values needs."""
    passed: set[Position] = set()
    while position and position not in passed:
        passed.add(position)
        automata = contents_of[position].automata
        entries = automata[0].entries() if len(automata) == 1 else []
        dead = dict.fromkeys([entry.value for entry in entries if entry.value and entry.value not in alive])
        for child in islice(dead, _MOST_LOOKED_AT):
            if not completable(automata[0], {ANY, *contents_of} - {child}):
                position = child
                break
    return position


def completable(automaton: ContentAutomaton, alive: AbstractSet[Position]) -> bool:
    """Whether values at these positions are enough for the entries of an array or an object."""
    return 0 in _useful(automaton, alive) and _has_room(automaton, alive)


def _has_room(automaton: ContentAutomaton, alive: AbstractSet[Position]) -> bool:
    """Whether names with such values are enough for what the register wants."""
    if not isinstance(automaton.register, DifferentNames) or not automaton.register.any_order:
        return True
    return automaton.register.has_room(entry.name for entry in automaton.entries() if entry.value in alive)


def _useful(automaton: ContentAutomaton, alive: AbstractSet[Position]) -> set[int]:
    """States from which the end can be reached."""
    useful = set(automaton.accepting)
    waiting = [state for state in reversed(range(len(automaton.edges))) if state not in useful]
    while waiting:  # seldom more than once: most edges lead to later states
        left = []
        for state in waiting:
            if not useful.isdisjoint(automaton.skips[state]) or any(
                [
                    edge.target in useful and any([entry.value in alive for entry in edge.entries])
                    for edge in automaton.edges[state]
                ]
            ):
                useful.add(state)
            else:
                left.append(state)
        if len(left) == len(waiting):
            break
        waiting = left
    return useful


def all_pruned(automata: Sequence[ContentAutomaton], alive: AbstractSet[Position]) -> tuple[ContentAutomaton, ...]:
    """The automata with values at these positions alone, without those that cannot be completed.

    Those of which nothing is left out are not built again.
    """
    return tuple([pruned for automaton in automata if (pruned := _pruned(automaton, alive)) is not None])


def _pruned(automaton: ContentAutomaton, alive: AbstractSet[Position]) -> ContentAutomaton | None:
    useful = _useful(automaton, alive)
    if 0 not in useful or not _has_room(automaton, alive):
        return None
    if len(useful) == len(automaton.edges) and all([entry.value in alive for entry in automaton.entries()]):
        return automaton
    edges: list[list[Edge]] = []
    for leaving in automaton.edges:
        kept = []
        for edge in leaving:
            entries = tuple(entry for entry in edge.entries if entry.value in alive)
            if entries and edge.target in useful:
                kept.append(edge._replace(entries=entries))
        edges.append(kept)
    skips = [tuple(target for target in targets if target in useful) for targets in automaton.skips]
    return ContentAutomaton(edges, skips, automaton.accepting & useful, automaton.register)
