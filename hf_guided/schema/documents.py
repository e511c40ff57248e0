"""The schemas of a document and of those it may refer to: each with its pointer, its base URI and its dialect.

A ``Subschema`` is made once for each position, so a recursive schema comes back to the very object it began with.
References into the same document are looked up by pointer; everything else (``$id``, ``$anchor``, other documents) is
the business of the `referencing` package. Nothing is ever fetched.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urljoin

from ..constraints.json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP, VOCABULARIES
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint, shown

if TYPE_CHECKING:
    from referencing import Registry

Schema = dict[str, Any] | bool

# Decimal, because 19.99 is no multiple of 0.01 in binary fractions. And ``decode`` also looks for white space.
_decode = json.JSONDecoder(parse_float=Decimal).raw_decode
_DIALECTS = {f"http://json-schema.org/draft-0{draft}/schema": draft for draft in (0, 1, 2, 3, 4, 6, 7)} | {
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
LATEST = 2020
OLDEST = 4
Place: TypeAlias = "str | tuple[Subschema, tuple[str | int, ...]]"


class UnknownReference(Exception):
    """A reference whose document was not given, or whose target depends on the instance."""


class Subschema:
    """One schema in its document; read only.

    ``place`` is a JSON pointer from the root of the document the user gave, with its URI in front in any other; or the
    schema around it and the steps from there. ``base`` is the URI that references are relative to; ``dialect`` the
    draft, as its number or year: 4, 6, 7, 2019, 2020; ``order`` the number in the order of reading.
    """

    __slots__ = ("_place", "base", "dialect", "order", "schema")

    def __init__(self, schema: Schema, place: Place, base: str, dialect: int, order: int = 0):
        self.schema = schema
        self.order = order
        self._place = place
        self.base = base
        self.dialect = dialect

    @property
    def pointer(self) -> str:
        """The JSON pointer; made when it is asked for, because that of most schemas is not."""
        around: list[str] = []
        place = self._place
        while not isinstance(place, str):
            parent, steps = place
            around += (escape(str(step)) for step in reversed(steps))
            place = parent._place
        self._place = "/".join((place, *reversed(around)))
        return self._place

    @property
    def keywords(self) -> dict[str, Any]:
        """The schema, which is no boolean."""
        assert isinstance(self.schema, dict)
        return self.schema


class Documents:
    """A schema, given as JSON text without white space around it, and the documents it may refer to, by URI."""

    def __init__(self, schema_json: str, registry: Mapping[str, Any]):
        root: Schema = _decode(schema_json)[0]
        self._others = registry
        self._made: dict[int, Subschema] = {}
        self._count = 0
        self._kept: list[Any] = []  # schemas created here, kept so that no two ever share an id()
        base, dialect = "", LATEST
        if isinstance(root, dict):
            if not isinstance(root.get("$schema", ""), str):
                raise InvalidConstraint("not a valid JSON Schema, at /$schema: expected a URI", pointers=["/$schema"])
            dialect = dialect_of(root, LATEST)
            base = _identifier(root, dialect)
        self.names_dialect = isinstance(root, dict) and "$schema" in root
        # Whether it matters which other branches hold, after one does.
        self.counts_branches = '"unevaluated' in schema_json
        self.has_patterns = '"pattern' in schema_json or bool(registry)
        self.root = self._make(root, "", base, dialect)
        self.left_out = _left_out(root, registry)  # keywords
        # Only then may a pointer cross into a schema with a base of its own.
        keyword = "id" if dialect <= 4 else "$id"
        self._plain = schema_json.count(f'"{keyword}":"') <= (base != "")

    def child(self, parent: Subschema, schema: Any, *steps: str | int) -> Subschema:
        """The schema that ``steps`` lead to from its parent; raises InvalidConstraint where the value there is none."""
        made = self._made.get(id(schema))
        if made is not None:
            return made
        if not isinstance(schema, (dict, bool)):
            pointer = "/".join((parent.pointer, *map(escape, map(str, steps))))
            raise InvalidConstraint(
                f"not a valid JSON Schema, at {pointer}: expected a schema, got {shown(schema)}", pointers=[pointer]
            )
        base, dialect = parent.base, parent.dialect
        if isinstance(schema, dict) and not self._plain:
            dialect = dialect_of(schema, dialect)
            base = urljoin(base, _identifier(schema, dialect))
        return self._make(schema, (parent, steps), base, dialect)

    def invent(self, parent: Subschema, schema: dict[str, Any]) -> Subschema:
        """A schema equivalent to a keyword of ``parent``; read as one of 2020-12."""
        self._kept.append(schema)
        return self._make(schema, parent.pointer, parent.base, LATEST)

    def target(self, source: Subschema, ref: str, keyword: str = "$ref") -> Subschema:
        """The target of a reference; raises InvalidConstraint where it names nothing in a document that is there.

        UnknownReference: its document is not there; or ``keyword`` is ``$dynamicRef`` or ``$recursiveRef``, and the
        target depends on the path that led there.
        """
        anchor: str = "$dynamicAnchor"
        name: str | bool = ref.partition("#")[2]
        if keyword == "$recursiveRef":
            anchor, name, ref = "$recursiveAnchor", True, "#"
        first = self._static_target(source, ref)
        if keyword == "$ref" or not _anchors(first, anchor, name):
            return first
        if _anchors(self.root, anchor, name):
            return self.root  # the outermost possible scope
        named = [candidate for candidate in self._index.values() if _anchors(candidate, anchor, name)]
        if len(named) == 1:
            return named[0]
        raise UnknownReference(f"{ref!r} may mean any of {len(named)} schemas, depending on what led there")

    def _static_target(self, source: Subschema, ref: str) -> Subschema:
        if source.base != self.root.base or not (ref == "#" or ref.startswith("#/")):
            return self._resolve(source, ref)
        pointer = unquote(ref[1:])
        target = lookup(self.root.schema, pointer)
        if not isinstance(target, (dict, bool)):
            raise _nowhere(source, ref, "does not exist")
        made = self._made.get(id(target)) if isinstance(target, dict) else None
        if made is None and not self._plain:
            return self._make(target, pointer, *_scope(self.root.schema, pointer, "", self.root.dialect))
        return made or self._make(target, pointer, self.root.base, self.root.dialect)

    def _make(self, schema: Schema, place: Place, base: str, dialect: int) -> Subschema:
        self._count += 1
        made = Subschema(schema, place, base, dialect, self._count)
        _check_dialect(made)
        if isinstance(schema, dict):
            self._made[id(schema)] = made
        return made

    def _resolve(self, source: Subschema, ref: str) -> Subschema:
        from referencing.exceptions import NoSuchAnchor, PointerToNowhere, Unresolvable

        try:
            target = self._registry.resolver(base_uri=source.base).lookup(ref).contents
        except (PointerToNowhere, NoSuchAnchor):
            raise _nowhere(source, ref, "does not exist") from None
        except Unresolvable:
            document = urljoin(source.base, ref).partition("#")[0]
            raise UnknownReference(
                f"{document!r} is not in the registry, and nothing is fetched; pass it in registry="
            ) from None
        except (AttributeError, TypeError) as error:  # the walk takes every value for a schema where a schema may be
            raise UnknownReference(f"{ref!r} cannot be looked for ({error})") from None
        if isinstance(target, dict):
            known = self._made.get(id(target)) or self._index.get(id(target))
            if known is not None:
                _check_dialect(known)
                self._made[id(target)] = known
                return known
        if not isinstance(target, (dict, bool)):
            raise _nowhere(source, ref, "is no schema")
        whole = urljoin(source.base, ref)
        document, _, fragment = whole.partition("#")
        return self._make(target, f"{document}#{fragment}", document, source.dialect)

    @cached_property
    def _registry(self) -> Registry[Any]:
        from jsonschema_specifications import REGISTRY
        from referencing import Resource
        from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

        drafts = {4: DRAFT4, 6: DRAFT6, 7: DRAFT7, 2019: DRAFT201909}
        default = drafts.get(self.root.dialect, DRAFT202012)
        resources = []
        for uri, contents in [*self._parsed_others.items(), (self.root.base, self.root.schema)]:
            resources.append((uri, Resource.from_contents(contents, default_specification=default)))
            if uri != self.root.base and isinstance(contents, dict) and "$schema" not in contents:
                resources[-1] = (uri, DRAFT202012.create_resource(contents))
        registry: Registry[Any] = REGISTRY.with_resources(resources).crawl()
        return registry

    @cached_property
    def _parsed_others(self) -> dict[str, Any]:
        return {uri: _decode(json.dumps(contents))[0] for uri, contents in self._others.items()}

    @cached_property
    def _index(self) -> dict[int, Subschema]:
        """Every schema of every document, by the id() of its dict, before any reference to it."""
        index: dict[int, Subschema] = {}
        documents = [("", "", self.root.schema, self.root.dialect)]
        documents += [(uri, f"{uri}#", contents, LATEST) for uri, contents in self._parsed_others.items()]
        for uri, prefix, contents, default in documents:
            for pointer, keywords in iter_keywords(contents):
                index[id(keywords)] = Subschema(keywords, prefix + pointer, *_scope(contents, pointer, uri, default))
        return index | self._made


def _scope(document: Any, pointer: str, base: str, dialect: int) -> tuple[str, int]:
    here: Any = {"": document}
    for token in pointer.split("/"):  # the first one is empty
        here = lookup(here, f"/{token}")
        if isinstance(here, dict):
            dialect = dialect_of(here, dialect)
            base = urljoin(base, _identifier(here, dialect))
    return base, dialect


def _nowhere(source: Subschema, ref: str, problem: str) -> InvalidConstraint:
    at = source.pointer
    return InvalidConstraint(f"the JSON Schema refers to {ref!r} at {at or '/'}, which {problem}", pointers=[at])


def _anchors(subschema: Subschema, keyword: str, value: Any) -> bool:
    return isinstance(subschema.schema, dict) and subschema.schema.get(keyword) == value


def dialect_of(schema: dict[str, Any], inherited: int) -> int:
    """The draft a schema names, by its metaschema or its hyper-schema; else the inherited one."""
    name = schema.get("$schema")
    if not isinstance(name, str):
        return inherited
    return _DIALECTS.get(name.rstrip("#").replace("/hyper-schema", "/schema"), inherited)


def _check_dialect(sub: Subschema) -> None:
    """Refuse the drafts whose keywords have other names, and other values: ``required: true``, ``divisibleBy`` ..."""
    if sub.dialect < OLDEST:
        reason = (
            f"draft {sub.dialect} is not read; write the schema in a draft from {OLDEST} on, and name that in $schema"
        )
        raise UnsupportedConstraint("the JSON Schema is of an old draft", [Loss.within(sub.pointer, "$schema", reason)])


def _left_out(root: Schema, registry: Mapping[str, Any]) -> frozenset[str]:
    """The keywords that constrain nothing, because the caller's own metaschema leaves their vocabulary out."""
    name = root.get("$schema") if isinstance(root, dict) else None
    metaschema = registry.get(name, registry.get(name.rstrip("#"))) if isinstance(name, str) else None
    listed = metaschema.get("$vocabulary") if isinstance(metaschema, dict) else None
    if not isinstance(listed, dict):
        return frozenset()
    known = {uri.rpartition("/")[2] for uri in listed if uri.startswith("https://json-schema.org/draft/")}
    if "https://json-schema.org/draft/2019-09/vocab/applicator" in listed:
        known.add("unevaluated")
    return frozenset().union(*(keywords for name, keywords in VOCABULARIES.items() if name not in known))


