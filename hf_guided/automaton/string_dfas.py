"""The automata of the contents of JSON strings."""

from __future__ import annotations

from functools import lru_cache

from ..regex import ANYTHING, json_spelling, json_spellings
from .byte_dfa import ByteDfa
from .limits import WorkMeter
from .nfa import regex_dfa


@lru_cache(maxsize=1)
def string_dfas() -> tuple[ByteDfa, ...]:
    """Strings with all spellings of each character, and with the one that ``json.dumps`` writes.

    They begin where each of their characters ends.
    """
    return tuple(regex_dfa(spell(ANYTHING), WorkMeter()) for spell in (json_spellings, json_spelling))
