"""A bound on the depth of nesting: the contents of a schema with a position for each number of levels that are left."""

from __future__ import annotations

from functools import partial

from ..errors import CompileLimitExceeded, InvalidConstraint
from ..regex import ANYTHING
from .content_automata import ContentAutomaton, Edge, Entry
from .documents import Subschema
from .equal_positions import renamed
from .grammar import MAX_POSITIONS, Content, completable_contents
from .shapes import ANY, UNIVERSE, Position, Term

ANY_ITEMS = ContentAutomaton([[Edge((Entry(None, ANY),), 1, 1, None)], []], [(), ()], {0, 1})
ANY_MEMBERS = ContentAutomaton([[Edge((Entry(ANYTHING, ANY),), 1, 1, None)], []], [(), ()], {0, 1})
ANY_CONTENT = Content(
    tuple(clause for kind in ("null", "boolean", "number", "string") for clause in UNIVERSE[kind]),
    any_array=True,
    any_object=True,
)
_LAST = 2**62  # in the order of reading: so no pointer is that of a bound


def within_depth(
    root: Position, contents_of: dict[Position, Content], max_depth: int | None
) -> tuple[Position, dict[Position, Content]]:
    """The root and the contents of the values that nest at most ``max_depth`` arrays and objects.

    A position whose values cannot nest more deeply than they may stays as it is. Any other becomes one position for
    each number of levels that may be left there: it has to satisfy a bound beside its schemas.

    Args:
        root: the position of the whole text.
        contents_of: of every position that has values.
        max_depth: how many levels there may be, the outermost counted; None is no bound.

    Raises:
        InvalidConstraint: no value is left.
        CompileLimitExceeded: there are too many positions.
    """
    if max_depth is None:
        return root, contents_of
    known = heights(contents_of)
    bounds: dict[int, Term] = {}

    def at(position: Position, left: int) -> Position:
        if known.get(position, left + 1) <= left:
            return position
        if left not in bounds:
            bounds[left] = Term(Subschema(True, "", "", 0, _LAST))
        return position | {bounds[left]}

    found: dict[Position, Content] = {}
    todo = [(root, max_depth)]
    while todo:
        position, left = todo.pop()
        bounded = at(position, left)
        if bounded in found:
            continue
        if len(found) >= MAX_POSITIONS:
            raise CompileLimitExceeded(
                f"the JSON Schema has more than {MAX_POSITIONS} positions for values, each counted once for each "
                f"number of levels that are left of max_depth={max_depth}; lower it, or make the schema smaller"
            )
        content = ANY_CONTENT if position == ANY else contents_of[position]
        if bounded != position:
            arrays = (ANY_ITEMS,) if content.any_array else content.arrays
            objects = (ANY_MEMBERS,) if content.any_object else content.objects
            content = Content(content.scalars, arrays, objects) if left else Content(content.scalars)
        todo += [(child, left - 1) for child in content.children()]
        if bounded != position:
            inside = partial(at, left=left - 1)
            content.arrays = tuple([renamed(automaton, inside) for automaton in content.arrays])
            content.objects = tuple([renamed(automaton, inside) for automaton in content.objects])
        found[bounded] = content
    root = at(root, max_depth)
    try:
        return root, completable_contents(found, root)
    except InvalidConstraint:
        raise InvalidConstraint(
            f"no value that satisfies the JSON Schema nests at most {max_depth} arrays and objects; raise max_depth"
        ) from None


def heights(contents_of: dict[Position, Content]) -> dict[Position, int]:
    """How deeply the values of each position nest at most; without those for which nothing bounds it."""
    parents: dict[Position, list[Position]] = {}
    waiting: dict[Position, int] = {}  # children without a height
    found: dict[Position, int] = {}
    for position, content in contents_of.items():
        if content.any_array or content.any_object:
            continue
        children = {*content.children()}
        waiting[position], found[position] = len(children), 1 if content.automata else 0
        for child in children:
            parents.setdefault(child, []).append(position)
    todo = [position for position, count in waiting.items() if not count]
    for position in todo:  # grows meanwhile
        for parent in parents.get(position, ()):
            if parent in waiting:
                found[parent] = max(found[parent], found[position] + 1)
                waiting[parent] -= 1
                if not waiting[parent]:
                    todo.append(parent)
    return {position: found[position] for position in todo}
