"""Whether a constraint may take long to compile: a guess from its text alone.

What is costly is compiled in the worker process first, which takes a second more once and milliseconds later, and is
refused there if it takes too much. So a wrong "costly" costs little, and a wrong "ordinary" much: the bounds lie where
reading a schema takes about half a second, several times above the largest schema of JSONSchemaBench (347 objects, 45
kilobytes, 0.2 s). What takes an engine long although its text is short is the engine's to see: ``lexer_cost`` for
llguidance, ``written_out`` for xgrammar, and the native engine counts its work.

The estimate is linear in the text, and ends at the first bound. It depends on nothing else, so the same constraints are
compiled in the worker on every machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ..constraints.json_text import read_only
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Choice, Constraint, Grammar, JsonSchema, Regex, StructuralTag

MOST_TEXT = 200_000  # characters of JSON, or of all options together; a string of a megabyte takes 0.8 s
MOST_OBJECTS = 800  # objects in a schema or a tag: half a millisecond each, and more where they refer to each other
MOST_VALUES = 8_000  # values of any kind: a tenth of a millisecond each
MOST_PAIRS = 5_000  # pairs of triggers beside each other: 40 microseconds each
TOLD_APART = 20  # pairs of branches take as long as one pair of triggers: a tag distinguishes most branches
MOST_SIGNS = 4_000  # signs in a pattern: 15,000 times `a?` take 3 s, with the square of their number
MOST_PATTERN = 20_000  # characters
MOST_GRAMMAR = 20_000  # characters: 2 megabytes take xgrammar 12 gigabytes
MOST_TAGS = 8  # tags that are inside each other
MOST_WRITTEN_OUT = 3_000  # characters of a text for xgrammar, repetitions written out: it makes states of them

_SHORT = 2_000  # characters of texts that are too short for any of these bounds, but for those of branches and tags
_BRANCHES = ("allOf", "anyOf", "oneOf", "triggers")
_TEXTS = ("pattern", "grammar")
_SIGN = re.compile(r"[*+?{|(]")
_REPEATED = re.compile(r"\{(\d+)(?:,(\d*))?\}|([()])")
_COUNTED = re.compile(r'"(?:min|max)(?:Items|Length)": ?(\d+)')


def is_costly(constraint: Constraint) -> bool:
    """Whether to compile a constraint in the worker process."""
    if isinstance(constraint, JsonSchema):
        return _is_costly_json((constraint.schema_json, constraint.registry_json or ""))
    if isinstance(constraint, StructuralTag):
        return _is_costly_json((constraint.tag_json,), tags=True)
    if isinstance(constraint, ToolCalls):
        return _is_costly_json(map(json.dumps, constraint.parameters.values()))
    if isinstance(constraint, Regex):
        return len(constraint.pattern) > MOST_PATTERN or len(_SIGN.findall(constraint.pattern)) > MOST_SIGNS
    if isinstance(constraint, Choice):
        return len(constraint.options) > MOST_VALUES or sum(map(len, constraint.options)) > MOST_TEXT
    return isinstance(constraint, Grammar) and len(constraint.text) > MOST_GRAMMAR


def written_out(text: str) -> int:
    """How many characters a pattern, a grammar or xgrammar's schema has when its repetitions are written out, about."""
    size, start = [0], 0
    for found in _REPEATED.finditer(text):
        size[-1] += found.start() - start
        start = found.end()
        if found[3] == "(":
            size.append(0)
        elif found[3] == ")" and len(size) > 1:
            inner = size.pop()
            size[-1] += inner
            repeated = _REPEATED.match(text, start)
            if repeated is not None and repeated[1]:
                size[-1] += inner * (int(repeated[2] or repeated[1]) - 1)
        elif found[1] and text[found.start() - 1 : found.start()] != ")":  # one character; groups are counted above
            size[-1] += int(found[2] or found[1])
        if size[-1] > MOST_WRITTEN_OUT:
            return size[-1]
    return sum(size) + len(text) - start + sum(int(count) for count in _COUNTED.findall(text))


def _is_costly_json(texts: Iterable[str], tags: bool = False) -> bool:
    length = objects = values = pairs = signs = 0
    for text in texts:
        length += len(text)
        if length > MOST_TEXT:
            return True
        if length <= _SHORT and not tags and not any([f'"{keyword}"' in text for keyword in _BRANCHES]):
            continue
        todo: list[tuple[Any, int]] = [(read_only(text), 0)] if text else []
        while todo:
            here, depth = todo.pop()
            values += 1
            if isinstance(here, dict):
                objects += 1
                depth += tags and "tags" in here
                todo += [(value, depth) for value in here.values()]
                for keyword in _BRANCHES:
                    if isinstance(here.get(keyword), list):
                        pairs += len(here[keyword]) ** 2 // (1 if keyword == "triggers" else TOLD_APART)
                for keyword in _TEXTS:
                    if isinstance(here.get(keyword), str):
                        if len(here[keyword]) > MOST_PATTERN:
                            return True
                        signs += len(_SIGN.findall(here[keyword]))
            elif isinstance(here, list):
                todo += [(value, depth) for value in here]
            if objects > MOST_OBJECTS or values > MOST_VALUES or pairs > MOST_PAIRS or signs > MOST_SIGNS:
                return True
            if depth > MOST_TAGS:
                return True
    return False
