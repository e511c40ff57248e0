"""Writes what hf_guided/automaton/stored_dfas.py reads: automata of the largest formats, in their canonical spelling.

python scripts/store_dfas.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton import nfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.stored_dfas import BUILT_WITHIN, FILE, LARGE, digest
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded
from hf_guided.regex import Node, characters, json_spelling
from hf_guided.schema.formats import FORMATS
from hf_guided.schema.normalize import Normalizer
from hf_guided.schema.scalars import language_of
from hf_guided.schema.shapes import StringClause, canonical_strings


def languages() -> Iterator[Node]:
    """Of each format the texts of its strings, with quotes, and without: a pattern beside the format meets those."""
    for name in FORMATS:
        n = Normalizer.of(JsonSchema({"type": "string", "format": name}))
        (clause,) = n.shape(n.root)["string"]
        assert isinstance(clause, StringClause)
        for language in (language_of(clause, "canonical"), json_spelling(canonical_strings(clause))):
            if language is not None and characters(language) >= LARGE:
                yield language


def written() -> dict[str, NDArray[Any]]:
    """The arrays of all automata; for their names see ``FILE``."""
    found: dict[str, NDArray[Any]] = {}
    with patch.object(nfa, "stored_dfa", lambda node, limits: None):  # nothing from the file that is there
        for language in languages():
            meter, name = WorkMeter(BUILT_WITHIN), digest(language)
            try:
                dfa = nfa.regex_dfa(language, meter)
            except CompileLimitExceeded:
                continue  # no constraint has it
            found |= {f"{name}.{part}": getattr(dfa, part) for part in ("table", "byte_class", "accepting")}
            found[f"{name}.numbers"] = np.array([dfa.start, meter.work])
    return found


if __name__ == "__main__":
    np.savez_compressed(FILE, **written())
