"""The contents of all positions of a schema, without alternatives that can never be completed.

A position whose every value would have to be infinite, or needs a child that cannot exist, has no value. Such ones are
found by working upwards from what surely has values; alternatives that need one of the others are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from ..constraints.json_style import KeyOrder, Spelling
from ..errors import CompileLimitExceeded, InvalidConstraint
from ..regex import ANYTHING
from .content_automata import ANY_ITEMS, ANY_MEMBERS, ContentAutomaton
from .content_writer import ContentWriter
from .normalize import Normalizer, too_deep_is_a_limit
from .scalars import has_text
from .shapes import UNIVERSE, ArrayClause, Clause, ObjectClause, Position, StringClause, pointer_of, string_language

MAX_POSITIONS = 10_000
_MOST_LOOKED_AT = 50  # positions without values in one place
_FEW = 200  # positions: no text is read in too many ways then


@dataclass(slots=True)
class Content:
    """The alternatives for a value at one position.

    Args:
        scalars: clauses of values without children.
        arrays, objects: automata over items and members.
    """

    scalars: tuple[Clause, ...] = ()
    arrays: tuple[ContentAutomaton, ...] = ()
    objects: tuple[ContentAutomaton, ...] = ()

    @property
    def automata(self) -> tuple[ContentAutomaton, ...]:
        """The automata over items, then the automata over members."""
        return self.arrays + self.objects

    def children(self) -> list[Position]:
        """The positions of items and of members' values."""
        return [entry.value for automaton in self.automata for entry in automaton.entries()]

    def key(self) -> tuple[Hashable, ...]:
        """Equal for contents that differ in the positions of their children alone."""
        return self.scalars, len(self.arrays), *[automaton.key() for automaton in self.automata]

    def renamed(self, at: Callable[[Position], Position]) -> Content:
        """The content with other positions: see ``ContentAutomaton.renamed``."""
        arrays, objects = ([one.renamed(at) for one in automata] for automata in (self.arrays, self.objects))
        return Content(self.scalars, tuple(arrays), tuple(objects))


@too_deep_is_a_limit()
def contents(
    n: Normalizer, *, closed: bool, spelling: Spelling, key_order: KeyOrder | None = None, as_elements: bool = False
) -> dict[Position, Content]:
    """The content of every position that a value of the schema can have, the root first.

    Args:
        n: the schema.
        closed: whether objects that declare properties and do not speak of others have no others.
        spelling: which texts of a value there are; a value without any is none here.
        key_order: see ``ContentWriter``.
        as_elements: see there.

    Raises:
        InvalidConstraint: no value satisfies the schema.
        CompileLimitExceeded: it has too many positions.
    """
    writer = ContentWriter(n, closed=closed, key_order=key_order, as_elements=as_elements)
    contents_of: dict[Position, Content] = {}
    todo = [n.root]
    while todo:
        position = todo.pop()
        if position in contents_of:
            continue
        if len(contents_of) >= MAX_POSITIONS:
            raise CompileLimitExceeded(
                f"the JSON Schema has more than {MAX_POSITIONS} positions for values; make it smaller"
            )
        contents_of[position] = content = _content(writer, position, spelling)
        for automaton in content.automata:
            todo += [entry.value for entry in reversed(automaton.entries())]
    return completable_contents(contents_of, n.root)


def completable_contents(contents_of: dict[Position, Content], root: Position) -> dict[Position, Content]:
    """The positions that have values, with the alternatives that can be completed.

    Raises:
        InvalidConstraint: the root, the position of the whole text, has no value.
    """
    productive, whole = _productive(contents_of)
    if root not in productive:
        pointer = pointer_of(_contradiction(contents_of, productive, root)) if root else ""
        what = f"what {pointer} requires" if pointer else "it"
        raise InvalidConstraint(
            f"the JSON Schema contradicts itself: no value satisfies {what}; look for types, bounds, constants or "
            "required names that rule each other out",
            pointers=[pointer] if pointer else (),
        )
    are_all_productive = len(productive) == len(contents_of)
    for position, content in contents_of.items():
        if content.automata and position in productive and not (are_all_productive and position in whole):
            content.arrays, content.objects = (
                tuple([pruned for automaton in automata if (pruned := automaton.pruned(productive)) is not None])
                for automata in (content.arrays, content.objects)
            )
    return contents_of if are_all_productive else {at: contents_of[at] for at in contents_of if at in productive}


