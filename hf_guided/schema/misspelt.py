"""Keywords and formats that look like a typing mistake: JSON Schema allows them, but they constrain nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..constraints.cache_keys import NormalForm
from ..constraints.json_schema_keywords import ASSERTIONS, KNOWN
from ..constraints.suggestions import closest
from .formats import FORMATS
from .subschemas import escape, iter_subschemas

MOST_LOOKED_AT = 1000
"""Unknown names that are compared with the known ones: each takes a fifth of a millisecond."""

_OF_DEFINITION = re.compile(r"#/(?:definitions|\$defs)/[^/]*")
_LONGEST = 2 * max(map(len, ASSERTIONS))  # longer ones are not like any


def may_be_misspelt(form: NormalForm) -> bool:
    """Whether a schema has names that are like others, or a ``$ref`` to another place than a definition: few do."""
    names = [("keyword", keyword) for keyword in form.keywords - KNOWN if _is_compared(keyword)]
    names += [("format", name) for name in form.formats - FORMATS.keys()]
    if len(names) > MOST_LOOKED_AT or not all(map(_OF_DEFINITION.fullmatch, form.refs)):
        return True
    return any([_meant(*name) is not None for name in names])


def misspelt_names(schema: dict[str, Any] | bool) -> Iterator[str]:
    """One sentence for each keyword and format that is unknown and resembles one that would constrain something."""
    left = MOST_LOOKED_AT
    for subschema in iter_subschemas(schema):
        for keyword, kind, name in _unknown(subschema.schema):
            left -= 1
            if left < 0:
                return
            if (meant := _meant(kind, name)) is not None:
                pointer = f"{subschema.pointer}/{escape(keyword)}"
                yield f"{pointer}: {name!r} is no {kind} of JSON Schema; did you mean {meant!r}?"


def _unknown(schema: dict[str, Any] | bool) -> Iterator[tuple[str, str, str]]:
    """The keyword, what is unknown, and its name."""
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        if keyword == "format" and isinstance(value, str) and value not in FORMATS:
            yield keyword, "format", value
        elif keyword not in KNOWN and _is_compared(keyword):
            yield keyword, "keyword", keyword


def _is_compared(keyword: str) -> bool:
    """By convention x-... is an extension, and _maxItems a keyword that was put aside."""
    return keyword[:1].isalpha() and not keyword.startswith("x-")


def _meant(kind: str, name: str) -> str | None:
    """The name that it resembles; None also where it only has a number more: uuid4 is one of Pydantic's formats."""
    meant = _like(kind, name) if len(name) <= _LONGEST else None
    return None if meant == name.rstrip("0123456789") else meant


@lru_cache(maxsize=1024)  # other schemas have the same
def _like(kind: str, name: str) -> str | None:
    return closest(name, FORMATS if kind == "format" else ASSERTIONS)
