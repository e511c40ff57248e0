"""The formats that `jsonschema` checks, and IRIs.

It leaves IRIs to `rfc3987_syntax`, which compiles 38 grammars when it is imported: two seconds of CPU time in each
process. So that package is no dependency, and IRIs are checked by their pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .uri_patterns import IRI, IRI_REFERENCE


@lru_cache(maxsize=8)
def format_checker(validator: Any) -> Any:
    """The checker of formats for a validator class of `jsonschema`."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    ours = {"iri": (_matches(IRI), ()), "iri-reference": (_matches(IRI_REFERENCE), ())}
    checker.checkers = {**ours, **validator.FORMAT_CHECKER.checkers}
    return checker


def _matches(pattern: str) -> Callable[[object], bool]:
    compiled = re.compile(pattern)
    return lambda value: not isinstance(value, str) or compiled.fullmatch(value) is not None
