"""Operations on shapes: union and intersection; and which of many alternatives may have a value in common.

A tag is a set that holds what a value has in one place: its constants, the type of a member, a first character. Where
the tags of two alternatives in one place are disjoint, so are the alternatives. The place that tells most of them apart
puts them into groups; only those of one group are compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

from ..automaton.limits import count
from ..regex import Chars, Concat
from .shapes import (
    EMPTY,
    KINDS,
    NEVER,
    UNIVERSE,
    ArrayClause,
    BooleanClause,
    Clause,
    NullClause,
    NumberClause,
    ObjectClause,
    Shape,
    StringClause,
)

if TYPE_CHECKING:
    from .normalize import Normalizer

_FEW = 4  # alternatives on one side, or shapes: with so few, all pairs may meet
_LOOKS = 32  # looks at two alternatives that take as long as one intersection of them
_MOST_TAGGED = 8  # characters at the beginning, or items
_MOST_CHARACTERS = 64  # the most characters that may stand in one place

Pairs = Sequence[tuple[int, int]]
Tags = Mapping[Hashable, frozenset[Hashable]]


def certainly(holds: bool) -> Shape:
    """The shape of a keyword without effect, or its negation."""
    return UNIVERSE if holds else EMPTY


def union(*shapes: Shape) -> Shape:
    """Values of any of the shapes; equal clauses are kept once, and those that only list scalars as one."""
    met: Shape = {}
    for kind in KINDS:
        if clauses := [clause for shape in shapes if kind in shape for clause in shape[kind]]:
            whole = UNIVERSE[kind]
            met[kind] = whole if whole[0] in clauses else _joined(clauses) if len(clauses) > 1 else tuple(clauses)
    return met


def _joined(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    lists: dict[Clause, list[Any]] = {}  # lists of scalars, by all else that is said of them
    for clause in clauses:
        is_list = isinstance(clause, (NumberClause, StringClause)) and clause.values is not None
        lists.setdefault(_without_values(clause) if is_list else clause, []).append(clause)
    return tuple(_as_one(base, listing) for base, listing in lists.items())


def _without_values(clause: Any) -> Clause:
    return replace(clause, values=(), **({"floats": frozenset()} if isinstance(clause, NumberClause) else {}))  # type: ignore[no-any-return]


def _as_one(base: Any, listing: list[Any]) -> Clause:
    if len(listing) == 1 or base == listing[0]:
        return listing[0]  # type: ignore[no-any-return]
    values = tuple(dict.fromkeys(value for clause in listing for value in clause.values))
    if isinstance(base, StringClause):
        return replace(base, values=values)
    return replace(base, values=values, floats=frozenset().union(*(clause.floats for clause in listing)))  # type: ignore[no-any-return]


def absorbed(shape: Shape) -> Shape:
    """Without objects that are a special case of others, as far as required and forbidden names alone tell."""
    clauses = [clause for clause in dict.fromkeys(shape.get("object", ())) if isinstance(clause, ObjectClause)]
    # Required and forbidden names, by all else that the clauses say.
    general: dict[ObjectClause, list[tuple[frozenset[str], frozenset[str]]]] = {}
    special = set[ObjectClause]()
    for clause in sorted(clauses, key=lambda clause: len(clause.required) + len(clause.forbidden)):
        others = general.setdefault(replace(clause, required=(), forbidden=frozenset()), [])
        required, forbidden = frozenset(clause.required), clause.forbidden
        if any([names <= required and absent <= forbidden for names, absent in others]):
            special.add(clause)
        else:
            others.append((required, forbidden))
    return {**shape, "object": tuple(clause for clause in clauses if clause not in special)} if clauses else shape


FindPairs = Callable[[Sequence[Clause], Sequence[Clause]], Iterable[tuple[int, int]]]


def intersection(first: Shape, second: Shape, pairs: FindPairs) -> Shape:
    """Values of both shapes, without clauses that are plainly empty; ``pairs`` finds the clauses that may meet."""
    if first is UNIVERSE or second is UNIVERSE:
        return second if first is UNIVERSE else first
    met: Shape = {}
    for kind in KINDS:
        if kind not in first or kind not in second:
            continue
        if first[kind] is UNIVERSE[kind]:
            met[kind] = second[kind]
        elif second[kind] is UNIVERSE[kind]:
            met[kind] = first[kind]
        else:
            clauses = [meet(first[kind][i], second[kind][j]) for i, j in pairs(first[kind], second[kind])]
            if clauses_left := tuple(dict.fromkeys(clause for clause in clauses if clause is not None)):
                met[kind] = clauses_left
    return met


def unevaluating(shape: Shape) -> Shape:
    """The same values; under a negation, they do not mark items or members as evaluated."""
    met = dict(shape)
    if "array" in shape:
        met["array"] = tuple(
            replace(
                clause,
                items=tuple(items._replace(evaluates=False) for items in clause.items),
                contains=tuple(contains._replace(evaluates=False) for contains in clause.contains),
            )
            for clause in shape["array"]
            if isinstance(clause, ArrayClause)
        )
    if "object" in shape:
        met["object"] = tuple(
            replace(clause, members=tuple(replace(members, evaluates=False) for members in clause.members))
            for clause in shape["object"]
            if isinstance(clause, ObjectClause)
        )
    return met


def meet(first: Any, second: Any) -> Clause | None:
    """The intersection of two clauses of one type; None if it is plainly empty."""
    whole = UNIVERSE[second.kind][0]
    if first == second or second == whole:
        return first  # type: ignore[no-any-return]
    met = second if first == whole else first.meet(second)
    return None if met is None or met.is_plainly_empty() else met


def may_meet(n: Normalizer, first: Sequence[Clause], second: Sequence[Clause]) -> tuple[Pairs, int]:
    """Numbered pairs of alternatives of one type that may share a value, in order, and the work, as intersections."""
    everything = range(len(first)), range(len(second))
    if min(len(first), len(second)) <= _FEW:
        return [*product(*everything)], 0
    tags = [[_tags(n, clause) for clause in clauses] for clauses in (first, second)]
    sets: dict[Hashable, Counter[Hashable]] = defaultdict(Counter)
    for of_one in (tags_of for side in tags for tags_of in side):
        for place, tag in of_one.items():
            sets[place][tag] += 1
    place = max(sets, key=lambda place: len(sets[place]), default=None)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for j, of_one in enumerate(tags[1]):
        for value in of_one.get(place, (None,)):
            groups[value].append(j)
    looks, found = 0, []
    for i, of_one in enumerate(tags[0]):
        near: Collection[int] = everything[1]
        if place in of_one:
            near = sorted({j for value in (None, *of_one[place]) for j in groups.get(value, ())})
        looks += len(near)
        found += [(i, j) for j in near if not _are_apart(first[i], second[j], of_one, tags[1][j])]
    return found, looks // _LOOKS


def near_shapes(n: Normalizer, shapes: Sequence[Shape]) -> tuple[Pairs, int]:
    """Pairs as in ``may_meet``, of some shapes among themselves; the first of a pair is before the second."""
    if len(shapes) <= _FEW:
        return [*combinations(range(len(shapes)), 2)], 0
    near: set[tuple[int, int]] = set()
    work = 0
    for kind in KINDS:
        owned = [(i, clause) for i, shape in enumerate(shapes) for clause in shape.get(kind, ())]
        clauses = [clause for _, clause in owned]
        pairs, looked = may_meet(n, clauses, clauses)
        near.update((owned[a][0], owned[b][0]) for a, b in pairs if owned[a][0] < owned[b][0])
        work += looked
    return sorted(near), work


def listed(clause: Clause) -> frozenset[Hashable] | None:
    """The values of a clause; None if they are not listed."""
    if isinstance(clause, NullClause):
        return frozenset({None})
    if isinstance(clause, BooleanClause):
        return frozenset(("boolean", value) for value in clause.values)  # true is no 1
    if isinstance(clause, (NumberClause, StringClause)):
        return None if clause.values is None else frozenset(clause.values)
    return None if clause.constant is None else frozenset({clause.constant})


def _tags(n: Normalizer, clause: Clause) -> Tags:
    tags: dict[Hashable, frozenset[Hashable]] = {}
    if (values := listed(clause)) is not None:
        tags["values"] = values
    elif isinstance(clause, StringClause):
        tags.update(_beginning(clause))
    if isinstance(clause, (ArrayClause, ObjectClause)):
        places = range(min(clause.low, _MOST_TAGGED)) if isinstance(clause, ArrayClause) else clause.required
        for place in places:
            for what, tag in n.tags(clause.at(place)).items():  # type: ignore[arg-type]
                tags[place, what] = tag
    return tags


def _beginning(clause: StringClause) -> Tags:
    tags: dict[Hashable, frozenset[Hashable]] = {}
    parts = clause.language.parts if isinstance(clause.language, Concat) else (clause.language,)
    for place, part in enumerate(parts[:_MOST_TAGGED]):
        if not isinstance(part, Chars) or len(part.charset) > _MOST_CHARACTERS:
            break
        tags[place] = frozenset(part.charset)
    return tags


def _are_apart(first: Clause, second: Clause, tags: Tags, others: Tags) -> bool:
    """Whether two alternatives of one type surely have no value in common; takes no search."""
    count(4)
    if any([tag.isdisjoint(others[place]) for place, tag in tags.items() if place in others]):
        return True
    if isinstance(first, NumberClause) and isinstance(second, NumberClause):
        return _is_below(first, second) or _is_below(second, first)
    if isinstance(first, ObjectClause) and isinstance(second, ObjectClause):
        return any(b.at(name) == NEVER for a, b in ((first, second), (second, first)) for name in a.required)
    return False


def _is_below(first: NumberClause, second: NumberClause) -> bool:
    return first.high is not None and second.low is not None and first.high < second.low
