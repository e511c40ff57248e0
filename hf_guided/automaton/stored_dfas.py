"""Automata of formats, stored: to build the largest takes 20 ms, to load it 2 ms.

scripts/store_dfas.py writes the file. A language that is not in it is built, so a format that has been changed is
slower until the file is written again, and never wrong.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

import numpy as np

from ..options import CompileLimits
from ..regex import Node, characters
from ..regex.stored import entries
from .byte_dfa import ByteDfa

FILE = Path(__file__).with_name("stored_dfas.npz")
"""By the digest of each language the arrays of its automaton, and two numbers: its start, and its steps of work."""

LARGE, _LARGEST = 400, 100_000
"""Characters of the languages that are looked up: smaller ones are built as soon, and no format has more."""

BUILT_WITHIN = CompileLimits()
"""The limits within which those in the file were built."""


def stored_dfa(node: Node, limits: CompileLimits) -> tuple[ByteDfa, int] | None:
    """The result of ``regex_dfa`` within these limits, and the steps that it takes; None if it is not stored."""
    is_within = limits.max_states >= BUILT_WITHIN.max_states and limits.max_work >= BUILT_WITHIN.max_work
    if not is_within or not LARGE <= characters(node) <= _LARGEST:
        return None
    name = digest(node)
    with np.load(FILE) as file:
        if f"{name}.table" not in file:
            return None
        table, byte_class, accepting = (file[f"{name}.{part}"] for part in ("table", "byte_class", "accepting"))
        start, work = file[f"{name}.numbers"].tolist()
        return ByteDfa(table, byte_class, accepting, start), work


def digest(node: Node) -> str:
    """The same for equal trees, in every process."""
    return blake2b(json.dumps(entries(node)).encode(), digest_size=16).hexdigest()
