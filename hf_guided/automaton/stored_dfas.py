"""Automata of formats, stored: to build the largest takes 20 ms, to load it 2 ms.

scripts/store_dfas.py writes the file. A language that is not in it is built, so a format that has been changed is
slower until the file is written again, and never wrong.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..options import CompileLimits
from ..regex import Node, characters
from ..regex.stored import entries
from .byte_dfa import ByteDfa

FILE = Path(__file__).with_name("stored_dfas.json")
LARGE = 400
"""Characters of the languages that are looked up: smaller ones are built as soon."""

BUILT_WITHIN = CompileLimits()
"""The limits within which those in the file were built."""


class Stored(NamedTuple):
    """An automaton as JSON has it.

    Args:
        states, classes: of its table.
        start: its first state.
        work: steps that it took to build.
        data: in base64, compressed: the table, the class of each byte, and which states may end.
    """

    states: int
    classes: int
    start: int
    work: int
    data: str


def stored_dfa(node: Node, limits: CompileLimits) -> tuple[ByteDfa, int] | None:
    """What ``regex_dfa`` gives for a language, and the steps that it takes; None if it is not stored.

    Args:
        node: the language.
        limits: within which it would be built.
    """
    is_within = limits.max_states >= BUILT_WITHIN.max_states and limits.max_work >= BUILT_WITHIN.max_work
    if not is_within or characters(node) < LARGE:
        return None
    stored = _file().get(digest(node))
    return None if stored is None else (loaded(stored), stored.work)


def digest(node: Node) -> str:
    """The same for equal trees, in every process."""
    return blake2b(json.dumps(entries(node)).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1)
def _file() -> dict[str, Stored]:
    """What is stored, by the digest of its language."""
    return {name: Stored(*values) for name, values in json.loads(FILE.read_bytes()).items()}


def loaded(stored: Stored) -> ByteDfa:
    """The automaton."""
    data = zlib.decompress(b64decode(stored.data))
    cells = stored.states * stored.classes
    table = np.frombuffer(data, "<u2", cells).reshape(stored.states, stored.classes)
    byte_class = np.frombuffer(data, np.uint8, 256, 2 * cells)
    accepting = np.frombuffer(data, np.bool_, stored.states, 2 * cells + 256)
    return ByteDfa(table.astype(np.uint16), byte_class.copy(), accepting.copy(), stored.start)
