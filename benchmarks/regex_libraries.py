"""hf-guided by one of its backends, and llguidance, which turn a regular expression or a grammar into masks.

Each is a ``SchemaLibrary`` whose schemas are patterns, or grammars in GBNF, so ``schema_worker`` measures all kinds by
one method. (llguidance reads another grammar syntax, and is left out there.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hf_guided as hg
from benchmarks.schema_libraries import HFGuided, LLGuidance, SchemaLibrary

BACKENDS = ("native", "llguidance")
GRAMMAR_BACKENDS = ("native", "xgrammar")
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


class HFGuidedGrammar(HFGuided):
    def _constraint(self, schema: Any, registry: Mapping[str, Any] | None) -> hg.Constraint:
        return hg.Grammar(schema)

    def warm_up(self, number: int) -> tuple[Any, str]:
        return f'root ::= "(" root ")" | [a-z]{{1,{20 + number}}} "\\"" [^"]* "\\""', '(ab"c d")'


def name_of(backend: str, *, limited: bool, what: str = "") -> str:
    """The name of hf-guided by a backend, with a limit of tokens or without."""
    return f"hf-guided {backend}{what}{', with a limit' * limited}"


REGEX_LIBRARIES: dict[str, type[SchemaLibrary]] = {LLGuidanceRegex.name: LLGuidanceRegex}
for _kind, _backends, _what in ((HFGuidedRegex, BACKENDS, ""), (HFGuidedGrammar, GRAMMAR_BACKENDS, " of grammars")):
    for _backend in _backends:
        for _limited in (False, True):
            _name = name_of(_backend, limited=_limited, what=_what)
            _fields = {"name": _name, "backend": _backend, "limit": LIMIT if _limited else None}
            REGEX_LIBRARIES[_name] = type(_kind.__name__, (_kind,), _fields)
