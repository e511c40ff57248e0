"""Regular expressions as trees of sets: read as Python or JSON Schema means them, combined, written for engines."""

from .alphabet import alphabet
from .ast import (
    ANYTHING,
    EMPTY,
    NOTHING,
    AllBut,
    Alt,
    And,
    Chars,
    Concat,
    Empty,
    Node,
    Not,
    Nothing,
    Repeat,
    all_but,
    alt,
    both,
    chars,
    complement,
    concat,
    is_plain,
    only,
    only_text,
    repeat,
    text,
)
from .caches import tree_cache
from .charset import ALL, CharSet
from .errors import UnsupportedRegex
from .json_strings import json_spelling, json_spelling_without, json_spellings
from .match import matches
from .parse import check_length, parse_fullmatch, parse_search, parse_search_either
from .write import literal, to_lark, to_pattern

__all__ = [
    "ALL",
    "ANYTHING",
    "EMPTY",
    "NOTHING",
    "AllBut",
    "Alt",
    "And",
    "CharSet",
    "Chars",
    "Concat",
    "Empty",
    "Node",
    "Not",
    "Nothing",
    "Repeat",
    "UnsupportedRegex",
    "all_but",
    "alphabet",
    "alt",
    "both",
    "chars",
    "check_length",
    "complement",
    "concat",
    "is_plain",
    "json_spelling",
    "json_spelling_without",
    "json_spellings",
    "literal",
    "matches",
    "only",
    "only_text",
    "parse_fullmatch",
    "parse_search",
    "parse_search_either",
    "repeat",
    "text",
    "to_lark",
    "to_pattern",
    "tree_cache",
]
