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
    parents = {root: 0}  # how many entries lead there
    todo = [root] if root in contents else []
    while todo:
        for child in children[todo.pop()]:
            if child not in parents:
                parents[child] = 0
                todo.append(child)
            parents[child] += 1
    levels: dict[Position, frozenset[int]] = {root: frozenset({0})}
    known: set[Position] = set()
    todo = [root] if root in contents and not parents[root] else []
    while todo:  # a position comes when all its parents are known, so none that a cycle leads to
        position = todo.pop()
        if len(levels[position]) > most:
            continue
        known.add(position)
        inside = frozenset([level + 1 for level in levels[position]])
        for child in children[position]:
            levels[child] = levels[child] | inside if child in levels else inside
            parents[child] -= 1
            if not parents[child]:
                todo.append(child)
    return frozenset(known)


def has_known_levels(root: Position, contents_of: dict[Position, Content]) -> bool:
    """Whether all values are at a depth that is known: any value, and recursion, have none."""
    reached, todo = {root}, [root]  # alternatives that were left out may have had more positions
    while todo:
        content = None if (position := todo.pop()) == ANY else contents_of[position]
        if content is None or content.any_array or content.any_object:
            return False
        new = {*content.children()} - reached
        reached |= new
        todo += new
    return len(of_known_level(root, contents_of, most=len(contents_of))) == len(reached)


def _children(content: Content, contents: Mapping[Position, Content]) -> list[Position]:
    if not content.arrays and not content.objects:
        return []
    return [value for value in content.children() if value in contents and value != ANY]
