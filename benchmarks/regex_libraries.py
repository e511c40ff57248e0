"""hf-guided by one of its backends, and llguidance, which turn a regular expression into masks.

Each is a ``SchemaLibrary`` whose schemas are patterns, so ``schema_worker`` measures both kinds by one method.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hf_guided as hg
from benchmarks.schema_libraries import HFGuided, LLGuidance, SchemaLibrary

BACKENDS = ("native", "llguidance")
LIMIT = 512  # tokens, as ``hg.generate`` has by default


class _Patterns(SchemaLibrary):
    """What is the same for all."""

    def warm_up(self, number: int) -> tuple[Any, str]:
        return rf"[a-z]{{1,{20 + number}}}( .*|\w+)?\d", "ab cd7"


class HFGuidedRegex(_Patterns, HFGuided):
    def _constraint(self, schema: Any, registry: Mapping[str, Any] | None) -> hg.Constraint:
        return hg.Regex(schema)


class LLGuidanceRegex(_Patterns, LLGuidance):
    name = "llguidance's regex"

    def _grammar(self, schema: Any) -> str:
        grammar: str = self._lib.LLMatcher.grammar_from_regex(schema)
        return grammar


def name_of(backend: str, *, limited: bool) -> str:
    """The name of hf-guided by a backend, with a limit of tokens or without."""
    return f"hf-guided {backend}{', with a limit' * limited}"


REGEX_LIBRARIES: dict[str, type[SchemaLibrary]] = {LLGuidanceRegex.name: LLGuidanceRegex}
for _backend in BACKENDS:
    for _limited in (False, True):
        _name = name_of(_backend, limited=_limited)
        _fields = {"name": _name, "backend": _backend, "limit": LIMIT if _limited else None}
        REGEX_LIBRARIES[_name] = type("HFGuidedRegex", (HFGuidedRegex,), _fields)
