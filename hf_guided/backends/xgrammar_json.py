r"""The JSON Schema that xgrammar is proven to enforce; all other keywords, which it drops in silence, are losses.

A schema is rebuilt from nothing but the keywords of ``_ENFORCED``, in the forms that are proven: one type at a time,
references and alternatives standing alone, enumerations filtered by the keywords beside them.

Patterns are written out as rules of a grammar. xgrammar's own reading of a ``pattern`` merges states that are not the
same: ``[ab]|[ab]{0,2}`` takes ``aaaa`` there, and ``(x[0-9]+)?`` may leave out the ``x`` alone. Its grammars are right,
and it prints a schema as a grammar: so a schema is compiled with numbers for patterns, and in the printed grammar each
number is replaced by its rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from jsonschema.validators import Draft4Validator, Draft6Validator, Draft7Validator, Draft202012Validator, validator_for

from ..constraints.checked_patterns import with_python_patterns
from ..constraints.json_schema_keywords import ASSERTIONS, COUNTS
from ..constraints.structural_tag_checks import inside_tag
from ..constraints.values import DEFAULT_ROOT, JsonSchema
from ..errors import InvalidConstraint, Loss, UnsupportedConstraint
from ..grammars.gbnf import Gbnf
from ..regex import (
    Alt,
    Chars,
    CharSet,
    Concat,
    Node,
    Repeat,
    UnsupportedRegex,
    chars,
    parse_fullmatch,
    parse_search,
    repeat,
    to_pattern,
)
from ..regex.write import times
from ..schema.prepare import prepare
from ..schema.subschemas import escape, iter_subschemas, leaves
from .tag_marks import overlap, runs_on

Schema = dict[str, Any]

UNESCAPED = ~(CharSet([(0, 0x1F)]) | CharSet.of('"\\'))
_INT64 = 2**63 - 1
_MAX_COUNT = 10**15

_BOUNDS = "minimum maximum exclusiveMinimum exclusiveMaximum"
# The keywords that bind the values of a type; and those of them that xgrammar enforces.
_KEYWORDS = {
    "string": "minLength maxLength pattern format".split(),
    "integer": f"{_BOUNDS} multipleOf".split(),
    "number": f"{_BOUNDS} multipleOf".split(),
    "boolean": [],
    "null": [],
    "array": "items prefixItems additionalItems contains minContains maxContains minItems maxItems uniqueItems "
    "unevaluatedItems".split(),
    "object": "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
    "dependentRequired dependentSchemas dependencies unevaluatedProperties".split(),
}
_ENFORCED = {
    "string": "minLength maxLength pattern",
    "integer": _BOUNDS,
    "array": "items minItems maxItems",
    "object": "properties required additionalProperties",
}
_OF_ALL_TYPES = ASSERTIONS.difference(*_KEYWORDS.values(), {"type"})
_OLD_FORMS: dict[str, type] = {"items": list, "exclusiveMinimum": bool, "exclusiveMaximum": bool}
_REFERENCE = re.compile(r"#/(\$defs|definitions)/[^/%~]*")
_PLACEHOLDER = re.compile(r'Regex\("\^(\d+)\$", json_string=true\)')
TOOL_WHITESPACE = 20  # white space characters in a row inside a call's arguments; without a bound it may never end
_SCHEMA_FORMATS = ("json_schema", "qwen_xml_parameter")
# Beside these, xgrammar's ``excludes`` drops the bounds of a string, or does not apply to it.
_NOT_FILTERED = frozenset(("pattern", "format", "minLength", "maxLength", "patternProperties", "propertyNames"))


class XGrammarSubset:
    """The part of a schema that xgrammar enforces.

    The prepared ``root`` is not changed; its patterns hold no character that JSON escapes. ``patterns`` receives them,
    and the reduced schema has their numbers instead.
    """

    def __init__(self, root: Schema | bool, patterns: list[Node]):
        self._root, self._patterns = root, patterns
        self.losses: list[Loss] = []
        self.most_optional = 0  # properties of one object that may be left out

    def reduce(self) -> Schema:
        """The enforced part of the schema; fills ``losses``. Raises InvalidConstraint where nothing satisfies it."""
        reduced = self._schema(self._root, "")
        root = self._root if isinstance(self._root, dict) else {}
        kind = validator_for(root, default=Draft7Validator)
        for keyword in ("$defs", "definitions"):
            if not isinstance(root.get(keyword), dict):
                continue
            reduced[keyword] = {}
            for name, schema in root[keyword].items():
                pointer = f"/{keyword}/{escape(name)}"
                # Older drafts have no $defs, so the check of the whole has not seen it.
                if keyword == "$defs" and kind in (Draft7Validator, Draft6Validator, Draft4Validator):
                    if not any(draft(draft.META_SCHEMA).is_valid(schema) for draft in (kind, Draft202012Validator)):
                        raise InvalidConstraint(f"not a valid JSON Schema, at {pointer}", pointers=[pointer])
                reduced[keyword][name] = self._schema(schema, pointer)
        return reduced

    def _lose(self, pointer: str, keyword: str, reason: str) -> None:
        self.losses.append(Loss(pointer, keyword, f"xgrammar {reason}"))

    def _nothing(self, pointer: str, keyword: str) -> Schema:
        """The reduced schema where no value fits: an error at the root; further in, xgrammar cannot say it."""
        if not pointer:
            raise InvalidConstraint(f"no value satisfies the JSON Schema: nothing fits its {keyword}")
        self._lose(pointer, keyword, "cannot say that no value fits")
        return {}

    def _schema(self, schema: Any, pointer: str) -> Schema:
        if schema is False:
            self._lose(pointer, "false", "cannot forbid a value")
        if not isinstance(schema, dict):
            return {}
        here = {keyword: value for keyword, value in schema.items() if keyword in ASSERTIONS}
        if "$ref" in here:
            return self._reference(here, pointer)
        if "const" in here or "enum" in here:
            return self._values(here, pointer)
        for keyword in [keyword for keyword in ("anyOf", "oneOf", "allOf") if keyword in here]:
            problem = _problem(keyword, here)
            if problem is None:
                return _any_of([self._schema(part, f"{pointer}/{keyword}/{i}") for i, part in enumerate(here[keyword])])
            self._lose(pointer, keyword, problem)
            del here[keyword]
        for keyword in sorted(_OF_ALL_TYPES & here.keys()):
            self._lose(pointer, keyword, "does not enforce it")
            del here[keyword]
        if not here:
            return {}
        # Without a type, the values that no keyword binds are all valid.
        types = here.pop("type", [kind for kind in _KEYWORDS if kind != "integer"])
        return _any_of([self._type(kind, here, pointer) for kind in ([types] if isinstance(types, str) else types)])

    def _reference(self, here: Schema, pointer: str) -> Schema:
        for keyword in here.keys() - {"$ref"}:
            self._lose(pointer, keyword, "ignores it beside $ref")
        if not isinstance(here["$ref"], str):  # the metaschema of draft 4 says nothing of it
            raise InvalidConstraint(
                f"not a valid JSON Schema, at {pointer}/$ref: expected a string, got {here['$ref']!r}",
                pointers=[f"{pointer}/$ref"],
            )
        if _REFERENCE.fullmatch(here["$ref"]):
            return {"$ref": here["$ref"]}
        self._lose(pointer, "$ref", "follows only references like #/$defs/name")
        return {}

    @cached_property
    def _checker(self) -> Any:
        return validator_for(self._root, default=Draft202012Validator)(with_python_patterns(self._root))

    def _values(self, here: Schema, pointer: str) -> Schema:
        keyword = "const" if "const" in here else "enum"
        values = [here["const"]] if "const" in here else here["enum"]
        # The values of an enum are in it: to look each of them up there takes the square of their number.
        beside = here if "const" in here else {name: value for name, value in here.items() if name != "enum"}
        try:
            checker = self._checker.evolve(schema=with_python_patterns(beside))
            fitting = [value for value in values if checker.is_valid(value)]
        except (InvalidConstraint, RecursionError) as error:  # a pattern that re cannot say; a reference to itself
            self._lose(pointer, keyword, f"cannot tell which of these values are valid: {error}")
            return {}
        if not fitting:
            return self._nothing(pointer, keyword)
        if all(not isinstance(leaf, int) or abs(leaf) <= _INT64 for leaf in leaves(fitting)):
            return {"enum": fitting}
        self._lose(pointer, keyword, "does not write all of these values")
        return {}

    def _type(self, kind: str, here: Schema, pointer: str) -> Schema:
        schema = {}
        for keyword, value in ((keyword, here[keyword]) for keyword in here if keyword in _KEYWORDS[kind]):
            if isinstance(value, _OLD_FORMS.get(keyword, ())):
                self._lose(pointer, keyword, "does not enforce its form of older drafts")
            elif keyword not in _ENFORCED.get(kind, "").split():
                self._lose(pointer, keyword, "does not enforce it")
            elif keyword in COUNTS and value > _MAX_COUNT:
                self._lose(pointer, keyword, f"counts to {_MAX_COUNT} only")
            elif kind == "integer" and abs(value) > _INT64:
                self._lose(pointer, keyword, "takes bounds of 64 bits only")
            elif kind == "integer" and int(value) != value:
                self._lose(pointer, keyword, "takes whole numbers only as bounds of integers")
            else:
                schema[keyword] = int(value) if kind == "integer" else value
        if kind == "string":
            return self._string(schema, pointer)
        if kind == "object":
            return self._object(schema, pointer)
        if "items" in schema:
            schema["items"] = self._schema(schema["items"], f"{pointer}/items")
        return {"type": kind, **schema}

    def _string(self, schema: Schema, pointer: str) -> Schema:
        low, high = int(schema.get("minLength", 0)), schema.get("maxLength")
        if "pattern" in schema:
            for keyword in {"minLength", "maxLength"} & schema.keys():
                self._lose(pointer, keyword, "ignores it beside pattern")
            try:
                node = parse_search(schema["pattern"])
            except (UnsupportedRegex, re.error):
                return {"type": "string"}  # lost already, when the schema was prepared
        elif not low and high is None:
            return {"type": "string"}
        elif high is not None and low > high:
            return self._nothing(pointer, "minLength")
        else:
            node = repeat(chars(UNESCAPED), low, None if high is None else int(high))
        self._patterns.append(node)
        return {"type": "string", "pattern": f"^{len(self._patterns) - 1}$"}

    def _object(self, schema: Schema, pointer: str) -> Schema:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        extra = schema.get("additionalProperties", True)
        if properties and extra is not False:
            self._lose(pointer, "additionalProperties", "may repeat a declared name as an additional one")
        self.most_optional = max(self.most_optional, len(properties) - len(set(required) & properties.keys()))
        if undeclared := [name for name in required if name not in properties]:
            self._lose(pointer, "required", f"does not enforce names that are not declared: {', '.join(undeclared)}")
        reduced: Schema = {"type": "object", "required": [name for name in required if name in properties]}
        if properties or extra is False:
            reduced["properties"] = {
                name: self._schema(value, f"{pointer}/properties/{escape(name)}") for name, value in properties.items()
            }
        if not isinstance(extra, bool):
            extra = self._schema(extra, f"{pointer}/additionalProperties")
        reduced["additionalProperties"] = extra
        return reduced


def _any_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _problem(keyword: str, here: Schema) -> str | None:
    """Why alternatives are not enforced; None where they are."""
    if len(here) > 1:
        return "ignores it beside other keywords"
    if keyword == "allOf" and len(here[keyword]) > 1:
        return "does not combine schemas"
    if keyword == "oneOf" and not _disjoint(here[keyword]):
        return "would take a value that fits two of the schemas"
    return None


def _disjoint(branches: list[Any]) -> bool:
    """Whether no value can fit two of the schemas, seen from their types or constants alone."""
    if all(isinstance(branch, dict) and isinstance(branch.get("type"), str) for branch in branches):
        types = ["number" if branch["type"] == "integer" else branch["type"] for branch in branches]
        return len(set(types)) == len(types)
    if all(isinstance(branch, dict) and "const" in branch for branch in branches):
        texts = [json.dumps(branch["const"], sort_keys=True) for branch in branches]
        return len(set(texts)) == len(texts)
    return False


def with_rules(grammar: str, patterns: Sequence[Node]) -> str:
    """A grammar as xgrammar prints it, with rules instead of numbers of patterns: no And, Not, Nothing, no escapes."""
    text = _PLACEHOLDER.sub(lambda match: _rule(patterns[int(match[1])]), grammar)
    if 'Regex("^' in text:
        raise UnsupportedConstraint(
            "xgrammar's patterns cannot be corrected: this release prints grammars in an unknown format; "
            'use backend="llguidance"'
        )
    return text


def _rule(node: Node) -> str:
    if isinstance(node, Chars):
        ranges = (rf"\U{first:08x}-\U{last:08x}" for first, last in node.charset.ranges)
        return f"[{''.join(ranges)}]"
    if isinstance(node, Concat):
        return f"({' '.join(map(_rule, node.parts))})"
    if isinstance(node, Alt):
        return f"({' | '.join(map(_rule, node.parts))})"
    if isinstance(node, Repeat):
        return f"({_rule(node.body)}){times(node.low, node.high)}"
    return '""'


def reduce_tag(value: Any, patterns: list[Node], pointer: str = "") -> Iterator[Loss]:
    """Replace each schema in a part of a tag by its enforced part, in place, bound white space, and yield the losses.

    Patterns and grammars are read and written plainly: patterns mean what they mean to Python's `re`, and grammars that
    end the process in xgrammar do not reach it. ``patterns`` receives those of the schemas, see ``XGrammarSubset``;
    pointers lead into the tag; arguments written as elements (XML) are a loss.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from reduce_tag(item, patterns, f"{pointer}/{index}")
    if not isinstance(value, dict):
        return
    # The older form of a tag has {"begin": ..., "schema": ..., "end": ...} in its list of structures.
    older = "begin" in value and "schema" in value
    name = "schema" if older else "json_schema" if value.get("type") in _SCHEMA_FORMATS else None
    for key, item in value.items():
        if key != name:
            yield from reduce_tag(item, patterns, f"{pointer}/{escape(key)}")
    if value.get("max_tokens") is not None:
        reason = "xgrammar writes more tokens where a character, or what follows, is not complete; use max_chars"
        yield Loss(pointer, "max_tokens", reason)
    if "begin" in value and "content" in value and runs_on(value["content"]):
        ends = value["end"] if isinstance(value["end"], list) else [value["end"]]
        if overlap(end for end in ends if isinstance(end, str)):
            reason = "free text before it may hold a part of an end, and xgrammar goes on past the first one"
            yield Loss(pointer, "end", reason)
    content = value["content"] if value.get("type") == "tag" else value if value.get("excludes") else {}
    if content.get("type") == "any_text" and content.get("max_chars") is not None:
        at = pointer if content is value else f"{pointer}/content"
        reason = "where a text excludes something, or ends at a mark, xgrammar counts bytes and not characters"
        yield Loss(at, "max_chars", reason)
    if value.get("type") == "regex":
        try:
            value["pattern"] = to_pattern(parse_fullmatch(value["pattern"]))
        except UnsupportedRegex as error:
            yield Loss(pointer, "pattern", str(error))
    if value.get("type") == "grammar":
        try:
            with inside_tag(f"{pointer}/grammar"):
                value["grammar"] = Gbnf(value["grammar"], DEFAULT_ROOT["gbnf"]).to_ebnf()
        except UnsupportedConstraint as error:
            yield from (loss._replace(pointer=f"{pointer}/grammar") for loss in error.losses)
    if name is not None:
        with inside_tag(f"{pointer}/{name}"):
            prepared, losses = prepare(JsonSchema(value[name]), alphabet=UNESCAPED)
            subset = XGrammarSubset(prepared, patterns)
            value[name] = subset.reduce()
        for keyword, reason in _not_exact(value, value[name]):
            yield Loss(pointer, keyword, reason)
        style = "json" if older else "xml" if value["type"] != "json_schema" else value.get("style") or "json"
        if style != "json":
            reason = "xgrammar's own converter writes these arguments, and ignores keywords without an error"
            yield Loss(pointer, "style", reason)
        for loss in (*losses, *subset.losses):
            yield loss._replace(pointer=f"{pointer}/{name}{loss.pointer}")
        if not older and value.get("max_whitespace_cnt") is None:
            value["max_whitespace_cnt"] = TOOL_WHITESPACE  # else a model that likes white space continues for ever


def _not_exact(part: dict[str, Any], schema: Any) -> Iterator[tuple[str, str]]:
    if part.get("any_order"):
        yield "any_order", "with it, xgrammar lets required members be missing, and members come twice; leave it out"
    if part.get("max_whitespace_cnt") == 0:
        yield "max_whitespace_cnt", "xgrammar takes no bound below 1"
    keywords = {key for each in iter_subschemas(schema) if isinstance(each.schema, dict) for key in each.schema}
    if part.get("excludes") and (unfiltered := sorted(keywords & _NOT_FILTERED)):
        yield "excludes", f"xgrammar does not enforce it together with {', '.join(unfiltered)}"
