"""The keywords that look at a value of one type: each type's clause, and its complement."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

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

_NAMED: dict[str, Kind] = {
    "array": "array",
    "boolean": "boolean",
    "integer": "number",
    "null": "null",
    "number": "number",
    "object": "object",
    "string": "string",
}

_NUMBERS = frozenset("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split())
_STRINGS = frozenset("minLength maxLength pattern".split())
_ARRAYS = frozenset("items prefixItems additionalItems minItems maxItems contains uniqueItems".split())
_OBJECTS = frozenset(
    "properties patternProperties additionalProperties propertyNames required minProperties maxProperties".split()
)
_OF_ONE_TYPE = _NUMBERS | _STRINGS | _ARRAYS | _OBJECTS  # most schemas have none of these
_OF_FORMATS = {id(schema) for schema in FORMATS.values()}


def kinds(sub: Subschema) -> tuple[Kind, ...]:
    """The types that the keyword ``type`` leaves, "integer" as "number"."""
    return tuple(_of_types(readers.types(sub)))


@lru_cache(maxsize=128)
def _of_types(types: tuple[str, ...] | None) -> Shape:
    """All values of these types, "integer" as "number"; None is any type."""
    if types is None:
        return UNIVERSE
    named = {_NAMED[name] for name in types}
    return {kind: whole for kind, whole in UNIVERSE.items() if kind in named}


def _is_integral(types: tuple[str, ...] | None) -> bool:
    return types is not None and "number" not in types and "integer" in types


@lru_cache(maxsize=256)
def _of_exact_types(types: tuple[str, ...] | None, point_zero: bool) -> Shape:
    """As ``_of_types``, but of "integer" the whole numbers alone."""
    if not _is_integral(types):
        return _of_types(types)
    return {**_of_types(types), "number": (NumberClause(True, point_zero=point_zero),)}


def holding(n: Normalizer, sub: Subschema) -> Shape:
    """The values that satisfy the keywords of all types."""
    schema = sub.schema
    assert isinstance(schema, dict)
    types = readers.types(sub)
    whole = _of_exact_types(types, n.point_zero and sub.dialect > 4)
    if _OF_ONE_TYPE.isdisjoint(schema):
        return whole
    clauses: dict[Kind, Clause | None] = {}
    if not _NUMBERS.isdisjoint(schema):
        clauses["number"] = _numbers(n, sub, _is_integral(types) or None)
    if not _STRINGS.isdisjoint(schema):
        clauses["string"] = _strings(n, sub)
    if not _ARRAYS.isdisjoint(schema):
        clauses["array"] = _arrays(n, sub)
    if not _OBJECTS.isdisjoint(schema):
        clauses["object"] = _objects(n, sub)
    shape = dict(whole)
    # Keywords of types that are not allowed are read too: they may be malformed.
    for kind, clause in clauses.items():
        if kind in shape and (clause is None or n.is_plainly_empty(clause)):
            del shape[kind]
        elif kind in shape:
            shape[kind] = (clause,)  # type: ignore[assignment]
    return shape


def failing(n: Normalizer, sub: Subschema) -> Iterator[tuple[str, Shape]]:
    """For each of these keywords the values that do not satisfy it. Values of other types always do."""
    schema = sub.schema
    assert isinstance(schema, dict)
    types = readers.types(sub)
    if types is not None:
        shape = {kind: whole for kind, whole in UNIVERSE.items() if kind not in _of_types(types)}
        if "integer" in types and "number" not in types:
            shape["number"] = (NumberClause(integral=False),)
        yield "type", shape
    yield from _failing_numbers(sub)
    yield from _failing_strings(n, sub)
    yield from _failing_arrays(n, sub)
    yield from _failing_objects(n, sub)


# -- numbers ---------------------------------------------------------------------------------------------------------


def _numbers(n: Normalizer, sub: Subschema, integral: bool | None) -> Clause | None:
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
    schema = sub.schema
    assert isinstance(schema, dict)
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


def _failing_numbers(sub: Subschema) -> Iterator[tuple[str, Shape]]:
    for bound in _bounds(sub):
        if bound.low is not None:
            yield "minimum", {"number": (NumberClause(high=bound.low, high_open=not bound.low_open),)}
        else:
            yield "maximum", {"number": (NumberClause(low=bound.high, low_open=not bound.high_open),)}


# -- strings ---------------------------------------------------------------------------------------------------------


def _strings(n: Normalizer, sub: Subschema) -> Clause:
    language = pattern(n, sub, "pattern", readers.string(sub, "pattern"), _read(n, sub, holds=True))
    return StringClause(
        readers.count(sub, "minLength", 0), readers.optional_count(sub, "maxLength"), language or ANYTHING
    )


def _failing_strings(n: Normalizer, sub: Subschema) -> Iterator[tuple[str, Shape]]:
    low, high = readers.count(sub, "minLength", 0), readers.optional_count(sub, "maxLength")
    if low:
        yield "minLength", {"string": (StringClause(high=low - 1),)}
    if high is not None:
        yield "maxLength", {"string": (StringClause(low=high + 1),)}
    source = readers.string(sub, "pattern")
    if source is not None:
        language = pattern(n, sub, "pattern", source, _read(n, sub, holds=False))
        yield "pattern", UNIVERSE if language is None else {"string": (StringClause(language=complement(language)),)}


def _read(n: Normalizer, sub: Subschema, *, holds: bool) -> Callable[[str], Node]:
    """How the pattern of a schema is read that has to match, or must not."""
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
        n.lose(sub, keyword, f"the pattern {source!r}: {error}")
    except re.error as error:
        readers.malformed(sub, keyword, f"a regular expression ({error})")
    return None


# -- arrays ----------------------------------------------------------------------------------------------------------


def _arrays(n: Normalizer, sub: Subschema) -> Clause:
    items = _items(n, sub)
    return ArrayClause(
        () if items is None else (items,),
        readers.count(sub, "minItems", 0),
        readers.optional_count(sub, "maxItems"),
        _contains(n, sub),
        sub.pointer if readers.flag(sub, "uniqueItems") else None,
    )


def _items(n: Normalizer, sub: Subschema) -> Items | None:
    schema = sub.schema
    assert isinstance(schema, dict)
    before_2020 = sub.dialect < 2020 or isinstance(schema.get("items"), list)
    first = "items" if before_2020 and isinstance(schema.get("items"), list) else "prefixItems"
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
    schema = sub.schema
    assert isinstance(schema, dict)
    if "contains" not in schema or sub.dialect < 6:
        return ()
    low, high = 1, None
    if sub.dialect >= 2019:
        low, high = readers.count(sub, "minContains", 1), readers.optional_count(sub, "maxContains")
    item = n.position(sub, schema["contains"], "contains")
    return (Contains(item, low, high, 0, (sub.pointer, "contains")),)


def _failing_arrays(n: Normalizer, sub: Subschema) -> Iterator[tuple[str, Shape]]:
    schema = sub.schema
    assert isinstance(schema, dict)
    low, high = readers.count(sub, "minItems", 0), readers.optional_count(sub, "maxItems")
    if low:
        yield "minItems", {"array": (ArrayClause(high=low - 1),)}
    if high is not None:
        yield "maxItems", {"array": (ArrayClause(low=high + 1),)}
    items = _items(n, sub)
    if items is not None:
        wrong: list[Clause] = []
        for index, position in enumerate(items.prefix):
            before = (ANY,) * index
            wrong.append(ArrayClause((Items((*before, n.opposite(position)), evaluates=False),), low=index + 1))
        if items.rest:  # None and ANY always hold
            origin = sub.pointer, "items"
            wrong.append(
                ArrayClause(contains=(Contains(n.opposite(items.rest), 1, None, len(items.prefix), origin, False),))
            )
        yield "items", {"array": tuple(wrong)} if wrong else EMPTY
    for contains in _contains(n, sub):
        few: tuple[Clause, ...] = ()
        if contains.low:
            few = (ArrayClause(contains=(contains._replace(low=0, high=contains.low - 1, evaluates=False),)),)
        if contains.high is not None:
            few += (ArrayClause(contains=(contains._replace(low=contains.high + 1, high=None, evaluates=False),)),)
        yield "contains", {"array": few}


# -- objects ---------------------------------------------------------------------------------------------------------


def _objects(n: Normalizer, sub: Subschema) -> Clause:
    members, _ = _members(n, sub)
    return ObjectClause(
        () if members is None else (members,),
        _required(sub),
        frozenset(),
        _names(n, sub),
        readers.count(sub, "minProperties", 0),
        readers.optional_count(sub, "maxProperties"),
        origin=sub.pointer,
    )


def _required(sub: Subschema) -> tuple[str, ...]:
    assert isinstance(sub.schema, dict)
    if isinstance(sub.schema.get("required"), bool):
        return ()  # draft 3's form, inside a property; later drafts allow only a list
    return readers.names(sub, "required")


def _names(n: Normalizer, sub: Subschema) -> Position:
    assert isinstance(sub.schema, dict)
    known = sub.dialect >= 6 and "propertyNames" in sub.schema
    return n.position(sub, sub.schema["propertyNames"], "propertyNames") if known else ANY


def _members(n: Normalizer, sub: Subschema) -> tuple[Members | None, bool]:
    """The schema's rules for members, and whether they are complete."""
    schema = sub.schema
    assert isinstance(schema, dict)
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