def _content(writer: ContentWriter, position: Position, spelling: Spelling) -> Content:
    scalars: list[Clause] = []
    arrays: list[ContentAutomaton] = []
    objects: list[ContentAutomaton] = []
    for kind, clauses in writer.n.shape(position).items():
        for clause in clauses:
            is_any = clause == UNIVERSE[kind][0]
            if isinstance(clause, ArrayClause):
                arrays.append(ANY_ITEMS if is_any else writer.array(clause))
            elif isinstance(clause, ObjectClause):
                objects += [ANY_MEMBERS] if is_any else writer.objects(clause)
            elif is_any or _has_text(writer.n, position, clause, spelling):
                scalars.append(clause)
    arrays = [ANY_ITEMS] if ANY_ITEMS in arrays else arrays
    objects = [ANY_MEMBERS] if ANY_MEMBERS in objects else objects
    return Content(tuple(scalars), tuple(arrays), tuple(objects))


def _has_text(n: Normalizer, position: Position, clause: Clause, spelling: Spelling) -> bool:
    """Whether a scalar is written, as far as that can be told; if it cannot, that is a loss."""
    if isinstance(clause, StringClause) and clause.values is None:
        if clause.language is ANYTHING:
            return clause.high is None or clause.low <= clause.high
        return not n.is_empty(string_language(clause), pointer_of(position), "pattern")
    written = has_text(clause, spelling)
    if written is None:
        n.lose(pointer_of(position), "multipleOf", "takes too long to tell whether any number satisfies it")
    return written is not False


def _productive(contents_of: dict[Position, Content]) -> tuple[set[Position], set[Position]]:
    """Positions with a finite value; and those of them where, if all are productive, nothing has to be left out."""
    productive, whole = set[Position](), set[Position]()
    waiting = list(reversed(contents_of))  # children mostly before their parents
    while True:
        left = []
        for position in waiting:
            content = contents_of[position]
            if content.scalars:
                productive.add(position)
                continue
            useful = [automaton.useful(productive) for automaton in content.automata if automaton.has_room(productive)]
            if any([0 in states for states in useful]):
                productive.add(position)
                if list(map(len, useful)) == [len(automaton.edges) for automaton in content.automata]:
                    whole.add(position)
            else:
                left.append(position)
        if len(left) == len(waiting):
            return productive, whole
        waiting = left


def _contradiction(
    contents_of: dict[Position, Content], productive: AbstractSet[Position], position: Position
) -> Position:
    """The innermost position because of which this one has no value: it, or one that each of its values needs."""
    passed: set[Position] = set()
    while position and position not in passed:
        passed.add(position)
        automata = contents_of[position].automata
        entries = automata[0].entries() if len(automata) == 1 else []
        dead = dict.fromkeys([entry.value for entry in entries if entry.value and entry.value not in productive])
        for child in islice(dead, _MOST_LOOKED_AT):
            if automata[0].pruned(contents_of.keys() - {child}) is None:
                position = child
                break
    return position


def with_equal_positions(contents_of: dict[Position, Content]) -> dict[Position, Content]:
    """The contents with one position instead of those that have the same values at the same depth.

    Many alternatives often repeat a part, each at a position of its own. Were they told apart, a text would be read in
    as many ways as there are alternatives that it may belong to. The root comes first, and stays.
    """
    if len(contents_of) <= _FEW:
        return contents_of
    depths = _depths(contents_of)
    groups = _numbered((position, (depths.get(position), *content.key())) for position, content in contents_of.items())
    children = {position: content.children() for position, content in contents_of.items()}
    before = 0
    while len({*groups.values()}) > before:
        before = len({*groups.values()})
        groups = _numbered(
            (position, (groups[position], *[groups[child] for child in children[position]])) for position in contents_of
        )
    first: dict[int, Position] = {}
    for position, group in groups.items():
        first.setdefault(group, position)
    if len(first) == len(contents_of):
        return contents_of
    same = {position: first[group] for position, group in groups.items()}
    return {at: contents_of[at].renamed(lambda inside: same.get(inside, inside)) for at in first.values()}


def _numbered(keys: Iterable[tuple[Position, Hashable]]) -> dict[Position, int]:
    """A number for each position, the same where the keys are equal."""
    numbers: dict[Hashable, int] = {}
    return {position: numbers.setdefault(key, len(numbers)) for position, key in keys}


def _depths(contents_of: dict[Position, Content]) -> dict[Position, int]:
    """How many brackets are open at least around the values of each position that values have."""
    root = next(iter(contents_of))
    depths, todo = {root: 0}, [root]
    for position in todo:  # grows meanwhile
        for child in contents_of[position].children():
            if child not in depths:
                depths[child] = depths[position] + 1
                todo.append(child)
    return depths
