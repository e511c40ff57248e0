"""The keywords that look at a value as a whole: ``allOf``, ``not``, ``$ref``, ``enum``, ``unevaluatedItems`` ..."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ..automaton.limits import count
from ..regex import alt, complement, parse_search, text
from . import readers
from .assertions import kinds
from .combine import absorbed, certainly, unevaluating, union
from .documents import Subschema, UnknownReference
from .formats import FORMATS, USUAL
from .shapes import (
    ANY,
    EMPTY,
    NEVER,
    UNIVERSE,
    ArrayClause,
    BooleanClause,
    Items,
    Kind,
    Members,
    NullClause,
    NumberClause,
    ObjectClause,
    Position,
    Shape,
    StringClause,
    Term,
)

if TYPE_CHECKING:
    from .normalize import Normalizer

MAX_EXACT_BRANCHES = 5  # maximum for an anyOf whose matching branches all count, as beside unevaluatedProperties
_FEW_CONDITIONS = 5  # maximum number of names that are taken apart, into at most 32 alternatives


def _children(n: Normalizer, sub: Subschema, keyword: str) -> list[Subschema]:
    return [
        n.documents.child(sub, schema, keyword, index) for index, schema in enumerate(readers.schemas(sub, keyword))
    ]


def _all(n: Normalizer, terms: Iterable[Term], sub: Subschema, keyword: str) -> Shape:
    shape = UNIVERSE
    for term in terms:
        shape = n.meet(shape, n.term(term), sub, keyword)
    return shape


def referred(n: Normalizer, sub: Subschema, holds: bool, keyword: str = "$ref") -> Shape:
    """The shape of the schema that a reference names; anything where no document has it, which is a loss."""
    if (keyword == "$dynamicRef" and sub.dialect < 2020) or (keyword == "$recursiveRef" and sub.dialect != 2019):
        return certainly(holds)
    ref = readers.string(sub, keyword)
    assert ref is not None
    try:
        return n.term(Term(n.documents.target(sub, ref, keyword), holds))
    except UnknownReference as error:
        n.lose(sub.pointer, keyword, str(error))
        return UNIVERSE


def _format(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
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
    strings = (clause for clause in shape.get("string", ()) if isinstance(clause, StringClause))
    return {**shape, "string": tuple(replace(clause, usual=(usual,)) for clause in strings)}


def _all_of(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
    terms = [Term(child, holds) for child in _children(n, sub, "allOf")]
    return _all(n, terms, sub, "allOf") if holds else union(*map(n.term, terms))


def _any_of(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
    children = _children(n, sub, "anyOf")
    if not holds:
        return _all(n, [Term(child, False) for child in children], sub, "anyOf")
    if n.documents.counts_branches and len(children) > 1:
        if len(children) > MAX_EXACT_BRANCHES:
            n.lose(sub.pointer, "anyOf", f"has more than {MAX_EXACT_BRANCHES} branches beside an unevaluated keyword")
            return UNIVERSE
        numbers = range(len(children))
        subsets = [chosen for size in numbers for chosen in combinations(numbers, size + 1)]
        shapes = [_all(n, _exactly(children, chosen), sub, "anyOf") for chosen in subsets]
    else:
        shapes = [n.term(Term(child)) for child in children]
    return union(*shapes)


def _exactly(children: list[Subschema], chosen: Container[int]) -> list[Term]:
    """The chosen ones hold, then the others do not."""
    terms = [Term(child, index in chosen) for index, child in enumerate(children)]
    return sorted(terms, key=lambda term: not term.holds)


def _one_of(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
    children = _children(n, sub, "oneOf")
    if not holds:
        two = n.meetings([n.term(Term(child)) for child in children])
        return union(_all(n, [Term(child, False) for child in children], sub, "oneOf"), *two.values())
    of_kinds = partial(_of_kinds, kinds(sub))  # branches that meet only in values of another type rule nothing out
    # Only a branch that may hold at the same time has to be ruled out.
    competing: dict[int, list[int]] = defaultdict(list)
    for i, j in sorted(n.widest.meetings([of_kinds(n.widest.term(Term(child))) for child in children])):
        competing[i].append(j)
        competing[j].append(i)
    disjoint = []
    for i, child in enumerate(children):
        shape = of_kinds(n.term(Term(child)))
        for j in sorted(competing[i]):
            before = len(n.losses)
            ruled_out = n.term(Term(children[j], False))
            if len(n.losses) > before:
                n.lose(sub.pointer, "oneOf", "two branches may hold at once, and one of them cannot be negated")
            shape = n.meet(shape, ruled_out, sub, "oneOf")
        disjoint.append(shape)
    return union(*disjoint)


def _of_kinds(kinds: tuple[Kind, ...], shape: Shape) -> Shape:
    return {kind: shape[kind] for kind in kinds if kind in shape}


def _not(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
    shape = n.term(Term(n.documents.child(sub, sub.keywords["not"], "not"), not holds))
    return unevaluating(shape) if n.documents.counts_branches else shape


def _if(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
    schema = sub.keywords
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


def _dependent(n: Normalizer, sub: Subschema, holds: bool) -> Shape:
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
            met = n.meet(shape, union(absent, branch), sub, keyword)
            shape = met if met is shape else absorbed(met)
        else:
            shape = union(shape, branch)
    return shape


def _is_of_names(shape: Shape) -> bool:
    clauses = shape.get("object", ())
    return {**shape, "object": UNIVERSE["object"]} == UNIVERSE and all(
        isinstance(clause, ObjectClause) and replace(clause, required=(), forbidden=frozenset()) == ObjectClause()
        for clause in clauses
    )


def _listed(n: Normalizer, sub: Subschema, holds: bool, keyword: str = "enum") -> Shape:
    values = sub.keywords[keyword]
    if keyword == "const":
        if sub.dialect < 6:
            return certainly(holds)
        values = [values]
    elif not isinstance(values, list):
        readers.malformed(sub, "enum", "a list of values")
    count(2 * len(values))
    numbers = tuple(dict.fromkeys([Decimal(value) for value in values if readers.is_number(value)]))
    floats = {value for value in values if isinstance(value, Decimal)}
    strings = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
    booleans = frozenset(value for value in values if isinstance(value, bool))
    arrays = [value for value in values if isinstance(value, list)]
    objects = [value for value in values if isinstance(value, dict)]
    if holds:
        listed: Shape = {
            "null": (NullClause(),) * (None in values),
            "boolean": (BooleanClause(booleans),) * bool(booleans),
            "number": (NumberClause(values=numbers, floats=frozenset(numbers) & floats),) * bool(numbers),
            "string": (StringClause(values=strings),) * bool(strings),
            "array": tuple(dict.fromkeys([_container(n, sub, value) for value in arrays])),
            "object": tuple(dict.fromkeys([_container(n, sub, value) for value in objects])),
        }
        return {kind: clauses for kind, clauses in listed.items() if clauses}
    others: Shape = dict(UNIVERSE)
    if None in values:
        del others["null"]
    if booleans:
        others["boolean"] = (BooleanClause(frozenset({True, False}) - booleans),)
    if numbers:
        others["number"] = (NumberClause(excluded=frozenset(numbers)),)
    if strings:
        others["string"] = (StringClause(language=complement(alt(*map(text, strings)))),)
    if len(booleans) == 2:
        del others["boolean"]
    containers_of: dict[Kind, list[Any]] = {"array": arrays, "object": objects}
    for kind, containers in containers_of.items():
        for value in containers:
            inner = n.documents.invent(sub, _spelled_out(value))
            rest = {**UNIVERSE, kind: n.term(Term(inner, False)).get(kind, ())}
            others = n.meet(others, rest, sub, "enum")
    return {kind: clauses for kind, clauses in others.items() if clauses}


def _container(n: Normalizer, sub: Subschema, value: list[Any] | dict[str, Any]) -> ArrayClause | ObjectClause:
    if isinstance(value, list):
        items = Items(tuple(n.value(item, sub) for item in value), NEVER, evaluates=False)
        return ArrayClause((items,), len(value), len(value), constant=_identity(value))
    members = Members({name: n.value(inner, sub) for name, inner in value.items()}, (), NEVER, evaluates=False)
    return ObjectClause((members,), tuple(value), constant=_identity(value))


def _identity(value: Any) -> Hashable:
    try:
        return _key(value)
    except RecursionError:
        return None  # other ways tell it apart, or none


def _key(value: Any) -> Hashable:
    """A key that equal JSON values share: 1 is 1.0, and not true."""
    count(2)
    if isinstance(value, dict):
        return "object", frozenset((name, _key(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return "array", *map(_key, value)
    return "boolean" if isinstance(value, bool) else "", value


def _spelled_out(value: Any) -> dict[str, Any]:
    """A schema that only this array or object satisfies, whose parts can be negated one by one."""
    if isinstance(value, list):
        constants = [{"const": item} for item in value]
        length = {"minItems": len(value), "maxItems": len(value)}
        return {**({"prefixItems": constants} if value else {}), **length}
    named = {name: {"const": inner} for name, inner in value.items()}
    return {"properties": named, "required": list(value), "additionalProperties": False}


def without_unevaluated(n: Normalizer, sub: Subschema, keyword: str, shape: Shape) -> Shape:
    """The shape with the keyword applied to the children that nothing else in the shape evaluates."""
    position = n.position(sub, sub.keywords[keyword], keyword)
    if keyword == "unevaluatedProperties":
        clauses = [
            _closed(n, clause, position) for clause in shape.get("object", ()) if isinstance(clause, ObjectClause)
        ]
        return n.meet({**shape, "object": tuple(clauses)}, UNIVERSE, sub, keyword) if clauses else shape
    arrays = []
    for clause in shape.get("array", ()):
        assert isinstance(clause, ArrayClause)
        items_evaluated = [contains.item for contains in clause.contains if contains.evaluates]
        if items_evaluated and sub.dialect < 2020:
            n.lose(sub.pointer, keyword, "readers of 2019-09 disagree on it beside contains")
            return shape
        evaluating = [items for items in clause.items if items.evaluates]
        if not any(items.rest is not None for items in evaluating):
            seen = max((len(items.prefix) for items in evaluating), default=0)
            rest = Items((ANY,) * seen, _any_position(n, sub, [*items_evaluated, position]))
            clause = replace(clause, items=(*clause.items, rest))
        arrays.append(clause)
    return {**shape, "array": tuple(arrays)} if arrays else shape


def _any_position(n: Normalizer, sub: Subschema, positions: list[Position]) -> Position:
    """The position that one of these is enough for; each is of one schema, not negated."""
    if ANY in positions:
        return ANY
    schemas = [term.schema.schema for position in positions if position != NEVER for term in position]
    return n.position_of(n.documents.invent(sub, {"anyOf": schemas})) if schemas else NEVER


def _closed(n: Normalizer, clause: ObjectClause, position: Position) -> ObjectClause:
    evaluating = [members for members in clause.members if members.evaluates]
    if any(members.additional is not None for members in evaluating):
        return clause
    named = {name: ANY for members in evaluating for name in members.named}
    patterns = tuple((names, ANY) for members in evaluating for names, _ in members.patterns)
    return replace(clause, members=(*clause.members, Members(named, patterns, position)))


# For each keyword a function of the values for which it holds, or of those for which it does not.
APPLY: dict[str, Callable[[Normalizer, Subschema, bool], Shape]] = {
    "const": partial(_listed, keyword="const"),
    "enum": _listed,
    "format": _format,
    "$ref": referred,
    "$dynamicRef": partial(referred, keyword="$dynamicRef"),
    "$recursiveRef": partial(referred, keyword="$recursiveRef"),
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "dependencies": _dependent,
}
