"""The number of open brackets around the values of a position, where the schema determines it."""

from __future__ import annotations

from collections.abc import Mapping

from .grammar import Content
from .shapes import ANY, Position

MAX_LEVELS = 8  # of one position: each has its rules written once more


def of_known_level(root: Position, contents: Mapping[Position, Content], most: int = MAX_LEVELS) -> frozenset[Position]:
    """The positions that no recursion leads to, and that have few levels.

    Args:
        root: the position of the whole text.
        contents: the content of every position.
        most: levels that a position may have.
    """
    children = {position: _children(content, contents) for position, content in contents.items()}
    parents = dict.fromkeys(contents, 0)
    for position in _reached(root, children):
        for child in children[position]:
            parents[child] += 1
    levels: dict[Position, set[int]] = {root: {0}} if root in contents else {}
    known: set[Position] = set()
    todo = [position for position in levels if not parents[position]]
    while todo:  # a position comes when all its parents are known, so none that a cycle leads to
        position = todo.pop()
        if len(levels[position]) > most:
            continue
        known.add(position)
        for child in children[position]:
            levels.setdefault(child, set()).update(level + 1 for level in levels[position])
            parents[child] -= 1
            if not parents[child]:
                todo.append(child)
    return frozenset(known)


def has_known_levels(root: Position, contents_of: dict[Position, Content]) -> bool:
    """Whether all values are at a depth that is known: any value, and recursion, have none."""
    entries = (
        entry.value
        for content in contents_of.values()
        for automaton in (*content.arrays, *content.objects)
        for edges in automaton.edges
        for edge in edges
        for entry in edge.entries
    )
    if (
        root == ANY
        or ANY in entries
        or any(content.any_array or content.any_object for content in contents_of.values())
    ):
        return False
    return len(of_known_level(root, contents_of, most=len(contents_of))) == len(contents_of)


def _children(content: Content, contents: Mapping[Position, Content]) -> frozenset[Position]:
    automata = (*content.arrays, *content.objects)
    entries = (
        entry.value for automaton in automata for edges in automaton.edges for edge in edges for entry in edge.entries
    )
    return frozenset(value for value in entries if value != ANY and value in contents)


def _reached(root: Position, children: Mapping[Position, frozenset[Position]]) -> set[Position]:
    reached, todo = set(), [root] if root in children else []
    while todo:
        position = todo.pop()
        if position not in reached:
            reached.add(position)
            todo.extend(children[position])
    return reached
