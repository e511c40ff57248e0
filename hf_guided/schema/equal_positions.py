"""Positions that have the same values: many alternatives often repeat a part, each at a position of its own.

Were they told apart, a text would be read in as many ways as there are alternatives that it may belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from .content_automata import ContentAutomaton
from .grammar import Content
from .registers import DifferentItems
from .shapes import ANY, Position

_FEW = 200  # positions: no text is read in too many ways then


def with_equal_positions(contents_of: dict[Position, Content]) -> dict[Position, Content]:
    """The contents with one position instead of those that have the same values at the same depth.

    Args:
        contents_of: of every position that has values, the root first; it stays.
    """
    if len(contents_of) <= _FEW:
        return contents_of
    depths = _depths(contents_of)
    groups = _numbered({position: (depths.get(position), *_own(content)) for position, content in contents_of.items()})
    children = {position: content.children() for position, content in contents_of.items()}
    before = 0
    while len({*groups.values()}) > before:
        before = len({*groups.values()})
        groups = _numbered(
            {
                position: (groups[position], *[-1 if child == ANY else groups[child] for child in children[position]])
                for position in contents_of
            }
        )
    first: dict[int, Position] = {}
    for position, group in groups.items():
        first.setdefault(group, position)
    if len(first) == len(contents_of):
        return contents_of

    def at(position: Position) -> Position:
        return first[groups[position]] if position in groups else position

    return {
        position: replace(
            contents_of[position],
            arrays=tuple([renamed(automaton, at) for automaton in contents_of[position].arrays]),
            objects=tuple([renamed(automaton, at) for automaton in contents_of[position].objects]),
        )
        for position in first.values()
    }


def renamed(automaton: ContentAutomaton, at: Callable[[Position], Position]) -> ContentAutomaton:
    """The automaton with other positions.

    Args:
        automaton: not changed.
        at: what each position becomes.
    """
    edges = [
        [
            edge._replace(entries=tuple([entry._replace(value=at(entry.value)) for entry in edge.entries]))
            for edge in leaving
        ]
        for leaving in automaton.edges
    ]
    register = automaton.register
    if isinstance(register, DifferentItems):
        register = replace(register, items=tuple(map(at, register.items)))
    return ContentAutomaton(edges, automaton.skips, automaton.accepting, register)


def _own(content: Content) -> tuple[Hashable, ...]:
    """What a content has but for the positions of its children."""
    return (
        content.scalars,
        content.any_array,
        content.any_object,
        len(content.arrays),
        *[
            (
                tuple(
                    [
                        tuple(
                            [
                                (edge.target, edge.low, edge.high, *[entry.name for entry in edge.entries])
                                for edge in leaving
                            ]
                        )
                        for leaving in automaton.edges
                    ]
                ),
                tuple(map(tuple, automaton.skips)),
                frozenset(automaton.accepting),
                automaton.register,
            )
            for automaton in content.automata
        ],
    )


def _numbered(keys: dict[Position, tuple[Hashable, ...]]) -> dict[Position, int]:
    """A number for each position, the same where the keys are equal."""
    numbers: dict[tuple[Hashable, ...], int] = {}
    return {position: numbers.setdefault(key, len(numbers)) for position, key in keys.items()}


def _depths(contents_of: dict[Position, Content]) -> dict[Position, int]:
    """How many brackets are open at least around the values of each position that values have."""
    root = next(iter(contents_of))
    depths, todo = {root: 0}, [root]
    for position in todo:  # grows meanwhile
        for child in contents_of[position].children() if position != ANY else ():
            if child not in depths:
                depths[child] = depths[position] + 1
                todo.append(child)
    return depths
