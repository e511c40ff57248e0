"""The keywords that look at a value of one type: each type's clause, and its complement."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..constraints.json_schema_keywords import OF_ONE_TYPE
from ..regex import ANYTHING, Node, UnsupportedRegex, alt, complement, parse_search, parse_search_either, text
from . import readers
from .combine import meet
from .documents import Subschema
from .formats import FORMATS
from .shapes import (
    ANY,
    EMPTY,
    UNIVERSE,
    ArrayClause,
    AtLeastOne,
    Clause,
    Contains,
    Items,
    Kind,
    Members,
    Names,
    NumberClause,
    ObjectClause,
    Position,
    Shape,
    StringClause,
)

if TYPE_CHECKING:
    from .normalize import Normalizer

_OF_ANY_TYPE = frozenset().union(*OF_ONE_TYPE.values())  # most schemas have none of these
_SIZES: tuple[tuple[Kind, str, str, type[StringClause | ArrayClause | ObjectClause]], ...] = (
    ("string", "minLength", "maxLength", StringClause),
    ("array", "minItems", "maxItems", ArrayClause),
    ("object", "minProperties", "maxProperties", ObjectClause),
)
_OF_FORMATS = {id(schema) for schema in FORMATS.values()}


def kinds(sub: Subschema) -> tuple[Kind, ...]:
    """The types that the keyword ``type`` leaves, "integer" as "number"."""
    return tuple(_of_types(readers.types(sub)))


def _is_integral(types: tuple[str, ...] | None) -> bool:
    return types is not None and "number" not in types and "integer" in types


@lru_cache(maxsize=256)
def _of_types(types: tuple[str, ...] | None, point_zero: bool = True) -> Shape:
    """All values of these types, of "integer" the whole numbers alone; None is any type."""
    if types is None:
        return UNIVERSE
    shape: Shape = {kind: whole for kind, whole in UNIVERSE.items() if kind in types}
    return {**shape, "number": (NumberClause(True, point_zero=point_zero),)} if _is_integral(types) else shape


def holding(n: Normalizer, sub: Subschema) -> Shape:
    """The values that satisfy the keywords of all types."""
    schema = sub.keywords
    types = readers.types(sub)
    whole = _of_types(types, n.point_zero and sub.dialect > 4)
    if _OF_ANY_TYPE.isdisjoint(schema):
        return whole
    shape = dict(whole)
    for kind, read in _READERS.items():
        if not OF_ONE_TYPE[kind].isdisjoint(schema):
            clause = read(n, sub)  # also for types that are not allowed: the keyword may be malformed
            if kind in shape and (clause is None or n.is_plainly_empty(clause)):
                del shape[kind]
            elif kind in shape:
                shape[kind] = (clause,)  # type: ignore[assignment]
    return shape


def failing(n: Normalizer, sub: Subschema) -> Iterator[Shape]:
    """For each of these keywords the values that do not satisfy it. Values of other types always do."""
    types = readers.types(sub)
    if types is not None:
        shape = {kind: whole for kind, whole in UNIVERSE.items() if kind not in _of_types(types)}
        if _is_integral(types):
            shape["number"] = (NumberClause(integral=False),)
        yield shape
    for kind, minimum, maximum, clause in _SIZES:
        if low := readers.count(sub, minimum):
            yield {kind: (clause(high=low - 1),)}
        if (high := readers.count(sub, maximum)) is not None:
            yield {kind: (clause(low=high + 1),)}
    for bound in _bounds(sub):
        if bound.low is not None:
            yield {"number": (NumberClause(high=bound.low, high_open=not bound.low_open),)}
        else:
            yield {"number": (NumberClause(low=bound.high, low_open=not bound.high_open),)}
    source = readers.string(sub, "pattern")
    if source is not None:
        language = pattern(n, sub, "pattern", source, _read(n, sub, holds=False))
        yield UNIVERSE if language is None else {"string": (StringClause(language=complement(language)),)}
    yield from _failing_arrays(n, sub)
    yield from _failing_objects(n, sub)


def _numbers(n: Normalizer, sub: Subschema) -> Clause | None:
    integral = _is_integral(readers.types(sub)) or None
    clause: Clause | None = NumberClause(integral, point_zero=n.point_zero and sub.dialect > 4)
    for bound in _bounds(sub):
        clause = None if clause is None else meet(clause, bound)
    factor = readers.number(sub, "multipleOf")
    if factor is not None:
        if factor <= 0:
            readers.malformed(sub, "multipleOf", "a number above 0")
        clause = None if clause is None else meet(clause, NumberClause(factors=(factor,), origin=sub.pointer))
    return clause


def _bounds(sub: Subschema) -> Iterator[NumberClause]:
    schema = sub.keywords
    # In draft 4 `exclusiveMinimum` is a flag beside `minimum`; recognized by its value: many schemas do not name their
    # draft.
    low, high = readers.number(sub, "minimum"), readers.number(sub, "maximum")
    below, above = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None:
        yield NumberClause(low=low, low_open=below is True)
    if high is not None:
        yield NumberClause(high=high, high_open=above is True)
    if not isinstance(below, bool) and (value := readers.number(sub, "exclusiveMinimum")) is not None:
        yield NumberClause(low=value, low_open=True)
    if not isinstance(above, bool) and (value := readers.number(sub, "exclusiveMaximum")) is not None:
        yield NumberClause(high=value, high_open=True)


def _strings(n: Normalizer, sub: Subschema) -> Clause:
    language = pattern(n, sub, "pattern", readers.string(sub, "pattern"), _read(n, sub, holds=True))
    return StringClause(readers.count(sub, "minLength") or 0, readers.count(sub, "maxLength"), language or ANYTHING)


def _read(n: Normalizer, sub: Subschema, *, holds: bool) -> Callable[[str], Node]:
    is_own = id(sub.schema) in _OF_FORMATS  # no reader sees it
    return parse_search if is_own or holds != n.is_widest else parse_search_either


def pattern(
    n: Normalizer, sub: Subschema, keyword: str, source: str | None, read: Callable[[str], Node]
) -> Node | None:
    """The formal language of a pattern; None if it is not supported, which is a loss."""
    if source is None:
        return None
    try:
        return read(source)
    except UnsupportedRegex as error:
        n.lose(sub.pointer, keyword, f"the pattern {source!r}: {error}")
    except re.error as error:
        readers.malformed(sub, keyword, f"a regular expression ({error})")
    return None


def _arrays(n: Normalizer, sub: Subschema) -> Clause:
    items = _items(n, sub)
    return ArrayClause(
        () if items is None else (items,),
        readers.count(sub, "minItems") or 0,
        readers.count(sub, "maxItems"),
        _contains(n, sub),
        sub.pointer if readers.flag(sub, "uniqueItems") else None,
    )


def _items(n: Normalizer, sub: Subschema) -> Items | None:
    schema = sub.keywords
    first = "items" if isinstance(schema.get("items"), list) else "prefixItems"
    rest = "additionalItems" if first == "items" else "items"
    if first not in schema and rest not in schema:
        return None
    if first == "prefixItems" and sub.dialect < 2020:
        prefix: list[Any] = []  # not a keyword yet
    else:
        prefix = schema[first] if schema.get(first) == [] else readers.schemas(sub, first)
    positions = tuple(n.position(sub, item, first, index) for index, item in enumerate(prefix))
    return Items(positions, n.position(sub, schema[rest], rest) if rest in schema else None)


def _contains(n: Normalizer, sub: Subschema) -> tuple[Contains, ...]:
    schema = sub.keywords
    if "contains" not in schema or sub.dialect < 6:
        return ()
    low, high = 1, None
    if sub.dialect >= 2019:
        minimum, high = readers.count(sub, "minContains"), readers.count(sub, "maxContains")
        low = 1 if minimum is None else minimum
    item = n.position(sub, schema["contains"], "contains")
    return (Contains(item, low, high, 0, (sub.pointer, "contains")),)


def _failing_arrays(n: Normalizer, sub: Subschema) -> Iterator[Shape]:
    items = _items(n, sub)
    if items is not None:
        wrong: list[Clause] = []
        for index, position in enumerate(items.prefix):
            before = (ANY,) * index
            wrong.append(ArrayClause((Items((*before, n.opposite(position)), evaluates=False),), low=index + 1))
        if items.rest:  # None and ANY always hold
            one = Contains(n.opposite(items.rest), 1, None, len(items.prefix), (sub.pointer, "items"), evaluates=False)
            wrong.append(ArrayClause(contains=(one,)))
        yield {"array": tuple(wrong)} if wrong else EMPTY
    for contains in _contains(n, sub):
        few: tuple[Clause, ...] = ()
        if contains.low:
            few = (ArrayClause(contains=(contains._replace(low=0, high=contains.low - 1, evaluates=False),)),)
        if contains.high is not None:
            few += (ArrayClause(contains=(contains._replace(low=contains.high + 1, high=None, evaluates=False),)),)
        yield {"array": few}


def _objects(n: Normalizer, sub: Subschema) -> Clause:
    members, _ = _members(n, sub)
    return ObjectClause(
        () if members is None else (members,),
        _required(sub),
        frozenset(),
        _names(n, sub),
        readers.count(sub, "minProperties") or 0,
        readers.count(sub, "maxProperties"),
        origin=sub.pointer,
    )


def _required(sub: Subschema) -> tuple[str, ...]:
    if isinstance(sub.keywords.get("required"), bool):
        return ()  # draft 3's form, inside a property; later drafts allow only a list
    return readers.names(sub, "required")


def _names(n: Normalizer, sub: Subschema) -> Position:
    known = sub.dialect >= 6 and "propertyNames" in sub.keywords
    return n.position(sub, sub.keywords["propertyNames"], "propertyNames") if known else ANY


def _members(n: Normalizer, sub: Subschema) -> tuple[Members | None, bool]:
    schema = sub.keywords
    if not {"properties", "patternProperties", "additionalProperties"} & schema.keys():
        return None, True
    named = {
        name: n.position(sub, child, "properties", name) for name, child in readers.mapping(sub, "properties").items()
    }
    patterns = []
    for source, child in readers.mapping(sub, "patternProperties").items():
        language = pattern(n, sub, "patternProperties", source, parse_search)
        if language is None:
            return Members(named), False  # all other rules depend on the names this pattern matches
        either = pattern(n, sub, "patternProperties", source, parse_search_either) or language
        names = Names(either, language) if n.is_widest else Names(language, either)
        patterns.append((names, n.position(sub, child, "patternProperties", source)))
    additional = None
    if "additionalProperties" in schema:
        additional = n.position(sub, schema["additionalProperties"], "additionalProperties")
    return Members(named, tuple(patterns), additional), True


def _failing_objects(n: Normalizer, sub: Subschema) -> Iterator[Shape]:
    members, complete = _members(n, sub)
    # One alternative says that a required member is wrong or is not there.
    wrong = {name for name in _required(sub) if complete and members is not None and members.named.get(name)}
    if absent := [name for name in _required(sub) if name not in wrong]:
        yield {"object": tuple(ObjectClause(forbidden=frozenset({name})) for name in absent)}
    if not complete:
        yield UNIVERSE
    elif members is not None:
        yield {"object": tuple(_outside(n, sub, members, wrong))}
    if names := _names(n, sub):
        language = n.names(n.opposite(names))
        wrong_name = AtLeastOne(language, ANY, (sub.pointer, "propertyNames"))
        yield {"object": (ObjectClause(at_least_one=(wrong_name,)),)}


def _outside(n: Normalizer, sub: Subschema, members: Members, absent: Container[str]) -> Iterator[ObjectClause]:
    """Objects with a member that violates its schema, or without it if that is one of ``absent``."""
    for name, position in members.named.items():
        if position:
            required = () if name in absent else (name,)
            yield ObjectClause((Members({name: n.opposite(position)}, evaluates=False),), required)
    for names, position in members.patterns:
        if position:
            wrong = AtLeastOne(names.language, n.opposite(position), (sub.pointer, "patternProperties"))
            yield ObjectClause(at_least_one=(wrong,))
    if members.additional:
        known = alt(*map(text, members.named), *(names.either for names, _ in members.patterns))
        wrong = AtLeastOne(complement(known), n.opposite(members.additional), (sub.pointer, "additionalProperties"))
        yield ObjectClause(at_least_one=(wrong,))


_READERS: dict[Kind, Callable[[Normalizer, Subschema], Clause | None]] = {
    "number": _numbers,
    "string": _strings,
    "array": _arrays,
    "object": _objects,
}
