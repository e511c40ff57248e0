"""Writes what hf_guided/automaton/stored_dfas.py reads: automata of the largest formats, in their canonical spelling.

python scripts/store_dfas.py
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterator
from unittest.mock import patch

from hf_guided.automaton import nfa
from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.stored_dfas import BUILT_WITHIN, FILE, LARGE, Stored, digest
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


def stored(dfa: ByteDfa, work: int) -> Stored:
    """As JSON has it."""
    data = dfa.table.astype("<u2").tobytes() + dfa.byte_class.astype("u1").tobytes() + dfa.accepting.tobytes()
    return Stored(*dfa.table.shape, dfa.start, work, b64encode(zlib.compress(data, 9)).decode())


def written() -> dict[str, Stored]:
    """All automata, by the digest of their language."""
    found = {}
    with patch.object(nfa, "stored_dfa", lambda node, limits: None):  # nothing from the file that is there
        for language in languages():
            meter = WorkMeter(BUILT_WITHIN)
            try:
                found[digest(language)] = stored(nfa.regex_dfa(language, meter), meter.work)
            except CompileLimitExceeded:
                continue  # no constraint has it
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(written(), indent=0, sort_keys=True) + "\n")
