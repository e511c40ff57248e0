"""The order of the members of objects: whether a schema leaves it open, and whether it matters."""

from __future__ import annotations

from collections.abc import Iterable

from ..constraints.values import JsonSchema
from .content_automata import ContentAutomaton
from .grammar import Content, contents
from .normalize import Normalizer
from .shapes import ANY


def has_one_order(contents: Iterable[Content]) -> bool:
    """Whether no two names come in both orders; where that takes long to tell, False.

    Args:
        contents: of all positions.
    """
    before: set[tuple[str, str]] = set()
    for content in contents:
        if content.any_array or content.any_object or ANY in content.children():
            return False
        for automaton in content.objects:
            pairs = _pairs(automaton)
            if pairs is None or any((second, first) in before or first == second for first, second in pairs):
                return False
            before |= pairs
            if any((second, first) in before for first, second in pairs):
                return False
    return True


def depends_on_order(constraint: JsonSchema) -> bool:
    """Whether the order of members makes a difference: whether any are declared beside others.

    Raises:
        InvalidConstraint, CompileLimitExceeded: as ``contents``.
    """
    found = contents(Normalizer.of(constraint), closed=constraint.extra == "forbid", spelling=constraint.spelling)
    return any(_has_two_kinds(automaton) for content in found.values() for automaton in content.objects)


def _has_two_kinds(automaton: ContentAutomaton) -> bool:
    return len({entry.name for entry in automaton.entries()}) > 1


def _pairs(automaton: ContentAutomaton) -> set[tuple[str, str]] | None:
    """All names with those that may come after them; None if there are names that are not listed."""
    names: list[set[str]] = []
    targets: list[set[int]] = []
    for edges, skips in zip(automaton.edges, automaton.skips, strict=True):
        here: set[str] = set()
        for edge in edges:
            for entry in edge.entries:
                if not isinstance(entry.name, str):
                    return None
                here.add(entry.name)
        names.append(here)
        targets.append({*skips, *(edge.target for edge in edges)})
    later = [set(here) for here in names]
    changed = True
    while changed:
        changed = False
        for state, following in enumerate(targets):
            for target in following:
                if not later[target] <= later[state]:
                    later[state] |= later[target]
                    changed = True
    return {
        (entry.name, after)
        for edges in automaton.edges
        for edge in edges
        for entry in edge.entries
        if isinstance(entry.name, str)
        for after in (later[edge.target] if edge.high == 1 else {*later[edge.target], entry.name})
    }