def _failing_objects(n: Normalizer, sub: Subschema) -> Iterator[tuple[str, Shape]]:
    low, high = readers.count(sub, "minProperties", 0), readers.optional_count(sub, "maxProperties")
    if low:
        yield "minProperties", {"object": (ObjectClause(high=low - 1),)}
    if high is not None:
        yield "maxProperties", {"object": (ObjectClause(low=high + 1),)}
    members, complete = _members(n, sub)
    # One alternative says that a required member is wrong or is not there.
    wrong = {name for name in _required(sub) if complete and members is not None and members.named.get(name)}
    if absent := [name for name in _required(sub) if name not in wrong]:
        yield "required", {"object": tuple(ObjectClause(forbidden=frozenset({name})) for name in absent)}
    if not complete:
        yield "patternProperties", UNIVERSE
    elif members is not None:
        yield "properties", {"object": tuple(_outside(n, sub, members, wrong))}
    if names := _names(n, sub):
        language = n.names(n.opposite(names))
        yield (
            "propertyNames",
            {"object": (ObjectClause(at_least_one=(AtLeastOne(language, ANY, (sub.pointer, "propertyNames")),)),)},
        )


def _outside(n: Normalizer, sub: Subschema, members: Members, absent: Container[str]) -> Iterator[ObjectClause]:
    """Objects with a member that violates its schema, or without it if that is one of ``absent``."""
    for name, position in members.named.items():
        if position:
            required = () if name in absent else (name,)
            yield ObjectClause((Members({name: n.opposite(position)}, evaluates=False),), required)
    for names, position in members.patterns:
        if position:
            yield ObjectClause(
                at_least_one=(AtLeastOne(names.language, n.opposite(position), (sub.pointer, "patternProperties")),)
            )
    if members.additional:
        known = alt(*map(text, members.named), *(names.either for names, _ in members.patterns))
        at_least_one = AtLeastOne(
            complement(known), n.opposite(members.additional), (sub.pointer, "additionalProperties")
        )
        yield ObjectClause(at_least_one=(at_least_one,))
