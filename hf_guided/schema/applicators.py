"""The keywords that look at a value as a whole: ``allOf``, ``not``, ``if``, ``$ref`` ..."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations

from ..regex import parse_search
from . import readers
from .assertions import kinds
from .combine import absorbed, certainly, intersection, union, untold
from .context import SchemaContext
from .documents import Subschema, UnknownReference
from .formats import FORMATS, USUAL
from .shapes import EMPTY, UNIVERSE, Kind, ObjectClause, Shape, StringClause, Term
from .values import constant, enumeration

MAX_EXACT_BRANCHES = 5  # of an anyOf whose matching branches all count, as beside unevaluatedProperties
_FEW_CONDITIONS = 5  # of names; taken apart they make at most 32 alternatives


def _children(n: SchemaContext, sub: Subschema, keyword: str) -> list[Subschema]:
    return [
        n.documents.child(sub, schema, keyword, index) for index, schema in enumerate(readers.schemas(sub, keyword))
    ]


def _all(n: SchemaContext, children: list[Subschema], holds: bool, sub: Subschema, keyword: str) -> Shape:
    shape = UNIVERSE
    for child in children:
        shape = n.meet(shape, n.term(Term(child, holds)), sub, keyword)
    return shape


def referred(n: SchemaContext, sub: Subschema, keyword: str, holds: bool) -> Shape:
    """What the schema that a reference names says; anything where no document has it, which is a loss."""
    ref = readers.string(sub, keyword)
    assert ref is not None
    try:
        if keyword == "$recursiveRef":
            target = n.documents.recursive_target(sub)
        elif keyword == "$dynamicRef":
            target = n.documents.dynamic_target(sub, ref)
        else:
            target = n.documents.target(sub, ref)
    except UnknownReference as error:
        n.lose(sub, keyword, str(error))
        return UNIVERSE
    return n.term(Term(target, holds))


def _reference(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    return referred(n, sub, "$ref", holds)


def _dynamic_reference(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    return referred(n, sub, "$dynamicRef", holds) if sub.dialect >= 2020 else certainly(holds)


def _recursive_reference(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    return referred(n, sub, "$recursiveRef", holds) if sub.dialect == 2019 else certainly(holds)


def _format(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    name = readers.string(sub, "format")
    if name is None or name not in FORMATS:
        return certainly(holds)  # no specification defines it: an annotation
    if name not in n.formats:
        n.formats[name] = n.documents.invent(sub, FORMATS[name])
    shape = n.term(Term(n.formats[name], holds))
    if not holds:
        return shape
    pattern = FORMATS[name]["pattern"]
    usual = parse_search(pattern), parse_search(USUAL.get(name, pattern))
    return intersection(shape, UNIVERSE | {"string": (StringClause(usual=(usual,)),)})


def _all_of(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    children = _children(n, sub, "allOf")
    if holds:
        return _all(n, children, True, sub, "allOf")
    return union(*(n.term(Term(child, False)) for child in children))


def _any_of(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    children = _children(n, sub, "anyOf")
    if not holds:
        return _all(n, children, False, sub, "anyOf")
    if n.documents.counts_branches and len(children) > 1:
        if len(children) > MAX_EXACT_BRANCHES:
            n.lose(sub, "anyOf", f"has more than {MAX_EXACT_BRANCHES} branches beside an unevaluated keyword")
            return UNIVERSE
        shapes = [_exactly(n, children, chosen, sub) for chosen in _subsets(len(children))]
    else:
        shapes = [n.term(Term(child)) for child in children]
    return union(*shapes)


def _exactly(n: SchemaContext, children: list[Subschema], chosen: frozenset[int], sub: Subschema) -> Shape:
    """Values that satisfy the chosen branches and no other."""
    shape = UNIVERSE
    for index, child in sorted(enumerate(children), key=lambda indexed: indexed[0] not in chosen):
        shape = n.meet(shape, n.term(Term(child, index in chosen)), sub, "anyOf")
    return shape


def _one_of(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    children = _children(n, sub, "oneOf")
    if not holds:
        two = n.meetings([n.term(Term(child)) for child in children])
        return union(_all(n, children, False, sub, "oneOf"), *two.values())
    of_kinds = partial(_of_kinds, kinds(sub))  # those that meet only in values of another type rule nothing out
    # Only a branch that may hold at the same time has to be ruled out.
    rivals: dict[int, list[int]] = defaultdict(list)
    for i, j in sorted(n.widest.meetings([of_kinds(n.widest.term(Term(child))) for child in children])):
        rivals[i].append(j)
        rivals[j].append(i)
    disjoint = []
    for i, child in enumerate(children):
        shape = of_kinds(n.term(Term(child)))
        for j in sorted(rivals[i]):
            before = len(n.losses)
            ruled_out = n.term(Term(children[j], False))
            if len(n.losses) > before:
                n.lose(sub, "oneOf", "two branches may hold at once, and one of them cannot be negated")
            shape = n.meet(shape, ruled_out, sub, "oneOf")
        disjoint.append(shape)
    return union(*disjoint)


def _of_kinds(kinds: tuple[Kind, ...], shape: Shape) -> Shape:
    return {kind: shape[kind] for kind in kinds if kind in shape}


def _not(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    assert isinstance(sub.schema, dict)
    shape = n.term(Term(n.documents.child(sub, sub.schema["not"], "not"), not holds))
    return untold(shape) if n.documents.counts_branches else shape


def _if(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    schema = sub.schema
    assert isinstance(schema, dict)
    if sub.dialect < 7:
        return certainly(holds)
    condition = n.documents.child(sub, schema["if"], "if")
    branches = []
    for keyword, is_true in (("then", True), ("else", False)):
        branch = n.term(Term(condition, is_true))
        if keyword in schema:
            consequence = n.term(Term(n.documents.child(sub, schema[keyword], keyword), holds))
            branch = n.meet(branch, consequence, sub, keyword)
        elif not holds:
            continue
        branches.append(branch)
    return union(*branches)


def _dependent(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    """``dependentRequired``, ``dependentSchemas`` and, before them, ``dependencies`` for both."""
    conditions = []
    keywords = ["dependentRequired", "dependentSchemas"] * (sub.dialect >= 2019)
    # Many schemas that do not name their draft are older than they would count for.
    keywords += ["dependencies"] * (sub.dialect < 2019 or not n.documents.names_dialect)
    for keyword in keywords:
        for name, needs in readers.mapping(sub, keyword).items():
            if isinstance(needs, list):
                if not all(isinstance(needed_name, str) for needed_name in needs):
                    readers.malformed(sub, keyword, "lists of names")
                needed = n.documents.invent(sub, {"required": needs})
            else:
                needed = n.documents.child(sub, needs, keyword, name)
            conditions.append((keyword, name, Term(needed, holds)))
    shape = UNIVERSE if holds else EMPTY
    declared = readers.mapping(sub, "properties") if len(conditions) > _FEW_CONDITIONS else {}
    for keyword, name, term in conditions:
        branch = n.term(term)
        # A declared name need not be required to be allowed: then cases overlap, and most are special cases of others.
        if not (holds and name in declared and _is_of_names(branch)):
            present: Shape = {"object": (ObjectClause(required=(name,)),)}
            branch = n.meet(branch, present, sub, keyword)  # the required items come first
        if holds:
            absent: Shape = {**UNIVERSE, "object": (ObjectClause(forbidden=frozenset({name})),)}
            shape = absorbed(n.meet(shape, union(absent, branch), sub, keyword))
        else:
            shape = union(shape, branch)
    return shape


def _is_of_names(shape: Shape) -> bool:
    """Whether a shape says nothing but which names objects have."""
    clauses = shape.get("object", ())
    return {**shape, "object": UNIVERSE["object"]} == UNIVERSE and all(
        isinstance(clause, ObjectClause) and replace(clause, required=(), forbidden=frozenset()) == ObjectClause()
        for clause in clauses
    )


def _subsets(length: int) -> Iterator[frozenset[int]]:
    for chosen in range(1, length + 1):
        yield from map(frozenset, combinations(range(length), chosen))


# By keyword: the values for which it holds, or those for which it does not.
APPLY: dict[str, Callable[[SchemaContext, Subschema, bool], Shape]] = {
    "const": constant,
    "enum": enumeration,
    "format": _format,
    "$ref": _reference,
    "$dynamicRef": _dynamic_reference,
    "$recursiveRef": _recursive_reference,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "dependencies": _dependent,
}
