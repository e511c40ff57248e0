"""How deeply values nest: the levels of each position, and a bound on the depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from graphlib import CycleError, TopologicalSorter

from ..errors import CompileLimitExceeded, InvalidConstraint
from .documents import Subschema
from .grammar import MAX_POSITIONS, Content, completable_contents
from .shapes import Position, Term

_MAX_LEVELS = 8  # levels of one position: its rules are written once for each
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
        content = contents_of[position]
        if bounded != position and not left:
            content = Content(content.scalars)
        todo += [(child, left - 1) for child in content.children()]
        found[bounded] = content if bounded == position else content.renamed(partial(at, left=left - 1))
    root = at(root, max_depth)
    try:
        return root, completable_contents(found, root)
    except InvalidConstraint:
        raise InvalidConstraint(
            f"no value that satisfies the JSON Schema nests at most {max_depth} arrays and objects; raise max_depth"
        ) from None


def heights(contents_of: Mapping[Position, Content]) -> dict[Position, int]:
    """How deeply the values of each position nest at most; without those for which nothing bounds it."""
    children = {position: {*content.children()} for position, content in contents_of.items()}
    found: dict[Position, int] = {}
    for position in _ordered(children):
        deepest = max([found[child] + 1 for child in children[position]], default=1)
        found[position] = deepest if contents_of[position].automata else 0
    return found


def of_known_level(root: Position, contents_of: Mapping[Position, Content]) -> frozenset[Position]:
    """The positions that no recursion leads to, with few levels: numbers of open brackets around the values."""
    parents: dict[Position, set[Position]] = {root: set()}
    todo = [root]
    for position in todo:  # grows meanwhile
        for child in contents_of[position].children():
            if child not in parents:
                parents[child] = set()
                todo.append(child)
            parents[child].add(position)
    levels: dict[Position, set[int]] = {}
    for position in _ordered(parents):
        if parents[position] <= levels.keys():
            here = {level + 1 for parent in parents[position] for level in levels[parent]} or {0}
            if len(here) <= _MAX_LEVELS:
                levels[position] = here
    return frozenset(levels)


def _ordered(before: Mapping[Position, set[Position]]) -> Iterator[Position]:
    """Every position after those that come before it, without the positions that a cycle comes before."""
    sorter = TopologicalSorter(before)
    with suppress(CycleError):
        sorter.prepare()
    while ready := sorter.get_ready():
        yield from ready
        sorter.done(*ready)
