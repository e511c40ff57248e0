"""When two constraints may share one compiled grammar: the normal form of a JSON Schema, and its digest.

The order of keywords and the annotations of a schema do not change which texts match, so they are normalized away.
Everything else stays: above all the order of ``properties``, because it is the order of the output.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from .json_schema_keywords import ANNOTATIONS, HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP
from .json_text import read_only

_REFERS = ("$ref", "$dynamicRef")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ORDERED_MAPS = frozenset({"properties", "patternProperties"})


def digest(*parts: Any) -> str:
    """Blake2b of JSON values; 1, 1.0, True and "1" differ, as do ["ab"] and ["a", "b"]."""
    return hashlib.blake2b(_encode(parts).encode(), digest_size=32).hexdigest()


class NormalForm(NamedTuple):
    """What a JSON Schema says.

    Args:
        digest: of the schema with sorted keywords and without annotations.
        keywords: of all schemas in it, annotations too.
        formats: the values of ``format``.
        refs: where they refer to.
    """

    digest: str
    keywords: set[str]
    formats: set[str]
    refs: tuple[str, ...]

    @classmethod
    def of(cls, schema_json: str) -> NormalForm:
        """That of a schema.

        Args:
            schema_json: a text that ``json_text.dumps`` has written.
        """
        schema = read_only(schema_json)
        # A $ref may point into an annotation ("#/examples/0"): then the annotation does change which texts match.
        refs = tuple(_refs(schema)) if any([f'"{keyword}"' in schema_json for keyword in _REFERS]) else ()
        pointed_at = {segment for ref in refs for segment in unquote(ref).split("/")}
        keywords, formats = set[str](), set[str]()
        return cls(digest(_normal(schema, ANNOTATIONS - pointed_at, keywords, formats)), keywords, formats, refs)


def _normal(schema: Any, dropped: frozenset[str], keywords: set[str], formats: set[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    keywords.update(schema)
    if isinstance(schema.get("format"), str):
        formats.add(schema["format"])
    result: dict[str, Any] = {}
    for keyword in sorted(schema):
        value = schema[keyword]
        if keyword in dropped:
            continue
        if keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
            names = list(value) if keyword in _ORDERED_MAPS else sorted(value)
            result[keyword] = {name: _normal(value[name], dropped, keywords, formats) for name in names}
        elif keyword in HOLDS_SCHEMA_LIST and isinstance(value, list):
            result[keyword] = [_normal(item, dropped, keywords, formats) for item in value]
        elif keyword in HOLDS_SCHEMA:
            result[keyword] = _normal(value, dropped, keywords, formats)
        else:
            result[keyword] = value
    return result


def _refs(document: Any) -> Iterator[str]:
    """Every string under one of these keywords, at any depth."""
    todo = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield from (value[key] for key in _REFERS if isinstance(value.get(key), str))
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