def _identifier(schema: dict[str, Any], dialect: int) -> str:
    """The URI a schema gives itself, without fragment; "" for none."""
    if dialect <= 7 and "$ref" in schema:
        return ""  # keywords beside it count for nothing
    identifier = schema.get("id" if dialect <= 4 else "$id")
    return identifier.partition("#")[0] if isinstance(identifier, str) else ""


def iter_keywords(schema: dict[str, Any] | bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pointer and keywords of all schemas of a document but true and false, the outer before the inner, each once.

    Targets of references follow at the end, also where no keyword holds them (``#/components/schemas/x``).
    """
    todo: list[tuple[str, Any]] = [("", schema)]
    refs: deque[str] = deque()
    seen: set[str] = set()
    while todo:
        pointer, keywords = todo.pop()
        if isinstance(keywords, dict) and pointer not in seen:
            seen.add(pointer)
            yield pointer, keywords
            todo += reversed(_inside(pointer, keywords))
            if isinstance(ref := keywords.get("$ref"), str) and (ref == "#" or ref.startswith("#/")):
                refs.append(unquote(ref[1:]))
        while refs and not todo:
            target = refs.popleft()
            todo.append((target, lookup(schema, target)))


def _inside(pointer: str, schema: dict[str, Any]) -> list[tuple[str, Any]]:
    """The values where a schema has schemas directly inside, with their pointers."""
    held: list[tuple[str, Any]] = []
    for keyword, value in schema.items():
        at = f"{pointer}/{keyword}"
        if keyword in HOLDS_SCHEMA and isinstance(value, dict):
            held.append((at, value))
        elif keyword in HOLDS_SCHEMA_LIST and isinstance(value, list):
            held += [(f"{at}/{index}", item) for index, item in enumerate(value)]
        elif keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
            held += [(f"{at}/{escape(name)}", item) for name, item in value.items()]
    return held


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def lookup(root: Any, pointer: str) -> Any:
    """The value at a JSON pointer; None if there is none."""
    here = root
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and token in here:
            here = here[token]
        elif isinstance(here, list) and token.isdecimal() and int(token) < len(here):
            here = here[int(token)]
        else:
            return None
    return here
