"""Keywords that look like a typing mistake: JSON Schema allows them, but they constrain nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ..constraints.cache_keys import NormalForm
from ..constraints.json_schema_keywords import ASSERTIONS, KNOWN
from ..constraints.suggestions import closest
from .subschemas import escape, iter_subschemas

MOST_LOOKED_AT = 1000
"""Unknown keywords that are compared with the known ones: each takes a fifth of a millisecond."""

_OF_DEFINITION = re.compile(r"#/(?:definitions|\$defs)/[^/]*")
_LONGEST = 2 * max(map(len, ASSERTIONS))  # longer ones are not like any


def may_be_misspelt(form: NormalForm) -> bool:
    """Whether a schema has keywords that are like others, or a ``$ref`` to another place than a definition: few do."""
    unknown = form.keywords - KNOWN
    if len(unknown) > MOST_LOOKED_AT or not all(map(_OF_DEFINITION.fullmatch, form.refs)):
        return True
    return any([_meant(keyword) is not None for keyword in unknown if _is_compared(keyword)])


def misspelt_keywords(schema: dict[str, Any] | bool) -> Iterator[str]:
    """One sentence for each keyword that is unknown and resembles one that would constrain something."""
    left = MOST_LOOKED_AT
    for subschema in iter_subschemas(schema):
        if isinstance(subschema.schema, dict):
            for keyword in subschema.schema:
                if keyword in KNOWN or not _is_compared(keyword):
                    continue
                left -= 1
                if left < 0:
                    return
                if (meant := _meant(keyword)) is not None:
                    pointer = f"{subschema.pointer}/{escape(keyword)}"
                    yield f"{pointer}: {keyword!r} is no keyword of JSON Schema; did you mean {meant!r}?"


def _is_compared(keyword: str) -> bool:
    """By convention x-... is an extension, and _maxItems a keyword that was put aside."""
    return keyword[:1].isalpha() and not keyword.startswith("x-")


def _meant(keyword: str) -> str | None:
    return _like(keyword) if len(keyword) <= _LONGEST else None


@lru_cache(maxsize=1024)  # other schemas have the same
def _like(keyword: str) -> str | None:
    return closest(keyword, ASSERTIONS)
